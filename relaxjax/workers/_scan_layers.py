"""A scan over layers whose gradients travel one layer late.

Source: Poseidon (Zhang et al. 2017), wait-free back-propagation: layer l's gradient
travels while layer l - 1 computes its own. In a loop, what a turn sends must be back at
the end of that turn, so a transfer of the turn's own gradient hides under nothing. Here
a turn sends the gradient of the turn before:

    forward:    x_{l+1} = layer(p_l, x_l)                                l = 0 .. L - 1
    backward:   g_l = dF/dp_l + a_l                                      l = L - 1 .. 0
                r_{l+1} = reducer(g_{l+1})      beside it; g_L = 0
    after it:   r_0 = reducer(g_0)

The gradient g_{l+1} reaches turn l as the cotangent of a second carry, the link, which
is zero on the way forward.

Cost: L + 1 reductions of one layer (the first is of zeros, so that all turns are
alike), of which the last alone has no computation left to hide under.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from relaxjax._core._axis import like_varying
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

    A `lax.scan` that sends each layer's gradient while the next one is computed. Wrap
    the model's other params in `relaxjax.reduce_in_backward`. The optimizer then
    follows without a reducer.

    Args:
      layer: from one layer's params and `x` to an `x` of the same shapes and dtypes.
        May be a `jax.checkpoint`.
      params: a pytree of arrays of shape [layers, ...].
      x: what the first layer takes, a pytree of arrays.
      reducer: such as `relaxjax.all_reduce("data")`, for the params of one layer.
      state: the reducer's, of shapes [layers, ...], as `jax.vmap(reducer.init)(params)`
        makes it, if it holds arrays such as a residual. The gradient with respect to it
        is the new state (not a derivative).
      accumulated: gradients like `params` that are added before the reduction. The
        gradient with respect to them is zero.
      weight: this worker's number of examples, a scalar, as for `update` of the
        reducer.

    Returns:
      What the last layer gives.

    Raises:
      ValueError: there is no layer, or the leaves do not agree on their number; the
        reducer holds arrays and no `state` is given; a leaf of `state` that is not
        floating (a gradient cannot carry it).

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> def loss(w, x):
      ...     reducer = relaxjax.all_reduce("data")
      ...     return relaxjax.scan_layers(lambda w, x: w * x, w, x, reducer)
      >>> w, x = jnp.array([2.0, 3.0]), jnp.arange(4.0)  # two layers, four workers
      >>> print(jax.vmap(jax.grad(loss), (None, 0), axis_name="data")(w, x)[0])
      [4.5 3. ]
    """
    _require_layers(params)
    state = reducer_state("scan_layers", reducer, params, state, init=_init_each)
    if accumulated is None:
        accumulated = jax.tree.map(jnp.zeros_like, params)
    late, extra = _late(reducer), extra_args(weight)

    def turn(carry, of_layer):
        x, link = carry
        p, link = late(*of_layer, link, extra)
        return (layer(p, x), link), None

    params, state, link = _shifted(reducer)(params, state, extra)
    (x, _), _ = lax.scan(turn, (x, link), (params, state, accumulated))
    return x


def _late(reducer: optax.GradientTransformation) -> Callable[..., Any]:
    """In turn l: sends the gradient of layer l + 1, and hands on that of layer l."""

    @jax.custom_vjp
    def late(p, state, accumulated, link, extra):
        del state, accumulated, extra
        return p, link

    def forward(p, state, accumulated, link, extra):
        return (p, link), (state, accumulated, extra)

    def backward(kept, cotangents):
        state, a, extra = kept
        g, g_after = cotangents
        r_after, state = reducer.update(g_after, state, **extra)
        r_after = like_varying(r_after, g_after)  # what a cotangent's type must be
        return r_after, state, _zeros(a), _add(g, a), _zeros(extra)

    late.defvjp(forward, backward)
    return late


def _shifted(reducer: optax.GradientTransformation) -> Callable[..., Any]:
    """Gives turn l the state of layer l + 1; backward, layer l what turn l - 1 sent."""

    @jax.custom_vjp
    def shifted(params, state, extra):
        del extra
        return params, jax.tree.map(_up, state), jax.tree.map(_nothing, params)

    def forward(params, state, extra):
        first = jax.tree.map(lambda s: s[0], state)
        return shifted(params, state, extra), (first, extra)

    def backward(kept, cotangents):
        state_0, extra = kept
        r, states, g_0 = cotangents
        r_0, state_0 = reducer.update(g_0, state_0, **extra)
        r_0 = like_varying(r_0, g_0)
        sent = jax.tree.map(_down, (r_0, state_0), (r, states))
        return *sent, _zeros(extra)

    shifted.defvjp(forward, backward)
    return shifted


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def _nothing(p: jax.Array) -> jax.Array:
    return jnp.zeros_like(p[0])


def _up(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x[1:], jnp.zeros_like(x[:1])])


def _down(first: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.concatenate([first[None], x[:-1]])


def _add(g: Any, a: Any) -> Any:
    return jax.tree.map(jnp.add, g, a)


def _init_each(reducer: optax.GradientTransformation, params: Any) -> Any:
    return jax.vmap(reducer.init)(params)


def _require_layers(params: Any) -> None:
    counts = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(params)}
    if len(counts) != 1 or counts & {(), (0,)}:
        found = sorted((count[0] if count else "no axis" for count in counts), key=str)
        raise ValueError(
            f"scan_layers: the leaves of params have {found} layers: each needs the "
            "same number, at least one, as its first axis"
        )
