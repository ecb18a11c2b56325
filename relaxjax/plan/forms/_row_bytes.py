"""How much a row that states no messages sends in a period, without tracing it.

Of two leaves of d elements, for n workers, with the row's own options. A matrix is
short x long where its leaf is cut most square, and few = ceil(short / 4).

    a sum of x floats    2 (n - 1) ceil(x / n) 4 bytes, in 2 ceil(log2 n) rounds
    a payload of P       (n - 1) P bytes, in n - 1 rounds

    pairs       sums of d and d, or one of 2 d where that is small and fits a bucket
    fragments   a sum of d by itself, then the other's
    matrices    a sum of few short (Dion) or short (Dion2), then one of few long; of
                vectors, what pairs take
    payloads    one of both leaves (DeMo), or one of each bucket (SparseLoCo)

Other rows are traced (`relaxjax.plan._traced`), and so are other dtypes than float32,
leaves without elements, and one worker; the tests compare each form with the trace.

Cost: O(buckets).
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

import jax
import jax.numpy as jnp

from relaxjax._core._buckets import plan_buckets
from relaxjax.compression import count_of
from relaxjax.gradients import merge_small, most_square
from relaxjax.plan.forms._payload_sizes import largest, payload_size

Leaf = jax.ShapeDtypeStruct
Form = Callable[[Leaf, int, int], tuple[int, int]]
"""From a leaf, the workers and the bytes of a bucket to bytes and rounds."""


def _sums(n: int, waits: int, *floats: int) -> tuple[int, int]:
    """Sums of so many floats, of which `waits` wait for each other."""
    sent = sum(8 * (n - 1) * -(-x // n) for x in floats)
    return sent, waits * 2 * (n - 1).bit_length()


def _pair(d: int, bucket_bytes: int) -> tuple[int, ...]:
    pair = [Leaf((d,), jnp.float32)] * 2
    small = 8 * d <= bucket_bytes and len(merge_small(pair)) == 1
    return (2 * d,) if small else (d, d)


def _pairs(times: int, x: Leaf, n: int, size: int, share: int = 1) -> tuple[int, int]:
    return _sums(n, times, *times * _pair(-(-x.size // share), size))


def _with_moments(x: Leaf, n: int, size: int) -> tuple[int, int]:
    """Params six times, a first moment twice and a second once, beside params."""
    return _sums(n, 6, *9 * _pair(x.size, size))


def _by_turns(x: Leaf, n: int, size: int) -> tuple[int, int]:
    """A worker's weight and what it brings, one worker after the other."""
    return _sums(n, 2 * n, *n * (1, *_pair(x.size, size)))


def _matrices(first: Callable[[int, int], int], x: Leaf, n: int, size: int):
    if x.ndim < 2:
        return _pairs(1, x, n, size)
    short, long = sorted(most_square("", x.shape)[1:])
    few = count_of(0.25, short)
    return _sums(n, 2, 2 * first(short, few), 2 * few * long)


def _sketched(x: Leaf, n: int, size: int) -> tuple[int, int]:
    """Four floats for each row, then a tenth of the rows; or all, if that is less."""
    del size
    rows, columns = most_square("", x.shape)[1:]
    few = 4 * rows, count_of(0.1, rows) * columns
    sent = few if sum(few) < x.size else (x.size,)
    return _sums(n, len(sent), *(2 * d for d in sent))


def _blocks(x: Leaf, n: int, size: int) -> tuple[int, int]:
    """32 values of each block, whose sides divide those of the leaf."""
    del size
    sides = most_square("", x.shape)[1:]
    block = prod(max(k for k in range(1, 65) if side % k == 0) for side in sides)
    each = largest(min(1, 32 / block), block, payload_size("identity"), x.size)
    return (n - 1) * 2 * each, n - 1


def _chunks(x: Leaf, n: int, size: int) -> tuple[int, int]:
    """64 values of 2 bits in each chunk of a bucket."""
    payload = partial(largest, 64 / 4096, 4096, payload_size("quantize2"))
    each = [payload(b.nbytes // 4) for b in plan_buckets([x, x], bucket_bytes=size)]
    return (n - 1) * sum(each), (n - 1) * len(each)


FORMS: Mapping[str, Form] = {
    "arc_top_k": _sketched,
    "demo": _blocks,
    "dion": partial(_matrices, lambda short, few: short * few),
    "dion2": partial(_matrices, lambda short, few: short),
    "bounded_staleness": partial(_pairs, 1),
    "desynced": _with_moments,
    "sparta": partial(_pairs, 1, share=200),
    "streaming_diloco": lambda x, n, size: _sums(n, 2, x.size, x.size),
    "decoupled_diloco": lambda x, n, size: _sums(n, 2, x.size, x.size, 1, 1),
    **dict.fromkeys(("asynchronous_diloco", "heloco"), _by_turns),
    "sparse_loco": _chunks,
}
"""By the names of rows; what two leaves send in a period."""


def form_of(row: str, leaf: Leaf, workers: int) -> Form | None:
    """The form of a row, where it holds for a leaf and so many workers."""
    usual = leaf.dtype == jnp.float32 and leaf.size and workers > 1
    return FORMS.get(row) if usual else None
