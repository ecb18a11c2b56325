"""A scan over layers whose gradients travel one layer late.

Source: Poseidon (Zhang et al. 2017), wait-free back-propagation: layer l's gradient
travels while layer l - 1 computes its own. In a loop, what a turn sends must be back at
the end of that turn, so a transfer of the turn's own gradient hides under nothing. Here
a turn sends the gradient of the turn before it:

    forward:    x_{l+1} = layer(p_l, x_l)                                l = 0 .. L - 1
    backward:   g_l = dF/dp_l + a_l                                      l = L - 1 .. 0
                r_{l+1} = reducer(g_{l+1})      beside it; g_L = 0
    after it:   r_0 = reducer(g_0)

The gradient g_{l+1} reaches turn l as the cotangent of a second carry, the link, which
is zero on the way forward.

Cost: L + 1 reductions of one layer (the first is of zeros, so that all turns are
alike); only the last has no computation left to hide under.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._axis import like_varying
from relaxjax._core._checks import require_transformation
from relaxjax.workers._in_backward import extra_args, reducer_state


def scan_layers(
    layer: Callable[[Any, Any], Any],
    params: Any,
    x: Any,
    reducer: optax.GradientTransformation,
    *,
    state: Any = None,
    accumulated: Any = None,
    weight: Any = None,
) -> Any:
    """Applies one layer after another; the gradient of `params` comes out reduced.

    Experimental: this may change in any release.

    A `lax.scan` that sends each layer's gradient while it computes the next. Wrap the
    model's other params in `relaxjax.reduce_in_backward`. The optimizer then follows
    without a reducer.

    Args:
      layer: maps one layer's params and `x` to an `x` of the same shapes and dtypes;
        may be a `jax.checkpoint`.
      params: a pytree of arrays of shape [layers, ...].
      x: input of the first layer, a pytree of arrays.
      reducer: a reducer of one layer's params, such as `relaxjax.all_reduce("data")`.
      state: state of the reducer as in `reduce_in_backward`, of shapes [layers, ...]:
        `jax.vmap(reducer.init)(params)`.
      accumulated: gradients to add, as in `reduce_in_backward`.
      weight: this worker's number of examples, a scalar; the reducer's `weight=`.

    Returns:
      The output of the last layer.

    Raises:
      ValueError: there is no layer, or the leaves do not agree on their number; the
        reducer holds arrays and `state` is missing; a leaf of `state` is not floating
        (a gradient cannot carry it).

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> def loss(w, x):
      ...     reducer = relaxjax.all_reduce("data")
      ...     return relaxjax.scan_layers(lambda w, x: w * x, w, x, reducer)
      >>> w, x = jnp.array([2.0, 3.0]), jnp.arange(4.0)  # two layers, four workers
      >>> print(jax.vmap(jax.grad(loss), (None, 0), axis_name="data")(w, x)[0])
      [4.5 3. ]
    """
    require_transformation("scan_layers", "reducer", reducer)
    _require_layers(params)
    state = reducer_state(
        "scan_layers", reducer, params, state, init=lambda r, p: jax.vmap(r.init)(p)
    )
    if accumulated is None:
        accumulated = optax.tree.zeros_like(params)
    late, extra = _late(reducer), extra_args(weight)

    def turn(carry, sliced):
        x, link = carry
        p, link = late(*sliced, link, extra)
        return (layer(p, x), link), None

    params, state, link = _shifted(reducer)(params, state, extra)
    (x, _), _ = lax.scan(turn, (x, link), (params, state, accumulated))
    return x


def _late(reducer: optax.GradientTransformation) -> Callable[..., Any]:
    """Identity; in turn l, backward sends g_{l+1} and hands on g_l by the link."""

    @jax.custom_vjp
    def late(p, state, accumulated, link, extra):
        del state, accumulated, extra
        return p, link

    def forward(p, state, accumulated, link, extra):
        return (p, link), (state, accumulated, extra)

    def backward(residuals, cotangents):
        state, a, extra = residuals
        g, g_after = cotangents
        r_after, state = reducer.update(g_after, state, **extra)
        r_after = like_varying(r_after, g_after)  # what a cotangent's type must be
        link = jax.tree.map(jnp.add, g, a)
        no_a, no_extra = optax.tree.zeros_like((a, extra))
        return r_after, state, no_a, link, no_extra

    late.defvjp(forward, backward)
    return late


def _shifted(reducer: optax.GradientTransformation) -> Callable[..., Any]:
    """Gives turn l the state of layer l + 1; backward, layer l what turn l - 1 sent."""

    def up(x):
        return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])

    def down(first, x):
        return jnp.concatenate([first[None], x[:-1]])

    @jax.custom_vjp
    def shifted(params, state, extra):
        del extra
        link = jax.tree.map(lambda p: jnp.zeros_like(p[0]), params)
        return params, jax.tree.map(up, state), link

    def forward(params, state, extra):
        first = jax.tree.map(lambda s: s[0], state)
        return shifted(params, state, extra), (first, extra)

    def backward(residuals, cotangents):
        state_0, extra = residuals
        r, states, g_0 = cotangents
        r_0, state_0 = reducer.update(g_0, state_0, **extra)
        r_0 = like_varying(r_0, g_0)
        sent = jax.tree.map(down, (r_0, state_0), (r, states))
        return *sent, optax.tree.zeros_like(extra)

    shifted.defvjp(forward, backward)
    return shifted


def _require_layers(params: Any) -> None:
    counts = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(params)}
    if len(counts) != 1 or counts & {(), (0,)}:
        sizes = sorted((count[0] if count else "no axis" for count in counts), key=str)
        raise ValueError(
            f"scan_layers: the leaves of params have {sizes} layers: each needs the "
            "same number, at least one, as its first axis"
        )
