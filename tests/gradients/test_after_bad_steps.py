"""What reducers keep from step to step, after steps that were zero, NaN or without one.

A guard behind a reducer drops an update that is not finite; what the reducer keeps must
not hold on to it. A direction that was lost comes back. Absent workers wait.
"""

import functools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings

import relaxjax
from relaxjax import compression

WORKERS, SHAPE = 3, (6, 8)
COMPRESSORS = {
    "sign": compression.sign,
    "quantize(4)": lambda: compression.quantize(4, block_size=16),
    "top_k": lambda: compression.top_k(0.25, block_size=16),
}
FEEDBACKS: dict[str, Callable[..., Any]] = {
    "error_feedback": compression.error_feedback,
    "error_feedback, decay": functools.partial(compression.error_feedback, decay=0.9),
    "intersection_feedback": compression.intersection_feedback,
    "ef21": compression.ef21,
    "ef21_sgdm": compression.ef21_sgdm,
    "econtrol": compression.econtrol,
    "loco": compression.loco,
    "momentum_correction": compression.momentum_correction,
}
REDUCERS: dict[str, Callable[[], Any]] = {
    f"{name}, {code}, {algorithm}": functools.partial(
        lambda rule, codec, algorithm: relaxjax.all_reduce(
            "data", compressor=rule(codec()), algorithm=algorithm
        ),
        rule,
        codec,
        algorithm,
    )
    for name, rule in FEEDBACKS.items()
    for code, codec in COMPRESSORS.items()
    for algorithm in ("one_shot", "two_shot")
}
REDUCERS |= {
    f"{method.__name__}, {bits} bits": functools.partial(
        method, "data", rank=2, bits=bits, min_compression=0
    )
    for method in (relaxjax.power_sgd, relaxjax.acp_sgd)
    for bits in (32, 8)
}
REDUCERS |= {
    f"arc_top_k, {bits} bits": functools.partial(
        relaxjax.arc_top_k, "data", 0.5, rank=1, eta=0.5, bits=bits
    )
    for bits in (32, 8)
}
REDUCERS["deep_gradient_compression"] = functools.partial(
    relaxjax.deep_gradient_compression, "data", density=0.25, block_size=16
)
reducers = pytest.mark.parametrize("make", REDUCERS.values(), ids=REDUCERS)


@functools.cache
def steps_of(make: Callable[[], Any]) -> tuple[Any, Any]:
    tx = make()
    init = jax.vmap(tx.init, axis_name="data")
    update = jax.vmap(lambda g, s, w: tx.update(g, s, weight=w), axis_name="data")
    return jax.jit(init), jax.jit(update)


def run(make: Callable[[], Any], gs: Any, weights: Any = None) -> tuple[Any, list[Any]]:
    """The updates of each step, and the states after it."""
    init, update = steps_of(make)
    ones = np.ones((len(gs), WORKERS), np.float32)
    weights = ones if weights is None else weights
    outs, states = [], [init({"w": jnp.zeros((WORKERS, *SHAPE))})]
    for g, w in zip(gs, weights, strict=True):
        out, state = update({"w": jnp.asarray(g, jnp.float32)}, states[-1], w)
        outs.append(np.asarray(out["w"]))
        states.append(state)
    return np.stack(outs), states


def numbers(state: Any) -> list[np.ndarray]:
    """Floating arrays of a state."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(state)]
    return [x for x in leaves if np.issubdtype(x.dtype, np.floating)]


def gradients(steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, WORKERS, *SHAPE)) + rng.normal(size=SHAPE)


@pytest.mark.few(3)
@reducers
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_seen_once_and_then_forgotten(make, bad):
    gs = gradients(30)
    gs[3, 1, 2, 4] = bad
    outs, states = run(make, gs)
    assert not np.isfinite(outs[3]).all(axis=(1, 2)).any()
    for state in states[4:]:
        assert all(np.isfinite(x).all() for x in numbers(state))
    assert np.isfinite(outs[4:]).all()
    if "momentum_correction" not in name_of(make):  # which sends tenfold sums
        late = outs[15:, 0].mean(0) - gs[15:].mean((0, 1))
        assert np.abs(late).max() < 1.5  # in the mean of fifteen steps, each of some 1


@pytest.mark.few(3)
@reducers
@pytest.mark.parametrize("absent", [1, WORKERS])
def test_absent_workers_wait(make, absent):
    """Without a message that passes through it, an absent worker's state stays."""
    gs = gradients(6)
    weights = np.ones((6, WORKERS), np.float32)
    weights[2:5, :absent] = 0
    gs[2:5, :absent] = np.nan
    outs, states = run(make, gs, weights)
    assert np.isfinite(outs).all()
    names = ["residual", "accumulated", "velocity", "momentum"]
    for name in names:
        kept = [optax.tree.get_all_with_path(s, name) for s in (states[2], states[5])]
        for (_, before), (_, after) in zip(*kept, strict=True):
            if (
                isinstance(before, dict)
                and before["w"].ndim == 3
                and name_of(make).endswith("one_shot")
            ):
                np.testing.assert_array_equal(before["w"][0], after["w"][0])


def name_of(make: Callable[[], Any]) -> str:
    return next(name for name, x in REDUCERS.items() if x is make)


def dead_rows(steps: int) -> np.ndarray:
    """The first two rows never have a gradient, and the first step has none at all."""
    gs = gradients(steps)
    gs[:, :, :2] = 0
    gs[0] = 0
    return gs


def owed(state: Any) -> float:
    """The norm of the mean of e: each worker's own drifts off as its gradients do."""
    return float(np.linalg.norm(np.asarray(state.residual["w"]).mean(axis=0)))


LOW_RANK = {
    "power_sgd": (relaxjax.power_sgd, "right"),
    "acp_sgd": (relaxjax.acp_sgd, "left"),  # sent in the first step
}
low_rank = pytest.mark.parametrize(("method", "sent"), LOW_RANK.values(), ids=LOW_RANK)


@pytest.mark.few(6)
@low_rank
@pytest.mark.parametrize("bits", [32, 16, 8])
@pytest.mark.parametrize("rank", [1, 2])
def test_lost_directions_are_found_again(method, sent, bits, rank):
    make = functools.cache(
        lambda: method("data", rank=rank, bits=bits, min_compression=0)
    )
    gs = dead_rows(60)
    outs, states = run(make, gs)
    assert (np.abs(outs[10:]).max(axis=(1, 2, 3)) > 0.1).all()
    residuals = list(map(owed, states))
    assert max(residuals[30:]) < 2 * max(residuals[5:30])
    factor = np.asarray(getattr(states[1], sent)["w"])
    assert (np.linalg.norm(factor, axis=-2) > 0.1).all()
    assert (factor == factor[:1]).all()


BOUNDED = st.sampled_from(["zero", "same", "random", "one row", "opposite"])


@pytest.mark.few(2)
@pytest.mark.parametrize("method", [m for m, _ in LOW_RANK.values()], ids=LOW_RANK)
@pytest.mark.parametrize("rank", [1, 3])
@settings(deadline=None, max_examples=10)
@given(kinds=st.lists(BOUNDED, min_size=8, max_size=16), dead=st.integers(0, 4))
def test_any_bounded_gradients_leave_a_bounded_residual(method, rank, kinds, dead):
    """Whatever came, forty usual steps later the residual no longer grows."""
    rng = np.random.default_rng(len(kinds))
    one = rng.normal(size=(WORKERS, *SHAPE))
    row = np.zeros((WORKERS, *SHAPE))
    row[:, -1] = 1
    of = {"zero": 0 * one, "same": one, "one row": row, "opposite": -one}
    start = [of.get(k, rng.normal(size=one.shape)) for k in kinds]
    usual = one + 0.3 * rng.normal(size=(80, *one.shape))
    gs = np.stack([*start, *usual])
    gs[:, :, :dead] = 0
    _, states = run(ranks(method, rank), gs)
    norms = [owed(state) for state in states[len(kinds) :]]
    assert max(norms[40:]) <= 2 * max(norms[:40]) + 1e-3


@functools.cache
def ranks(method: Callable[..., Any], rank: int) -> Callable[[], Any]:
    return functools.cache(lambda: method("data", rank=rank, min_compression=0))


OPTIMIZERS = {
    "one_bit_adam": lambda: relaxjax.one_bit_adam("data", 0.1, freeze_step=3),
    "one_bit_lamb": lambda: relaxjax.one_bit_lamb("data", 0.1, freeze_step=3),
    "zero_one_adam": lambda: relaxjax.zero_one_adam(
        "data", 0.1, freeze_step=3, local_doubling=2, most_local_steps=4
    ),
}


def train(make: Callable[[], Any], gs: Any, weights: Any) -> tuple[Any, list[Any]]:
    """Params of each step, and the states after it, through the phases."""
    tx = make()
    x = jnp.ones((WORKERS, *SHAPE))
    state = jax.vmap(tx.init, axis_name="data")({"w": x})

    @jax.jit
    def step(x, state, g, w):
        def one(x, state, g, w):
            u, state = tx.update({"w": g}, state, {"w": x}, weight=w)
            return x + u["w"], state

        return jax.vmap(one, axis_name="data")(x, state, g, w)

    xs, states = [], [state]
    for g, w in zip(np.asarray(gs, np.float32), weights, strict=True):
        x, state = step(x, relaxjax.advance_phases(states[-1]), g, w)
        xs.append(np.asarray(x))
        states.append(state)
    return np.stack(xs), states


@pytest.mark.few(2)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_do_not_look_at_what_the_absent_hold(make):
    """In any step, also between two synchronizations."""
    gs, weights = gradients(16), np.ones((16, WORKERS), np.float32)
    for step in range(6, 14):
        gs[step, step % WORKERS] = np.nan
        weights[step, step % WORKERS] = 0
    xs, states = train(make, gs, weights)
    assert np.isfinite(xs).all()
    assert all(np.isfinite(x).all() for x in numbers(states[-1]))


@pytest.mark.few(2)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_keep_their_momentum_where_nobody_has_an_example(make):
    gs, weights = gradients(16), np.ones((16, WORKERS), np.float32)
    weights[8:12] = 0
    _, states = train(make, gs, weights)
    before, after = (
        np.linalg.norm(optax.tree.get(states[i], "mu")["w"]) for i in (8, 12)
    )
    assert after > 0.5 * before


def test_a_round_counts_workers_by_the_sum_of_their_weights():
    """A worker that was away in the last of four steps counts for three."""
    make, gs = OPTIMIZERS["zero_one_adam"], gradients(16)
    weights = np.ones((16, WORKERS), np.float32)
    weights[12, 0] = 0
    _, states = train(make, gs, weights)
    (_, rounds), *_ = optax.tree.get_all_with_path(states[13], "examples")
    assert rounds.shape == (WORKERS,)
    totals = np.stack(
        [optax.tree.get_all_with_path(s, "examples")[0][1] for s in states[4:]]
    )
    assert (np.diff(totals[:, 1])[np.diff(totals[:, 1]) > 0] == 1).all()
    assert totals[:, 1].max() == 3  # the fourth step ends the round
    assert (totals[:, 0] <= totals[:, 1]).all()
    assert (totals[:, 0] < totals[:, 1]).any()


IN_FLOAT16 = {
    "all_reduce": lambda: relaxjax.all_reduce(
        "data", compressor=compression.error_feedback(compression.quantize(8))
    ),
    "power_sgd": lambda: relaxjax.power_sgd("data", rank=4, min_compression=0),
    "parameter_server": lambda: relaxjax.parameter_server(
        optax.sgd(1.0), "data", compressor=compression.quantize(8)
    ),
}


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("make", IN_FLOAT16.values(), ids=IN_FLOAT16)
def test_weights_take_float16_out_of_range_on_the_way_only(make):
    """n w g / sum w is not in range; g and the mean are."""
    tx: Any = make()
    g = {"w": jnp.full((WORKERS, *SHAPE), 3e4, jnp.float16)}
    weights = jnp.array([1.0, 0.0, 0.0])

    def update(g, w):
        return tx.update(g, tx.init(g), g, weight=w)[0]

    out = jax.vmap(update, axis_name="data")(g, weights)["w"]
    assert out.dtype == jnp.float16
    np.testing.assert_allclose(np.abs(np.asarray(out, np.float32)), 3e4, rtol=0.02)


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e20, 1e38])
def test_clipping_keeps_the_direction_of_any_gradient(size):
    tx: Any = relaxjax.deep_gradient_compression("data", density=1.0, clip=3.0**0.5)
    g = np.linspace(-1, 1, 48, dtype=np.float32).reshape(SHAPE)
    gs = {"w": jnp.asarray(np.float32(size) * np.stack([g] * WORKERS))}
    out = jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data")(gs)["w"]
    unit = g * min(size, 1 / np.linalg.norm(g))
    np.testing.assert_allclose(out[0], unit, rtol=1e-5, atol=1e-12)
