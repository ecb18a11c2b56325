"""Which floats are averaged while they are added, and by what."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, compiler_axes
from relaxjax._core._tree import is_narrow
from relaxjax._core._weights import weigh

Exchange = Callable[[jax.Array, AxisName], jax.Array]


def mean_of_narrow(
    mean: Exchange | None, algorithm: str, axis_name: AxisName
) -> Exchange | None:
    """The algorithm's own mean, where it costs no byte more than the sum."""
    if algorithm == "psum" and (len(axes_of(axis_name)) > 1 or compiler_axes()):
        return None
    return mean


def psum_of_many(
    xs: list[jax.Array], axis_name: AxisName, mean: Exchange | None
) -> list[jax.Array]:
    """Sums in one psum; of floats of a narrow range the `mean`, if there is one."""
    alone = [mean is not None and narrow_range(x) for x in xs]
    summed = [x for x, is_alone in zip(xs, alone, strict=True) if not is_alone]
    sums = iter(lax.psum(summed, axis_name)) if summed else iter(())
    pairs = zip(xs, alone, strict=True)
    return [mean(x, axis_name) if mean and own else next(sums) for x, own in pairs]


def narrow_range(x: jax.Array) -> bool:
    """Whether a sum over workers may leave the dtype's range: float16, 8-bit floats."""
    return float(jnp.finfo(x.dtype).max) < 1e6


def mean_or_sum(
    total: Exchange, mean: Exchange | None, axis_name: AxisName
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array]]:
    """What to do with a bucket: the `mean` of a narrow range, or else the sum."""

    def exchange(x: jax.Array, number: jax.Array) -> tuple[jax.Array]:
        del number
        run = mean if mean and narrow_range(x) else total
        return (run(x, axis_name),)

    return exchange


def before(x: jax.Array, divide: int, weight: jax.Array | None = None) -> jax.Array:
    """What is added: weighted, and divided already where it must be."""
    if weight is not None:
        return weigh(x, weight / divide if is_narrow(x.dtype) else weight)
    return x / divide if divide > 1 and narrow_range(x) else x


def after(x: jax.Array, weighted: bool, divide: int) -> jax.Array:
    """The sum, divided where nothing was divided before."""
    divided = is_narrow(x.dtype) if weighted else narrow_range(x)
    return x / divide if divide > 1 and not divided else x
