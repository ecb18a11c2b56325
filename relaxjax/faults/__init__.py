"""Faults: non-finite gradients, absent workers, replicas that differ."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_participation": "ParticipationState participation",
        "_replicas": "ReplicaDifference ReplicaError replica_difference "
        "require_replicas",
        "_skip_nonfinite": "SkipNonfiniteState skip_nonfinite",
    },
    shared={
        "_fault_schedule": "FaultSchedule fault_schedule",
        "_replicas": "rows_apart",
    },
)
