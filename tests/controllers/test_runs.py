"""Runs under controllers: equal decisions of all workers, and replay to the bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import controllers, emulate, periods
from relaxjax.checkpoint import Checkpoints, plan_of
from relaxjax.workers import _step_programs
from tests import helpers
from tests.helpers import assert_equal, mesh_of

N = 4


def meeting_run(period: Any, steps: int, mesh: Any, controller: Any = None) -> Any:
    """Losses, params and the record of a run of local SGD.

    With a controller it is asked after each meeting, and says the next period.
    """
    tx = optax.chain(optax.adam(0.02), relaxjax.local_sgd("data", period))
    params, state = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    record = controller.init() if controller else None
    losses, meets = [], record.level if record else None
    for k, batch in enumerate(helpers.batches(steps, 2 * N), 1):
        params, state, metrics = step(params, state, batch)
        losses.append(float(metrics["loss"]))
        if k == meets:
            record = controller.update(record, k, {"loss": metrics["loss"]})
            state = periods.lasting(state, record.level)
            meets = k + record.level
    return losses, params, record


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("place", [emulate, mesh_of])
def test_a_run_of_ada_comm_is_that_of_its_table(place):
    steps, controller = 40, controllers.ada_comm(12)
    start = periods.table([controller.init().level])
    losses, params, record = meeting_run(start, steps, place(N), controller)
    assert len(record.table) >= 3
    again, others, _ = meeting_run(periods.table(record.table), steps, place(N))
    assert losses == again
    assert_equal(params, others)
    constant, _, _ = meeting_run(12, steps, place(N))
    assert losses != constant


def test_the_table_of_a_record_meets_when_the_run_met():
    controller = controllers.ada_comm(12)
    *_, record = meeting_run(periods.table([12]), 40, emulate(N), controller)
    asked = [row.step for row in record.decisions[1:]]
    assert periods.meetings(periods.table(record.table), 40) == asked


def test_a_period_is_refused_where_a_number_says_it():
    mesh = emulate(2)
    tx = relaxjax.local_sgd("data", 8)
    _, state = relaxjax.init(tx, helpers.problem(), mesh)
    with pytest.raises(ValueError, match="no counters of a schedule"):
        periods.lasting(state, 4)
    with pytest.raises(ValueError, match="steps=0 must be a whole number, 1 or more"):
        periods.lasting(state, 0)


@pytest.mark.parametrize("is_asked", [False, True], ids=["", "silent programs"])
def test_a_period_that_is_over_ends_with_the_next_step(is_asked, monkeypatch):
    """Also where steps between meetings run by a program that does not ask."""
    monkeypatch.setattr(_step_programs, "host_is_asked", lambda workers: is_asked)
    tx = optax.chain(optax.sgd(0.1), relaxjax.local_sgd("data", periods.table([9])))
    mesh, met = mesh_of(N), []
    params, state = relaxjax.init(tx, helpers.problem(), mesh)
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    for k, batch in enumerate(helpers.batches(12, 2 * N), 1):
        params, state, _ = step(params, state, batch)
        state = periods.lasting(state, 2) if k == 5 else state
        met += [k] if relaxjax.spread(params) < 1e-6 else []
    assert met == [6]


EVERY = 4
SHAPES = {"b": (5,), "v": (12, 9), "w": (12, 10)}
START = {k: np.zeros(s, np.float32) for k, s in SHAPES.items()}


def gradients(steps: int) -> list[dict[str, np.ndarray]]:
    """Of each worker; those of w halve again and again, those of v stay."""
    rng = np.random.default_rng(0)
    common = {k: rng.normal(size=s) for k, s in SHAPES.items()}
    return [
        {
            k: (rng.normal(size=(N, *s)) + 3 * common[k])
            * (0.3 ** (t // EVERY % 2) if k == "w" else 1.0)
            for k, s in SHAPES.items()
        }
        for t in range(steps)
    ]


def ranked(ranks: Any) -> Any:
    return optax.chain(
        relaxjax.power_sgd("data", rank=ranks, highest=3),
        controllers.norms_of_sums(EVERY),
        optax.sgd(0.1),
    )


def stepped(tx: Any, mesh: Any) -> Any:
    def step(params, state, g):
        updates, state = tx.update(jax.tree.map(lambda x: x[0], g), state, params)
        return optax.apply_updates(params, updates), state, {}

    return relaxjax.data_parallel(step, mesh)


def ranked_run(
    tx: Any, mesh: Any, steps: int, controller: Any = None, start: Any = None
) -> Any:
    """Params and state, and the record where a controller sets the ranks."""
    record = controller.init() if controller else None
    params, state, record, taken = start or (*relaxjax.init(tx, START, mesh), record, 0)
    step = stepped(tx, mesh)
    for k, g in list(enumerate(gradients(steps), 1))[taken:]:
        g = jax.tree.map(lambda x: x.astype(np.float32), g)
        params, state, _ = step(params, state, g)
        if record and k % EVERY == 0:
            norms = {name: x[0] for name, x in state[1].norms.items()}
            before = record.table
            record = controller.update(record, k, {"norms": norms})
            if record.table != before:
                tx = ranked(dict(record.table))
                like = relaxjax.init(tx, START, mesh)[1]
                state, step = controllers.continued(state, like), stepped(tx, mesh)
    return params, state, record


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("place", [emulate, mesh_of])
def test_a_run_of_accordion_is_that_of_its_table(place):
    mesh, steps = place(N), 5 * EVERY
    controller = controllers.accordion(1, 3)
    params, state, record = ranked_run(ranked({0: 3}), mesh, steps, controller)
    levels = [level for _, level in record.table[1:]]
    assert {level["w"] for level in levels} == {1, 3}
    again, *_ = ranked_run(ranked(dict(record.table[:2])), mesh, steps)
    assert not np.array_equal(again["w"], params["w"])
    again, later, _ = ranked_run(ranked(dict(record.table)), mesh, steps)
    assert_equal(params, again)
    assert_equal(jax.tree.leaves(state), jax.tree.leaves(later))


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("swap", [2 * EVERY, 2 * EVERY + 1])
def test_a_run_that_resumes_decides_the_same(swap, tmp_path):
    """From a checkpoint and the decisions so far, which say how it is built."""
    mesh, steps, controller = emulate(N), 5 * EVERY, controllers.accordion(1, 3)
    whole = ranked_run(ranked({0: 3}), mesh, steps, controller)

    def opened(tx: Any) -> Checkpoints:
        return Checkpoints(tmp_path, mesh, plan=plan_of(tx, START, mesh))

    *half, record = ranked_run(ranked({0: 3}), mesh, swap, controller)
    with opened(ranked(dict(record.table))) as folder:
        folder.save(swap, tuple(half))
    record.save(tmp_path / "ranks.json")

    record = controller.replayed(controllers.load(tmp_path / "ranks.json"))
    tx = ranked(dict(record.table))
    with opened(tx) as folder:
        _, half = folder.restore(relaxjax.init(tx, START, mesh))
    params, state, record = ranked_run(
        tx, mesh, steps, controller, (*half, record, swap)
    )
    assert record.table == whole[2].table
    assert_equal(params, whole[0])
    assert_equal(jax.tree.leaves(state), jax.tree.leaves(whole[1]))


def test_a_loop_that_sets_phases_itself_goes_on_to_do_so():
    mesh = emulate(N)
    one, two = (ranked(ranks) for ranks in ({0: 3}, {0: 3, 2: 1}))
    _, state, _ = ranked_run(one, mesh, 3)
    like = relaxjax.init(two, START, mesh)[1]
    for given, is_hosted in ((relaxjax.advance_phases(state), True), (state, False)):
        clock = controllers.continued(given, like)[0].clock
        assert (clock.ends, clock.hosted) == ((0, 2), is_hosted)
        assert clock.phase == (2 if is_hosted else like[0].clock.phase)


def test_what_continues_must_keep_the_same_arrays():
    mesh = emulate(N)

    def state_of(ranks: Any, **how: Any) -> Any:
        return relaxjax.init(relaxjax.power_sgd("data", rank=ranks, **how), START, mesh)

    _, state = state_of({0: 2})
    with pytest.raises(ValueError, match=r"right/v is float32.*state the same highest"):
        controllers.continued(state, state_of({0: 2, 9: 3})[1])
    with pytest.raises(ValueError, match="arrays do not fit"):
        controllers.continued((state, jnp.zeros(N)), state)


def test_all_workers_read_the_same_bits():
    """Under random readings, of an absent worker and of one that is not finite."""
    rng = np.random.default_rng(0)
    own = {"w": rng.normal(size=(N, 50, 7)), "b": rng.normal(size=(N, 3)) * 1e3}
    own = jax.tree.map(lambda x: x.astype(np.float32), own)

    def read(tree: Any) -> Any:
        mean = jax.lax.pmean(tree, "data")
        return controllers.agreement(tree, mean, "data"), controllers.leaf_norms(mean)

    spec = jax.sharding.PartitionSpec("data")
    how: dict[str, Any] = {"mesh": mesh_of(N), "in_specs": spec, "out_specs": spec}
    mapped = jax.shard_map(
        lambda x: jax.tree.map(
            lambda y: y[None], read(jax.tree.map(lambda y: y[0], x))
        ),
        check_vma=False,
        **how,
    )
    for run in (jax.vmap(read, axis_name="data"), mapped):
        r, norms = jax.jit(run)(own)
        for x in (r, *norms.values()):
            assert len(set(np.asarray(x).tolist())) == 1
        mean = {k: x.astype(np.float64).mean(0) for k, x in own.items()}
        square = sum((x**2).sum() for x in mean.values())
        expected = (
            N * square / sum((x.astype(np.float64) ** 2).sum() for x in own.values())
        )
        assert r[0] == pytest.approx(expected, rel=1e-5)
        assert norms["w"][0] == pytest.approx(np.linalg.norm(mean["w"]), rel=1e-5)
        broken = own | {"b": np.where(np.arange(N)[:, None] == 1, np.nan, own["b"])}
        r, norms = jax.jit(run)(broken)
        assert np.isnan(r).all()
        assert np.isnan(norms["b"]).all()


@pytest.mark.long
def test_agreement_of_equal_of_orthogonal_and_of_opposite_ways():
    def r(ways: Any) -> float:
        def one(x: jax.Array) -> jax.Array:
            return controllers.agreement(x, jax.lax.pmean(x, "data"), "data")

        return float(jax.vmap(one, axis_name="data")(jnp.asarray(ways, jnp.float32))[0])

    assert r(np.ones((8, 3))) == 1.0
    assert r(np.eye(8)) == 1 / 8
    assert r([[1.0, 2.0], [-1.0, -2.0]]) == 0.0
    assert np.isnan(r(np.zeros((4, 2))))


def test_an_absent_worker_has_no_say_in_the_agreement():
    """Whatever it holds; the others count by their weights."""
    rng = np.random.default_rng(1)
    ways = rng.normal(size=(N, 9)).astype(np.float32)
    weights = np.array([1.0, 3.0, 0.0, 2.0], np.float32)
    mean = np.average(ways, axis=0, weights=weights)
    squares = np.average((ways**2).sum(1), weights=weights)
    ways[2] = np.nan

    def r(way: Any, weight: Any) -> Any:
        return controllers.agreement(way, jnp.asarray(mean), "data", weight=weight)

    found = np.asarray(jax.vmap(r, axis_name="data")(ways, weights))
    assert len(set(found.tolist())) == 1
    assert found[0] == pytest.approx((mean**2).sum() / squares, rel=1e-5)


def test_norms_are_those_of_whole_periods():
    tx, grads = controllers.norms_of_sums(3), [1.0, 2.0, -5.0, 4.0, 0.0, 0.5, 9.0]
    state: Any = tx.init({"w": jnp.zeros(2, jnp.bfloat16)})
    seen = []
    for g in grads:
        gradient = {"w": jnp.full(2, g, jnp.bfloat16)}
        out, state = tx.update(gradient, state)
        assert out is gradient
        seen.append(float(state.norms["w"]) / 2**0.5)
    np.testing.assert_allclose(seen, [np.nan, np.nan, 2, 2, 2, 4.5, 4.5], rtol=1e-6)
    assert float(state.total["w"][0]) == 9.0


@pytest.mark.parametrize("dtype", [np.complex64, np.float16, np.float32])
def test_norms_are_of_complex_and_of_narrow_leaves(dtype):
    x = jnp.full(4, 3 + 4j if dtype == np.complex64 else 5, dtype)
    (norm,) = controllers.leaf_norms(x).values()
    assert norm == 10
    assert norm.dtype == jnp.float32
    tx: Any = controllers.norms_of_sums(2)
    state = tx.init({"w": x})
    for _ in range(2):
        _, state = tx.update({"w": x}, state)
    assert state.norms["w"] == 20
    agree = jax.vmap(
        lambda d: controllers.agreement(d, jax.lax.pmean(d, "data"), "data"),
        axis_name="data",
    )
    np.testing.assert_allclose(agree(jnp.stack([x, x])), [1, 1], rtol=1e-6)
