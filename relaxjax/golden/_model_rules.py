"""Golden rules of local steps, outer optimizers, and exchanges with neighbors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax import topology
from relaxjax.decentralized import exact_diffusion, quasi_global_momentum
from relaxjax.local_updates import (
    delayed_nesterov,
    desynced,
    diloco,
    heloco,
    slow_momentum,
    sparta,
    streaming_diloco,
)

Config = dict[str, Any]
_AXIS = "data"


def _nesterov_outer(config: Config, deltas: np.ndarray) -> dict[str, Any]:
    """Takes each outer gradient as an inner step of plain SGD at rate 1."""
    outer = optax.sgd(config["learning_rate"], config["momentum"], nesterov=True)
    tx = diloco(optax.sgd(1.0), _AXIS, 1, outer=outer)
    start, gradients = np.zeros_like(deltas[:1]), jnp.asarray(deltas)
    seen = _walk(tx, start, lambda x, step, place: gradients[step], len(deltas))
    return {"params": seen[:, 0]}


def _radial_directional(config: Config, gradients: Any, weights: Any) -> dict[str, Any]:
    """What a single outer step of rate 1 takes from the first worker's model at 0."""
    del config
    tx = diloco(optax.sgd(1.0), _AXIS, 1, outer=optax.sgd(1.0), merge="rda")

    def worker(gradient: jax.Array, weight: jax.Array) -> jax.Array:
        x = jnp.zeros_like(gradient)  # goes to -gradient, which is D = gradient
        moved: Any = tx.update(gradient, tx.init(x), x, weight=weight)[0]
        return -moved

    run = jax.vmap(worker, axis_name=_AXIS)
    return {"merged": run(jnp.asarray(gradients), jnp.asarray(weights))[0]}


def _streaming_diloco(config: Config, start: Any, targets: Any) -> dict[str, Any]:
    """Makes each element a leaf, and each leaf a fragment."""
    c, goals = config, jnp.asarray(targets)
    outer = optax.sgd(c["outer_learning_rate"], c["outer_momentum"], nesterov=True)
    by_leaf = streaming_diloco(
        optax.sgd(c["learning_rate"]),
        _AXIS,
        c["sync_every"],
        fragments=len(start),
        overlap=c["overlap"],
        mixing=c["mixing"],
        fragment_of=int,
        outer=outer,
    )

    def leaves(x: Any) -> Any:
        return {str(p): x[p] for p in range(len(start))}

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        out, state = by_leaf.update(leaves(updates), state, leaves(params))
        return jnp.stack(jax.tree.leaves(out)), state

    tx = optax.GradientTransformation(
        lambda params: by_leaf.init(leaves(params)), update
    )
    return _pulled(tx, config, np.tile(start, (len(goals), 1)), goals)


def _desynced(config: Config, gradients: Any) -> dict[str, Any]:
    c = config
    inner = optax.adam(c["learning_rate"], c["b1"], c["b2"], c["eps"])
    tx = desynced(inner, _AXIS, periods=c["periods"])

    def worker(gs: jax.Array) -> dict[str, jax.Array]:
        x: Any = jnp.zeros(gs.shape[1:])
        state, seen = tx.init(x), []
        for g in gs:
            u, state = tx.update(g, state, x)
            x = optax.apply_updates(x, u)
            moments = {name: optax.tree.get(state, name) for name in ("mu", "nu")}
            seen.append({"params": x, **moments})
        return jax.tree.map(lambda *xs: jnp.stack(xs), *seen)

    found = jax.vmap(worker, axis_name=_AXIS)(jnp.asarray(gradients).swapaxes(0, 1))
    return {name: x.swapaxes(0, 1) for name, x in found.items()}


def _delayed_nesterov(config: Config, gradients: Any) -> dict[str, Any]:
    rate, momentum, every = (config[k] for k in ("learning_rate", "momentum", "every"))
    return _arrived(delayed_nesterov(rate, momentum=momentum, every=every), gradients)


def _heloco(config: Config, gradients: Any) -> dict[str, Any]:
    knobs = dict(config)
    return _arrived(heloco(knobs.pop("learning_rate"), **knobs), gradients)


def _arrived(tx: Any, gradients: Any) -> dict[str, Any]:
    """Params after outer gradients that came one by one."""
    x = jnp.zeros(gradients.shape[1])
    state, params = tx.init(x), []
    for d in jnp.asarray(gradients):
        step, state = tx.update(d, state)
        x = x + step
        params.append(x)
    return {"params": jnp.stack(params)}


def _sparta(config: Config, start: Any) -> dict[str, Any]:
    """Workers who stand still but for what they average."""
    tx, steps = sparta(_AXIS, config["share"]), config["steps"]
    seen = _walk(tx, start, lambda x, step, place: jnp.zeros_like(x), steps)
    return {"params": seen[-1]}


def _slow_momentum(config: Config, start: Any, gradient: Any) -> dict[str, Any]:
    every, rate = config["sync_every"], config["learning_rate"]
    slow = slow_momentum(_AXIS, every, momentum=config["momentum"])
    tx, g = optax.chain(optax.sgd(rate), slow), jnp.asarray(gradient)
    seen = _walk(tx, start[None], lambda x, step, place: g, every * config["rounds"])
    return {"params": seen[every - 1 :: every, 0]}


def _exact_diffusion(
    config: Config, start: Any, targets: Any, mixing: Any
) -> dict[str, Any]:
    method = exact_diffusion(_AXIS, topology.from_matrix(mixing.tolist()))
    tx = optax.chain(optax.sgd(config["learning_rate"]), method)
    return _pulled(tx, config, start, targets)


def _quasi_global_momentum(
    config: Config, start: Any, targets: Any, mixing: Any
) -> dict[str, Any]:
    graph = topology.from_matrix(mixing.tolist())
    method = quasi_global_momentum(_AXIS, graph, momentum=config["momentum"])
    tx = optax.chain(optax.sgd(config["learning_rate"]), method)
    return _pulled(tx, config, start, targets)


def _pulled(tx: Any, config: Config, start: Any, targets: Any) -> dict[str, Any]:
    """Params of workers whose gradient is the way from their target."""
    goals = jnp.asarray(targets)
    seen = _walk(tx, start, lambda x, step, place: x - goals[place], config["steps"])
    return {"params": seen}


def _walk(tx: Any, start: Any, gradient: Any, steps: int) -> jax.Array:
    """Params after each step, [steps, workers, ...]; `gradient(x, step, worker)`."""

    def worker(x: jax.Array, place: jax.Array) -> jax.Array:
        state, seen = tx.init(x), []
        for step in range(steps):
            updates, state = tx.update(gradient(x, step, place), state, x)
            x = x + updates
            seen.append(x)
        return jnp.stack(seen)

    start = jnp.asarray(start)
    run = jax.vmap(worker, axis_name=_AXIS, out_axes=1)
    return run(start, jnp.arange(len(start)))


RULES = {
    "nesterov_outer": _nesterov_outer,
    "radial_directional": _radial_directional,
    "streaming_diloco": _streaming_diloco,
    "desynced": _desynced,
    "delayed_nesterov": _delayed_nesterov,
    "heloco": _heloco,
    "sparta": _sparta,
    "slow_momentum": _slow_momentum,
    "exact_diffusion": _exact_diffusion,
    "quasi_global_momentum": _quasi_global_momentum,
}
