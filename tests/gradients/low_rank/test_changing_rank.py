"""PowerSGD whose rank changes at stated steps: bits, bytes, warm starts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, power_sgd, wire_bytes
from tests.gradients.low_rank.test_power_sgd import LARGE, WORKERS, basis, large
from tests.gradients.references import run
from tests.helpers import assert_close, assert_equal, mesh_of

RANKS = {0: 2, 3: 1, 6: 3}
START = {k: np.zeros(s, np.float32) for k, s in LARGE.items()}


def chain(rank: Any, **how: Any) -> Any:
    return optax.chain(power_sgd("data", rank=rank, **how), optax.sgd(1.0))


def trained(tx: Any, grads: list[Any], mesh: Any) -> tuple[Any, Any]:
    """Params after each step, and the last state, by the host's phases."""

    def step(params, state, g):
        updates, state = tx.update(jax.tree.map(lambda x: x[0], g), state, params)
        return optax.apply_updates(params, updates), state, {}

    train, seen = relaxjax.data_parallel(step, mesh), []
    params, state = relaxjax.init(tx, START, mesh)
    for g in grads:
        params, state, _ = train(params, state, g)
        seen.append(params)
    return seen, state


def reference(tx: Any, grads: list[Any]) -> list[Any]:
    """Params after each step, from the transformation's own first Q, of rank 3."""
    state = tx.init({k: jnp.zeros(s) for k, s in LARGE.items()})[0]
    cut = {"w": (12, 10), "v": (12, 9)}
    q = {k: np.asarray(state.right[k][0], np.float64) for k in cut}
    assert q["w"].shape == (10, 3)
    e = {k: [np.zeros(cut[k]) for _ in range(WORKERS)] for k in cut}
    x, seen = {k: np.zeros(s) for k, s in LARGE.items()}, []
    for step, g in enumerate(grads):
        r = RANKS[max(t for t in RANKS if t <= step)]
        x = x | {"b": x["b"] - g["b"].mean(axis=0)}
        for k in cut:
            m = [g[k][i].reshape(cut[k]) + e[k][i] for i in range(WORKERS)]
            p = basis(np.mean([one @ q[k][:, :r] for one in m], axis=0))
            q[k][:, :r] = np.mean([one.T @ p for one in m], axis=0)
            out = p @ q[k][:, :r].T
            e[k] = [one - out for one in m]
            x = x | {k: x[k] - out.reshape(LARGE[k])}
        seen.append(x)
    return seen


@pytest.mark.few(4)
@pytest.mark.parametrize("place", [emulate, mesh_of])
def test_equals_a_list_of_workers(place):
    grads, tx = large(WORKERS, 10), chain(RANKS)
    seen, _ = trained(tx, grads, place(WORKERS))
    for params, expected in zip(seen, reference(tx, grads), strict=True):
        for k in LARGE:
            assert_close(params[k][0], expected[k].astype(np.float32), 2e-3)


@pytest.mark.parametrize("ranks", [{0: 2}, {0: 2, 2: 2, 4: 2}], ids=str)
def test_one_rank_is_the_number(ranks):
    grads = large(WORKERS, 6)
    found, _ = trained(chain(ranks), grads, emulate(WORKERS))
    expected, _ = trained(chain(2), grads, emulate(WORKERS))
    assert_equal(found, expected)


def test_each_phase_sends_what_its_rank_does():
    mesh = emulate(WORKERS)
    tx = power_sgd("data", rank={0: 2, 3: 1, 6: 3}, start_after=2)
    sent = [wire_bytes(tx, START, mesh, start=step) for step in range(8)]
    one, two, three = (
        wire_bytes(power_sgd("data", rank=r), START, mesh) for r in (1, 2, 3)
    )
    whole = wire_bytes(relaxjax.all_reduce("data"), START, mesh)
    assert sent == [whole, whole, two, one, one, one, three, three]
    assert relaxjax.explain(tx, START, mesh).phase_ends == [2, 3, 6]


@pytest.mark.long
def test_a_rank_that_rises_again_begins_where_it_was():
    """Of a matrix of rank 3: at once as good as before, where a new Q is not."""
    rng = np.random.default_rng(0)
    m = rng.normal(size=(12, 3)) * [4.0, 2.0, 1.0] @ rng.normal(size=(3, 10))
    g = {k: np.zeros((WORKERS, *s), np.float32) for k, s in LARGE.items()}
    g["w"] = np.broadcast_to(m, (WORKERS, *m.shape)).astype(np.float32)

    def lost(ranks: Any, steps: int) -> float:
        _, state = trained(chain(ranks), [g] * steps, emulate(WORKERS))
        return float(jnp.linalg.norm(state[0].residual["w"][0]))

    back = {0: 3, 8: 1, 9: 3}
    assert lost(back, 9) > 1.0
    assert lost(back, 10) < 1e-3
    _, before = trained(chain(back), [g] * 8, emulate(WORKERS))
    _, after = trained(chain(back), [g] * 9, emulate(WORKERS))
    q, then = (s[0].right["w"][0] for s in (before, after))
    assert_equal(q[:, :, 1:], then[:, :, 1:])


@pytest.mark.few(4)
@pytest.mark.parametrize("place", [emulate, mesh_of])
def test_ranks_of_leaves_are_those_of_a_list_of_workers(place):
    """Each leaf goes its own way, so that its rank may be another's in another run."""
    grads = large(WORKERS, 8)
    both = {0: {"w": 3, "v": 1}, 4: {"w": 1, "v": 2, "b": 1}}
    found, state = trained(chain(both), grads, place(WORKERS))
    for name, ranks in (("w", {0: 3, 4: 1}), ("v", {0: 1, 4: 2})):
        one, other = trained(chain(ranks, highest=3), grads, place(WORKERS))
        for params, expected in zip(found, one, strict=True):
            assert_close(params[name], expected[name], 1e-5)
        assert_close(state[0].right[name], other[0].right[name], 1e-5)


def test_ranks_of_leaves_send_what_they_do():
    mesh = emulate(WORKERS)
    tx = power_sgd("data", rank={0: {"w": 2, "v": 2}, 3: {"w": 1, "v": 2}})
    sent = [wire_bytes(tx, START, mesh, start=step) for step in (0, 3)]
    one, two = (wire_bytes(power_sgd("data", rank=r), START, mesh) for r in (1, 2))
    assert sent[0] == two
    assert one < sent[1] < two
    assert wire_bytes(tx, START, mesh, steps=5) == 3 * sent[0] + 2 * sent[1]


def test_compiled_programs_of_phases_send_less():
    """Read from their collectives: the columns that wait do not travel."""
    mesh, tx = mesh_of(WORKERS), chain({0: {"w": 3, "v": 3}, 2: {"w": 1, "v": 2}})
    grads, seen = large(WORKERS, 4), []
    params, state = relaxjax.init(tx, START, mesh)

    def step(params, state, g):
        updates, state = tx.update(jax.tree.map(lambda x: x[0], g), state, params)
        return optax.apply_updates(params, updates), state, {}

    train = relaxjax.data_parallel(step, mesh)
    for g in grads:
        now = relaxjax.advance_phases(state)
        seen.append(relaxjax.compiled_wire_bytes(train, params, now, g))
        params, state, _ = train(params, state, g)
    assert seen == [wire_bytes(tx, START, mesh, start=step) for step in range(4)]
    assert seen[1] > seen[2]


@pytest.mark.long
def test_more_columns_than_the_rank_wait():
    grads = large(WORKERS, 4)
    _, state = trained(chain(2, highest=3), grads, emulate(WORKERS))
    first = chain(2, highest=3).init(START)[0].right["w"]
    assert first.shape == (1, 10, 3)
    assert_equal(state[0].right["w"][0, ..., 2], first[..., 2])
    found, _ = trained(chain({0: 2}, highest=3), grads, emulate(WORKERS))
    assert_equal(found, trained(chain(2, highest=3), grads, emulate(WORKERS))[0])
    found, _ = trained(chain(2, highest=2), grads, emulate(WORKERS))
    assert_equal(found, trained(chain(2), grads, emulate(WORKERS))[0])


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ({0: {"w": 2}}, r"rank\[0\] must give one rank to each leaf .*'v' is missing"),
        ({0: 2, 3: {"w": 2, "v": 1, "x": 1}}, r"rank\[3\] must .*'x' is no leaf"),
    ],
)
def test_refuses_ranks_of_other_leaves(ranks, message):
    with pytest.raises(ValueError, match=message):
        power_sgd("data", rank=ranks).init(START)


@pytest.mark.long
def test_a_loop_that_sets_no_phases_takes_the_same_steps():
    grads, tx = large(WORKERS, 8), chain(RANKS)
    seen, _ = trained(tx, grads, emulate(WORKERS))
    unhosted = run(tx, grads, WORKERS, START)
    assert_close(unhosted, jax.tree.map(lambda x: x[0], seen[-1]), 1e-4)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"rank": {}}, r"rank=\{\} says nothing of the first steps"),
        ({"rank": {5: 2}}, r"rank=\{5: 2\} says nothing of the first steps"),
        ({"rank": {0: 2, 5: 0}}, r"rank\[5\]=0 must be a whole number, 1 or more"),
        ({"rank": {0: 2, -5: 1}}, r"the step of rank\[-5\]=-5 must be a whole number"),
        ({"rank": {0: {"w": 0}}}, r"rank\[0\]\['w'\]=0 must be a whole number, 1 or"),
        ({"rank": 2, "highest": 1}, "highest=1 must be a whole number, 2 or more"),
        (
            {"rank": {0: 2, 5: 1}, "start_after": 5},
            r"changes after 5 steps, and nothing is approximated in the first 5",
        ),
    ],
)
def test_refuses_ranks_that_cannot_be(knobs, message):
    with pytest.raises(ValueError, match=message):
        power_sgd("data", **knobs)
