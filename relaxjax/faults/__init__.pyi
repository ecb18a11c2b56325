# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.faults._fault_schedule import FaultSchedule as FaultSchedule
from relaxjax.faults._fault_schedule import fault_schedule as fault_schedule
from relaxjax.faults._participation import ParticipationState as ParticipationState
from relaxjax.faults._participation import participation as participation
from relaxjax.faults._replicas import ReplicaDifference as ReplicaDifference
from relaxjax.faults._replicas import ReplicaError as ReplicaError
from relaxjax.faults._replicas import replica_difference as replica_difference
from relaxjax.faults._replicas import require_replicas as require_replicas
from relaxjax.faults._replicas import rows_apart as rows_apart
from relaxjax.faults._skip_nonfinite import SkipNonfiniteState as SkipNonfiniteState
from relaxjax.faults._skip_nonfinite import skip_nonfinite as skip_nonfinite

__all__ = [
    "ParticipationState",
    "ReplicaDifference",
    "ReplicaError",
    "SkipNonfiniteState",
    "participation",
    "replica_difference",
    "require_replicas",
    "skip_nonfinite",
]
