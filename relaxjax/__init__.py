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
    from relaxjax._accumulate import AccumulateState, accumulate
    from relaxjax._all_reduce import AllReduceState, all_reduce
    from relaxjax._asynchronous_average import (
        AsynchronousAverageState,
        asynchronous_average,
    )
    from relaxjax._axis import to_local
    from relaxjax._bounded_staleness import BoundedStalenessState, bounded_staleness
    from relaxjax._choco import ChocoState
    from relaxjax._clock import Clock, advance_phases
    from relaxjax._compiled_wire import compiled_wire_bytes
    from relaxjax._consensus import consensus, consensus_distance, spread
    from relaxjax._data_parallel import DataParallelStep, data_parallel
    from relaxjax._dc_asgd import DcAsgdState, dc_asgd
    from relaxjax._dcd_psgd import DcdPsgdState, dcd_psgd
    from relaxjax._deep_gradient_compression import (
        DeepGradientCompressionState,
        deep_gradient_compression,
    )
    from relaxjax._deep_squeeze import DeepSqueezeState, deep_squeeze
    from relaxjax._delay import DelayState, delay
    from relaxjax._delays import random_delays
    from relaxjax._diloco import diloco
    from relaxjax._eager_diloco import EagerDilocoState, eager_diloco
    from relaxjax._exact_diffusion import ExactDiffusionState, exact_diffusion
    from relaxjax._from_step import PartOfTrainingState, before_step, from_step
    from relaxjax._gossip import combine_then_adapt, gossip
    from relaxjax._gossiping import GossipState
    from relaxjax._gradient_tracking import GradientTrackingState, gradient_tracking
    from relaxjax._hierarchical_local_sgd import hierarchical_local_sgd
    from relaxjax._in_backward import reduce_in_backward
    from relaxjax._init import init, state_specs
    from relaxjax._layout import Layout
    from relaxjax._local import LocalState, local
    from relaxjax._local_sgd import local_sgd
    from relaxjax._local_steps import OuterState
    from relaxjax._lossy_push_sum import LossyPushSumState, lossy_push_sum
    from relaxjax._mesh import Emulation, emulate
    from relaxjax._moniqua import moniqua
    from relaxjax._noloco import NoLoCoState, noloco
    from relaxjax._one_bit_adam import OneBitAdamState, one_bit_adam
    from relaxjax._one_bit_lamb import OneBitLambState, one_bit_lamb
    from relaxjax._participation import ParticipationState, participation
    from relaxjax._post_local_sgd import post_local_sgd
    from relaxjax._power_sgd import PowerSGDState, power_sgd
    from relaxjax._push_sum import PushSumState, push_sum
    from relaxjax._quasi_global_momentum import (
        QuasiGlobalMomentumState,
        quasi_global_momentum,
    )
    from relaxjax._relay_sum import RelaySumState, relay_sum
    from relaxjax._replicas import (
        ReplicaDifference,
        ReplicaError,
        replica_difference,
        require_replicas,
    )
    from relaxjax._scan_layers import scan_layers
    from relaxjax._skip_nonfinite import SkipNonfiniteState, skip_nonfinite
    from relaxjax._slow_momentum import SlowMomentumState, slow_momentum
    from relaxjax._sparse_loco import sparse_loco
    from relaxjax._stacked import to_workers
    from relaxjax._streaming_diloco import StreamingDilocoState, streaming_diloco
    from relaxjax._weights import worker_weight
    from relaxjax._wire import wire_bytes
    from relaxjax._zero_one_adam import ZeroOneAdamState, zero_one_adam
    from relaxjax.ps._parameter_server import ParameterServerState, parameter_server

__version__ = "0.1.0"

# What is here is imported when it is first asked for; the module of each name.
_HOMES = {
    "AccumulateState": "_accumulate",
    "AllReduceState": "_all_reduce",
    "AsynchronousAverageState": "_asynchronous_average",
    "BoundedStalenessState": "_bounded_staleness",
    "ChocoState": "_choco",
    "Clock": "_clock",
    "DataParallelStep": "_data_parallel",
    "DcAsgdState": "_dc_asgd",
    "DcdPsgdState": "_dcd_psgd",
    "DeepGradientCompressionState": "_deep_gradient_compression",
    "DeepSqueezeState": "_deep_squeeze",
    "DelayState": "_delay",
    "EagerDilocoState": "_eager_diloco",
    "Emulation": "_mesh",
    "ExactDiffusionState": "_exact_diffusion",
    "GossipState": "_gossiping",
    "GradientTrackingState": "_gradient_tracking",
    "Layout": "_layout",
    "LocalState": "_local",
    "LossyPushSumState": "_lossy_push_sum",
    "NoLoCoState": "_noloco",
    "OneBitAdamState": "_one_bit_adam",
    "OneBitLambState": "_one_bit_lamb",
    "OuterState": "_local_steps",
    "ParameterServerState": "ps._parameter_server",
    "PartOfTrainingState": "_from_step",
    "ParticipationState": "_participation",
    "PowerSGDState": "_power_sgd",
    "PushSumState": "_push_sum",
    "QuasiGlobalMomentumState": "_quasi_global_momentum",
    "RelaySumState": "_relay_sum",
    "ReplicaDifference": "_replicas",
    "ReplicaError": "_replicas",
    "SkipNonfiniteState": "_skip_nonfinite",
    "SlowMomentumState": "_slow_momentum",
    "StreamingDilocoState": "_streaming_diloco",
    "ZeroOneAdamState": "_zero_one_adam",
    "accumulate": "_accumulate",
    "advance_phases": "_clock",
    "all_reduce": "_all_reduce",
    "asynchronous_average": "_asynchronous_average",
    "before_step": "_from_step",
    "bounded_staleness": "_bounded_staleness",
    "check": "check",
    "checkpoint": "checkpoint",
    "collectives": "collectives",
    "combine_then_adapt": "_gossip",
    "compiled_wire_bytes": "_compiled_wire",
    "compression": "compression",
    "consensus": "_consensus",
    "consensus_distance": "_consensus",
    "data_parallel": "_data_parallel",
    "dc_asgd": "_dc_asgd",
    "dcd_psgd": "_dcd_psgd",
    "deep_gradient_compression": "_deep_gradient_compression",
    "deep_squeeze": "_deep_squeeze",
    "delay": "_delay",
    "diloco": "_diloco",
    "eager_diloco": "_eager_diloco",
    "emulate": "_mesh",
    "exact_diffusion": "_exact_diffusion",
    "from_step": "_from_step",
    "golden": "golden",
    "gossip": "_gossip",
    "gradient_tracking": "_gradient_tracking",
    "hierarchical_local_sgd": "_hierarchical_local_sgd",
    "hosts": "hosts",
    "init": "_init",
    "local": "_local",
    "local_sgd": "_local_sgd",
    "lossy_push_sum": "_lossy_push_sum",
    "moniqua": "_moniqua",
    "noloco": "_noloco",
    "one_bit_adam": "_one_bit_adam",
    "one_bit_lamb": "_one_bit_lamb",
    "parameter_server": "ps._parameter_server",
    "participation": "_participation",
    "plan": "plan",
    "post_local_sgd": "_post_local_sgd",
    "power_sgd": "_power_sgd",
    "ps": "ps",
    "push_sum": "_push_sum",
    "quasi_global_momentum": "_quasi_global_momentum",
    "random_delays": "_delays",
    "reduce_in_backward": "_in_backward",
    "relay_sum": "_relay_sum",
    "replica_difference": "_replicas",
    "require_replicas": "_replicas",
    "scan_layers": "_scan_layers",
    "schedule": "schedule",
    "skip_nonfinite": "_skip_nonfinite",
    "slow_momentum": "_slow_momentum",
    "sparse_loco": "_sparse_loco",
    "spread": "_consensus",
    "state_specs": "_init",
    "streaming_diloco": "_streaming_diloco",
    "tasks": "tasks",
    "to_local": "_axis",
    "to_workers": "_stacked",
    "topology": "topology",
    "wire_bytes": "_wire",
    "worker_weight": "_weights",
    "zero_one_adam": "_zero_one_adam",
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
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    found = module if name == _HOMES[name] else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
