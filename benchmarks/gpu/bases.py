"""What an orthonormal basis costs: PowerSGD's P of a transformer's matrices.

A QR of a matrix of a few columns is a call of cuSOLVER on a GPU, of LAPACK on a CPU,
each by itself. Householder's reflections written out are a few kernels for all leaves
of a shape together.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.record import Record, Row
from benchmarks.gpu.steps import language
from benchmarks.measure import interleaved, milliseconds, ratio
from relaxjax._core._extremes import largest
from relaxjax.gradients.low_rank._bases import of_each_shape, together
from relaxjax.gradients.low_rank._low_rank import matrices_of, most_square

Factors = list[jax.Array]


def bases(record: Record) -> None:
    """The bases of a step, by rank."""
    rounds = 3 if record.tiny else 20
    params = language(record).params
    for rank in (2,) if record.tiny else (1, 4, 16):
        record.measure(f"rank {rank}", lambda rank=rank: timed(params, rank, rounds))


def timed(params: object, rank: int, rounds: int) -> Row:
    """Milliseconds of each way, the ratio of the pairs, and how far they are apart."""
    matrices = matrices_of(
        params, rank=rank, min_compression=1.0, as_matrices=most_square
    )
    rng = np.random.default_rng(0)
    p = [
        jnp.asarray(rng.normal(size=(m.batch, m.rows, m.rank)), jnp.float32)
        for m in matrices
        if m
    ]
    ways: dict[str, Callable[[Factors], Factors]] = {
        "each by QR": lambda p: [jnp.linalg.qr(x)[0] for x in p],
        "QR of a shape": lambda p: of_each_shape(lambda x: jnp.linalg.qr(x)[0], p),
        "reflections of a shape": together,
    }
    runs = {name: jax.jit(way) for name, way in ways.items()}
    seconds = interleaved(
        {name: lambda run=run: run(p) for name, run in runs.items()}, rounds
    )
    first, *others = ways
    found = {f"{name} ms": milliseconds(times) for name, times in seconds.items()}
    found |= {
        f"{name} / {first}": ratio(seconds[name], seconds[first]).median
        for name in others
    }
    pairs = zip(runs[first](p), runs[others[-1]](p), strict=True)
    apart = max(float(largest(a - b)) for a, b in pairs)
    return {"matrices": len(p), "apart": apart, **found}
