"""Batches of several processes go together, call by call.

    call 1               kinds and shapes are compared, and rows
    calls 2, 4, 8, ..    rows of workers that processes share are compared
    other kinds          a process whose batch has other shapes or dtypes than before
                         waits until all others have them too: programs would be unlike

A call counts once its batch is placed. One that this process refuses may be repeated
with another batch, while the others wait in their step: it is not compared again.

Cost: that of `require_like_batches`; a barrier where kinds change.
"""

import hashlib
from typing import Any

from relaxjax._core.foreign._together import meet
from relaxjax.workers._batches import described, place_batch
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._startup_agreement import require_like_batches

_OTHERS = (
    "bring batches with {} too: each process gives as many rows for each of its "
    "workers, and of the same kind, as the others in each step. Leave out, or fill up, "
    "a last batch that is smaller on one"
)


class Batches:
    """The batches of one step, on this process.

    Attributes:
      count: the number of batches that were placed.
    """

    def __init__(self, workers: WorkerMesh):
        self._workers, self.count, self._compared = workers, 0, 0
        self._kinds: dict[str, str] | None = None

    def taken(self, batch: Any) -> Any:
        """The batch on the mesh; raises on every process if two do not go together."""
        call = self.count + 1
        if call > self._compared:
            require_like_batches(batch, self._workers, call)
            self._compared = call
        placed = place_batch(batch, self._workers)
        if self._workers.processes > 1:
            self._require_kinds(described(batch, self._workers))
        self.count = call
        return placed

    def _require_kinds(self, kinds: dict[str, str]) -> None:
        if self._kinds not in (None, kinds):
            text = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            here, told = self._workers.process_indices, _OTHERS.format(text)
            meet(f"data_parallel/batch/{digest}", here, told)
        self._kinds = kinds
