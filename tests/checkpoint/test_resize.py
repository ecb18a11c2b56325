"""States of 8 workers as states of 6, 4 as 1: what must stay stays."""

import importlib
import inspect
import pkgutil
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp
from relaxjax._core._merge_rules import marks_of
from relaxjax._core._owed import Owed
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.checkpoint import MEAN, RESET, SUM, Checkpoints, rebuild, refuse, resized
from relaxjax.compression.feedback._econtrol import EControlState
from relaxjax.compression.feedback._ef21 import EF21State
from relaxjax.compression.feedback._error_feedback import ErrorFeedbackState
from relaxjax.compression.feedback._loco import LoCoState
from relaxjax.local_updates.late._asynchronous_diloco import AsynchronousDilocoState
from relaxjax.tasks import TASKS, adamw, train_step_of
from tests import helpers
from tests.checkpoint import training


def trained(name: str, workers: int = 8) -> tuple[Any, Any]:
    """Params and state after 3 steps on 24 rows each."""
    tx, mesh = training.relaxed(name, workers), emulate(workers)
    return training.trained(
        tx, training.fresh(tx, mesh), mesh, helpers.batches(3, rows=24)
    )


def made(name: str, workers: int) -> tuple[Any, Any]:
    return training.fresh(training.relaxed(name, workers), emulate(workers))


def six_of(name: str) -> tuple[Any, Any]:
    """The same state on 8 workers and on 6."""
    before = trained(name)
    return before, resized(before, made(name, 6))[0]


def found(state: Any, kind: type) -> Any:
    """The first state of a class."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, kind))
    return next(x for x in leaves if isinstance(x, kind))


def means(tree: Any) -> list[Any]:
    """The mean of each leaf over its workers, by NumPy."""
    return [np.mean(np.asarray(x), 0, np.float64) for x in jax.tree.leaves(tree)]


def assert_means(tree: Any, other: Any, tolerance: float = 1e-6) -> None:
    for a, b in zip(means(tree), means(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def assert_moved(tree: Any) -> None:
    """Asserts that the tree is not zero."""
    assert max(np.abs(x).max() for x in means(tree)) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", training.NAMES)
def test_every_relaxation_goes_8_6_8(name):
    before, six = six_of(name)
    assert_means(before[0], six[0])
    tx, mesh = training.relaxed(name, 6), emulate(6)
    six = training.trained(tx, six, mesh, helpers.batches(2, rows=24, seed=2))
    eight, _ = resized(six, made(name, 8))
    assert_means(six[0], eight[0])
    tx, mesh = training.relaxed(name, 8), emulate(8)
    after = training.trained(tx, eight, mesh, helpers.batches(2, rows=24, seed=3))
    assert all(np.isfinite(x).all() for x in means(after[0]))


def digits(name: str, sizes: tuple[int, ...], seed: int) -> float:
    """Held-out accuracy of the consensus, with a number of workers for each third."""
    task, state = TASKS["digits"](seed), None
    batches = task.batches(seed, 120)  # rows that 8 workers and 6 can share
    for workers in sizes:
        schedule = Training(adamw(task.learning_rate, 450), 0.01, 450, workers)
        tx, mesh = parse(name).build("data", schedule), emulate(workers)
        fresh = relaxjax.init(tx, task.params, mesh)
        state = list(fresh if state is None else resized(tuple(state), fresh)[0])
        step = relaxjax.data_parallel(train_step_of(task, tx), mesh)
        for _ in range(150):
            *state, _ = step(*state, next(batches))
    assert state is not None
    return float(task.metric(relaxjax.consensus(state[0])))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["all_reduce+top_k+ef14", "diloco", "gossip+sign", "power_sgd"]
)
def test_training_ends_as_well_with_8_6_8(name, capsys):
    """Within the spread of seeds: two points, seven of 360 digits."""
    both = [
        (digits(name, (8, 8, 8), seed), digits(name, (8, 6, 8), seed))
        for seed in range(3)
    ]
    with capsys.disabled():
        print(f"\n{name}: whole and resized {np.round(both, 4).tolist()}")
    whole, changed = np.mean(both, axis=0)
    assert whole > 0.93
    assert abs(changed - whole) < 0.02


def test_what_error_feedback_owes_stays_on_the_mean():
    (p8, s8), (p6, s6) = six_of("all_reduce+top_k+ef14")
    owed8, owed6 = (found(s, ErrorFeedbackState) for s in (s8, s6))
    assert_moved(owed8)
    assert_means(owed8, owed6)
    assert_means(p8, p6)


@pytest.mark.long
def test_what_error_feedback_owes_stays_in_sum():
    def tx():
        compressor = compression.error_feedback(compression.sign())
        reducer = relaxjax.all_reduce("data", compressor=compressor, op="sum")
        return optax.chain(reducer, optax.sgd(0.01))

    state = training.trained(
        tx(), training.fresh(tx(), emulate(4)), emulate(4), helpers.batches(2, 8)
    )
    three, report = resized(state, training.fresh(tx(), emulate(3)))
    owed4, owed3 = (x[1][0].compressed.feedback for x in (state, three))
    assert "sum" in report.rules.values()
    assert_moved(owed4)
    for a, b in zip(jax.tree.leaves(owed4), jax.tree.leaves(owed3), strict=True):
        np.testing.assert_allclose(np.sum(a, 0), np.sum(b, 0), rtol=0, atol=1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "kind"), [("ef21", EF21State), ("econtrol", EControlState)]
)
def test_the_common_estimate_is_the_mean_of_estimates(name, kind):
    _, (_, s6) = six_of(f"all_reduce+top_k+{name}")
    state = found(s6, kind)
    assert_moved(state.known)
    assert_means(state.known, state.mean, 1e-5)
    assert relaxjax.spread(state.mean) == 0


def test_loco_keeps_the_mean_residual_but_for_eight_bits():
    states = six_of("all_reduce+quantize4+loco")
    a, b = (found(s, LoCoState) for s in states)

    def residuals(state):
        return jax.tree.map(
            lambda codes, s: codes * np.reshape(s, (-1, *[1] * (codes.ndim - 1))) / 127,
            state.codes,
            state.largest,
        )

    assert_moved(residuals(a))
    rounding = max(float(np.max(s)) for s in jax.tree.leaves(b.largest)) / 254
    assert_means(residuals(a), residuals(b), rounding + 1e-8)


@pytest.mark.long
def test_all_know_the_same_copies_and_what_is_untold_stays():
    (p8, s8), (p6, s6) = six_of("gossip+sign")
    before, now = (found(s, relaxjax.ChocoState).known for s in (s8, s6))
    for copy in now:  # its own and each neighbor's: the same on both ends
        assert relaxjax.spread(copy) == 0
        helpers.assert_equal(copy, now[0])
    untold8, untold6 = (
        jax.tree.map(lambda x, known: np.asarray(x) - known, p, k[0])
        for p, k in ((p8, before), (p6, now))
    )
    assert_moved(untold8)
    assert_means(untold8, untold6)


def test_copies_of_models_are_the_models():
    _, (p6, s6) = six_of("dcd_psgd")
    for copy in found(s6, relaxjax.DcdPsgdState).known:
        helpers.assert_close(copy, p6, 1e-7)


def test_tracked_gradients_stay_on_the_mean_gradient():
    (_, s8), (_, s6) = six_of("gradient_tracking")
    state = found(s6, relaxjax.GradientTrackingState)
    assert_moved(state.gradient)
    assert_means(state.tracked, state.gradient)
    assert_means(found(s8, relaxjax.GradientTrackingState).tracked, state.tracked)


def test_masses_add_up_to_the_number_of_workers():
    shares = np.array([[0.5, 0, 0.5], [0.25, 0.5, 0], [0.25, 0.5, 0.5]])

    def tx(n):
        graph = relaxjax.topology.from_column_stochastic(shares[:n, :n])
        return optax.chain(optax.sgd(0.1), relaxjax.push_sum("data", graph))

    state = training.trained(
        tx(3), training.fresh(tx(3), emulate(3)), emulate(3), helpers.batches(3, 6)
    )
    assert relaxjax.spread(state[1][1].kept) > 0.1
    ring = optax.chain(
        optax.sgd(0.1), relaxjax.push_sum("data", relaxjax.topology.ring(4))
    )
    (_, after), _ = resized(state, training.fresh(ring, emulate(4)))
    np.testing.assert_allclose(np.sum(after[1].kept.mass), 4, rtol=1e-6)


@pytest.mark.long
def test_links_that_lose_messages_begin_anew_from_the_mean():
    (p8, s8), (p6, s6) = six_of("lossy_push_sum")
    before, after = (found(s, relaxjax.LossyPushSumState) for s in (s8, s6))
    assert np.any(before.sent[1] != 0)
    assert int(after.round[0]) == int(before.round[0]) == 3
    np.testing.assert_array_equal(after.mass, np.ones(6))
    assert not any(np.any(x) for x in jax.tree.leaves((after.sent, after.heard)))
    assert_means(p8, p6)
    relaxjax.require_replicas(p6)


def test_gradients_under_way_stay_on_the_mean():
    for name in ("delay", "bounded_staleness"):
        (_, s8), (_, s6) = six_of(name)
        assert_moved(s8[0])
        assert_means(s8[0], s6[0])


def test_anchors_and_momenta_of_outer_steps_stay():
    (_, s8), (_, s6) = six_of("diloco")
    a, b = (found(s, relaxjax.OuterState) for s in (s8, s6))
    assert int(b.step[0]) == int(a.step[0]) == 1
    helpers.assert_equal(
        jax.tree.map(lambda x: x[0], a.kept), jax.tree.map(lambda x: x[0], b.kept)
    )
    assert relaxjax.spread(b.kept) == 0


@pytest.mark.few(4)
@pytest.mark.long
@pytest.mark.parametrize(
    "outer", [relaxjax.heloco(0.7), relaxjax.delayed_nesterov(0.7, every=2)]
)
def test_what_was_fetched_stays_on_the_mean_and_arrivals_go_on(outer):
    """Every worker arrives in its turn, of 8, of 6 and of 8 again."""

    def in_turn(workers: int) -> tuple[Any, Any, Any]:
        turns = [[i] for i in range(workers)]
        tx = relaxjax.asynchronous_diloco(optax.adam(0.01), "data", turns, outer)
        mesh = emulate(workers)
        return tx, training.fresh(tx, mesh), mesh

    def goes_on(workers: int, state: Any) -> Any:
        tx, fresh, mesh = in_turn(workers)
        now = fresh if state is None else resized(state, fresh)[0]
        if state is not None:
            before, after = (found(x[1], AsynchronousDilocoState) for x in (state, now))
            assert_means((state[0], before.fetched), (now[0], after.fetched))
            assert_means(before.kept, after.kept)
        return training.trained(tx, now, mesh, helpers.batches(5, rows=24))

    state = None
    for workers in (8, 6, 8):
        state = goes_on(workers, state)
        apart = found(state[1], AsynchronousDilocoState)
        assert_moved(optax.tree.sub(apart.fetched, apart.kept.anchor))
        assert all(np.isfinite(x).all() for x in means(state[0]))


def test_eager_outer_gradients_are_told_in_full_or_not_at_all():
    (_, s8), (_, s6) = six_of("eager_diloco")
    d8, d6 = (found(s, relaxjax.EagerDilocoState).waiting for s in (s8, s6))
    assert_moved(d8)
    to_come = [
        jax.tree.map(lambda x, n=n: (1 - 1 / n) * x, d) for d, n in ((d8, 8), (d6, 6))
    ]
    assert_means(*to_come)
    with pytest.raises(ValueError, match=r"EagerDilocoState .* 2 workers or more"):
        resized(trained("eager_diloco", 2), made("eager_diloco", 1))


@pytest.mark.long
def test_right_factors_stay_equal_and_residuals_on_the_mean():
    (_, s8), (_, s6) = six_of("power_sgd")
    a, b = (found(s, relaxjax.PowerSGDState) for s in (s8, s6))
    assert b.clock.phase == 1  # as its count says, though `like` is at the start
    assert_moved(a.residual)
    assert_means(a.residual, b.residual)
    helpers.assert_equal(
        jax.tree.map(lambda x: x[0], a.right), jax.tree.map(lambda x: x[5], b.right)
    )


def test_fields_at_periods_of_their_own_stay_on_the_mean():
    (_, s8), (_, s6) = six_of("desynced")
    a, b = (found(s, relaxjax.DesyncedState) for s in (s8, s6))
    for name in ("mu", "nu"):
        x, y = (optax.tree.get(s.inner, name) for s in (a, b))
        assert_moved(x)
        assert_means(x, y)
    assert int(a.step[0]) == int(b.step[5]) > 0


@pytest.mark.long
def test_factors_by_turns_stay_equal_and_residuals_on_the_mean():
    (_, s8), (_, s6) = six_of("acp_sgd")
    a, b = (found(s, relaxjax.AcpSGDState) for s in (s8, s6))
    assert_moved(a.residual)
    assert_means(a.residual, b.residual)
    for x, y in ((a.left, b.left), (a.right, b.right)):
        helpers.assert_equal(
            jax.tree.map(lambda x: x[0], x), jax.tree.map(lambda x: x[5], y)
        )


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dion", relaxjax.DionState),
        ("dion2", relaxjax.Dion2State),
        ("demo", relaxjax.DemoState),
        ("arc_top_k", relaxjax.ArcTopKState),
    ],
)
def test_momenta_apart_stay_on_the_mean(name, kind):
    (_, s8), (_, s6) = six_of(name)
    a, b = (found(s, kind) for s in (s8, s6))
    assert_moved(a.momentum)
    assert relaxjax.spread(a.momentum) > 0
    assert_means(a.momentum, b.momentum)


def test_the_mean_of_what_is_known_stays_the_estimate():
    (_, s8), (_, s6) = six_of("arc_top_k")
    a, b = (found(s, relaxjax.ArcTopKState) for s in (s8, s6))
    assert_moved(a.known)
    assert_means(a.known, b.known)
    assert_means(a.known, b.mean)
    assert relaxjax.spread(b.mean) == 0


@pytest.mark.parametrize(("before", "now"), [(8, 4), (4, 2), (1, 8), (2, 2)])
def test_servers_slices_are_cut_anew(before, now):
    """A leaf of 35 elements, on 8 workers that are all servers, or on fewer."""
    x = {"w": jnp.zeros((5, 7))}

    def tx(servers):
        return relaxjax.parameter_server(
            optax.adam(0.1), "data", servers=None if servers == 8 else 1
        )

    def whole(state):
        k, mu = int(state.servers[0]), np.asarray(state.optimizer[0].mu["w"])
        for row in range(len(mu)):
            np.testing.assert_array_equal(mu[row], mu[row % k])
        return mu[:k].ravel()[:35]

    old, new = (
        relaxjax.init(tx(k), x, emulate(8 if k == 8 else k))[1] for k in (before, now)
    )
    k, width = int(old.servers[0]), old.optimizer[0].mu["w"].shape[1]
    slices = np.pad(np.arange(35.0), (0, k * width - 35)).reshape(k, width)
    rows = slices[np.arange(len(old.servers)) % k]
    adam = old.optimizer[0]._replace(mu={"w": jnp.asarray(rows, jnp.float32)})
    old = old._replace(optimizer=(adam, *old.optimizer[1:]))
    after, _ = resized(old, new)
    np.testing.assert_array_equal(whole(after), np.arange(35.0))


def test_shards_of_pulled_params_are_cut_anew():
    params = {"w": jnp.arange(35.0).reshape(5, 7), "b": jnp.float32(2)}
    for servers in (None, 2):
        old = relaxjax.ps.init(optax.adam(0.1), params, emulate(8), servers=servers)
        none = jax.tree.map(jnp.zeros_like, params)
        new = relaxjax.ps.init(optax.adam(0.1), none, emulate(6), servers=servers)
        (shards, _), report = resized(old, new)
        helpers.assert_equal(relaxjax.ps.whole(shards), params)
        assert report.rules["0/w/value"] == "shard"


@pytest.mark.few(2)
@pytest.mark.parametrize(("before", "now"), [(8, 6), (3, 8)])
def test_shards_of_layers_are_cut_anew(before, now):
    """Params, moments like them, and feedback, whose mean is what is owed."""
    params = {"w": jnp.arange(70.0).reshape(2, 5, 7), "b": jnp.arange(2.0)}
    code = compression.error_feedback(compression.quantize(4))
    loss = fsdp.gathered(len, "data", gradients=code)

    def made(tree: Any, n: int) -> Any:
        state = fsdp.init(optax.adam(0.1), tree, emulate(n), layers=["w", "b"])
        return *state, fsdp.init_state(loss, state[0], emulate(n))

    none = jax.tree.map(jnp.zeros_like, params)
    shards, opt_state, owed = made(params, before)
    opt_state = (opt_state[0]._replace(mu=shards), *opt_state[1:])
    owed = jax.tree.map(
        lambda x: x + jnp.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1)), owed
    )
    (after, moments, left), report = resized((shards, opt_state, owed), made(none, now))
    helpers.assert_equal(fsdp.whole(after), params)
    helpers.assert_equal(fsdp.whole(moments[0].mu), params)
    assert report.rules["0/w/value"] == "shard"
    np.testing.assert_allclose(left.owed[0].residual, (before - 1) / 2)


def test_keys_that_are_shared_stay_so_and_own_ones_stay_apart():
    key = jax.random.key(3)
    state = {
        "own": relaxjax.to_workers(key, emulate(4)),
        "shared": relaxjax.to_workers(key, emulate(4), same=True),
    }
    like = jax.tree.map(lambda k: relaxjax.to_workers(key, emulate(6)), state)
    after, _ = resized(state, like)
    own, shared = (np.asarray(jax.random.key_data(after[k])) for k in ("own", "shared"))
    np.testing.assert_array_equal(own[:4], jax.random.key_data(state["own"]))
    assert len({row.tobytes() for row in own}) == 6
    assert len({row.tobytes() for row in shared}) == 1


class Users(NamedTuple):
    total: Annotated[jax.Array, SUM]
    best: Annotated[Any, rebuild(lambda leaf, merge: leaf.fresh + leaf.rows.max())]
    own: "Annotated[jax.Array, RESET]"  # not evaluated yet
    steps: jax.Array


def test_rules_in_your_own_states():
    row = jnp.arange(4.0)
    state = Users(row, {"a": row}, row, jnp.full(4, 7))
    like = Users(
        jnp.zeros(2), {"a": jnp.zeros(2)}, jnp.full(2, -1.0), jnp.zeros(2, int)
    )
    after, report = resized(state, like)
    np.testing.assert_array_equal(after.total, [3, 3])
    np.testing.assert_array_equal(after.best["a"], [3, 3])
    np.testing.assert_array_equal(after.own, [-1, -1])
    np.testing.assert_array_equal(after.steps, [7, 7])
    assert list(report.rules.values()) == ["sum", "rebuild", "reset", "equal"]


class Stuck(NamedTuple):
    kept: Annotated[jax.Array, refuse("it is bound to them. Begin it anew")]


def test_what_cannot_be_right_is_refused():
    with pytest.raises(ValueError, match=r"Stuck at 'a' .* 2 workers: it is bound"):
        resized({"a": Stuck(jnp.ones(4))}, {"a": Stuck(jnp.ones(2))})
    experts = optax.partition(
        {"own": relaxjax.local(), "all": relaxjax.all_reduce("data")},
        {"w": "own", "b": "all"},
    )
    params = {"w": jnp.ones(3), "b": jnp.ones(2)}
    old, new = (relaxjax.init(experts, params, emulate(n)) for n in (4, 2))
    with pytest.raises(ValueError, match=r"LocalState .* worker's own"):
        resized(old, new)


TWO, FOUR = jnp.ones(2), jnp.ones(4)


@pytest.mark.parametrize(
    ("state", "like", "message"),
    [
        (jnp.arange(4), jnp.arange(2), r"should be the same .*worker 1 has 1"),
        ({"a": FOUR}, {"b": TWO}, "new workers have 'b'"),
        ({"a": FOUR, "b": FOUR}, {"a": TWO}, "old workers have 'b'"),
        (jnp.ones((4, 3)), jnp.ones((2, 5)), r"\[2, 3\] and is float32\[2, 5\]"),
        ({"a": FOUR}, {"a": TWO, "n": 3}, "no 'n'"),
        ({"a": FOUR, "b": jnp.ones(3)}, {"a": TWO}, "'b' has shape"),
        ({"a": 3}, {"a": TWO}, "no arrays"),
        ({"a": {"b": FOUR}, "a/b": FOUR}, {"a": TWO}, "two leaves"),
    ],
)
def test_states_that_do_not_fit_are_named(state, like, message):
    with pytest.raises(ValueError, match=message):
        resized(state, like)


def test_means_are_exact_where_workers_agree():
    values = np.array([0.1, -0.0, np.nan, np.inf, 3e38], np.float32)
    state = {
        "a": jnp.broadcast_to(values, (8, 5)),
        "b": jnp.full((8, 2), 0.1, jnp.bfloat16),
    }
    like = {"a": jnp.zeros((3, 5)), "b": jnp.zeros((3, 2), jnp.bfloat16)}
    after, _ = resized(state, like)
    assert np.asarray(after["a"])[2].tobytes() == values.tobytes()
    assert np.asarray(after["b"])[0].tobytes() == np.asarray(state["b"])[0].tobytes()


def test_rules_are_those_of_the_class():
    assert marks_of(relaxjax.DelayState) == {"waiting": MEAN}
    assert marks_of(optax.ScaleByAdamState) == {}


def test_every_state_says_what_it_is():
    """Those that only hold others' states need no rule."""
    rooms = ("_core", "compression", "faults", "gradients", "local_updates")
    packages = [
        importlib.import_module(f"relaxjax.{room}")
        for room in (*rooms, "decentralized", "ps")
    ]
    modules = [
        importlib.import_module(info.name)
        for package in packages
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not info.ispkg
    ]
    states = {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and name.endswith("State") and name[0] != "_"
    }
    assert len(states) > 35
    owed = {
        (name, field): mark
        for name, kind in states.items()
        for field, mark in marks_of(kind, Owed).items()
    }
    assert len(owed) == 9
    for (name, field), mark in owed.items():  # what is owed merges as an amount
        assert mark.by_models or marks_of(states[name])[field] is MEAN
    unmarked = {name for name, kind in states.items() if not marks_of(kind)}
    assert unmarked == {
        "AllReduceState",
        "ByStepState",
        "DeepGradientCompressionState",
        "PartOfTrainingState",
    }


@pytest.mark.parametrize("now", [4, 2])
def test_a_value_of_the_loop_that_nobody_takes_is_refused(now, tmp_path):
    def state(n: int) -> dict[str, Any]:
        params = relaxjax.to_workers({"w": jnp.zeros(3)}, emulate(n))
        return {"params": params, "batches": 0}

    with Checkpoints(tmp_path, emulate(4)) as folder:
        folder.save(5, {**state(4), "epoch": 7})
    with (
        Checkpoints(tmp_path, emulate(now)) as folder,
        pytest.raises(ValueError, match="'epoch'"),
    ):
        folder.restore(state(now))
