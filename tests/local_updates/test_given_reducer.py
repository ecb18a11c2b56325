"""Models and outer gradients averaged by a reducer of the user's, such as PowerSGD."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import (
    all_reduce,
    compression,
    diloco,
    eager_diloco,
    emulate,
    local_sgd,
    power_sgd,
    slow_momentum,
    wire_bytes,
)
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.checkpoint._resize import resized
from relaxjax.gradients import PowerSGDState
from tests import helpers
from tests.checkpoint import training
from tests.helpers import assert_close, assert_equal

WORKERS, EVERY, SHAPE = 3, 2, (12, 10)


def find_state(tree: Any, kind: type) -> Any:
    """The first state of a class."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, kind))
    return next(x for x in leaves if isinstance(x, kind))


METHODS = {
    "local_sgd": lambda **how: local_sgd("data", EVERY, **how),
    "slow_momentum": lambda **how: slow_momentum("data", EVERY, **how),
    "diloco": lambda **how: diloco(optax.identity(), "data", EVERY, **how),
    "eager_diloco": lambda **how: eager_diloco(optax.identity(), "data", EVERY, **how),
}


def moves(steps: int) -> np.ndarray:
    """[steps, workers, ...]: how each worker's own optimizer moves its params."""
    return (
        np.random.default_rng(0).normal(size=(steps, WORKERS, *SHAPE)).astype("float32")
    )


def models(tx: Any, updates: np.ndarray, weights: Any = None) -> tuple[list[Any], Any]:
    """The models of all workers after each step, and the last state."""
    extras = (
        [{}] * len(updates) if weights is None else [{"weight": w} for w in weights]
    )

    @jax.jit
    @jax.vmap
    def start(x):
        return tx.init(x)

    def one(u, state, x, extra):
        u, state = tx.update(u, state, x, **extra)
        return optax.apply_updates(x, u), state

    step = jax.jit(jax.vmap(one, axis_name="data"))
    x = jnp.zeros((WORKERS, *SHAPE))
    state, seen = start(x), []
    for u, extra in zip(updates, extras, strict=True):
        x, state = step(u, state, x, extra)
        seen.append(x)
    return seen, state


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_all_reduce_as_the_reducer_is_the_method_itself(method):
    given = models(method(reducer=all_reduce("data")), moves(6))
    assert_equal(given, models(method(), moves(6)))


def test_local_sgd_by_power_sgd_equals_a_list_of_workers():
    tx = local_sgd("data", EVERY, reducer=power_sgd("data", rank=2))
    seen, state = models(tx, moves(8))
    first: Any = power_sgd("data", rank=2).init(jnp.zeros(SHAPE))
    q = np.asarray(first.right[0], np.float64)
    anchor = np.zeros(SHAPE)
    x = [np.zeros(SHAPE) for _ in range(WORKERS)]
    e = [np.zeros(SHAPE) for _ in range(WORKERS)]
    for step, (u, found) in enumerate(zip(moves(8), seen, strict=True), 1):
        x = [x[i] + u[i] for i in range(WORKERS)]
        if step % EVERY == 0:
            m = [anchor - x[i] + e[i] for i in range(WORKERS)]
            p = np.linalg.qr(np.mean([mi @ q for mi in m], axis=0))[0]
            q = np.mean([mi.T @ p for mi in m], axis=0)
            e = [mi - p @ q.T for mi in m]
            anchor = anchor - p @ q.T
            x = [anchor] * WORKERS
        assert_close(np.asarray(found), np.stack(x).astype("float32"), 1e-4)
    assert_close(
        np.asarray(state.kept.reducer.residual), np.stack(e).astype("float32"), 1e-4
    )


@pytest.mark.parametrize("bits", [8, 32])
def test_nothing_that_a_low_rank_loses_is_lost(bits):
    """anchor - mean of the residuals = the mean of all that workers have moved."""
    own = power_sgd("data", rank=1, bits=bits, algorithm="two_shot")
    seen, state = models(local_sgd("data", EVERY, reducer=own), moves(10))
    owed = np.asarray(state.kept.reducer.residual).mean(0)
    assert np.abs(owed).max() > 0.1
    moved = moves(10).sum(0).mean(0)
    assert_close(np.asarray(seen[-1][0]) - owed, moved, 1e-4)


def test_an_absent_worker_goes_on_and_keeps_its_residual():
    tx = local_sgd("data", EVERY, reducer=power_sgd("data", rank=1))
    here, absent = jnp.ones(WORKERS), jnp.array([1.0, 1.0, 0.0])
    before, after_one = models(tx, moves(2), [here] * 2)
    seen, state = models(tx, moves(4), [here] * 2 + [absent] * 2)
    assert_close(seen[3][0], seen[3][1])
    assert_close(np.asarray(seen[3][2]), before[1][2] + moves(4)[2:, 2].sum(0), 1e-5)
    kept, residual = (np.asarray(x.kept.reducer.residual) for x in (after_one, state))
    assert_equal(residual[2], kept[2])
    assert np.abs(kept).max() > 0.1
    assert np.abs(residual - kept)[:2].max() > 0.1


def test_bytes_are_the_reducers_once_a_period():
    params, mesh = {"w": jnp.zeros(SHAPE)}, emulate(4)
    own = power_sgd("data", rank=1, algorithm="ring")
    tx = diloco(optax.adam(0.1), "data", 5, reducer=own)
    sent = [wire_bytes(tx, params, mesh, start=k) for k in range(5)]
    assert sent == [0, 0, 0, 0, wire_bytes(own, params, mesh)]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("compressor", compression.sign()),
        ("algorithm", "ring"),
        ("bucket_bytes", 1),
        ("specs", {"w": None}),
        ("seed", 3),
    ],
)
def test_arguments_of_all_reduce_are_refused_beside_a_reducer(method, argument, value):
    with pytest.raises(ValueError, match=f"{argument}=.* is of the all_reduce that"):
        method(reducer=all_reduce("data"), **{argument: value})


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_what_averages_nothing_is_no_reducer(method):
    with pytest.raises(ValueError, match="reducer= averages nothing over the axis"):
        models(method(reducer=optax.sgd(0.5)), moves(2))


def test_a_reducer_over_another_axis_is_refused():
    tx = local_sgd("data", EVERY, reducer=all_reduce("host"))

    def one(u):
        return tx.update(u, tx.init(u), u)

    both = jax.vmap(jax.vmap(one, axis_name="data"), axis_name="host")
    with pytest.raises(ValueError, match="nothing over the axis 'data'"):
        both(jnp.zeros((2, 2, *SHAPE)))
    half = local_sgd(("host", "data"), EVERY, reducer=all_reduce("data"))
    tx = half
    with pytest.raises(ValueError, match="nothing over the axis 'host'"):
        both(jnp.zeros((2, 2, *SHAPE)))


def test_a_weight_that_the_reducer_would_not_see_is_refused():
    plain = all_reduce("data")

    def update(updates, state, params=None):
        return plain.update(updates, state, params)

    blind = optax.GradientTransformation(plain.init, update)
    assert_equal(
        models(local_sgd("data", EVERY, reducer=blind), moves(4))[0],
        models(local_sgd("data", EVERY), moves(4))[0],
    )
    with pytest.raises(ValueError, match="weight=, which the reducer"):
        models(
            local_sgd("data", EVERY, reducer=blind), moves(2), [jnp.ones(WORKERS)] * 2
        )


@pytest.mark.long
def test_a_resize_keeps_what_is_owed():
    """4 workers become 2: the mean of the residuals and the factors stay."""
    tx = optax.chain(
        optax.sgd(0.1), local_sgd("data", EVERY, reducer=power_sgd("data", rank=1))
    )
    mesh = emulate(4)
    before = training.trained(
        tx, training.fresh(tx, mesh), mesh, helpers.batches(4, rows=8)
    )
    after, _ = resized(before, training.fresh(tx, emulate(2)))
    was, now = (find_state(tree[1], PowerSGDState) for tree in (before, after))
    for a, b in zip(*(jax.tree.leaves(x.residual) for x in (was, now)), strict=True):
        np.testing.assert_allclose(np.mean(a, 0), np.mean(b, 0), atol=1e-6)
    assert max(np.abs(x).max() for x in jax.tree.leaves(was.residual)) > 1e-3
    assert_equal(*(jax.tree.map(lambda x: x[0], s.right) for s in (was, now)))


@pytest.mark.parametrize("own", [power_sgd("data", rank=1), optax.identity()])
def test_one_worker_needs_no_exchange(own):
    tx = local_sgd("data", 1, reducer=own)
    one = jax.vmap(lambda u: tx.update(u, tx.init(u), u)[0], axis_name="data")
    u = moves(1)[0, :1]
    assert_close(one(u), u, 1e-6)


def test_by_name():
    training = Training(optax.sgd(0.1), 0.1, 100, WORKERS)
    params, mesh = {"w": jnp.zeros(SHAPE)}, emulate(WORKERS)

    def bytes_of(name: str, **options: Any) -> int:
        tx = parse(name).build("data", training, **options)
        every = options.get("sync_every", 8)
        return wire_bytes(tx, params, mesh, steps=every)

    own = power_sgd("data", rank=1, bits=8, algorithm="two_shot")
    for name in ("local_sgd", "diloco", "eager_diloco", "slow_momentum"):
        sent = bytes_of(f"{name}@two_shot", rank=1, bits=8, sync_every=4)
        assert sent == wire_bytes(own, params, mesh), name
    with pytest.raises(ValueError, match="bits=8 is of PowerSGD"):
        parse("diloco").build("data", training, bits=8)
    with pytest.raises(ValueError, match=r"compressor=.* is of the all_reduce"):
        parse("diloco+sign").build("data", training, rank=1)


def test_the_outer_half_of_training_goes_on_after_phases():
    """`start_after` counts outer steps: the first travels in full."""
    own = power_sgd("data", rank=1, start_after=1)
    tx = local_sgd("data", EVERY, reducer=own)
    seen, _ = models(tx, moves(4))
    in_full, _ = models(local_sgd("data", EVERY), moves(4))
    assert_close(seen[1], in_full[1], 1e-5)
    assert np.abs(np.asarray(seen[3] - in_full[3])).max() > 0.1


@pytest.mark.long
def test_with_phases_on_a_mesh():
    mesh, params = emulate(WORKERS), {"w": jnp.zeros(SHAPE)}
    own = power_sgd("data", rank=1, start_after=1)
    tx: Any = optax.chain(optax.sgd(1.0), local_sgd("data", EVERY, reducer=own))

    def train_step(p, state, batch):
        updates, state = tx.update({"w": -batch[0]}, state, p)
        return optax.apply_updates(p, updates), state, {}

    step = relaxjax.data_parallel(train_step, mesh)
    p, state = relaxjax.init(tx, params, mesh)
    for u in moves(4):
        p, state, _ = step(p, state, u)
    wanted, _ = models(local_sgd("data", EVERY, reducer=own), moves(4))
    assert_close(p["w"], wanted[-1], 1e-5)
