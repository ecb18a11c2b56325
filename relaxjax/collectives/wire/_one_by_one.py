"""Transfers one after the other, on every backend."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import like_varying, varying
from relaxjax.collectives.wire._messages import bits_of, from_wire


class LeafTransfer(NamedTuple):
    """Leaves that travel together.

    Attributes:
      name: their names, joined by commas.
      leaves: their positions in the tree.
    """

    name: str
    leaves: tuple[int, ...]


class Slices(Protocol):
    """Which slice of every leaf a worker holds; see `relaxjax.ps._servers`."""

    def rows(self, x: jax.Array) -> jax.Array:
        """[k, c]: the slices of x[...]."""
        ...

    def pull(self, own: jax.Array) -> jax.Array:
        """[k, c]: all slices, from this worker's [c]."""
        ...

    def push(self, rows: jax.Array, *, divided: bool = False) -> jax.Array:
        """[c]: the mean over all workers of this worker's row of [k, c].

        Rows that are `divided` by the number of workers already are added up.
        """
        ...


def one_by_one(
    plan: Sequence[LeafTransfer],
    verb: str,
    xs: Sequence[jax.Array],
    exchange: Callable[[list[jax.Array], int], list[jax.Array]],
) -> list[list[jax.Array]]:
    """What an exchange makes of each transfer's arrays, one transfer after the other.

    `verb` is "pull" or "push"; `exchange` takes the arrays of a transfer's leaves, and
    its number, to arrays of which the first ends what is sent.
    """
    out: list[list[jax.Array]] = []
    for number, transfer in enumerate(plan):
        members = [xs[i] for i in transfer.leaves]
        if out:
            members, out[-1][0] = once_arrived(members, out[-1][0])
        with jax.named_scope(f"{verb} {transfer.name};"):
            out.append(exchange(members, number))
    return out


def all_after(xs: list[jax.Array], earlier: jax.Array | None) -> list[jax.Array]:
    """Each of `xs`, available only once `earlier` is: orders their transfers.

    `optimization_barrier` does this on GPU and on newer CPU backends; jaxlib 0.10
    drops it on CPU, so the bits of each are also combined with a zero computed from
    `earlier`. The zero is made of integers, so a NaN does not leak.
    """
    if earlier is None:
        return xs
    *xs, first = lax.optimization_barrier((*xs, lax.slice(earlier.ravel(), (0,), (1,))))
    if not jnp.issubdtype(first.dtype, jnp.floating):
        return xs
    pattern = bits_of(first[0])
    last = 8 * first.dtype.itemsize - 1  # the sign's bit, which is cleared
    without_sign = pattern & jnp.asarray(2**last - 1, pattern.dtype)
    zero = lax.shift_right_logical(without_sign, jnp.asarray(last, pattern.dtype))
    return [_xor(x, zero) for x in xs]


def after_on_cpu(xs: list[jax.Array], earlier: jax.Array | None) -> list[jax.Array]:
    """`all_after` on CPU; elsewhere the compiler says what leaves when, and in what."""
    if earlier is None:
        return xs
    *xs, earlier = (reduce(like_varying, [*xs, earlier], x) for x in (*xs, earlier))
    return lax.platform_dependent(xs, earlier, cpu=all_after, default=lambda xs, _: xs)


def once_arrived(
    xs: list[jax.Array], earlier: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """Each of `xs`, available only once `earlier` is; and `earlier`, for its users.

    Everywhere but on CPU both pass through one barrier, so that nothing is computed
    from `earlier` in between, and its other users wait for nothing else. A barrier
    forgets which of them are known to be equal on all workers: where they differ in
    that, bits are combined on every backend.
    """
    if any(varying(x) != varying(earlier) for x in xs):
        return all_after(xs, earlier), earlier

    def by_bits(xs: list[jax.Array], earlier: jax.Array) -> Any:
        return all_after(xs, earlier), earlier

    def by_barrier(xs: list[jax.Array], earlier: jax.Array) -> Any:
        return lax.optimization_barrier((xs, earlier))

    return lax.platform_dependent(xs, earlier, cpu=by_bits, default=by_barrier)


@jax.custom_jvp
def _xor(x: jax.Array, zero: jax.Array) -> jax.Array:
    """`x`, its bits combined with a zero that the compiler does not know to be one.

    Its derivative is that of x, which bits have not.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    pattern = bits_of(x)
    zeros = lax.broadcast(lax.convert_element_type(zero, pattern.dtype), x.shape)
    return from_wire(lax.bitwise_xor(pattern, zeros), x.dtype)


@_xor.defjvp
def _as_of_x(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return _xor(*primals), tangents[0]
