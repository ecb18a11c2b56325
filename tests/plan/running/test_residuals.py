"""What residuals hold is delivered by the relaxation that comes next."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, plan
from relaxjax._core._owed import debts
from tests.helpers import assert_close, assert_equal, mesh_of

N, RATE = 4, 0.5
SGD = optax.sgd(RATE)
SIGN = compression.error_feedback(compression.sign())
TOP = compression.top_k(0.3)
DELAYS = [[0, 2, 1, 0], [1, 0, 0, 2]]


def reduced(**options: Any) -> optax.GradientTransformation:
    return relaxjax.all_reduce("data", **options)


def coded(compressor: Any) -> optax.GradientTransformation:
    return reduced(compressor=compressor, algorithm="two_shot")


# Those that hold gradients, updates of an optimizer, or changes of a model.
REDUCERS = {
    "signs": reduced(compressor=SIGN),
    "top_k": coded(compression.error_feedback(TOP)),
    "intersection": coded(compression.intersection_feedback(TOP)),
    "econtrol": coded(compression.econtrol(compression.top_k(0.5), eta=0.3)),
    "correction": coded(compression.momentum_correction(TOP, momentum=0.0)),
    "power_sgd": relaxjax.power_sgd("data", rank=1),
    "power_sgd8": relaxjax.power_sgd("data", rank=1, bits=8),
    "acp_sgd": relaxjax.acp_sgd("data", rank=1),
    "delay": optax.chain(relaxjax.delay(2), reduced()),
    "staleness": optax.chain(relaxjax.bounded_staleness("data", DELAYS), reduced()),
    "delay and signs": optax.chain(relaxjax.delay(2), reduced(compressor=SIGN)),
    "guarded": relaxjax.skip_nonfinite(reduced(compressor=SIGN), "data"),
    "parts": optax.partition(
        {0: reduced(compressor=SIGN), 1: relaxjax.power_sgd("data", rank=1)},
        {"w": 1, "b": 0},
    ),
}
BEFORE = {name: optax.chain(tx, SGD) for name, tx in REDUCERS.items()} | {
    "behind": optax.chain(SGD, reduced(compressor=SIGN)),
    "local_sgd": optax.chain(SGD, relaxjax.local_sgd("data", 3, compressor=SIGN)),
    "local_sgd of power_sgd": optax.chain(
        SGD,
        relaxjax.local_sgd("data", 3, reducer=relaxjax.power_sgd("data", rank=1)),
    ),
    "diloco": relaxjax.diloco(SGD, "data", 3, outer=optax.sgd(1.0), compressor=SIGN),
    "streaming_diloco": relaxjax.streaming_diloco(
        SGD, "data", 2, outer=optax.sgd(1.0), compressor=SIGN
    ),
}
PLAIN = plan.with_arrears(optax.chain(reduced(), SGD))
AFTER = {
    "all_reduce": PLAIN,
    "four bits": BEFORE["top_k"],
    "power_sgd8": BEFORE["power_sgd8"],
    "delay": BEFORE["delay"],
    "local_sgd": plan.with_arrears(BEFORE["local_sgd"]),
    "guarded": relaxjax.skip_nonfinite(PLAIN, "data"),
}


def start() -> Any:
    rng = np.random.default_rng(0)
    return {"w": jnp.asarray(rng.normal(size=(6, 5)), jnp.float32), "b": jnp.ones(3)}


def gradients(steps: int, seed: int = 1) -> Any:
    """[steps, N, ...]."""
    rng = np.random.default_rng(seed)

    def drawn(x: Any) -> Any:
        mean, noise = rng.normal(size=x.shape), rng.normal(size=(steps, N, *x.shape))
        return jnp.asarray(mean + noise, jnp.float32)

    return jax.tree.map(drawn, start())


def trained(tx: Any, mesh: Any, run: Any, gs: Any, **extra: Any) -> Any:
    """The run after a step with each of these gradients."""

    def step(params, state, g):
        g = jax.tree.map(lambda x: x[0], g)
        updates, state = tx.update(g, state, params, **extra)
        return optax.apply_updates(params, updates), state, {}

    stepped = relaxjax.data_parallel(step, mesh)
    for k in range(len(jax.tree.leaves(gs)[0])):
        *run, _ = stepped(*run, jax.tree.map(lambda x, k=k: x[k], gs))
    return run


def nothing() -> Any:
    return optax.tree.zeros_like(gradients(1))


def mean_of(params: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x).mean(axis=0), params)


def expected(*gs: Any) -> Any:
    """Where SGD on the mean gradient is."""
    sums = [jax.tree.map(lambda x: x.mean(axis=1).sum(axis=0), g) for g in gs]
    total = jax.tree.map(lambda *x: sum(x), *sums)
    return jax.tree.map(lambda x, s: x - RATE * s, start(), total)


@pytest.mark.long
@pytest.mark.few(10)
@pytest.mark.parametrize("place", [emulate, mesh_of])
@pytest.mark.parametrize("steps", [5, 6])
@pytest.mark.parametrize("before", BEFORE)
def test_the_next_step_delivers_all_of_it(before, steps, place):
    mesh, gs = place(N), gradients(steps)
    run = relaxjax.init(BEFORE[before], start(), mesh)
    run = trained(BEFORE[before], mesh, run, gs)
    run = plan.taken_over(PLAIN, SGD, *run, mesh=mesh)
    params, state = trained(PLAIN, mesh, run, nothing())
    assert_close(mean_of(params), expected(gs), 1e-5)
    assert relaxjax.spread(params) == 0
    assert not any(np.any(x) for x in jax.tree.leaves(state.owed))


@pytest.mark.long
@pytest.mark.few(10)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("before", ["signs", "power_sgd", "behind", "local_sgd"])
def test_every_relaxation_takes_it_on(before, after):
    """Through a second change, with gradients on the way."""
    mesh, gs, more = emulate(N), gradients(5), gradients(4, seed=2)
    run = relaxjax.init(BEFORE[before], start(), mesh)
    run = trained(BEFORE[before], mesh, run, gs)
    run = plan.taken_over(AFTER[after], SGD, *run, mesh=mesh)
    run = trained(AFTER[after], mesh, run, more)
    run = plan.taken_over(PLAIN, SGD, *run, mesh=mesh)
    params, _ = trained(PLAIN, mesh, run, nothing())
    assert_close(mean_of(params), expected(gs, more), 1e-5)


def test_residuals_lie_where_they_lay():
    """The same codes go on as if nothing had been."""
    mesh, tx, gs = emulate(N), BEFORE["signs"], gradients(5)
    run = trained(tx, mesh, relaxjax.init(tx, start(), mesh), gs)
    after = plan.taken_over(tx, SGD, *run, mesh=mesh)
    assert_equal(after, tuple(run))


def test_nothing_is_sent_for_residuals_of_gradients(monkeypatch):
    from relaxjax.plan.running import _taken_over

    mesh, tx = mesh_of(N), BEFORE["signs"]
    run = trained(tx, mesh, relaxjax.init(tx, start(), mesh), gradients(2))
    monkeypatch.setattr(
        _taken_over, "at_mean", lambda leaves: [1 / 0] if leaves else []
    )
    plan.taken_over(PLAIN, SGD, *run, mesh=mesh)


def test_a_step_that_is_skipped_keeps_it():
    mesh, gs = emulate(N), gradients(5)
    tx, bad = AFTER["guarded"], jax.tree.map(lambda x: x + np.nan, nothing())
    run = trained(
        BEFORE["signs"], mesh, relaxjax.init(BEFORE["signs"], start(), mesh), gs
    )
    run = plan.taken_over(tx, SGD, *run, mesh=mesh)
    run = trained(tx, mesh, run, bad)
    params, _ = trained(tx, mesh, run, nothing())
    assert_close(mean_of(params), expected(gs), 1e-5)


@pytest.mark.long
def test_narrow_params_and_an_optimizer_with_a_memory():
    """What models owe is added before the one rounding."""
    mesh, momentum = emulate(N), optax.sgd(0.02, momentum=0.9)
    local = relaxjax.local_sgd("data", 2, compressor=SIGN)
    wide = optax.chain(momentum, local)
    params, gs = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (start(), gradients(4)))
    run = trained(wide, mesh, relaxjax.init(wide, params, mesh), gs)
    owed = debts(run[1], jax.tree.structure(momentum.init(params)))
    assert {x.leaf for x in owed} == {"w", "b"}
    tx = plan.with_arrears(optax.chain(reduced(), momentum))
    after, _ = plan.taken_over(tx, momentum, *run, mesh=mesh)
    for x in owed:
        whole = np.asarray(run[0][x.leaf], np.float32) - np.asarray(x.array)
        mean = whole.mean(axis=0).astype(jnp.bfloat16)
        np.testing.assert_array_equal(np.asarray(after[x.leaf][0]), mean)


@pytest.mark.parametrize("after", ["power_sgd", "behind", "local_sgd", "plain"])
def test_a_transformation_without_a_place_is_refused(after):
    """power_sgd codes no vector; other residuals are not of gradients."""
    mesh, tx = emulate(N), BEFORE["signs"]
    run = trained(tx, mesh, relaxjax.init(tx, start(), mesh), gradients(1))
    now = BEFORE.get(after, optax.chain(reduced(), SGD))
    with pytest.raises(ValueError, match=r"gradients of 'b'.* plan\.with_arrears"):
        plan.taken_over(now, SGD, *run, mesh=mesh)


def test_an_optimizer_that_cannot_be_found_is_refused():
    mesh, step = emulate(N), optax.scale(-RATE)
    tx = optax.chain(optax.clip(9.0), reduced(compressor=SIGN), step)
    run = trained(tx, mesh, relaxjax.init(tx, start(), mesh), gradients(1))
    with pytest.raises(ValueError, match=r"2 parts of opt_state look like it"):
        plan.taken_over(PLAIN, step, *run, mesh=mesh)


def test_a_residual_of_other_leaves_is_refused():
    """Here the codes see real and imaginary parts, and not the params."""
    mesh, params = emulate(N), {"w": jnp.ones((3, 2), jnp.complex64)}
    tx = optax.contrib.split_real_and_imaginary(BEFORE["signs"])
    run = relaxjax.init(tx, params, mesh)
    with pytest.raises(
        ValueError, match=r"residual of shape .* of no param by its name"
    ):
        plan.taken_over(PLAIN, SGD, *run, mesh=mesh)


def test_a_weight_is_refused():
    tx = plan.with_arrears(SGD)
    with pytest.raises(ValueError, match="weight"):
        tx.update(start(), tx.init(start()), weight=jnp.float32(1))
