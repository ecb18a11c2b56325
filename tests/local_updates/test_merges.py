"""Models merged by rules that stand a wrong worker: numbers, momentum, bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, merges
from tests import helpers
from tests.helpers import assert_close, mesh_of
from tests.merges.compiled import merged

N = 4
RULES = [
    merges.clipped(),
    merges.clipped("all"),
    merges.rda(),
    merges.median(),
    merges.trimmed(1),
    merges.geometric_median(),
    merges.centered_clip(2.0, 3),
    merges.nearest(1, merges.median()),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
OUTER = optax.sgd(0.7, momentum=0.9, nesterov=True)


def diloco(rule: Any, **how: Any) -> Any:
    return relaxjax.diloco(optax.sgd(0.25), "data", 2, merge=rule, outer=OUTER, **how)


def decoupled(rule: Any, **how: Any) -> Any:
    inner = optax.sgd(0.25)
    return relaxjax.decoupled_diloco(
        inner, "data", sync_every=2, fragments=1, merge=rule, outer=OUTER, **how
    )


def local_sgd(rule: Any, **how: Any) -> Any:
    return optax.chain(
        optax.sgd(0.25), relaxjax.local_sgd("data", 2, merge=rule, **how)
    )


def by_hand(rule: Any, targets: np.ndarray, outer: Any, rounds: int) -> np.ndarray:
    """The common model after each round of two steps; every worker is pulled."""
    a = np.zeros(targets.shape[1], np.float32)
    state, found = outer.init(a), []
    for _ in range(rounds):
        x = np.broadcast_to(a, targets.shape)
        for _ in range(2):
            x = x - 0.25 * (x - targets.astype(np.float32))
        step, state = outer.update(merged(rule, a - x), state, a)
        a = np.asarray(a + step)
        found.append(a)
    return np.stack(found)


METHODS = {"diloco": (diloco, OUTER), "decoupled_diloco": (decoupled, OUTER)}
METHODS["local_sgd"] = (local_sgd, optax.sgd(1.0))
every_method = pytest.mark.parametrize("method", METHODS)


@pytest.mark.few(12)
@every_rule
@every_method
def test_is_the_rule_and_then_the_outer_optimizer(method, rule):
    """One worker is pulled far away, in the compiled program of a mesh."""
    make, outer = METHODS[method]
    targets = helpers.targets_of(N)
    targets[1] *= 1000
    found = helpers.pulled(make(rule), targets, mesh_of(N), steps=6)
    expected = by_hand(rule, targets, outer, rounds=3)
    for models, model in zip(found[1::2], expected, strict=True):
        assert_close(models[0], np.stack([model] * N), 2e-5)


@pytest.mark.few(12)
@every_rule
@every_method
def test_a_worker_that_is_not_finite_is_absent(method, rule):
    """The others go on from the merge of their own models, in the same step."""
    make, outer = METHODS[method]
    targets = helpers.targets_of(N)
    others = [0, 1, 3]
    expected = by_hand(rule, targets[others], outer, rounds=2)
    targets[2] = np.nan
    found = helpers.pulled(make(rule), targets, relaxjax.emulate(N), steps=4)
    for models, model in zip(found[1::2], expected, strict=True):
        assert_close(models[0][others], np.stack([model] * 3), 2e-5)


@pytest.mark.few(12)
@pytest.mark.parametrize("rule", [*RULES[:4], RULES[-1]], ids=repr)
@pytest.mark.parametrize(
    "wrong", [1e3, 1e9, -1.0, 0.0, 1e25], ids=lambda x: f"times {x:g}"
)
def test_a_wrong_worker_keeps_nobody_from_training(rule, wrong):
    """Outer momentum keeps no wrong step: the model ends among the others' targets."""
    targets = 1 + 0.1 * helpers.targets_of(8)
    good = targets[1:].mean(axis=0)
    targets[0] *= wrong
    tx = relaxjax.diloco(
        optax.sgd(0.25), "data", 2, merge=rule, outer=optax.sgd(0.4, momentum=0.5)
    )
    models, _ = helpers.pulled(tx, targets, relaxjax.emulate(8), steps=60)[-1]
    reach = (
        0.45 if rule.name in ("clipped", "rda") else 0.15
    )  # of a flipped sign: 2 / n
    assert np.abs(models[1] - good).max() <= reach


def test_the_mean_and_rda_have_no_such_bound():
    targets = 1 + 0.1 * helpers.targets_of(8)
    targets[0] *= 1e3
    for merge in ("mean", "rda"):
        models, _ = helpers.pulled(diloco(merge), targets, relaxjax.emulate(8))[-1]
        assert np.abs(models).max() > 10


def two_steps(tx, u, weights):
    """Params [n, 3] after two steps from 0 by the same updates [n, 3]."""

    def worker(u, w):
        params = jnp.zeros(3)
        state = tx.init(params)
        for _ in range(2):
            updates, state = tx.update(u, state, params, weight=w)
            params = params + updates
        return params

    return np.asarray(jax.vmap(worker, axis_name="data")(u, weights))


@pytest.mark.long
def test_weights_are_capped():
    """A worker that says it has seen 1e21 tokens decides nothing."""
    tx = diloco(merges.clipped("all"))
    x, wrong = np.ones((N, 3), np.float32), np.array([1, 1, 1, 1e21], np.float32)
    moves = x.copy()
    moves[3] *= -1
    share = (3 - 2) / (3 + 2)  # of the step of equal moves
    equal = two_steps(tx, x, np.ones(N))
    assert_close(two_steps(tx, moves, wrong), share * equal, 1e-5)


def test_fragments_merge_those_who_are_there():
    """Presence, tokens and the rule together: the absent one is not looked at."""
    targets = helpers.targets_of(N)
    targets[3] = 1e6
    tx = decoupled(
        merges.median(), present=[[1, 1, 1, 0]], tokens=[[8, 8, 8, 8]], overlap=0
    )
    found = helpers.pulled(tx, targets, relaxjax.emulate(N), steps=2)[-1][0]
    expected = by_hand(merges.median(), targets[:3], OUTER, rounds=1)[-1]
    assert_close(found[:3], np.stack([expected] * 3), 2e-5)


@pytest.mark.parametrize("rule", RULES[:4], ids=repr)
def test_bytes_are_those_of_the_merge_once_in_a_round(rule):
    params, tx = {"w": np.zeros((8, 4), np.float32)}, diloco(rule)
    merge = relaxjax.all_reduce("data", op=rule)
    mesh = mesh_of(N)
    stated = relaxjax.wire_bytes(merge, params, mesh)
    assert stated > 0
    assert relaxjax.wire_bytes(tx, params, mesh, steps=2) == stated


@pytest.mark.parametrize("rule", [merges.clipped(), merges.median()], ids=repr)
def test_dense_codes_travel(rule):
    targets = helpers.targets_of(N)
    targets[1] *= 1000
    tx = diloco(rule, compressor=compression.quantize(8))
    found = helpers.pulled(tx, targets, mesh_of(N), steps=6)[-1][0]
    exact = by_hand(rule, targets, OUTER, rounds=3)[-1]
    assert_close(found, np.stack([exact] * N), 0.05)


def test_feedback_waits_where_a_worker_is_not_finite():
    """What it is owed is finite when it comes back, and the others' is theirs."""
    code = compression.error_feedback(compression.sign())
    tx = local_sgd(merges.clipped(), compressor=code)
    targets = helpers.targets_of(N).astype(np.float32)
    broken = np.where(np.arange(N)[:, None] == 2, np.nan, targets)
    step = relaxjax.data_parallel(
        helpers.step_of(lambda x, t: x - t[0], tx), relaxjax.emulate(N)
    )
    state = relaxjax.init(tx, jnp.zeros(5), relaxjax.emulate(N))
    for batch in (targets, targets, broken, broken):
        *state, _ = step(*state, batch)
    residuals = [
        x for x in jax.tree.leaves(state[1]) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    assert all(np.isfinite(x).all() for x in residuals)


def test_a_given_reducer_sums_what_is_clipped():
    targets = helpers.targets_of(N)
    targets[1] *= 1000
    given = relaxjax.all_reduce("data", algorithm="ring")
    rule = merges.clipped()
    found = helpers.pulled(diloco(rule, reducer=given), targets, mesh_of(N), steps=4)
    plain = helpers.pulled(diloco(rule), targets, mesh_of(N), steps=4)
    assert_close(found[-1][0], plain[-1][0], 1e-6)


def test_a_given_reducer_takes_the_weights_of_what_is_clipped():
    x, weights = np.ones((N, 3), np.float32), np.array([1, 1, 5, 1], np.float32)
    x *= np.array([[1], [-1], [1], [-1]], np.float32)
    given = relaxjax.all_reduce("data", algorithm="ring")
    found = two_steps(diloco(merges.clipped(), reducer=given), x, weights)
    assert np.abs(found).max() > 1e-3
    assert_close(found, two_steps(diloco(merges.clipped()), x, weights), 1e-6)


@pytest.mark.long
def test_low_rank_reducers_take_what_is_clipped():
    params = {"w": np.zeros((6, 4), np.float32)}
    given = relaxjax.power_sgd("data", rank=4, min_compression=0)
    tx = relaxjax.local_sgd("data", 1, merge=merges.clipped(), reducer=given)
    u = np.random.default_rng(0).normal(size=(N, 6, 4)).astype(np.float32)
    u[2] *= 1e4

    def run(u):
        updates: Any = tx.update({"w": u}, tx.init(params), params)[0]
        return updates["w"]

    found: Any = jax.vmap(run, axis_name="data")(u)
    assert_close(found[0], merged(merges.clipped(), u), 1e-3)


@every_rule
def test_states_are_those_of_the_mean(rule):
    """So that a run may go on by another rule."""
    params = jax.tree.map(jnp.asarray, helpers.problem())
    states = [jax.eval_shape(diloco(merge).init, params) for merge in ("mean", rule)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: diloco("median"), r"diloco: merge='median' must be one of mean, rda"),
        (lambda: diloco("median"), r"or a rule of relaxjax\.merges"),
        (lambda: local_sgd("mode"), r"local_sgd: merge='mode' must be"),
        (
            lambda: diloco(merges.median(), reducer=relaxjax.power_sgd("data", rank=1)),
            r"diloco: merge=median\(\) with reducer=.*merges\.clipped",
        ),
        (
            lambda: diloco(merges.median(), compressor=compression.top_k(0.1)),
            r"merge=median\(\) with compressor=top_k.*stalls",
        ),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_refusals_name_what_was_written():
    code = relaxjax.compression.top_k(0.1)
    with pytest.raises(ValueError, match=r"^diloco: merge=median\(\) with compressor"):
        relaxjax.diloco(
            optax.sgd(0.1), "data", 2, merge=merges.median(), compressor=code
        )
    with pytest.raises(ValueError, match=r"^local_sgd: merge=median\(\) with algor"):
        relaxjax.local_sgd("data", 2, merge=merges.median(), algorithm="ring")
