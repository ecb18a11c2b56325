"""Which side of a matrix is called P: all P are about as many floats as all Q."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import jax

from relaxjax._core.layouts._sharding import alike
from relaxjax.gradients.low_rank._low_rank import Matrices


class View(NamedTuple):
    """A leaf as a batch of matrices, or of their transposes."""

    matrices: Matrices
    flipped: bool

    @property
    def sides(self) -> tuple[int, int]:
        """Sides of P and of Q."""
        rows, columns = self.matrices.rows, self.matrices.columns
        return (columns, rows) if self.flipped else (rows, columns)

    def floats(self, side: int) -> int:
        """Floats of P (0) or of Q (1)."""
        return self.matrices.batch * self.sides[side] * self.matrices.rank

    def of(self, leaf: jax.Array) -> jax.Array:
        """float32[batch, side of P, side of Q]."""
        x = self.matrices.of(leaf)
        return x.mT if self.flipped else x

    def back(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The leaf of this shape."""
        return (x.mT if self.flipped else x).reshape(shape)


def views_of(
    matrices: list[Matrices | None], layouts: Sequence[Hashable] | None = None
) -> list[View | None]:
    """Each leaf with P on a side such that all P are about as many floats as all Q.

    Those of one layout are, as only they travel together (None: all do). The leaf that
    is farthest from square comes first, and each makes up for those before it; what is
    left over is at most what one leaf differs by.
    """

    def excess(i: int) -> int:
        m = matrices[i]
        return m.batch * m.rank * (m.rows - m.columns) if m else 0

    flipped = [False] * len(matrices)
    for few in alike(layouts or [None] * len(matrices)):
        balance = 0  # floats of P over those of Q
        for i in sorted(few, key=lambda i: -abs(excess(i))):
            flipped[i] = balance * excess(i) > 0
            balance += -excess(i) if flipped[i] else excess(i)
    return [m and View(m, flip) for m, flip in zip(matrices, flipped, strict=True)]
