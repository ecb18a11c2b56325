"""Leaves that were pulled, whose gradients go straight through to what was pulled."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def straight_through(
    push: Callable[[Sequence[jax.Array], Any], tuple[list[jax.Array], Any]],
    own: Sequence[jax.Array],
    leaves: Sequence[jax.Array],
    state: Any = (),
    known: Any = (),
    once: str = "",
) -> list[jax.Array]:
    """The whole leaves that were pulled; the push is their transpose.

    However they were pulled, codes and all, the gradient with respect to a slice is
    what `push(gradients, known)` makes of the gradients of the leaves, and with respect
    to `state` it is the new state that `push` returns beside. With `once`, that is the
    error of a second derivative, which codes do not have.
    """
    push = _differentiable_once(push, once) if once else push

    @jax.custom_vjp
    def through(own: Any, state: Any, leaves: Any, known: Any) -> Any:
        del own, state, known
        return leaves

    def forward(own: Any, state: Any, leaves: Any, known: Any) -> Any:
        return through(own, state, leaves, known), known

    def backward(known: Any, gradients: Any) -> Any:
        pushed, after = push(gradients, known)
        nothing = jax.tree.map(jnp.zeros_like, (gradients, known))
        return pushed, after, *nothing

    through.defvjp(forward, backward)
    stop = lax.stop_gradient
    return through(list(own), state, stop(list(leaves)), stop(known))


def _differentiable_once(push: Callable[..., Any], error: str) -> Callable[..., Any]:
    """The same function, whose derivative is refused by an error."""
    once = jax.custom_jvp(push)

    @once.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise NotImplementedError(error)

    return once
