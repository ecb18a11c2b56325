"""Exhibits of memory: residuals, warm starts, frozen statistics, counters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import relaxjax
from relaxjax import compression as codes
from tests.museum.exhibit import Exhibit, below, near, on_workers, once, steps

STEPS = 40
NOISE = np.random.default_rng(0).normal(size=(2, STEPS, 64)).astype(np.float32)


def drift(delivered: Any, residual: Any, gradients: np.ndarray) -> float:
    """What is neither delivered nor kept, as a part of all that there was."""
    there = gradients.sum(axis=0)
    lost = np.asarray(delivered) + np.asarray(residual) - there
    return float(np.linalg.norm(lost) / np.linalg.norm(there))


def wrong_sign_of_zero() -> float:
    """The residual is of sign(0) = 0, and the bit that travels is +1."""
    gradients = np.where(np.arange(64) % 2, NOISE[0], 0.0)
    e = delivered = np.zeros(64)
    for g in gradients:
        p = g + e
        scale = np.abs(p).mean()
        e = p - scale * np.sign(p)
        delivered = delivered + scale * np.where(p >= 0, 1.0, -1.0)
    return drift(delivered, e, gradients)


def run_with_feedback(compressor: Any, gradients: np.ndarray) -> tuple[Any, Any]:
    """What two equal workers deliver in all, and what they keep."""
    tx = relaxjax.all_reduce("data", compressor=codes.error_feedback(compressor))
    both = np.stack([gradients, gradients]).astype(np.float32)

    def run(g: Any) -> Any:
        def step(state: Any, now: Any) -> Any:
            updates, state = tx.update(now, state)
            return state, updates

        state, updates = lax.scan(step, tx.init(g[0]), g)
        return updates.sum(axis=0), jax.tree.leaves(state)

    delivered, leaves = on_workers(run, both)
    residual = next(x for x in leaves if x.shape[1:] == (64,))
    return delivered[0], residual.mean(axis=0)


def our_sign_of_zero() -> float:
    gradients = np.where(np.arange(64) % 2, NOISE[0], 0.0)
    return drift(*run_with_feedback(codes.sign(), gradients), gradients)


def wrong_way_back() -> float:
    e = delivered = np.zeros(64)
    for g in NOISE[0]:
        p = g + e
        c = np.abs(p).mean() * np.where(p >= 0, 1.0, -1.0)
        e, delivered = p + c, delivered + c
    return float(np.linalg.norm(e) / np.linalg.norm(NOISE[0, 0]))


def our_way_back() -> float:
    _, residual = run_with_feedback(codes.sign(), NOISE[0])
    return float(np.linalg.norm(residual) / np.linalg.norm(NOISE[0, 0]))


WITH_NAN = np.where(np.arange(STEPS)[:, None] == 3, np.nan, NOISE[0])


def wrong_nan() -> float:
    """Finite updates of the steps after the bad one, behind a guard that drops NaN."""
    e, finite = np.zeros(64), 0
    with np.errstate(invalid="ignore"):
        for g in WITH_NAN:
            p = g + e
            c = np.abs(p).mean() * np.where(p >= 0, 1.0, -1.0)
            e, finite = p - c, finite + bool(np.isfinite(c).all())
    return (finite - 3) / (STEPS - 4)


def our_nan() -> float:
    tx = relaxjax.all_reduce("data", compressor=codes.error_feedback(codes.sign()))
    tx = optax.apply_if_finite(tx, 100)
    updates = steps(tx, np.stack([WITH_NAN, WITH_NAN]).astype(np.float32))[0, 4:]
    return float((np.isfinite(updates) & (updates != 0)).all(axis=1).mean())


MATRIX = np.zeros((12, 8), np.float32)
MATRIX[4:] = np.outer(np.arange(1, 9), np.arange(1, 9)) / 8  # the first rows are dark


def wrong_power_sgd() -> float:
    """PowerSGD without anything against Q = 0, after one step of zeros."""
    q, e, out = np.random.default_rng(0).normal(size=(8, 2)), 0.0, 0.0
    for step in range(STEPS):
        m = (MATRIX if step else 0 * MATRIX) + e
        p, _ = np.linalg.qr(m @ q)
        q = m.T @ p
        out, e = p @ q.T, m - p @ q.T
    return float(np.linalg.norm(out) / np.linalg.norm(MATRIX))


def our_power_sgd() -> float:
    gradients = np.stack([0 * MATRIX, *[MATRIX] * (STEPS - 1)])
    tx = relaxjax.power_sgd("data", rank=2, min_compression=0.0)
    updates = steps(tx, np.stack([gradients, gradients]))
    return float(np.linalg.norm(updates[0, -1]) / np.linalg.norm(MATRIX))


def wrong_clip() -> float:
    g = NOISE[0, 0]
    clipped = np.clip(g, -0.5, 0.5)
    return float(clipped @ g / np.linalg.norm(clipped) / np.linalg.norm(g))


def our_clip() -> float:
    tx = relaxjax.deep_gradient_compression(
        "data", density=1.0, momentum=0.0, warmup_densities=(), clip=0.5
    )
    g = NOISE[0, 0]
    sent = once(tx, np.stack([g, g]).reshape(2, 8, 8))[0].ravel()
    return float(sent @ g / np.linalg.norm(sent) / np.linalg.norm(g))


def wrong_outer() -> float:
    """Feedback keeps eta times the change, and the outer SGD takes eta of that."""
    eta, moved, e = 0.8, -1.0, 0.0
    p = e + eta * moved
    return -eta * p


def our_outer() -> float:
    eight = codes.error_feedback(codes.quantize(8))
    outer = optax.sgd(0.8)
    tx = relaxjax.diloco(optax.sgd(1.0), "data", 1, outer=outer, compressor=eight)
    return -float(once(tx, np.ones((2, 1), np.float32))[0, 0])


WARM, RATE, DECAY = 3, 0.1, 0.5
DARK = np.where(np.arange(64) < 32, 0.0, NOISE)  # a half that gets no gradient at first


def wrong_frozen() -> float:
    """The largest step after the warm-up, by a variance that is frozen at zero."""
    variance = np.zeros(64)
    for g in DARK[0, :WARM]:
        variance = 0.999 * variance + 0.001 * g**2
    return float((RATE * np.abs(NOISE[0, WARM]) / (np.sqrt(variance) + 1e-8)).max())


def one_bit(gradients: np.ndarray, decay: float) -> np.ndarray:
    """Updates of 1-bit Adam, params 1, with its warm-up and behind it."""
    tx = relaxjax.one_bit_adam("data", RATE, freeze_step=WARM, weight_decay=decay)
    gradients = gradients.astype(np.float32).reshape(2, -1, 8, 8)
    each = jax.jit(jax.vmap(tx.update, axis_name="data"))
    params = jnp.ones_like(gradients[:, 0])
    state, found = jax.vmap(tx.init, axis_name="data")(params), []
    for step in range(gradients.shape[1]):
        updates, state = each(gradients[:, step], state, params)
        state = relaxjax.advance_phases(state)
        found.append(np.asarray(updates))
    return np.stack(found, axis=1)


def our_frozen() -> float:
    gradients = np.concatenate([DARK[:, :WARM], NOISE[:, WARM : WARM + 1]], axis=1)
    return float(np.abs(one_bit(gradients, 0.0)[:, -1]).max())


def wrong_decay() -> float:
    """The step of momentum alone, of params 1 without gradients."""
    momentum, w = 0.0, 1.0
    return w - (w - RATE * momentum)


def our_decay() -> float:
    zeros = np.zeros((2, WARM + 2, 64), np.float32)
    return float(-one_bit(zeros, DECAY)[0, -1].mean())


def wrong_rounds() -> float:
    """The counter stands at 9 of a period of 16, and the period becomes 8."""
    step, rounds = 9, 0
    for _ in range(STEPS):
        rounds += step == 8 - 1
        step = 0 if step == 8 - 1 else step + 1
    return float(rounds)


def our_rounds() -> float:
    """Steps after which two workers with unlike gradients have equal models."""
    long: Any = relaxjax.local_sgd("data", 16)
    short: Any = relaxjax.local_sgd("data", 8)
    gradients = NOISE[:, :1, 0]

    def run(g: Any) -> Any:
        params = jnp.zeros_like(g)
        state = long.init(params)
        for _ in range(9):
            updates, state = long.update(g, state, params)
            params = params + updates

        def step(carry: Any, _: None) -> Any:
            params, state = carry
            updates, state = short.update(g, state, params)
            return (params + updates, state), params + updates

        return lax.scan(step, (params, state), length=STEPS)[1]

    first, second = on_workers(run, gradients)
    return float((first == second).all(axis=1).sum())


EXHIBITS = [
    Exhibit("The sign of zero", wrong_sign_of_zero, our_sign_of_zero, below(1e-5)),
    Exhibit("Feedback with the wrong sign", wrong_way_back, our_way_back, below(5)),
    Exhibit("A variance that is frozen at zero", wrong_frozen, our_frozen, below(1)),
    Exhibit(
        "Weight decay that ends with the warm-up",
        wrong_decay,
        our_decay,
        near(RATE * DECAY),
    ),
    Exhibit("A NaN that feedback keeps", wrong_nan, our_nan, near(1)),
    Exhibit(
        "A direction that is lost for ever",
        wrong_power_sgd,
        our_power_sgd,
        near(1, 0.05),
    ),
    Exhibit("A clip of each element", wrong_clip, our_clip, near(1)),
    Exhibit(
        "A learning rate that counts twice", wrong_outer, our_outer, near(0.8, 0.01)
    ),
    Exhibit("A counter past its end", wrong_rounds, our_rounds, near(5)),
]
