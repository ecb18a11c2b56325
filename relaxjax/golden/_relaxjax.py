"""The implementation of the golden vectors' rules by relaxjax itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax import compression, topology
from relaxjax.collectives import adasum
from relaxjax.decentralized import exact_diffusion, quasi_global_momentum
from relaxjax.gradients import (
    all_reduce,
    alternate,
    arc_top_k,
    dc_asgd,
    demo,
    dion,
    dion2,
    low_rank_mean,
)
from relaxjax.local_updates import (
    delayed_nesterov,
    desynced,
    diloco,
    heloco,
    slow_momentum,
    sparta,
    streaming_diloco,
)

Inputs = dict[str, np.ndarray]
Config = dict[str, Any]
_AXIS = "data"


def implementation(name: str, config: Config, inputs: Inputs) -> dict[str, Any]:
    """Applies a rule to a golden vector's inputs.

    Args:
      name: the rule's name.
      config: its parameters.
      inputs: float32 arrays by name.

    Returns:
      Arrays by name.

    Raises:
      NotImplementedError: relaxjax has no such rule.
    """
    if name in _CODES:
        x = jnp.asarray(inputs["x"])
        return {"decoded": compression.roundtrip(_CODES[name](config, x), x)}
    if name in _RANDOM:
        return _moments(name, inputs["x"], **config)
    if name not in _RULES:
        raise NotImplementedError(name)
    return _RULES[name](config, **inputs)


def _cast(config: Config, x: jax.Array) -> compression.Compressor:
    dtype = jnp.dtype(config["dtype"])
    if dtype == jnp.float8_e4m3fn:  # relaxjax has only the form with scales
        raise NotImplementedError("cast to float8 without a scale")
    return compression.cast(dtype)


_CODES = {
    "cast": _cast,
    "scaled_float8": lambda c, x: compression.cast(jnp.float8_e4m3fn, **c),
    "quantize": lambda c, x: compression.quantize(**c),
    "min_max_uint8": lambda c, x: compression.min_max_uint8(),
    "sign": lambda c, x: compression.sign(**c),
    "top_k": lambda c, x: compression.top_k(c["k"] / len(x), block_size=None),
}

_RANDOM = {
    "stochastic_quantize": lambda x, **c: compression.quantize(
        **c, stochastic_rounding=True
    ),
    "qsgd": lambda x, **c: compression.qsgd(**c),
    "tern_grad": lambda x, **c: compression.tern_grad(**c),
    "natural": lambda x: compression.natural(),
    "random_k": lambda x, k: compression.random_k(k / len(x)),
}


def _moments(name: str, x: np.ndarray, draws: int, **config: Any) -> dict[str, Any]:
    """Mean and variance of the decoded values, over keys."""
    compressor, array = _RANDOM[name](x, **config), jnp.asarray(x)
    keys = jax.random.split(jax.random.key(0), draws)
    decoded = jax.vmap(lambda key: compression.roundtrip(compressor, array, key))(keys)
    return {"mean": decoded.mean(axis=0), "variance": decoded.var(axis=0)}


def _fed_back(compressor: compression.Compressor, gradients: Any) -> tuple[Any, Any]:
    """The messages of one worker, and its state after each."""
    feedback = compressor.feedback
    state, sent, states = feedback.init(jnp.asarray(gradients[0])), [], []
    for g in jnp.asarray(gradients):
        p = feedback.before(g, state)
        c = compressor.decompress(compressor.compress(p, None), p.size, None)
        out, state = feedback.after(g, c, c, state)
        sent.append(out)
        states.append(state)
    return jnp.stack(sent), jax.tree.map(lambda *x: jnp.stack(x), *states)


def _error_feedback_sign(config: Config, gradients: np.ndarray) -> dict[str, Any]:
    sent, states = _fed_back(compression.error_feedback(compression.sign()), gradients)
    return {"sent": sent, "residual": states.residual}


def _momentum_correction(config: Config, gradients: np.ndarray) -> dict[str, Any]:
    top_k = compression.top_k(config["k"] / gradients.shape[1], block_size=None)
    compressor = compression.momentum_correction(top_k, momentum=config["momentum"])
    sent, states = _fed_back(compressor, gradients)
    return {"sent": sent, "waiting": states.accumulated + sent}


def _power_sgd(config: Config, matrices: Any, right: Any) -> dict[str, Any]:
    def mean(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        return [jax.lax.pmean(x, _AXIS) for x in arrays], []

    def worker(m: jax.Array) -> jax.Array:
        residual, q, outs = jnp.zeros_like(m), [jnp.asarray(right)[None]], []
        for _ in range(config["steps"]):
            sent = (m + residual)[None]
            (out,), q, *_ = low_rank_mean([sent], q, [], mean, 1)
            outs.append(out[0])
            residual = config["error_feedback"] * (sent - out)[0]
        return jnp.stack(outs)

    outs = jax.vmap(worker, axis_name=_AXIS)(jnp.asarray(matrices))
    return {"approximation": outs[0]}


def _acp_sgd(config: Config, matrices: Any, left: Any, right: Any) -> dict[str, Any]:
    def mean(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        return [jax.lax.pmean(x, _AXIS) for x in arrays], [0 * x for x in arrays]

    def worker(m: jax.Array) -> tuple[jax.Array, jax.Array]:
        p, q = ([jnp.asarray(x)[None]] for x in (left, right))
        residual, outs, residuals = jnp.zeros_like(m), [], []
        for step in range(config["steps"]):
            x = [(m + residual)[None]]
            key = jax.random.key(step)
            (out,), (lost,), p, q, *_ = alternate(x, p, q, [], mean, step, key)
            residual = lost[0]
            outs.append(out[0])
            residuals.append(residual)
        return jnp.stack(outs), jnp.stack(residuals)

    outs, residuals = jax.vmap(worker, axis_name=_AXIS)(jnp.asarray(matrices))
    return {"approximation": outs[0], "residual": residuals.swapaxes(0, 1)}


def _adasum(config: Config, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    both = jnp.stack([a, b])
    return {"sum": jax.vmap(lambda x: adasum(x, _AXIS), axis_name=_AXIS)(both)[0]}


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


def _pulled(tx: Any, config: Config, start: Any, targets: Any) -> dict[str, Any]:
    """Params of workers whose gradient is the way from their target."""
    goals = jnp.asarray(targets)
    seen = _walk(tx, start, lambda x, step, place: x - goals[place], config["steps"])
    return {"params": seen}


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


def _dion2(config: Config, gradients: Any) -> dict[str, Any]:
    knobs = {"decay": config["decay"], "neuron_decay": config["neuron_decay"] or None}
    return _walked(dion2(_AXIS, config["fraction"], **knobs), gradients)


def _intersection_feedback(config: Config, gradients: Any) -> dict[str, Any]:
    chunk = gradients.shape[2] // gradients.shape[1]
    code = compression.top_k(config["k"] / chunk, block_size=None)
    feedback = compression.intersection_feedback(code)
    tx = all_reduce(_AXIS, algorithm="two_shot", compressor=feedback)

    def worker(gradients: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(state: Any, g: jax.Array) -> Any:
            out, state = tx.update(g, state)
            return state, (out, state.compressed.feedback.residual)

        return jax.lax.scan(step, tx.init(gradients[0]), gradients)[1]

    workers = jnp.asarray(gradients).swapaxes(0, 1)
    sent, residual = jax.vmap(worker, axis_name=_AXIS)(workers)
    return {"sent": sent[0], "residual": residual.swapaxes(0, 1)}


def _arc_top_k(config: Config, gradients: Any) -> dict[str, Any]:
    tx = arc_top_k(_AXIS, config["density"], rank=1, eta=config["eta"])
    return _walked(tx, gradients, keep=("momentum", "known"))


def _demo(config: Config, gradients: Any) -> dict[str, Any]:
    return _walked(demo(_AXIS, **config), gradients)


def _dion(config: Config, gradients: Any, right: Any) -> dict[str, Any]:
    fraction = right.shape[1] / right.shape[0]
    tx = dion(_AXIS, fraction, decay=config["decay"])
    return _walked(tx, gradients, right=jnp.asarray(right)[None])


def _walked(
    tx: Any, gradients: Any, keep: tuple[str, ...] = ("momentum",), **start: Any
) -> dict[str, Any]:
    """Updates, and fields of the state of workers, over some steps."""

    def worker(gradients: jax.Array) -> Any:
        def step(state: Any, g: jax.Array) -> Any:
            out, state = tx.update(g, state)
            return state, (out, {name: getattr(state, name) for name in keep})

        state = tx.init(gradients[0])._replace(**start)
        return jax.lax.scan(step, state, gradients)[1]

    workers = jnp.asarray(gradients).swapaxes(0, 1)
    updates, fields = jax.vmap(worker, axis_name=_AXIS)(workers)
    kept = {name: x.swapaxes(0, 1) for name, x in fields.items()}
    return {"updates": updates[0], **kept}


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
    tx = sparta(_AXIS, config["share"])

    def worker(x: jax.Array) -> jax.Array:
        state = tx.init(x)
        for _ in range(config["steps"]):
            u, state = tx.update(jnp.zeros_like(x), state, x)
            x = jnp.asarray(optax.apply_updates(x, u))
        return x

    return {"params": jax.vmap(worker, axis_name=_AXIS)(jnp.asarray(start))}


def _slow_momentum(config: Config, start: Any, gradient: Any) -> dict[str, Any]:
    every, rate = config["sync_every"], config["learning_rate"]
    slow = slow_momentum(_AXIS, every, momentum=config["momentum"])
    tx, g = optax.chain(optax.sgd(rate), slow), jnp.asarray(gradient)
    seen = _walk(tx, start[None], lambda x, step, place: g, every * config["rounds"])
    return {"params": seen[every - 1 :: every, 0]}


def _delay_compensation(
    config: Config, params: Any, taken: Any, gradient: Any
) -> dict[str, Any]:
    """Applies a gradient that was taken a step ago."""
    late = dc_asgd(_AXIS, [[1]], strength=config["strength"])
    tx = optax.chain(late, optax.sgd(config["learning_rate"]))

    def worker(now: jax.Array, then: jax.Array, g: jax.Array) -> Any:
        _, state = tx.update(g, tx.init(then), then)
        updates, _ = tx.update(jnp.zeros_like(g), state, now)
        return optax.apply_updates(now, updates)

    rows = [jnp.asarray(x)[None] for x in (params, taken, gradient)]
    return {"params": jax.vmap(worker, axis_name=_AXIS)(*rows)[0]}


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


_RULES = {
    "error_feedback_sign": _error_feedback_sign,
    "momentum_correction": _momentum_correction,
    "power_sgd": _power_sgd,
    "acp_sgd": _acp_sgd,
    "intersection_feedback": _intersection_feedback,
    "arc_top_k": _arc_top_k,
    "demo": _demo,
    "dion": _dion,
    "dion2": _dion2,
    "adasum": _adasum,
    "nesterov_outer": _nesterov_outer,
    "radial_directional": _radial_directional,
    "streaming_diloco": _streaming_diloco,
    "desynced": _desynced,
    "delayed_nesterov": _delayed_nesterov,
    "heloco": _heloco,
    "sparta": _sparta,
    "slow_momentum": _slow_momentum,
    "delay_compensation": _delay_compensation,
    "exact_diffusion": _exact_diffusion,
    "quasi_global_momentum": _quasi_global_momentum,
}
