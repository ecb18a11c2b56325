"""participation: the mean over those present; whoever is absent keeps what it owes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, compression, emulate, participation, skip_nonfinite
from relaxjax._core._tree import is_key
from tests import helpers
from tests.helpers import assert_close, assert_equal, mesh_of, pulled, targets_of

N, STEPS, RATE, BETA = 4, 12, 0.1, 0.9
# Five rounds: among them one of nobody, one of a single worker, one of all.
TABLE = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
MOMENTUM = optax.sgd(RATE, momentum=BETA)
EF_SIGN = compression.error_feedback(compression.sign())
places = pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])


def nothing_lost(p: np.ndarray) -> np.ndarray:
    return p


def sign(p: np.ndarray) -> np.ndarray:
    return np.abs(p).mean() * np.where(p < 0, -1.0, 1.0)


def common(targets: np.ndarray, compress: Any) -> list[tuple[np.ndarray, Any]]:
    """One model, pulled to the targets of those present, and what each worker owes."""
    n = len(targets)
    x, velocity = np.zeros(targets.shape[1]), np.zeros(targets.shape[1])
    owed, seen = [0 * x for _ in range(n)], []
    for step in range(STEPS):
        present = [i for i in range(n) if TABLE[step % len(TABLE), i]]
        sent = []
        for i in present:
            p = (x - targets[i]) * n / len(present) + owed[i]
            sent.append(compress(p))
            owed[i] = p - sent[-1]
        if present:
            velocity = BETA * velocity + sum(sent) / n
            x = x - RATE * velocity
        seen.append((x, [e.copy() for e in owed]))
    return seen


def chain(**how: Any) -> Any:
    return optax.chain(all_reduce("data", **how), MOMENTUM)


@pytest.mark.few(2)
@places
@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_equals_one_model_and_those_present(algorithm, place):
    targets = targets_of(N)
    tx = participation(chain(algorithm=algorithm), "data", TABLE)
    found = pulled(tx, targets, place(N), STEPS)
    for (x, _), (expected, _) in zip(found, common(targets, nothing_lost), strict=True):
        np.testing.assert_allclose(x, [expected] * N, atol=2e-6)
        assert np.ptp(x, axis=0).max() == 0


@places
def test_what_the_absent_owe_stays_as_it_was(place):
    targets = targets_of(N)
    tx = participation(
        chain(compressor=EF_SIGN, algorithm="one_shot"), "data", TABLE.astype(bool)
    )
    found = pulled(tx, targets, place(N), STEPS)
    before = np.zeros_like(targets)
    for step, (x, state) in enumerate(found):
        expected, owed = common(targets, sign)[step]
        residual = state.inner_state[0].compressed.feedback.residual
        np.testing.assert_allclose(x, [expected] * N, atol=1e-5)
        np.testing.assert_allclose(residual, owed, atol=1e-5)
        absent = TABLE[step % len(TABLE)] == 0
        np.testing.assert_array_equal(residual[absent], before[absent])
        before = residual


def coded(algorithm: str) -> Any:
    codec = compression.error_feedback(compression.quantize(2))
    return all_reduce("data", compressor=codec, algorithm=algorithm)


REDUCERS: dict[str, Any] = {
    **{name: coded(name) for name in ("one_shot", "two_shot", "ring")},
    "power_sgd": relaxjax.power_sgd("data", rank=1, min_compression=0),
}


def residual_of(state: Any) -> jax.Array:
    found = optax.tree.get_all_with_path(state, "residual")
    return found[0][1]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", REDUCERS)
def test_nothing_is_lost(name):
    """Sum of out + mean of what all owe == sum of the means over those present.

    In a two-shot and in a ring, sums that are coded again pass through the absent.
    """
    tx = participation(REDUCERS[name], "data", 0.6, seed=3)
    gs = np.random.default_rng(0).normal(size=(N, 60, 3, 3)).astype(np.float32)

    def run(gs):
        def step(state, g):
            here = drawn(0.6, state.step, 3)
            out, after = tx.update(g, state)
            stays = (residual_of(after) == residual_of(state)).all()
            return after, (out, here, stays)

        return jax.lax.scan(step, tx.init(gs[0]), gs)

    state, (out, here, stays) = jax.jit(jax.vmap(run, axis_name="data"))(gs)
    here = np.asarray(here)
    means = [
        gs[here[:, t], t].mean(axis=0) for t in range(gs.shape[1]) if here[:, t].any()
    ]
    owed = np.mean(residual_of(state), axis=0)
    assert 0.5 < here.mean() < 0.7
    assert np.abs(owed).max() > 1e-2
    np.testing.assert_allclose(out[0].sum(axis=0) + owed, np.sum(means, 0), atol=1e-4)
    if name in ("one_shot", "power_sgd"):
        np.testing.assert_array_equal(stays, ~here)


def owing(state: Any, residual: jax.Array) -> Any:
    """The state with another residual."""
    inner = state.inner_state
    if isinstance(inner, relaxjax.PowerSGDState):
        return state._replace(inner_state=inner._replace(residual=residual))
    feedback = inner.compressed.feedback._replace(residual=residual)
    compressed = inner.compressed._replace(feedback=feedback)
    return state._replace(inner_state=inner._replace(compressed=compressed))


@pytest.mark.parametrize("name", REDUCERS)
def test_what_the_absent_owe_is_not_heard(name):
    tx: Any = participation(REDUCERS[name], "data", [[1, 0, 1, 1]])

    def run(g, owed):
        return tx.update(g, owing(tx.init(g), owed))[0]

    g, owed = np.random.default_rng(0).normal(size=(2, N, 3, 3)).astype(np.float32)
    update = jax.jit(jax.vmap(run, axis_name="data"))
    other = np.where(np.arange(N)[:, None, None] == 1, 7, owed)
    assert_equal(update(g, owed), update(g, other))


def drawn(chance: float, round: Any, seed: int) -> jax.Array:
    """Whether this worker is present, as a transformation that only counts sees it."""
    probe: Any = participation(all_reduce("data", op="sum"), "data", chance, seed=seed)
    state = probe.init(jnp.zeros(N))._replace(step=round)
    place = jax.lax.axis_index("data")
    out, _ = probe.update(jax.nn.one_hot(place, N), state)
    return out[place] > 0


def all_present(tx: Any) -> Any:
    return participation(tx, "data", [[1, 1, 1]])


BARE: dict[str, Any] = {
    "psum": chain(),
    "ring": chain(algorithm="ring"),
    "sign": chain(compressor=EF_SIGN),
    "ef21": chain(compressor=compression.ef21(compression.top_k(0.4))),
    "power_sgd": optax.chain(
        relaxjax.power_sgd("data", rank=1, min_compression=0), MOMENTUM
    ),
    "local_sgd": optax.chain(MOMENTUM, relaxjax.local_sgd("data", 2)),
}


@pytest.mark.few(2)
@places
@pytest.mark.parametrize("name", BARE)
def test_all_present_is_the_bare_transformation(name, place):
    """Bit for bit, with three workers: a division by three is not exact.

    Emulated, the compiler adds up a psum in the order that suits what is around it.
    """
    data = helpers.batches(4, rows=6)
    params, state, _ = helpers.train(BARE[name], place(3), data)
    found, wrapped, _ = helpers.train(all_present(BARE[name]), place(3), data)
    if (name, place) == ("psum", emulate):
        assert_close(found, params, 1e-6)
    else:
        assert_equal((found, wrapped.inner_state), (params, state))


@pytest.mark.long
def test_chance_is_the_same_under_every_mapping():
    tx: Any = participation(chain(compressor=EF_SIGN), "data", 0.5, seed=1)
    data = helpers.batches(6, rows=2 * N)
    params, _, _ = helpers.train(tx, emulate(N), data)
    on_devices, _, _ = helpers.train(tx, mesh_of(N), data)
    assert_close(on_devices, params, 1e-6)
    step = helpers.train_step_of(tx)

    def local(params, opt_state, batch):
        params, opt_state = jax.tree.map(lambda x: x[0], (params, opt_state))
        after = step(params, opt_state, batch)[:2]
        return jax.tree.map(lambda x: x[None], after)

    own, state = relaxjax.init(tx, helpers.problem(), mesh_of(N))
    specs = relaxjax.state_specs((own, state), "data")
    mapped = jax.jit(
        jax.shard_map(
            local, mesh=mesh_of(N), in_specs=(*specs, P("data")), out_specs=specs
        )
    )
    for batch in data:
        own, state = mapped(own, state, batch)
    assert_equal(own, on_devices)
    other, _, _ = helpers.train(
        participation(chain(compressor=EF_SIGN), "data", 0.5, seed=2), emulate(N), data
    )
    assert relaxjax.spread(jax.tree.map(lambda x, y: jnp.stack([x, y]), params, other))


@pytest.mark.long
def test_a_round_without_anybody_leaves_no_trace():
    """NaNs, keys and moments included."""
    noisy = optax.chain(
        chain(compressor=EF_SIGN), optax.add_noise(0.1, 0.5, jax.random.key(0))
    )
    tx: Any = participation(noisy, "data", [[1, 1], [0, 0]])

    def run(g):
        state = tx.init(g)
        _, before = tx.update(g, state)
        out, after = tx.update(g * jnp.nan, before)
        return out, keyless(before.inner_state), keyless(after.inner_state)

    out, before, after = jax.vmap(run, axis_name="data")(jnp.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(out, np.zeros((2, 3)))
    assert_equal(before, after)


def keyless(tree: Any) -> Any:
    """The tree with the words of its typed keys."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)


@pytest.mark.long
def test_what_the_absent_hold_is_not_looked_at():
    guarded = skip_nonfinite(chain(), "data")
    tx: Any = participation(guarded, "data", [[1, 0, 1]])

    def update(g):
        out, state = tx.update(g, tx.init(g))
        return out, state.inner_state.skipped

    out, skipped = jax.vmap(update, axis_name="data")(jnp.array([1.0, jnp.nan, 3.0]))
    np.testing.assert_allclose(out, [-RATE * 2] * 3, rtol=1e-6)
    np.testing.assert_array_equal(skipped, [0] * 3)


LOCAL: dict[str, Any] = {
    "local_sgd": lambda: optax.chain(optax.sgd(1.0), relaxjax.local_sgd("data", 2)),
    "diloco": lambda: relaxjax.diloco(
        optax.sgd(1.0), "data", 2, outer=optax.sgd(0.5, momentum=0.5)
    ),
    "slow_momentum": lambda: optax.chain(
        optax.sgd(1.0), relaxjax.slow_momentum("data", sync_every=2)
    ),
    "sparse_loco": lambda: relaxjax.sparse_loco(optax.sgd(1.0), "data", 2),
    "desynced": lambda: relaxjax.desynced(
        optax.sgd(1.0), "data", periods={"params": 2}
    ),
    "sparta": lambda: optax.chain(optax.sgd(1.0), relaxjax.sparta("data", 0.5)),
}


def stepped(tx: Any, gradients: Any) -> Any:
    """Params [steps, workers] and the last state, from gradients [steps, workers]."""
    gs = np.asarray(gradients, np.float32)

    def run(gs):
        def step(now, g):
            x, state = now
            u, state = tx.update(g, state, x)
            return (x + u, state), x + u

        x = jnp.zeros(())
        (_, state), xs = jax.lax.scan(step, (x, tx.init(x)), gs)
        return xs, state

    xs, state = jax.jit(jax.vmap(run, axis_name="data", in_axes=1))(gs)
    return np.asarray(xs).T, state


@pytest.mark.parametrize("name", LOCAL)
def test_a_nan_of_the_absent_keeps_no_local_method_from_training(name):
    """It stands still meanwhile, and takes part as soon as it is well and there."""
    present, ill = [[1, 1, 0]] * 2 + [[1, 1, 1]], np.zeros((6, 3))
    ill[:4, 2] = np.nan
    guarded = skip_nonfinite(LOCAL[name](), "data")
    tx = participation(guarded, "data", present, every=2)
    gradients = np.tile([1.0, 2.0, 6.0], (6, 1))
    still = np.where(np.isnan(ill), 0, gradients)
    xs, state = stepped(tx, gradients + ill)
    expected, _ = stepped(tx, still)
    np.testing.assert_array_equal(xs, expected)
    np.testing.assert_array_equal(state.inner_state.skipped, [0] * 3)


@pytest.mark.parametrize("name", LOCAL)
def test_rounds_go_on_where_they_were_before_a_skipped_step(name):
    tx = participation(
        skip_nonfinite(LOCAL[name](), "data"), "data", [[1, 1, 0], [1, 1, 1]], every=2
    )
    well = np.tile([1.0, 2.0, 6.0], (8, 1))
    ill = np.insert(well, [0, 3], [np.nan, 2.0, 6.0], axis=0)
    kept = [row for row in range(len(ill)) if not np.isnan(ill[row]).any()]
    xs, state = stepped(tx, ill)
    np.testing.assert_array_equal(xs[kept], stepped(tx, well)[0])
    np.testing.assert_array_equal(state.inner_state.skipped, [2] * 3)


def test_weights_count_among_those_present():
    tx: Any = participation(all_reduce("data"), "data", [[1, 1, 0]])

    def update(g, w):
        return tx.update(g, tx.init(g), weight=w)[0]

    out = jax.vmap(update, axis_name="data")(
        jnp.array([1.0, 5.0, 9.0]), jnp.array([3.0, 1.0, 7.0])
    )
    np.testing.assert_allclose(out, [2.0] * 3, rtol=1e-6)


def on_their_own(targets: np.ndarray, every: int, momentum: float) -> list[np.ndarray]:
    """DiLoCo with plain momentum outside; the absent go on from their own models."""
    n = len(targets)
    xs = [np.zeros(targets.shape[1]) for _ in range(n)]
    anchor, velocity, seen = xs[0], xs[0], []
    for step in range(STEPS):
        present = [i for i in range(n) if TABLE[step // every % len(TABLE), i]]
        if present:
            xs = [x - RATE * (x - t) for x, t in zip(xs, targets, strict=True)]
            if step % every == every - 1:
                mean = sum(anchor - xs[i] for i in present) / len(present)
                velocity = momentum * velocity + mean
                anchor = anchor - velocity
                xs = [anchor if i in present else x for i, x in enumerate(xs)]
        seen.append(np.stack(xs))
    return seen


@pytest.mark.few(2)
@places
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_local_methods_go_on_by_themselves(momentum, place):
    targets, every = targets_of(N), 2
    inner = optax.sgd(RATE)
    method = (
        relaxjax.diloco(inner, "data", every, outer=optax.sgd(1.0, momentum or None))
        if momentum
        else optax.chain(inner, relaxjax.local_sgd("data", every))
    )
    tx = participation(method, "data", TABLE, every=every)
    found = pulled(tx, targets, place(N), STEPS)
    expected = on_their_own(targets, every, momentum)
    for (x, _), reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, reference, atol=2e-6)


def test_methods_that_take_no_weight_say_so():
    ring = relaxjax.topology.ring(3)
    tx: Any = participation(relaxjax.gossip("data", ring), "data", 0.5)
    x = jnp.zeros(3)
    with pytest.raises(ValueError, match="gossip: weight= has no meaning here"):
        jax.vmap(lambda x: tx.update(x, tx.init(x), x), axis_name="data")(x)


@pytest.mark.parametrize("present", [1.5, -0.1, "often", [1, 0], [[2, 1]], [[]], None])
def test_refuses_what_is_neither_chance_nor_table(present):
    with pytest.raises(ValueError, match=r"present=.* must be a probability in \[0, 1"):
        participation(chain(), "data", present)


def test_refuses_another_number_of_workers_and_no_rounds():
    tx: Any = participation(chain(), "data", [[1, 0, 1]])
    with pytest.raises(ValueError, match="3 columns and the axis has 2 workers"):
        jax.vmap(lambda x: tx.update(x, tx.init(x)), axis_name="data")(jnp.zeros(2))
    with pytest.raises(NameError, match="participation: no axis named 'data' here"):
        tx.update(jnp.zeros(2), tx.init(jnp.zeros(2)))
    with pytest.raises(ValueError, match="participation: every=0"):
        participation(chain(), "data", 0.5, every=0)


REMEMBERS = {
    "ef21": lambda: all_reduce_in(compression.ef21),
    "ef21_sgdm": lambda: all_reduce_in(
        functools.partial(compression.ef21_sgdm, eta=1.0)
    ),
    "econtrol": lambda: all_reduce_in(compression.econtrol),
    "arc_top_k": lambda: relaxjax.arc_top_k("data", 1.0, eta=1.0),
    "error_feedback": lambda: all_reduce_in(compression.error_feedback),
}


def all_reduce_in(feedback: Any) -> Any:
    code = feedback(compression.quantize(8))
    return relaxjax.all_reduce("data", compressor=code, algorithm="two_shot")


@pytest.mark.parametrize("name", REMEMBERS)
def test_who_is_absent_is_not_counted_twice(name):
    """All have the same gradient: so does their mean, whoever is there."""
    table = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1]])
    tx = relaxjax.participation(REMEMBERS[name](), "data", table)
    g = jnp.ones((4, 8, 4))

    def run(g: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            out, state = tx.update(g, state, g)
            return state, out

        return jax.lax.scan(step, tx.init(g), length=8)[1]

    found = jax.jit(jax.vmap(run, axis_name="data"))(g)
    np.testing.assert_allclose(found, np.ones_like(found), atol=0.02)
