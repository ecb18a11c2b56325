"""Messages between the workers of one axis, and results known to be equal on all.

Under `check_vma=True` a result leaves the mapping as replicated only if its type says
so, which the results of `ppermute` never do; there a last step of another kind is
needed, and its bytes are stated with each algorithm.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import on_devices, tracks_vma
from relaxjax.collectives._wire import from_wire, to_wire, unsigned

Pairs = Sequence[tuple[int, int]]


def send(x: jax.Array, name: str, pairs: Pairs) -> jax.Array:
    """Sends `x` from source to target; a worker that is no target must not look.

    Where no device is behind a worker (`jax.vmap`), only full permutations exist, so
    that those left over are paired as well: it costs nothing there.
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
    targets = jnp.asarray([target for _, target in pairs])
    return jnp.any(targets == lax.axis_index(name))


def gather(x: jax.Array, name: str) -> jax.Array:
    """`x` of all workers, stacked; known to be equal where that is tracked."""
    if tracks_vma(name):
        bits = lax.all_gather(to_wire(x), name, to="invarying")
    else:
        bits = lax.all_gather(to_wire(x), name)
    return from_wire(bits, x.dtype)


def distribute(rows: jax.Array, name: str) -> jax.Array:
    """Row j goes to worker j; what arrives, stacked by sender.

    Under `jax.vmap`, JAX (0.10) gives rows that no worker has for itself, such as zeros
    of an unused parameter, axes too many: there they are made everybody's own.
    """
    if not on_devices(name):
        rows = jnp.where(lax.axis_index(name) >= 0, rows, jnp.zeros_like(rows))
    return lax.all_to_all(rows, name, split_axis=0, concat_axis=0)


def copy_known_equal(x: jax.Array, name: str, source: int) -> jax.Array:
    """`x` of one worker, known to be equal: the sum of its bits and of zeros.

    Sends 2 (n - 1) ceil(d / n) itemsize bytes, like every `psum`.
    """
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        parts = (copy_known_equal(part, name, source) for part in (x.real, x.imag))
        return lax.complex(*parts)
    bits = x
    if jnp.issubdtype(x.dtype, jnp.floating):
        bits = lax.bitcast_convert_type(x, unsigned(x.dtype.itemsize))
    mine = jnp.where(lax.axis_index(name) == source, bits, jnp.zeros_like(bits))
    return from_wire(lax.psum(mine, name), x.dtype)


def nothing_to_send(x: jax.Array, name: str) -> jax.Array:
    """`x`, empty or of a single worker, but known to be equal from here on."""
    return lax.psum(x, name) if tracks_vma(name) else x
