"""After the optimizer: workers go their own ways and meet every few steps."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "common._local_steps": "OuterState",
        "late._asynchronous_average": "AsynchronousAverageState asynchronous_average",
        "late._asynchronous_diloco": "AsynchronousDilocoState arrival_table "
        "asynchronous_diloco",
        "late._decoupled_diloco": "decoupled_diloco",
        "late._decoupled_state": "DecoupledDilocoState",
        "late._delayed_nesterov": "DelayedNesterovState delayed_nesterov",
        "late._eager_diloco": "EagerDilocoState eager_diloco",
        "late._heloco": "HelocoState heloco",
        "late._streaming_diloco": "StreamingDilocoState streaming_diloco",
        "parts._desynced": "AveragedState DesyncedState desynced",
        "parts._sparta": "SpartaState sparta",
        "periodic._diloco": "diloco",
        "periodic._hierarchical_local_sgd": "hierarchical_local_sgd",
        "periodic._local_sgd": "local_sgd",
        "periodic._post_local_sgd": "post_local_sgd",
        "periodic._slow_momentum": "SlowMomentumState slow_momentum",
        "periodic._sparse_loco": "sparse_loco",
    },
    shared={
        "common._fragments": "deal",
        "common._local_steps": "ExchangeSpec",
        "common._tokens": "weight_of",
        "periodic._diloco": "AnchorState outer_step",
    },
)
