"""What a plan knows of a model: the shapes of its params, and how long a step computes.

The backward pass takes two thirds of a step's computation, and a gradient is there when
the pass has gone as far into the model as its elements are of all (in the order in
which buckets are sent). A model of which only the size is known is a tree of square
matrices:

    side = the largest power of two with 48 side^2 <= N, from 16 to 16384

(a transformer of 4 layers has 12 side^2 in each), and one row with the rest.
"""

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._arrays import shapes_of
from relaxjax._core._buckets import Bucket, Segment
from relaxjax._core._sending_order import order_names, sent_before
from relaxjax._core._tree import wide
from relaxjax._core.foreign._ranges import PARAMS, SECONDS
from relaxjax.gradients import label_leaves

Groups = list[tuple[float, dict[tuple[int, int, int], list[Bucket]]]]

FORWARD = 1 / 3
"""Share of a step's computation that comes before the first gradient."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The part of a model that a plan needs.

    Attributes:
      params: a pytree of `jax.ShapeDtypeStruct` (or arrays), floating.
      compute: seconds of a step without communication.

    Raises:
      TypeError: params is a number.
      ValueError: there are no params; the time is not positive and finite.

    Example:
      >>> from relaxjax import plan
      >>> plan.Model.of_size(1_000_000, compute=0.1).size
      1000000
    """

    params: Any
    compute: float

    def __post_init__(self) -> None:
        """Checks the figures."""
        number = isinstance(self.compute, int | float)
        if not (number and 0 < self.compute <= SECONDS.most):
            raise ValueError(
                f"compute={self.compute!r} must be the seconds of a step without "
                f"communication: finite, more than 0, at most {SECONDS.most:g}"
            )
        if isinstance(self.params, int | float):
            raise TypeError(
                f"params={self.params!r} must be a tree of arrays or shapes; for a "
                f"number of them, Model.of_size({int(self.params)}, compute=...)"
            )
        if not self.size:
            raise ValueError("params has no elements: there is nothing to send")

    @classmethod
    def of_size(cls, elements: int, *, compute: float) -> "Model":
        """A model of square matrices, a shorter one, and the rest.

        Args:
          elements: number of elements of its params.
          compute: seconds of a step without communication.

        Raises:
          ValueError: `elements` is not a whole number, from 1 to 10^12.
        """
        if isinstance(elements, bool) or not isinstance(elements, int) or elements < 1:
            whole = isinstance(elements, float) and elements.is_integer()
            remedy = f": params={int(elements):_}" if whole and elements >= 1 else ""
            raise ValueError(
                f"params={elements!r} must be a whole number of parameters, 1 or more"
                f"{remedy}"
            )
        if rule := PARAMS.broken(elements):
            raise ValueError(
                f"params={elements} must be a number of parameters, {rule}"
            )
        side = 2 ** (max(elements // 48, 1).bit_length() - 1 >> 1)
        side = min(max(side, 16), 16384)
        rows, rest = divmod(elements, side)
        count, rows = divmod(rows, side)
        shapes = {f"w{i}": (side, side) for i in range(count)}
        shapes |= {"short": (rows, side)} if rows else {}
        shapes |= {"rest": (1, rest)} if rest else {}
        spec = {k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in shapes.items()}
        return cls(params=spec, compute=compute)

    @functools.cached_property
    def leaves(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes and dtypes, in tree order."""
        return jax.tree.leaves(shapes_of(self.params))

    @functools.cached_property
    def size(self) -> int:
        """Elements of all params."""
        return sum(x.size for x in self.leaves)

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes of all params."""
        return sum(x.size * x.dtype.itemsize for x in self.leaves)

    @functools.cached_property
    def widened(self) -> "Model":
        """The model with params in float32 or wider, as they travel when averaged."""
        if all(x.dtype == wide(x.dtype) for x in self.leaves):
            return self
        params = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, wide(x.dtype)),
            shapes_of(self.params),
        )
        return replace(self, params=params)

    def part(self, kind: str, plain: float = 0.0) -> Any:
        """The params that are compressed ("matrix") or not ("vector"); others are None.

        `plain` is the share of all elements that is sent first, and counts as vectors.
        """
        kinds = self._kinds(plain)
        return jax.tree.map(lambda x, k: x if k == kind else None, self.params, kinds)

    def leaves_of(self, *which: Any) -> list[jax.ShapeDtypeStruct]:
        """Leaves of the part that `which` names, as in `part`; without it, all."""
        if not which:
            return self.leaves
        kind, *plain = which
        kinds = jax.tree.leaves(self._kinds(*plain))
        return [x for x, k in zip(self.leaves, kinds, strict=True) if k == kind]

    def _kinds(self, plain: float = 0.0) -> Any:
        """Each leaf's kind."""
        return self.once(("kinds", plain), lambda: label_leaves(self.params, plain))

    @functools.cached_property
    def _known(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make()` returned when it was first called for this key."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def ready(self, segment: Segment) -> float:
        """Share of the backward pass after which a segment's gradient is there."""
        return (self._starts[segment.name] + segment.stop) / self.size

    @functools.cached_property
    def _starts(self) -> dict[str, int]:
        """Elements whose gradients are there before each leaf's."""
        names = order_names(self.params)
        return dict(zip(names, sent_before(self.params), strict=True))

    def grouped(self, buckets: tuple[Bucket, ...], most: int) -> Groups:
        """Neighboring buckets in at most so many groups, by size and segments, once.

        With each group, when its last gradient is there.
        """

        def groups() -> tuple[Any, Groups]:
            found, size = [], max(1, -(-len(buckets) // most))
            for start in range(0, len(buckets), size):
                alike, ready = {}, 0.0
                for bucket in buckets[start : start + size]:
                    elements = sum(s.size for s in bucket.segments)
                    key = elements, bucket.nbytes, len(bucket.segments)
                    alike.setdefault(key, []).append(bucket)
                    ready = max(ready, *map(self.ready, bucket.segments))
                found.append((ready, alike))
            return buckets, found  # so that nothing else gets the same id

        return self.once(("groups", id(buckets)), groups)[1]

    def packed(
        self,
        how: Callable[..., tuple[Bucket, ...]],
        bucket_bytes: int,
        *which: Any,
    ) -> tuple[Bucket, ...]:
        """The buckets of all params, or of the part that `which` names, computed once.

        `how` is `relaxjax.schedule.plan_buckets` or `plan_groups`.
        """

        def pack() -> tuple[Bucket, ...]:
            tree = self.part(*which) if which else self.params
            return how(tree, bucket_bytes=bucket_bytes)

        return self.once((how.__name__, bucket_bytes, *which), pack)
