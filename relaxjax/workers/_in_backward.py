"""Reduction inside the backward pass, layer by layer.

Source: Poseidon (Zhang et al. 2017), wait-free back-propagation: a layer's gradient is
sent as soon as it exists. After a `lax.scan` over layers, or over microbatches, all
gradients appear at once, and buckets after it overlap nothing; a transfer in the body
of the scan's backward pass does.

    forward:   y = params
    backward:  g <- reducer(g + a)            (a: accumulated; 0 if not given)

Cost: what the reducer sends for these params, once for each time that the backward pass
runs through here: once per layer in a scan over layers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import like_varying
from relaxjax._core._checks import require_transformation
from relaxjax._core._tree import dtype_and_shape, leaf_names
from relaxjax._core.traced._next_state import CALLS, named_next, refuse_twice


def reduce_in_backward(
    params: Any,
    reducer: optax.GradientTransformation,
    *,
    state: Any = None,
    accumulated: Any = None,
    weight: Any = None,
) -> Any:
    """Returns `params`; their gradient comes out reduced.

    Wrap the params where they are used: in the body of a scan over layers, those of the
    layer (`scan_layers` hides more of the transfers). The optimizer then follows
    without a reducer: `relaxjax.init(tx, params, mesh, reduced_in_step=True)`. With
    microbatches, add up the gradients of all but the last, and pass the sum as
    `accumulated` in the last.

    Args:
      params: a pytree of arrays.
      reducer: a reducer of exactly these params, such as `relaxjax.all_reduce("data")`.
      state: state of the reducer, as `reducer.init(params)` makes it, if it holds
        arrays such as a residual. The gradient with respect to it is the new state (not
        a derivative): take both with `jax.grad(loss, argnums=(0, 1))`.
      accumulated: gradients like `params` that are added before the reduction. The
        gradient with respect to them is zero.
      weight: this worker's number of examples, a scalar; the reducer's `weight=`.

    Returns:
      `params`, unchanged. Second derivatives with respect to them are not reduced: for
      a penalty on the gradient, take the inner gradient with respect to params before
      they are wrapped.

    Raises:
      ValueError: the reducer holds arrays and `state` is missing; a leaf of `state` is
        not floating (a gradient cannot carry it), or is used twice in one loss.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> def loss(w, x):
      ...     w = relaxjax.reduce_in_backward(w, relaxjax.all_reduce("data"))
      ...     return (w * x).sum()
      >>> x = jnp.arange(4.0)  # a number for each of four workers
      >>> print(jax.vmap(jax.grad(loss), (None, 0), axis_name="data")(1.0, x))
      [1.5 1.5 1.5 1.5]
    """
    require_transformation("reduce_in_backward", "reducer", reducer)
    state = reducer_state("reduce_in_backward", reducer, params, state)
    if accumulated is None:
        accumulated = optax.tree.zeros_like(params)

    @jax.custom_vjp
    def identity(params, state, accumulated, extra):
        del state, accumulated, extra
        return params

    def forward(params, state, accumulated, extra):
        return params, (state, accumulated, extra)

    def backward(residuals, gradient):
        state, accumulated, extra = residuals
        gradient = jax.tree.map(jnp.add, gradient, accumulated)
        updates, state = reducer.update(gradient, state, **extra)
        updates = like_varying(updates, gradient)  # what a cotangent's type must be
        nothing = optax.tree.zeros_like((accumulated, extra))
        return updates, named_next(state), *nothing

    identity.defvjp(forward, backward)
    return identity(params, state, accumulated, extra_args(weight))


def extra_args(weight: Any) -> dict[str, jax.Array]:
    """The reducer's `weight=`, unless it is None, in a dtype with a gradient."""
    return {} if weight is None else {"weight": jnp.asarray(weight, jnp.float32)}


def reducer_state(
    caller: str,
    reducer: optax.GradientTransformation,
    params: Any,
    state: Any,
    *,
    init: Callable[[optax.GradientTransformation, Any], Any] = lambda r, p: r.init(p),
) -> Any:
    """The reducer's state, if a gradient can carry it; made by `init` if it is None."""
    if state is None:
        state = init(reducer, params)
        if jax.tree.leaves(state):
            raise ValueError(
                f"{caller}: this reducer keeps arrays between steps (leaves "
                f"{leaf_names(state)}): pass state=, made once by reducer.init(params),"
                " and take the new one as the gradient with respect to it"
            )
    refuse_twice(caller, state, next(CALLS))
    for name, leaf in zip(leaf_names(state), jax.tree.leaves(state), strict=True):
        if not jnp.issubdtype(jax.typeof(leaf).dtype, jnp.inexact):
            raise ValueError(
                f"{caller}: state leaf {name!r} is {dtype_and_shape(leaf)}, which a "
                "gradient cannot carry: only floating state (residuals) can pass "
                "through the backward pass. Put this reducer before the optimizer"
            )
    return state
