"""Relaxed collectives for JAX: send less, later, to fewer peers, or in a better order.

Every relaxation is an optax-style gradient transformation over a named axis.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxjax import (
        check,
        checkpoint,
        collectives,
        compression,
        golden,
        hosts,
        plan,
        ps,
        schedule,
        tasks,
        topology,
    )
    from relaxjax._core._axis import to_local
    from relaxjax._core._local import LocalState, local
    from relaxjax._core._phases import Clock, advance_phases
    from relaxjax._core._tree import Layout
    from relaxjax._core._weights import worker_weight
    from relaxjax.decentralized._choco import ChocoState
    from relaxjax.decentralized._dcd_psgd import DcdPsgdState, dcd_psgd
    from relaxjax.decentralized._deep_squeeze import DeepSqueezeState, deep_squeeze
    from relaxjax.decentralized._exact_diffusion import (
        ExactDiffusionState,
        exact_diffusion,
    )
    from relaxjax.decentralized._gossip import combine_then_adapt, gossip
    from relaxjax.decentralized._gradient_tracking import (
        GradientTrackingState,
        gradient_tracking,
    )
    from relaxjax.decentralized._lossy_push_sum import LossyPushSumState, lossy_push_sum
    from relaxjax.decentralized._moniqua import moniqua
    from relaxjax.decentralized._noloco import NoLoCoState, noloco
    from relaxjax.decentralized._push_sum import PushSumState, push_sum
    from relaxjax.decentralized._quasi_global_momentum import (
        QuasiGlobalMomentumState,
        quasi_global_momentum,
    )
    from relaxjax.decentralized._relay_sum import RelaySumState, relay_sum
    from relaxjax.decentralized._round import GossipState
    from relaxjax.faults._participation import ParticipationState, participation
    from relaxjax.faults._replicas import (
        ReplicaDifference,
        ReplicaError,
        replica_difference,
        require_replicas,
    )
    from relaxjax.faults._skip_nonfinite import SkipNonfiniteState, skip_nonfinite
    from relaxjax.gradients._accumulate import AccumulateState, accumulate
    from relaxjax.gradients._all_reduce import AllReduceState, all_reduce
    from relaxjax.gradients._bounded_staleness import (
        BoundedStalenessState,
        bounded_staleness,
        random_delays,
    )
    from relaxjax.gradients._dc_asgd import DcAsgdState, dc_asgd
    from relaxjax.gradients._deep_gradient_compression import (
        DeepGradientCompressionState,
        deep_gradient_compression,
    )
    from relaxjax.gradients._delay import DelayState, delay
    from relaxjax.gradients._one_bit_adam import OneBitAdamState, one_bit_adam
    from relaxjax.gradients._one_bit_lamb import OneBitLambState, one_bit_lamb
    from relaxjax.gradients._power_sgd import PowerSGDState, power_sgd
    from relaxjax.gradients._warm_up import PartOfTrainingState, before_step, from_step
    from relaxjax.gradients._zero_one_adam import ZeroOneAdamState, zero_one_adam
    from relaxjax.local_updates._asynchronous_average import (
        AsynchronousAverageState,
        asynchronous_average,
    )
    from relaxjax.local_updates._diloco import diloco
    from relaxjax.local_updates._eager_diloco import EagerDilocoState, eager_diloco
    from relaxjax.local_updates._hierarchical_local_sgd import hierarchical_local_sgd
    from relaxjax.local_updates._local_sgd import local_sgd
    from relaxjax.local_updates._local_steps import OuterState
    from relaxjax.local_updates._post_local_sgd import post_local_sgd
    from relaxjax.local_updates._slow_momentum import SlowMomentumState, slow_momentum
    from relaxjax.local_updates._sparse_loco import sparse_loco
    from relaxjax.local_updates._streaming_diloco import (
        StreamingDilocoState,
        streaming_diloco,
    )
    from relaxjax.programs._compiled import compiled_wire_bytes
    from relaxjax.programs._wire_bytes import wire_bytes
    from relaxjax.ps._parameter_server import ParameterServerState, parameter_server
    from relaxjax.workers._consensus import consensus, consensus_distance, spread
    from relaxjax.workers._data_parallel import DataParallelStep, data_parallel
    from relaxjax.workers._in_backward import reduce_in_backward
    from relaxjax.workers._init import init, state_specs
    from relaxjax.workers._mesh import Emulation, emulate
    from relaxjax.workers._scan_layers import scan_layers
    from relaxjax.workers._worker_axis import to_workers

__version__ = "0.1.0"

# What is here is imported when it is first asked for; the module of each name.
_HOMES = {
    "AccumulateState": "relaxjax.gradients._accumulate",
    "AllReduceState": "relaxjax.gradients._all_reduce",
    "AsynchronousAverageState": "relaxjax.local_updates._asynchronous_average",
    "BoundedStalenessState": "relaxjax.gradients._bounded_staleness",
    "ChocoState": "relaxjax.decentralized._choco",
    "Clock": "relaxjax._core._phases",
    "DataParallelStep": "relaxjax.workers._data_parallel",
    "DcAsgdState": "relaxjax.gradients._dc_asgd",
    "DcdPsgdState": "relaxjax.decentralized._dcd_psgd",
    "DeepGradientCompressionState": "relaxjax.gradients._deep_gradient_compression",
    "DeepSqueezeState": "relaxjax.decentralized._deep_squeeze",
    "DelayState": "relaxjax.gradients._delay",
    "EagerDilocoState": "relaxjax.local_updates._eager_diloco",
    "Emulation": "relaxjax.workers._mesh",
    "ExactDiffusionState": "relaxjax.decentralized._exact_diffusion",
    "GossipState": "relaxjax.decentralized._round",
    "GradientTrackingState": "relaxjax.decentralized._gradient_tracking",
    "Layout": "relaxjax._core._tree",
    "LocalState": "relaxjax._core._local",
    "LossyPushSumState": "relaxjax.decentralized._lossy_push_sum",
    "NoLoCoState": "relaxjax.decentralized._noloco",
    "OneBitAdamState": "relaxjax.gradients._one_bit_adam",
    "OneBitLambState": "relaxjax.gradients._one_bit_lamb",
    "OuterState": "relaxjax.local_updates._local_steps",
    "ParameterServerState": "relaxjax.ps._parameter_server",
    "PartOfTrainingState": "relaxjax.gradients._warm_up",
    "ParticipationState": "relaxjax.faults._participation",
    "PowerSGDState": "relaxjax.gradients._power_sgd",
    "PushSumState": "relaxjax.decentralized._push_sum",
    "QuasiGlobalMomentumState": "relaxjax.decentralized._quasi_global_momentum",
    "RelaySumState": "relaxjax.decentralized._relay_sum",
    "ReplicaDifference": "relaxjax.faults._replicas",
    "ReplicaError": "relaxjax.faults._replicas",
    "SkipNonfiniteState": "relaxjax.faults._skip_nonfinite",
    "SlowMomentumState": "relaxjax.local_updates._slow_momentum",
    "StreamingDilocoState": "relaxjax.local_updates._streaming_diloco",
    "ZeroOneAdamState": "relaxjax.gradients._zero_one_adam",
    "accumulate": "relaxjax.gradients._accumulate",
    "advance_phases": "relaxjax._core._phases",
    "all_reduce": "relaxjax.gradients._all_reduce",
    "asynchronous_average": "relaxjax.local_updates._asynchronous_average",
    "before_step": "relaxjax.gradients._warm_up",
    "bounded_staleness": "relaxjax.gradients._bounded_staleness",
    "check": "relaxjax.check",
    "checkpoint": "relaxjax.checkpoint",
    "collectives": "relaxjax.collectives",
    "combine_then_adapt": "relaxjax.decentralized._gossip",
    "compiled_wire_bytes": "relaxjax.programs._compiled",
    "compression": "relaxjax.compression",
    "consensus": "relaxjax.workers._consensus",
    "consensus_distance": "relaxjax.workers._consensus",
    "data_parallel": "relaxjax.workers._data_parallel",
    "dc_asgd": "relaxjax.gradients._dc_asgd",
    "dcd_psgd": "relaxjax.decentralized._dcd_psgd",
    "deep_gradient_compression": "relaxjax.gradients._deep_gradient_compression",
    "deep_squeeze": "relaxjax.decentralized._deep_squeeze",
    "delay": "relaxjax.gradients._delay",
    "diloco": "relaxjax.local_updates._diloco",
    "eager_diloco": "relaxjax.local_updates._eager_diloco",
    "emulate": "relaxjax.workers._mesh",
    "exact_diffusion": "relaxjax.decentralized._exact_diffusion",
    "from_step": "relaxjax.gradients._warm_up",
    "golden": "relaxjax.golden",
    "gossip": "relaxjax.decentralized._gossip",
    "gradient_tracking": "relaxjax.decentralized._gradient_tracking",
    "hierarchical_local_sgd": "relaxjax.local_updates._hierarchical_local_sgd",
    "hosts": "relaxjax.hosts",
    "init": "relaxjax.workers._init",
    "local": "relaxjax._core._local",
    "local_sgd": "relaxjax.local_updates._local_sgd",
    "lossy_push_sum": "relaxjax.decentralized._lossy_push_sum",
    "moniqua": "relaxjax.decentralized._moniqua",
    "noloco": "relaxjax.decentralized._noloco",
    "one_bit_adam": "relaxjax.gradients._one_bit_adam",
    "one_bit_lamb": "relaxjax.gradients._one_bit_lamb",
    "parameter_server": "relaxjax.ps._parameter_server",
    "participation": "relaxjax.faults._participation",
    "plan": "relaxjax.plan",
    "post_local_sgd": "relaxjax.local_updates._post_local_sgd",
    "power_sgd": "relaxjax.gradients._power_sgd",
    "ps": "relaxjax.ps",
    "push_sum": "relaxjax.decentralized._push_sum",
    "quasi_global_momentum": "relaxjax.decentralized._quasi_global_momentum",
    "random_delays": "relaxjax.gradients._bounded_staleness",
    "reduce_in_backward": "relaxjax.workers._in_backward",
    "relay_sum": "relaxjax.decentralized._relay_sum",
    "replica_difference": "relaxjax.faults._replicas",
    "require_replicas": "relaxjax.faults._replicas",
    "scan_layers": "relaxjax.workers._scan_layers",
    "schedule": "relaxjax.schedule",
    "skip_nonfinite": "relaxjax.faults._skip_nonfinite",
    "slow_momentum": "relaxjax.local_updates._slow_momentum",
    "sparse_loco": "relaxjax.local_updates._sparse_loco",
    "spread": "relaxjax.workers._consensus",
    "state_specs": "relaxjax.workers._init",
    "streaming_diloco": "relaxjax.local_updates._streaming_diloco",
    "tasks": "relaxjax.tasks",
    "to_local": "relaxjax._core._axis",
    "to_workers": "relaxjax.workers._worker_axis",
    "topology": "relaxjax.topology",
    "wire_bytes": "relaxjax.programs._wire_bytes",
    "worker_weight": "relaxjax._core._weights",
    "zero_one_adam": "relaxjax.gradients._zero_one_adam",
}

__all__ = [
    "AccumulateState",
    "AllReduceState",
    "AsynchronousAverageState",
    "BoundedStalenessState",
    "ChocoState",
    "Clock",
    "DataParallelStep",
    "DcAsgdState",
    "DcdPsgdState",
    "DeepGradientCompressionState",
    "DeepSqueezeState",
    "DelayState",
    "EagerDilocoState",
    "Emulation",
    "ExactDiffusionState",
    "GossipState",
    "GradientTrackingState",
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
    "StreamingDilocoState",
    "ZeroOneAdamState",
    "accumulate",
    "advance_phases",
    "all_reduce",
    "asynchronous_average",
    "before_step",
    "bounded_staleness",
    "check",
    "checkpoint",
    "collectives",
    "combine_then_adapt",
    "compiled_wire_bytes",
    "compression",
    "consensus",
    "consensus_distance",
    "data_parallel",
    "dc_asgd",
    "dcd_psgd",
    "deep_gradient_compression",
    "deep_squeeze",
    "delay",
    "diloco",
    "eager_diloco",
    "emulate",
    "exact_diffusion",
    "from_step",
    "golden",
    "gossip",
    "gradient_tracking",
    "hierarchical_local_sgd",
    "hosts",
    "init",
    "local",
    "local_sgd",
    "lossy_push_sum",
    "moniqua",
    "noloco",
    "one_bit_adam",
    "one_bit_lamb",
    "parameter_server",
    "participation",
    "plan",
    "post_local_sgd",
    "power_sgd",
    "ps",
    "push_sum",
    "quasi_global_momentum",
    "random_delays",
    "reduce_in_backward",
    "relay_sum",
    "replica_difference",
    "require_replicas",
    "scan_layers",
    "schedule",
    "skip_nonfinite",
    "slow_momentum",
    "sparse_loco",
    "spread",
    "state_specs",
    "streaming_diloco",
    "tasks",
    "to_local",
    "to_workers",
    "topology",
    "wire_bytes",
    "worker_weight",
    "zero_one_adam",
]


def __getattr__(name: str) -> Any:
    """The module or what is in it, by a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    found = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
