"""Relaxed collectives for JAX: send less, later, to fewer peers, or in a better order.

Every relaxation is an optax-style gradient transformation over a named axis.
"""

from relaxjax._core._lazy import door

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "": "check checkpoint collectives compare compression fsdp golden hosts "
        "islands plan ps schedule tasks topology",
        "_core._axis": "to_local",
        "_core._local": "LocalState local",
        "_core._phases": "Clock advance_phases",
        "_core._tree": "Layout",
        "_core._counted_once": "counted_once",
        "_core._unreduced": "unreduced",
        "_core._weights": "worker_weight",
        "_core._worker_key": "worker_key",
        "decentralized._choco": "ChocoState",
        "decentralized._dcd_psgd": "DcdPsgdState dcd_psgd",
        "decentralized._deep_squeeze": "DeepSqueezeState deep_squeeze",
        "decentralized._exact_diffusion": "ExactDiffusionState exact_diffusion",
        "decentralized._gossip": "combine_then_adapt gossip",
        "decentralized._gradient_tracking": "GradientTrackingState gradient_tracking",
        "decentralized._lossy_push_sum": "LossyPushSumState lossy_push_sum",
        "decentralized._moniqua": "moniqua",
        "decentralized._noloco": "NoLoCoState noloco",
        "decentralized._push_sum": "PushSumState push_sum",
        "decentralized._quasi_global_momentum": "QuasiGlobalMomentumState "
        "quasi_global_momentum",
        "decentralized._relay_sum": "RelaySumState relay_sum",
        "decentralized._round": "GossipState",
        "faults._participation": "ParticipationState participation",
        "faults._replicas": "ReplicaDifference ReplicaError replica_difference "
        "require_replicas",
        "faults._skip_nonfinite": "SkipNonfiniteState skip_nonfinite",
        "gradients._accumulate": "AccumulateState accumulate",
        "gradients._acp_sgd": "AcpSGDState acp_sgd",
        "gradients._all_reduce": "AllReduceState all_reduce",
        "gradients._arc_top_k": "ArcTopKState arc_top_k",
        "gradients._bounded_staleness": "BoundedStalenessState bounded_staleness "
        "random_delays",
        "gradients._dc_asgd": "DcAsgdState dc_asgd",
        "gradients._deep_gradient_compression": "DeepGradientCompressionState "
        "deep_gradient_compression",
        "gradients._delay": "DelayState delay",
        "gradients._demo": "DemoState demo",
        "gradients._dion": "DionState dion",
        "gradients._dion2": "Dion2State dion2",
        "gradients._factored_product": "factored_product factored_product_wire_bytes",
        "gradients._one_bit_adam": "OneBitAdamState one_bit_adam",
        "gradients._one_bit_lamb": "OneBitLambState one_bit_lamb",
        "gradients._power_sgd": "PowerSGDState power_sgd",
        "gradients._warm_up": "PartOfTrainingState before_step from_step",
        "gradients._zero_one_adam": "ZeroOneAdamState zero_one_adam",
        "local_updates._asynchronous_average": "AsynchronousAverageState "
        "asynchronous_average",
        "local_updates._asynchronous_diloco": "AsynchronousDilocoState "
        "arrival_table asynchronous_diloco",
        "local_updates._decoupled_diloco": "decoupled_diloco",
        "local_updates._decoupled_state": "DecoupledDilocoState",
        "local_updates._delayed_nesterov": "DelayedNesterovState delayed_nesterov",
        "local_updates._desynced": "AveragedState DesyncedState desynced",
        "local_updates._diloco": "diloco",
        "local_updates._eager_diloco": "EagerDilocoState eager_diloco",
        "local_updates._heloco": "HelocoState heloco",
        "local_updates._hierarchical_local_sgd": "hierarchical_local_sgd",
        "local_updates._local_sgd": "local_sgd",
        "local_updates._local_steps": "OuterState",
        "local_updates._post_local_sgd": "post_local_sgd",
        "local_updates._slow_momentum": "SlowMomentumState slow_momentum",
        "local_updates._sparta": "SpartaState sparta",
        "local_updates._sparse_loco": "sparse_loco",
        "local_updates._streaming_diloco": "StreamingDilocoState streaming_diloco",
        "programs._compiled": "compiled_wire_bytes",
        "programs._explain": "Explanation explain",
        "programs._wire_bytes": "wire_bytes",
        "ps._parameter_server": "ParameterServerState parameter_server",
        "workers._consensus": "consensus consensus_distance spread",
        "workers._data_parallel": "DataParallelStep data_parallel",
        "workers._in_backward": "reduce_in_backward",
        "workers._init": "init state_specs",
        "workers._mesh": "Emulation emulate",
        "workers._scan_layers": "scan_layers",
        "workers._to_workers": "to_workers",
    },
)
