# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax import activations as activations
from relaxjax import check as check
from relaxjax import checkpoint as checkpoint
from relaxjax import collectives as collectives
from relaxjax import compare as compare
from relaxjax import compression as compression
from relaxjax import controllers as controllers
from relaxjax import fsdp as fsdp
from relaxjax import golden as golden
from relaxjax import hosts as hosts
from relaxjax import islands as islands
from relaxjax import merges as merges
from relaxjax import periods as periods
from relaxjax import plan as plan
from relaxjax import ps as ps
from relaxjax import schedule as schedule
from relaxjax import tasks as tasks
from relaxjax import topology as topology
from relaxjax._core._axis import to_local as to_local
from relaxjax._core._local import LocalState as LocalState
from relaxjax._core._local import local as local
from relaxjax._core._phases import Clock as Clock
from relaxjax._core._phases import advance_phases as advance_phases
from relaxjax._core._tree import Layout as Layout
from relaxjax._core._weights import worker_weight as worker_weight
from relaxjax._core._worker_key import worker_key as worker_key
from relaxjax._core.layouts._counted_once import counted_once as counted_once
from relaxjax._core.layouts._unreduced import unreduced as unreduced
from relaxjax.decentralized._atc_tracking import atc_tracking as atc_tracking
from relaxjax.decentralized._choco import ChocoState as ChocoState
from relaxjax.decentralized._dcd_psgd import DcdPsgdState as DcdPsgdState
from relaxjax.decentralized._dcd_psgd import dcd_psgd as dcd_psgd
from relaxjax.decentralized._deep_squeeze import DeepSqueezeState as DeepSqueezeState
from relaxjax.decentralized._deep_squeeze import deep_squeeze as deep_squeeze
from relaxjax.decentralized._exact_diffusion import (
    ExactDiffusionState as ExactDiffusionState,
)
from relaxjax.decentralized._exact_diffusion import exact_diffusion as exact_diffusion
from relaxjax.decentralized._gossip import combine_then_adapt as combine_then_adapt
from relaxjax.decentralized._gossip import gossip as gossip
from relaxjax.decentralized._gradient_tracking import (
    GradientTrackingState as GradientTrackingState,
)
from relaxjax.decentralized._gradient_tracking import (
    gradient_tracking as gradient_tracking,
)
from relaxjax.decentralized._lossy_push_sum import (
    LossyPushSumState as LossyPushSumState,
)
from relaxjax.decentralized._lossy_push_sum import lossy_push_sum as lossy_push_sum
from relaxjax.decentralized._moniqua import moniqua as moniqua
from relaxjax.decentralized._noloco import NoLoCoState as NoLoCoState
from relaxjax.decentralized._noloco import noloco as noloco
from relaxjax.decentralized._push_sum import PushSumState as PushSumState
from relaxjax.decentralized._push_sum import push_sum as push_sum
from relaxjax.decentralized._quasi_global_momentum import (
    QuasiGlobalMomentumState as QuasiGlobalMomentumState,
)
from relaxjax.decentralized._quasi_global_momentum import (
    quasi_global_momentum as quasi_global_momentum,
)
from relaxjax.decentralized._relay_sum import RelaySumState as RelaySumState
from relaxjax.decentralized._relay_sum import relay_sum as relay_sum
from relaxjax.decentralized._round import GossipState as GossipState
from relaxjax.faults._participation import ParticipationState as ParticipationState
from relaxjax.faults._participation import participation as participation
from relaxjax.faults._replicas import ReplicaDifference as ReplicaDifference
from relaxjax.faults._replicas import ReplicaError as ReplicaError
from relaxjax.faults._replicas import replica_difference as replica_difference
from relaxjax.faults._replicas import require_replicas as require_replicas
from relaxjax.faults._skip_nonfinite import SkipNonfiniteState as SkipNonfiniteState
from relaxjax.faults._skip_nonfinite import skip_nonfinite as skip_nonfinite
from relaxjax.gradients.adaptive._one_bit_adam import OneBitAdamState as OneBitAdamState
from relaxjax.gradients.adaptive._one_bit_adam import one_bit_adam as one_bit_adam
from relaxjax.gradients.adaptive._one_bit_lamb import OneBitLambState as OneBitLambState
from relaxjax.gradients.adaptive._one_bit_lamb import one_bit_lamb as one_bit_lamb
from relaxjax.gradients.adaptive._zero_one_adam import (
    ZeroOneAdamState as ZeroOneAdamState,
)
from relaxjax.gradients.adaptive._zero_one_adam import zero_one_adam as zero_one_adam
from relaxjax.gradients.late._accumulate import AccumulateState as AccumulateState
from relaxjax.gradients.late._accumulate import accumulate as accumulate
from relaxjax.gradients.late._bounded_staleness import (
    BoundedStalenessState as BoundedStalenessState,
)
from relaxjax.gradients.late._bounded_staleness import (
    bounded_staleness as bounded_staleness,
)
from relaxjax.gradients.late._bounded_staleness import random_delays as random_delays
from relaxjax.gradients.late._by_step import ByStepState as ByStepState
from relaxjax.gradients.late._by_step import by_step as by_step
from relaxjax.gradients.late._dc_asgd import DcAsgdState as DcAsgdState
from relaxjax.gradients.late._dc_asgd import dc_asgd as dc_asgd
from relaxjax.gradients.late._delay import DelayState as DelayState
from relaxjax.gradients.late._delay import delay as delay
from relaxjax.gradients.late._warm_up import PartOfTrainingState as PartOfTrainingState
from relaxjax.gradients.late._warm_up import before_step as before_step
from relaxjax.gradients.late._warm_up import from_step as from_step
from relaxjax.gradients.low_rank._acp_sgd import AcpSGDState as AcpSGDState
from relaxjax.gradients.low_rank._acp_sgd import acp_sgd as acp_sgd
from relaxjax.gradients.low_rank._power_sgd import PowerSGDState as PowerSGDState
from relaxjax.gradients.low_rank._power_sgd import power_sgd as power_sgd
from relaxjax.gradients.mean._all_reduce import AllReduceState as AllReduceState
from relaxjax.gradients.mean._all_reduce import all_reduce as all_reduce
from relaxjax.gradients.mean._factored_product import (
    factored_product as factored_product,
)
from relaxjax.gradients.mean._factored_product import (
    factored_product_wire_bytes as factored_product_wire_bytes,
)
from relaxjax.gradients.mean._matrices_only import (
    compress_matrices as compress_matrices,
)
from relaxjax.gradients.momenta._arc_top_k import ArcTopKState as ArcTopKState
from relaxjax.gradients.momenta._arc_top_k import arc_top_k as arc_top_k
from relaxjax.gradients.momenta._deep_gradient_compression import (
    DeepGradientCompressionState as DeepGradientCompressionState,
)
from relaxjax.gradients.momenta._deep_gradient_compression import (
    deep_gradient_compression as deep_gradient_compression,
)
from relaxjax.gradients.momenta._demo import DemoState as DemoState
from relaxjax.gradients.momenta._demo import demo as demo
from relaxjax.gradients.momenta._dion import DionState as DionState
from relaxjax.gradients.momenta._dion import dion as dion
from relaxjax.gradients.momenta._dion2 import Dion2State as Dion2State
from relaxjax.gradients.momenta._dion2 import dion2 as dion2
from relaxjax.local_updates.common._local_steps import OuterState as OuterState
from relaxjax.local_updates.late._asynchronous_average import (
    AsynchronousAverageState as AsynchronousAverageState,
)
from relaxjax.local_updates.late._asynchronous_average import (
    asynchronous_average as asynchronous_average,
)
from relaxjax.local_updates.late._asynchronous_diloco import (
    AsynchronousDilocoState as AsynchronousDilocoState,
)
from relaxjax.local_updates.late._asynchronous_diloco import (
    arrival_table as arrival_table,
)
from relaxjax.local_updates.late._asynchronous_diloco import (
    asynchronous_diloco as asynchronous_diloco,
)
from relaxjax.local_updates.late._decoupled_diloco import (
    decoupled_diloco as decoupled_diloco,
)
from relaxjax.local_updates.late._decoupled_state import (
    DecoupledDilocoState as DecoupledDilocoState,
)
from relaxjax.local_updates.late._delayed_nesterov import (
    DelayedNesterovState as DelayedNesterovState,
)
from relaxjax.local_updates.late._delayed_nesterov import (
    delayed_nesterov as delayed_nesterov,
)
from relaxjax.local_updates.late._eager_diloco import (
    EagerDilocoState as EagerDilocoState,
)
from relaxjax.local_updates.late._eager_diloco import eager_diloco as eager_diloco
from relaxjax.local_updates.late._heloco import HelocoState as HelocoState
from relaxjax.local_updates.late._heloco import heloco as heloco
from relaxjax.local_updates.late._streaming_diloco import (
    StreamingDilocoState as StreamingDilocoState,
)
from relaxjax.local_updates.late._streaming_diloco import (
    streaming_diloco as streaming_diloco,
)
from relaxjax.local_updates.parts._desynced import AveragedState as AveragedState
from relaxjax.local_updates.parts._desynced import DesyncedState as DesyncedState
from relaxjax.local_updates.parts._desynced import desynced as desynced
from relaxjax.local_updates.parts._sparta import SpartaState as SpartaState
from relaxjax.local_updates.parts._sparta import sparta as sparta
from relaxjax.local_updates.periodic._diloco import diloco as diloco
from relaxjax.local_updates.periodic._hierarchical_local_sgd import (
    hierarchical_local_sgd as hierarchical_local_sgd,
)
from relaxjax.local_updates.periodic._local_sgd import local_sgd as local_sgd
from relaxjax.local_updates.periodic._post_local_sgd import (
    post_local_sgd as post_local_sgd,
)
from relaxjax.local_updates.periodic._slow_momentum import (
    SlowMomentumState as SlowMomentumState,
)
from relaxjax.local_updates.periodic._slow_momentum import (
    slow_momentum as slow_momentum,
)
from relaxjax.local_updates.periodic._sparse_loco import sparse_loco as sparse_loco
from relaxjax.programs._compiled import compiled_wire_bytes as compiled_wire_bytes
from relaxjax.programs._explain import Explanation as Explanation
from relaxjax.programs._explain import explain as explain
from relaxjax.programs._export import register_for_export as register_for_export
from relaxjax.programs._wire_bytes import wire_bytes as wire_bytes
from relaxjax.ps._parameter_server import ParameterServerState as ParameterServerState
from relaxjax.ps._parameter_server import parameter_server as parameter_server
from relaxjax.workers._consensus import consensus as consensus
from relaxjax.workers._consensus import consensus_distance as consensus_distance
from relaxjax.workers._consensus import spread as spread
from relaxjax.workers._data_parallel import DataParallelStep as DataParallelStep
from relaxjax.workers._data_parallel import data_parallel as data_parallel
from relaxjax.workers._in_backward import reduce_in_backward as reduce_in_backward
from relaxjax.workers._init import init as init
from relaxjax.workers._init import state_specs as state_specs
from relaxjax.workers._mesh import Emulation as Emulation
from relaxjax.workers._mesh import emulate as emulate
from relaxjax.workers._scan_layers import scan_layers as scan_layers
from relaxjax.workers._to_workers import to_workers as to_workers

__version__: str

__all__ = [
    "AccumulateState",
    "AcpSGDState",
    "AllReduceState",
    "ArcTopKState",
    "AsynchronousAverageState",
    "AsynchronousDilocoState",
    "AveragedState",
    "BoundedStalenessState",
    "ByStepState",
    "ChocoState",
    "Clock",
    "DataParallelStep",
    "DcAsgdState",
    "DcdPsgdState",
    "DecoupledDilocoState",
    "DeepGradientCompressionState",
    "DeepSqueezeState",
    "DelayState",
    "DelayedNesterovState",
    "DemoState",
    "DesyncedState",
    "Dion2State",
    "DionState",
    "EagerDilocoState",
    "Emulation",
    "ExactDiffusionState",
    "Explanation",
    "GossipState",
    "GradientTrackingState",
    "HelocoState",
    "Layout",
    "LocalState",
    "LossyPushSumState",
    "NoLoCoState",
    "OneBitAdamState",
    "OneBitLambState",
    "OuterState",
    "ParameterServerState",
    "PartOfTrainingState",
    "ParticipationState",
    "PowerSGDState",
    "PushSumState",
    "QuasiGlobalMomentumState",
    "RelaySumState",
    "ReplicaDifference",
    "ReplicaError",
    "SkipNonfiniteState",
    "SlowMomentumState",
    "SpartaState",
    "StreamingDilocoState",
    "ZeroOneAdamState",
    "accumulate",
    "acp_sgd",
    "activations",
    "advance_phases",
    "all_reduce",
    "arc_top_k",
    "arrival_table",
    "asynchronous_average",
    "asynchronous_diloco",
    "atc_tracking",
    "before_step",
    "bounded_staleness",
    "by_step",
    "check",
    "checkpoint",
    "collectives",
    "combine_then_adapt",
    "compare",
    "compiled_wire_bytes",
    "compress_matrices",
    "compression",
    "consensus",
    "consensus_distance",
    "controllers",
    "counted_once",
    "data_parallel",
    "dc_asgd",
    "dcd_psgd",
    "decoupled_diloco",
    "deep_gradient_compression",
    "deep_squeeze",
    "delay",
    "delayed_nesterov",
    "demo",
    "desynced",
    "diloco",
    "dion",
    "dion2",
    "eager_diloco",
    "emulate",
    "exact_diffusion",
    "explain",
    "factored_product",
    "factored_product_wire_bytes",
    "from_step",
    "fsdp",
    "golden",
    "gossip",
    "gradient_tracking",
    "heloco",
    "hierarchical_local_sgd",
    "hosts",
    "init",
    "islands",
    "local",
    "local_sgd",
    "lossy_push_sum",
    "merges",
    "moniqua",
    "noloco",
    "one_bit_adam",
    "one_bit_lamb",
    "parameter_server",
    "participation",
    "periods",
    "plan",
    "post_local_sgd",
    "power_sgd",
    "ps",
    "push_sum",
    "quasi_global_momentum",
    "random_delays",
    "reduce_in_backward",
    "register_for_export",
    "relay_sum",
    "replica_difference",
    "require_replicas",
    "scan_layers",
    "schedule",
    "skip_nonfinite",
    "slow_momentum",
    "sparse_loco",
    "sparta",
    "spread",
    "state_specs",
    "streaming_diloco",
    "tasks",
    "to_local",
    "to_workers",
    "topology",
    "unreduced",
    "wire_bytes",
    "worker_key",
    "worker_weight",
    "zero_one_adam",
]
