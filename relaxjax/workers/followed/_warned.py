"""Whether a step may be trusted: all that is warned of, and in which order.

A worker's traced step is followed once it has run, and that of each new phase. Nothing
is said of a phase in which counts choose: a walk takes what one phase leaves for what
another finds.
"""

from typing import Any

from relaxjax._core._phases import clocks_of
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._around import warn_around
from relaxjax.workers.followed._as_it_is import marked_results
from relaxjax.workers.followed._looked import Looked
from relaxjax.workers.followed._next_states import warn_of_sums
from relaxjax.workers.followed._own_batch import (
    trained_beside,
    warn_of_own_batch,
    with_found_params,
)
from relaxjax.workers.followed._own_keys import warn_of_own_keys
from relaxjax.workers.followed._own_value import warn_of_own_value
from relaxjax.workers.followed._passed_by import warn_of_nothing, warn_of_old_state
from relaxjax.workers.followed._places import (
    beside_params,
    by_moments,
    moved_and_read,
    optimizer_places,
)


def warn_of_step(found: Looked, keys: Any, workers: WorkerMesh) -> None:
    """Warns of what passes the relaxations by, of one thing at most."""
    if not (found.relaxes or optimizer_places(found.state)):
        return
    moved, read = moved_and_read(found)
    told = warn_of_old_state(found, moved, read) or warn_of_sums(found)
    chosen = any(clock.ends and not clock.hosted for clock in clocks_of(found.state))
    if told or chosen or workers.n == 1:
        return
    if not found.relaxes:
        found = by_moments(found)
        if not warn_of_nothing(found, moved, workers):
            warn_of_own_batch(found, workers)
        return
    asked = beside_params(found).union(*found.alike)
    marks = marked_results(found, workers, asked)
    found = with_found_params(found, marks, moved)
    told = warn_of_own_value(found, workers) or warn_of_own_keys(found, keys, workers)
    told = told or warn_of_own_batch(found, workers, trained_beside(found, marks))
    if not told:
        warn_around(found, marks, moved, workers)
