"""A scan over sharded layers: the next layer's gather runs beside this one's products.

Source: Rajbhandari et al. 2020 (ZeRO), whose prefetching this is in a compiled loop. In
a loop, what a turn gathers for itself hides under nothing; so a turn gathers for the
next one, and scatters the gradient of the one before:

    forward   turn l:   W_{l+1} <- gather s_{l+1};   x_{l+1} = layer(W_l, x_l)
    backward  turn l:   scatter g_{l+1};   W_{l-1} <- gather s_{l-1};
                        g_l, dx_l <- layer's gradient at W_l, x_l

Of all layers, the slices and the x_l are kept (and the second copies, or what all know,
if asked for), and whole weights of two layers at a time.

Cost: the gathers and scatters of each layer, none in vain: the first and the last turns
stand outside the loops, so the layer is compiled twice for each direction.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax.collectives import is_shard
from relaxjax.fsdp._gathered import Gathered

_CALLER = "fsdp.scan_layers"


def scan_layers(layer: Gathered, shards: Any, x: Any, *, state: Any = None) -> Any:
    """Applies one sharded layer after another, gathering a layer ahead.

    Experimental: this may change in any release.

    Args:
      layer: `fsdp.gathered(layer_fn, axis_name, reshard_after_forward=True, ...)`, or
        with `secondary=` or `difference=`, where `layer_fn(params, x)` maps to an x of
        the same shapes and dtypes. It may close over constants, not over what is
        differentiated.
      shards: slices of all layers, [layers, c], from `relaxjax.fsdp.init(layers=...)`.
      x: input of the first layer, a pytree of floating arrays.
      state: as in a call of `layer`, of all layers; the gradient with respect to it is
        the new state.

    Returns:
      The output of the last layer.

    Raises:
      ValueError: the shards have no axis of layers, `state` is missing, or `layer` is
        meant to keep gathered weights.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import fsdp
      >>> layer = fsdp.gathered(lambda w, x: w * x, "data", reshard_after_forward=True)
      >>> params, mesh = jnp.array([[2.0, 1.0], [3.0, 1.0]]), relaxjax.emulate(2)
      >>> shards, _ = fsdp.init(optax.sgd(1.0), params, mesh, layers=["params"])
      >>> def out(shards, x):
      ...     return fsdp.scan_layers(layer, shards, x)
      >>> print(jax.vmap(out, axis_name="data")(shards, jnp.ones((2, 2))))
      [[6. 1.]
       [6. 1.]]
    """
    chosen = layer.choices
    if not (chosen.reshard or chosen.difference):
        raise ValueError(
            f"{_CALLER}: the backward pass gathers again here, and the layer says that "
            "gathered weights are kept: give fsdp.gathered reshard_after_forward=True"
        )
    leaves = jax.tree.leaves(shards, is_leaf=is_shard)
    depths = {jnp.shape(s.value)[:-1] if is_shard(s) else None for s in leaves}
    if len(depths) != 1 or depths & {(), None, (0,)}:
        raise ValueError(
            f"{_CALLER}: the shards must have the same number of layers, at least one, "
            "as their first axis: name them in relaxjax.fsdp.init(layers=...)"
        )
    run = _scan(layer, shards)
    return run([s.value for s in leaves], layer.checked(state), x)


def _scan(layer: Gathered, shards: Any) -> Callable[..., Any]:
    """From values, state and x to the last output, with a backward pass of its own."""
    exchange, _, tree = layer.exchange(_at(shards, 0), ())
    chosen = layer.choices
    saved = chosen.secondary is not None or chosen.difference

    def fetch(own: Any, state: Any) -> Any:
        return exchange._replace(draw=state.draw).fetch(own, state.known)

    def opened(fetched: Any, state: Any) -> list[jax.Array]:
        return exchange._replace(draw=state.draw).open(fetched)

    def apply(leaves: list[jax.Array], x: Any) -> Any:
        return layer.fn(tree.unflatten(leaves), x)

    def scatter(gradients: Any, state: Any, fetched: Any) -> tuple[Any, Any]:
        known = fetched if layer.choices.difference else ()
        return layer.scattered(exchange, gradients, state, known)

    def forward(values: Any, state: Any, x: Any) -> tuple[Any, Any]:
        def turn(carry: Any, sliced: Any) -> tuple[Any, Any]:
            x, weights = carry
            fetched = fetch(*sliced)
            ahead = opened(fetched, sliced[1])
            return (apply(weights, x), ahead), (x, fetched if saved else ())

        first = fetch(_at(values, 0), _at(state, 0))
        start = x, opened(first, _at(state, 0))
        (x, weights), (xs, later) = lax.scan(turn, start, _from((values, state), 1))
        kept = jax.tree.map(_put_first, first, later) if saved else values
        return apply(weights, x), (state, kept, xs, x)

    def turned(carry: Any, sliced: Any) -> tuple[Any, Any]:
        """Backward through layer l: sends what l + 1 has left, gathers for l - 1."""
        dx, gradients, weights = carry
        x, (before, state_before), (after, state_after) = sliced
        sent = scatter(gradients, state_after, after)
        ahead = opened(before, state_before)
        gradients, dx = jax.vjp(apply, weights, x)[1](dx)
        return (dx, gradients, ahead), sent

    def backward(residuals: Any, dx: Any) -> tuple[Any, Any, Any]:
        state, kept, xs, x = residuals
        both = kept, state
        if layer.choices.reshard:  # else the compiler may gather before it is time
            both, dx = lax.optimization_barrier((both, dx))
        weights = opened(*_at(both, -1))
        gradients, dx = jax.vjp(apply, weights, x)[1](dx)
        if not len(jax.tree.leaves(xs)[0]):  # a single layer
            sent = [scatter(gradients, _at(state, 0), _at(kept, 0))]
            return *jax.tree.map(lambda *s: jnp.stack(s), *sent), dx
        carry = dx, gradients, opened(*_at(both, -2))
        inner = _from(xs, 1), jax.tree.map(lambda v: v[:-2], both), _from(both, 2)
        (dx, gradients, weights), later = lax.scan(turned, carry, inner, reverse=True)
        second = scatter(gradients, _at(state, 1), _at(kept, 1))
        gradients, dx = jax.vjp(apply, weights, _at(xs, 0))[1](dx)
        first = scatter(gradients, _at(state, 0), _at(kept, 0))
        later = jax.tree.map(_put_first, second, later)
        return *jax.tree.map(_put_first, first, later), dx

    @jax.custom_vjp
    def run(values: Any, state: Any, x: Any) -> Any:
        return forward(values, state, x)[0]

    run.defvjp(forward, backward)
    return run


def _at(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda v: v[i], tree)


def _from(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda v: v[i:], tree)


def _put_first(first: jax.Array, later: jax.Array) -> jax.Array:
    return jnp.concatenate([first[None], later])
