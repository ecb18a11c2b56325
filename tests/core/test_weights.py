"""weight=: exact means over examples, with uneven, empty and absent workers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import accumulate, all_reduce, emulate, skip_nonfinite, worker_weight
from relaxjax._core import _weights
from tests import helpers
from tests.helpers import assert_close, mesh_of

WORKERS = 4
ROWS = 5  # for each worker
COUNTS = {"uneven": [5, 1, 3, 2], "empty": [0, 4, 0, 1], "one": [0, 0, 2, 0]}

places = pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])


def masked_batches(counts, steps):
    """Batches with a mask of these numbers of examples, one for each worker."""
    data = helpers.batches(steps, rows=WORKERS * ROWS)
    mask = np.concatenate([np.arange(ROWS) < c for c in counts]).astype(np.float32)
    return [{**batch, "mask": mask} for batch in data]


def masked_loss(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["layer1"]["w"] + params["layer1"]["b"])
    error = params["scale"] * hidden @ params["layer2"]["w"] - batch["y"]
    losses = jnp.mean(error**2, axis=1) * batch["mask"]
    return jnp.sum(losses) / jnp.sum(batch["mask"])  # 0 / 0 where there is no example


@functools.cache
def started(tx, mesh):
    """A step, compiled once for all counts, and the state that it starts from."""
    update = optax.with_extra_args_support(tx).update

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(masked_loss)(params, batch)
        count = jnp.sum(batch["mask"])
        updates, opt_state = update(grads, opt_state, params, weight=count)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"loss": loss, "weight": count}

    state = relaxjax.init(tx, helpers.problem(), mesh)
    return relaxjax.data_parallel(train_step, mesh), state


def train(tx, mesh, data):
    step, (params, opt_state) = started(tx, mesh)
    metrics: Any = None
    for batch in data:
        params, opt_state, metrics = step(params, opt_state, batch)
    return params, opt_state, metrics


gradient = jax.jit(jax.value_and_grad(masked_loss))


def train_alone(optimizer, data):
    params = jax.tree.map(jnp.asarray, helpers.problem())
    state = optimizer.init(params)
    loss = jnp.float32(0)
    for batch in data:
        loss, grads = gradient(params, batch)
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params, loss


def reduced(tx, updates, weights) -> Any:
    """Updates of every worker after `tx`, with a weight for each worker."""

    def one(u, w):
        return tx.update(u, tx.init(u), weight=w)[0]

    return jax.vmap(one, axis_name="data")(jnp.asarray(updates), jnp.asarray(weights))


MOMENTUM = optax.sgd(0.1, momentum=0.9)
REDUCED = {
    algorithm: optax.chain(all_reduce("data", algorithm=algorithm), MOMENTUM)
    for algorithm in ("psum", "ring", "two_shot")
}


@pytest.mark.long
@pytest.mark.few(2)
@places
@pytest.mark.parametrize("algorithm", REDUCED)
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_workers_equal_one_worker_on_all_examples(counts, algorithm, place):
    data = masked_batches(counts, steps=10)
    params, _, metrics = train(REDUCED[algorithm], place(WORKERS), data)
    expected, loss = train_alone(MOMENTUM, data)
    assert relaxjax.spread(params) == 0.0
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)
    assert float(metrics["loss"]) == pytest.approx(float(loss), rel=1e-5)
    assert float(metrics["weight"]) == sum(counts)


def test_weights_of_doubles_leave_floats_as_they_are():
    """In x64, also where no dtype is promoted without a word."""
    u, counts = np.ones((WORKERS, 6), np.float32), np.array([1.0, 3.0, 0.0, 7.1])
    x, v = (np.ones((WORKERS, 2, size), np.float32) for size in (30, 50))  # factors

    def grad(x, v, count):
        def loss(w):
            y = relaxjax.factored_product(x, w, "data", weight=count)
            return jnp.sum(y * v)

        return jax.grad(loss)(jnp.ones((30, 50), jnp.float32))

    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        weighed = jnp.asarray(counts)
        factors = jax.vmap(grad, axis_name="data")(x, v, weighed)
        for tx in (all_reduce("data"), accumulate(all_reduce("data"), 1)):
            assert reduced(tx, u, weighed).dtype == np.float32
    assert factors.dtype == np.float32


@pytest.mark.parametrize("op", ["mean", "sum"])
def test_doubles_are_weighed_in_doubles(op):
    counts, rng = np.array([1.0, 3.0, 0.0, 7.1]), np.random.default_rng(0)
    u = rng.normal(size=(WORKERS, 6))
    expected = (counts[:, None] * u).sum(0) / (counts.sum() if op == "mean" else 1)
    with jax.enable_x64(True):
        out = reduced(all_reduce("data", op=op), u, counts)
        narrow = reduced(all_reduce("data", op=op), u.astype(np.float32), counts)
    assert (out.dtype, narrow.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(out, np.broadcast_to(expected, u.shape), rtol=1e-14)


def test_mini_steps_of_doubles_are_weighed_in_doubles():
    rng = np.random.default_rng(0)
    counts, u = rng.uniform(size=(2, WORKERS)), rng.normal(size=(2, WORKERS, 6))
    expected = (counts[..., None] * u).sum((0, 1)) / counts.sum()
    tx = accumulate(all_reduce("data"), 2)

    def one(us: Any, ws: Any) -> Any:
        _, state = tx.update(us[0], tx.init(us[0]), us[0], weight=ws[0])
        return tx.update(us[1], state, us[0], weight=ws[1])[0]

    with jax.enable_x64(True):
        swapped = jnp.asarray(u.swapaxes(0, 1)), jnp.asarray(counts.T)
        out = jax.vmap(one, axis_name="data")(*swapped)
    np.testing.assert_allclose(out, np.broadcast_to(expected, (WORKERS, 6)), rtol=1e-13)


def test_a_weighted_sum():
    out = reduced(all_reduce("data", op="sum"), [1.0, 10.0, 100.0], [1.0, 0.5, 0.0])
    np.testing.assert_allclose(out, [6.0] * 3)


def test_an_absent_worker_counts_for_nothing():
    out = reduced(all_reduce("data"), [1.0, np.nan, 5.0], [1, 0, 1])
    np.testing.assert_array_equal(out, [3.0] * 3)


def test_no_examples_at_all_give_zero():
    out = reduced(all_reduce("data"), [np.nan, np.inf], [0, 0])
    np.testing.assert_array_equal(out, [0.0, 0.0])


@pytest.mark.parametrize("op", ["mean", "sum"])
def test_a_negative_weight_is_seen_by_all(op):
    out = reduced(all_reduce("data", op=op), [1.0, 2.0, 3.0], [1.0, -1.0, 1.0])
    assert np.isnan(out).all()


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn])
def test_large_narrow_floats_do_not_overflow(dtype):
    top = float(jnp.finfo(dtype).max)
    updates = jnp.full((4, 3), 0.75 * top, dtype)
    out = reduced(all_reduce("data"), updates, [1000.0, 3.0, 0.0, 7.0])
    assert out.dtype == dtype
    tolerance = 4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
        np.asarray(out, np.float64), np.asarray(updates, np.float64), rtol=tolerance
    )


def test_weights_must_be_scalars():
    with pytest.raises(ValueError, match=r"weight has shape \(2,\).*must be a scalar"):
        reduced(all_reduce("data"), [1.0, 2.0], [[1, 1], [1, 1]])


def test_adasum_takes_none():
    with pytest.raises(ValueError, match="op='adasum' takes no weight="):
        reduced(all_reduce("data", op="adasum"), [1.0, 2.0], [1, 1])


def test_worker_weight_makes_the_plain_mean_one_over_examples():
    counts, means = np.array([3, 0, 1]), np.array([2.0, 0.0, 10.0], np.float32)

    def one(mean, count):
        tx: Any = all_reduce("data")
        factor = worker_weight(count, "data")
        assert factor.dtype == np.float32
        scaled = mean * factor
        return tx.update(scaled, tx.init(scaled))[0]

    out: Any = jax.vmap(one, axis_name="data")(jnp.asarray(means), jnp.asarray(counts))
    np.testing.assert_allclose(out, [(3 * 2 + 10) / 4] * 3, rtol=1e-6)


def test_worker_weight_outside_the_axis():
    with pytest.raises(NameError, match="worker_weight: no axis named 'data'"):
        worker_weight(1, "data")


def on_workers(fn, *each) -> Any:
    """`fn` on every worker, with its row of each array."""
    return jax.vmap(fn, axis_name="data")(*map(jnp.asarray, each))


def test_each_workers_part_of_a_mean():
    """n w_i u_i / sum_j w_j, so that the plain mean of these is the weighted one."""
    updates = np.array([[2.0], [4.0], [np.nan], [1.0]], np.float16)

    def parts(u, w):
        return _weights.weigh_tree({"a": u}, w, "data")["a"]

    out = on_workers(parts, updates, [1.0, 2.0, 0.0, 5.0])
    assert out.dtype == jnp.float32
    np.testing.assert_array_equal(out, [[1.0], [4.0], [0.0], [2.5]])
    assert _weights.weigh_tree(updates, None, "data") is updates


def test_only_narrow_updates_are_divided():
    tree = {"narrow": np.float32(6), "wide": np.float32(6)}
    like = {"narrow": np.float16(0), "wide": np.float32(0)}
    assert _weights.divide_narrow(tree, like, 3) == {"narrow": 2, "wide": 6}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([0, 0, 0], [10, 10, 10]),
        ([0, 3, 0], [0, 1, 2]),
        ([1, 0, 0], [0, 1, 2]),
        ([1e-9, 0, 0], [0, 1, 2]),
        ([-1, 1, 0], [0, 1, 2]),  # updates that are NaN are not hidden
    ],
)
def test_what_was_stays_where_nobody_has_an_example(weights, expected):
    def one(w, new):
        return _weights.unless_nobody(w, "data", {"a": new}, {"a": jnp.float32(10)})

    out = on_workers(one, np.array(weights, np.float32), np.arange(3, dtype=np.float32))
    assert out["a"].tolist() == expected
    assert _weights.unless_nobody(None, "data", 1, 2) == 1


def test_models_take_no_weight():
    assert _weights.refuse_weight(None, "gossip") is None
    with pytest.raises(ValueError, match="gossip: weight= has no meaning here"):
        _weights.refuse_weight(0.0, "gossip")


ACCUMULATED = accumulate(optax.chain(all_reduce("data"), optax.sgd(0.1)), every=2)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_accumulation_weighs_mini_steps_too(counts):
    """Two mini-steps of differing counts equal one step on all their examples."""
    first, second = masked_batches(counts, 1) + masked_batches(counts[::-1], 2)[1:]
    params, _, _ = train(ACCUMULATED, emulate(WORKERS), [first, second])
    both = jax.tree.map(lambda *x: np.concatenate(x), first, second)
    expected, _ = train_alone(optax.sgd(0.1), [both])
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize(("weight", "skipped"), [(0, 0), (1, 1)])
def test_a_nan_of_weight_zero_skips_nothing(weight, skipped):
    tx: Any = skip_nonfinite(all_reduce("data"), "data")

    def one(u, w):
        updates, state = tx.update(u, tx.init(u), weight=w)
        return updates, state.skipped

    out, count = jax.vmap(one, axis_name="data")(
        jnp.array([4.0, jnp.nan]), jnp.array([1, weight])
    )
    np.testing.assert_array_equal(count, [skipped] * 2)
    np.testing.assert_array_equal(out, [0.0 if skipped else 4.0] * 2)


def test_what_an_absent_worker_keeps():
    """Absent is a weight of zero, of either sign; a NaN in what is left out is none."""
    new, old = {"a": jnp.full(2, jnp.nan), "b": 1.0}, {"a": jnp.ones(2), "b": 2.0}
    for weight in (0, 0.0, -0.0, jnp.float32(0)):
        assert bool(_weights.is_absent(weight))
        kept = _weights.unless_absent(weight, new, old)
        assert kept["a"].tolist() == [1, 1]
        assert kept["b"] == 2
    for weight in (1, 0.5, jnp.float32(3)):
        assert not _weights.is_absent(weight)
        kept = _weights.unless_absent(weight, old, new)
        assert kept["a"].tolist() == [1, 1]
        assert kept["b"] == 2
    assert _weights.is_absent(None).dtype == bool
    assert not _weights.is_absent(None)
    assert _weights.unless_absent(None, new, old) is new
