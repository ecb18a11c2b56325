"""The algorithms of `relaxjax.all_reduce` by name: how each runs, and what it sends.

One row is all there is to an algorithm: `relaxjax.all_reduce` runs it from here, and
`relaxjax.plan` and `relaxjax.check` count its bytes by the closed forms beside it.

Cost: stated in each algorithm's own module.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax.collectives.coded._compressed_hierarchical import (
    compressed_hierarchical,
    compressed_hierarchical_wire_bytes,
)
from relaxjax.collectives.coded._compressed_one_shot import (
    compressed_one_shot,
    compressed_one_shot_wire_bytes,
)
from relaxjax.collectives.coded._compressed_ring import (
    compressed_ring,
    compressed_ring_wire_bytes,
)
from relaxjax.collectives.coded._compressed_two_level import (
    compressed_two_level,
    compressed_two_level_wire_bytes,
)
from relaxjax.collectives.coded._compressed_two_shot import (
    compressed_two_shot,
    compressed_two_shot_wire_bytes,
)
from relaxjax.collectives.coded._linear_psum import linear_psum, linear_psum_wire_bytes
from relaxjax.collectives.exact._bidirectional_ring import (
    bidirectional_ring_all_reduce,
    bidirectional_ring_wire_bytes,
)
from relaxjax.collectives.exact._halving_doubling import (
    halving_doubling_all_reduce,
    halving_doubling_wire_bytes,
)
from relaxjax.collectives.exact._hierarchical import (
    hierarchical_all_reduce,
    hierarchical_wire_bytes,
)
from relaxjax.collectives.exact._narrow_means import (
    bidirectional_ring_mean,
    hierarchical_mean,
    one_shot_mean,
    ring_mean,
    two_shot_mean,
)
from relaxjax.collectives.exact._one_shot import (
    one_shot_all_reduce,
    one_shot_wire_bytes,
)
from relaxjax.collectives.exact._ring import ring_all_reduce, ring_wire_bytes
from relaxjax.collectives.exact._tree import tree_all_reduce, tree_wire_bytes
from relaxjax.collectives.exact._two_shot import (
    two_shot_all_reduce,
    two_shot_wire_bytes,
)
from relaxjax.collectives.wire._payload import Codec, Lossy


class ExactExchange(NamedTuple):
    """Sums arrays as they are.

    Attributes:
      run: `run(x, axis_name)`, the sum over the workers.
      wire_bytes: `wire_bytes(x, workers)`, sent by each worker.
      mean: `mean(x, axis_name)`, the mean of narrow floats for the same bytes, of which
        no step leaves the dtype's range (of psum over one axis); None: it has none.
    """

    run: Callable[[jax.Array, AxisName], jax.Array]
    wire_bytes: Callable[[jax.ShapeDtypeStruct, Any], int]
    mean: Callable[[jax.Array, AxisName], jax.Array] | None = None


class CodedExchange(NamedTuple):
    """Averages arrays that travel as payloads.

    Attributes:
      run: `run(x, axis_name, codec)`, the mean over the workers and what was lost.
      wire_bytes: `wire_bytes(size, workers, codec)`, sent by each worker.
      stages: how often a value is encoded on its way, for n workers.
    """

    run: Callable[[jax.Array, AxisName, Codec], Lossy]
    wire_bytes: Callable[[int, Any, Codec], int]
    stages: str


class Algorithm(NamedTuple):
    """What a name of `relaxjax.all_reduce` stands for.

    Attributes:
      exact: for arrays as they are; None: payloads only.
      coded: for payloads; None: it carries no payloads.
      two_axes: whether it runs over (hosts, devices of a host), which `wire_bytes` then
        takes for `workers`.
    """

    exact: ExactExchange | None
    coded: CodedExchange | None = None
    two_axes: bool = False


ALGORITHMS: Mapping[str, Algorithm] = {
    "psum": Algorithm(  # counted as the backend's best, a ring
        ExactExchange(lax.psum, ring_wire_bytes, two_shot_mean),
        CodedExchange(linear_psum, linear_psum_wire_bytes, "1"),
    ),
    "ring": Algorithm(
        ExactExchange(ring_all_reduce, ring_wire_bytes, ring_mean),
        CodedExchange(compressed_ring, compressed_ring_wire_bytes, "n"),
    ),
    "bidirectional_ring": Algorithm(
        ExactExchange(
            bidirectional_ring_all_reduce,
            bidirectional_ring_wire_bytes,
            bidirectional_ring_mean,
        )
    ),
    "halving_doubling": Algorithm(
        ExactExchange(halving_doubling_all_reduce, halving_doubling_wire_bytes)
    ),
    "tree": Algorithm(ExactExchange(tree_all_reduce, tree_wire_bytes)),
    "two_shot": Algorithm(
        ExactExchange(two_shot_all_reduce, two_shot_wire_bytes, two_shot_mean),
        CodedExchange(compressed_two_shot, compressed_two_shot_wire_bytes, "2"),
    ),
    "one_shot": Algorithm(
        ExactExchange(one_shot_all_reduce, one_shot_wire_bytes, one_shot_mean),
        CodedExchange(compressed_one_shot, compressed_one_shot_wire_bytes, "1"),
    ),
    "hierarchical": Algorithm(
        ExactExchange(
            hierarchical_all_reduce, hierarchical_wire_bytes, hierarchical_mean
        ),
        CodedExchange(compressed_hierarchical, compressed_hierarchical_wire_bytes, "2"),
        two_axes=True,
    ),
    "two_level": Algorithm(
        None,
        CodedExchange(compressed_two_level, compressed_two_level_wire_bytes, "3"),
        two_axes=True,
    ),
}
EXACT_EXCHANGES = {k: a.exact for k, a in ALGORITHMS.items() if a.exact is not None}
CODED_EXCHANGES = {k: a.coded for k, a in ALGORITHMS.items() if a.coded is not None}
