"""The messages of PowerSGD: all P of a step, or all Q, and their mean over the workers.

    32, 16 bits    a sum of floats, rounded before it; rounding is nobody's loss
    8 bits         codes of `relaxjax.compression.quantize`, and what each worker lost

P and Q go column by column, so that a block of codes belongs to one singular vector.

Cost: that of the algorithm that carries them, and a copy each way.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName, axis_size
from relaxjax._core._checks import require_known
from relaxjax._core.layouts._sharding import alike
from relaxjax.collectives import CODED_EXCHANGES, EXACT_EXCHANGES, Lossy
from relaxjax.compression import Compressor, cast, quantize
from relaxjax.gradients.low_rank._low_rank import Mean
from relaxjax.gradients.mean._choices import checked_algorithm
from relaxjax.gradients.mean._codec import as_codec
from relaxjax.gradients.mean._packing import pack, unpack

CODES = {32: None, 16: cast(jnp.bfloat16), 8: quantize(8)}
"""The compressor of a message of which losses count, by bits per float.

Codes of 4 bits cost more than half the rank (docs/archive/benchmarks.md).
"""


def checked_bits(caller: str, axis_name: AxisName, algorithm: str, bits: int) -> str:
    """The algorithm that carries so many bits, with "auto" resolved."""
    require_known(caller, "bits", bits)
    if bits not in CODES:
        raise ValueError(f"{caller}: bits={bits!r} must be 32, 16 or 8")
    return checked_algorithm(axis_name, algorithm, CODES[bits], "mean", None)


def mean_in_bits(caller: str, axis_name: AxisName, algorithm: str, bits: int) -> Mean:
    """The mean of arrays over the workers, in one message of so many bits a float."""
    code = CODES[bits]
    if code is None and algorithm not in EXACT_EXCHANGES:
        algorithm = "psum"

    def mean(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        if axis_size(axis_name, caller) == 1:
            return arrays, [jnp.zeros_like(x) for x in arrays]
        return factor_mean_fn(axis_name, algorithm, code)(arrays)

    return mean


def factor_mean_fn(
    axis_name: AxisName,
    algorithm: str,
    compressor: Compressor | None,
    width: Any = jnp.float32,
) -> Mean:
    """From arrays to their means over the workers, in one message, and their losses.

    Without a compressor, floats of the dtype `width` are added.
    """

    @jax.named_scope("send")
    def send(flat: jax.Array) -> Lossy:
        if compressor is not None:
            codec = as_codec(compressor, (), jnp.uint32(0))
            return CODED_EXCHANGES[algorithm].run(flat, axis_name, codec)
        total = EXACT_EXCHANGES[algorithm].run(flat.astype(width), axis_name)
        mean = total.astype(jnp.float32) / axis_size(axis_name, "factor_mean_fn")
        return Lossy(mean, jnp.zeros_like(flat))

    def mean(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        columns = [_transposed(x) for x in arrays]
        both = send(pack(columns))
        out, lost = ([_transposed(x) for x in unpack(flat, columns)] for flat in both)
        return out, lost

    return mean


def for_each_layout(mean: Mean, layouts: Sequence[Hashable]) -> Mean:
    """The same mean, in a message for each layout of the arrays, in order of the first.

    `layouts` is of as many arrays or more; those of one layout travel together.
    """

    def by_layout(arrays: list[jax.Array]) -> Any:
        out, lost = list(arrays), list(arrays)
        for few in alike(layouts[: len(arrays)]):
            both = mean([arrays[i] for i in few])
            for i, x, missing in zip(few, *both, strict=True):
                out[i], lost[i] = x, missing
        return out, lost

    return by_layout


def _transposed(x: jax.Array) -> jax.Array:
    return x.mT if x.ndim > 1 else x
