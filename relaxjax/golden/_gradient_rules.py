"""Golden rules of what stands before an optimizer, or inside of an exchange."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax import compression
from relaxjax.collectives import adasum
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

Config = dict[str, Any]
_AXIS = "data"


def _error_feedback_sign(config: Config, gradients: np.ndarray) -> dict[str, Any]:
    sent, states = _fed_back(compression.error_feedback(compression.sign()), gradients)
    return {"sent": sent, "residual": states.residual}


def _momentum_correction(config: Config, gradients: np.ndarray) -> dict[str, Any]:
    top_k = compression.top_k(config["k"] / gradients.shape[1], block_size=None)
    compressor = compression.momentum_correction(top_k, momentum=config["momentum"])
    sent, states = _fed_back(compressor, gradients)
    return {"sent": sent, "waiting": states.accumulated + sent}


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


def _dion2(config: Config, gradients: Any) -> dict[str, Any]:
    knobs = {"decay": config["decay"], "neuron_decay": config["neuron_decay"] or None}
    return _walked(dion2(_AXIS, config["fraction"], **knobs), gradients)


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


RULES = {
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
    "delay_compensation": _delay_compensation,
}
