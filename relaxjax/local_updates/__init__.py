"""After the optimizer: workers go their own ways and meet every few steps."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_asynchronous_average": "AsynchronousAverageState asynchronous_average",
        "_asynchronous_diloco": "AsynchronousDilocoState arrival_table "
        "asynchronous_diloco",
        "_decoupled_diloco": "decoupled_diloco",
        "_decoupled_state": "DecoupledDilocoState",
        "_delayed_nesterov": "DelayedNesterovState delayed_nesterov",
        "_desynced": "AveragedState DesyncedState desynced",
        "_diloco": "diloco",
        "_eager_diloco": "EagerDilocoState eager_diloco",
        "_heloco": "HelocoState heloco",
        "_hierarchical_local_sgd": "hierarchical_local_sgd",
        "_local_sgd": "local_sgd",
        "_local_steps": "OuterState",
        "_post_local_sgd": "post_local_sgd",
        "_slow_momentum": "SlowMomentumState slow_momentum",
        "_sparta": "SpartaState sparta",
        "_sparse_loco": "sparse_loco",
        "_streaming_diloco": "StreamingDilocoState streaming_diloco",
    },
    shared={
        "_diloco": "AnchorState outer_step",
        "_fragments": "deal",
        "_local_steps": "ExchangeSpec",
        "_tokens": "weight_of",
    },
)
