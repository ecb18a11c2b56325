"""Messages between the workers of one axis, and results known to be equal on all.

Under `check_vma=True` a result leaves the mapping as replicated only if its type says
so, which the results of `ppermute` never do; there a last step of another kind is
needed, and its bytes are stated with each algorithm.

Narrow floats travel as integers of their own width, on every backend. XLA on CPU sends
bfloat16 and float16 as float32, and may widen 8-bit floats.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size, on_devices, tracks_vma
from relaxjax._core._jaxprs import meeting_over
from relaxjax._core._tree import is_narrow

Pairs = Sequence[tuple[int, int]]


def bits_of(x: jax.Array) -> jax.Array:
    """The bits of `x`, as unsigned integers of the same width."""
    return lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")


def to_wire(x: jax.Array) -> jax.Array:
    """The bits of `x` in a dtype that no backend widens."""
    return bits_of(x) if is_narrow(x.dtype) else x


def from_wire(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Inverse of `to_wire`."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def for_each_axis(
    x: jax.Array,
    axis_name: AxisName,
    caller: str,
    one_axis: Callable[[jax.Array, str], jax.Array],
) -> jax.Array:
    """`one_axis(x, name)` over one axis after the other, from the inner one outwards.

    It sees at least one element and two workers; errors name `caller`.
    """
    axis_size(axis_name, caller)
    for name in reversed(axes_of(axis_name)):
        alone = lax.axis_size(name) == 1 or x.size == 0
        with meeting_over(name):
            x = nothing_to_send(x, name) if alone else landed(one_axis(x, name), name)
    return x


def landed(x: jax.Array, name: str) -> jax.Array:
    """What all workers have taken from each other before any of them goes on.

    Where they are rows of one array, XLA for CPU (jax 0.12) adds to rows that others
    are still to read, if those have gone through a barrier, as a bucket does.
    """
    return x if on_devices(name) else lax.optimization_barrier(x)


def send(x: jax.Array, name: str, pairs: Pairs) -> jax.Array:
    """Sends `x` from source to target; defined at the targets only.

    Where no device is behind a worker (`jax.vmap`), only full permutations exist, so
    the workers left over are paired as well, at no cost.
    """
    if not on_devices(name):
        workers = set(range(lax.axis_size(name)))
        sources = sorted(workers - {source for source, _ in pairs})
        targets = sorted(workers - {target for _, target in pairs})
        pairs = [*pairs, *zip(sources, targets, strict=True)]
    return from_wire(lax.ppermute(to_wire(x), name, pairs), x.dtype)


def back(pairs: Pairs) -> Pairs:
    """The same pairs, the other way."""
    return [(target, source) for source, target in pairs]


def is_target(name: str, pairs: Pairs) -> jax.Array:
    """Whether this worker receives something."""
    return jnp.any(jnp.asarray([to for _, to in pairs]) == lax.axis_index(name))


def gather(x: jax.Array, name: str) -> jax.Array:
    """`x` of all workers, stacked; known to be equal where that is tracked."""
    to = "invarying" if tracks_vma(name) else "varying"
    return from_wire(lax.all_gather(to_wire(x), name, to=to), x.dtype)


def gather_all(x: jax.Array, axis_name: AxisName) -> jax.Array:
    """[n, ..]: `x` of all workers of one axis or more, in their order."""
    like, axes = x.shape, axes_of(axis_name)
    for name in reversed(axes):
        x = gather(x, name)
    return x.reshape(math.prod(map(lax.axis_size, axes)), *like)


def distribute(rows: jax.Array, name: str) -> jax.Array:
    """Row j goes to worker j; returns what arrives, stacked by sender."""
    sent = mapped(to_wire(rows), name)
    return landed(from_wire(lax.all_to_all(sent, name, 0, 0), rows.dtype), name)


def mapped(x: jax.Array, name: str) -> jax.Array:
    """`x`, made to depend on the worker where it does not.

    Under `jax.vmap`, JAX's all_to_all (0.10 to 0.12) adds axes to what is the same for
    all workers, such as zeros of an unused parameter.
    """
    return x if on_devices(name) else jnp.where(lax.axis_index(name) < 0, 0, x)


def copy_known_equal(x: jax.Array, name: str, source: int) -> jax.Array:
    """`x` of one worker, known to be equal: the sum of its bits and of zeros.

    Sends 2 (n - 1) ceil(d / n) itemsize bytes, like every `psum`.
    """
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        parts = (copy_known_equal(part, name, source) for part in (x.real, x.imag))
        return lax.complex(*parts)
    bits = bits_of(x) if jnp.issubdtype(x.dtype, jnp.floating) else x
    mine = jnp.where(lax.axis_index(name) == source, bits, jnp.zeros_like(bits))
    return from_wire(lax.psum(mine, name), x.dtype)


def nothing_to_send(x: jax.Array, name: str) -> jax.Array:
    """`x`, empty or of a single worker, but known to be equal from here on."""
    return lax.psum(x, name) if tracks_vma(name) else x


def chunks_of(x: jax.Array, n: int) -> jax.Array:
    """[n, ceil(d / n)] of the d elements of `x`, the last row filled with zeros."""
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)
