"""Rules of feedback, against plain numpy with a list of workers, and their laws."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax._noise import Noise, fold, words_of
from relaxjax.compression import Compressor, Law
from tests.compression.draws import largest_k


class Run(NamedTuple):
    outs: np.ndarray  # [steps, d]: what all workers get
    states: Any  # after each step: [steps, workers, d]


def exchange(compressor: Compressor, gs: jax.Array, states: Any, step: jax.Array):
    """One step of all workers: the mean of what each delivered, and what follows."""
    feedback = compressor.feedback
    shared = fold(words_of(0), step)

    def delivered(g, state, worker):
        noise = Noise(shared, fold(shared, worker + 1)) if compressor.random else None
        p = feedback.before(g, state)
        return compressor.decompress(compressor.compress(p, noise), g.size, noise)

    cs = jax.vmap(delivered)(gs, states, jnp.arange(len(gs)))
    mean = cs.mean(axis=0)
    outs, states = jax.vmap(feedback.after, (0, 0, None, 0))(gs, cs, mean, states)
    return outs[0], states


def run(compressor: Compressor, gs: np.ndarray) -> Run:
    """All steps of gradients [steps, workers, d]."""

    def step(states, inputs):
        out, states = exchange(compressor, inputs[0], states, inputs[1])
        return states, (out, states)

    first = jax.vmap(compressor.feedback.init)(jnp.asarray(gs[0], jnp.float32))
    inputs = jnp.asarray(gs, jnp.float32), jnp.arange(len(gs))
    _, (outs, states) = jax.jit(lambda: jax.lax.scan(step, first, inputs))()
    return Run(np.asarray(outs), jax.tree.map(np.asarray, states))


def gradients(steps: int, workers: int = 3, size: int = 8) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(steps, workers, size)) + rng.normal(size=(1, workers, size))


def top_1(p):
    return largest_k(p, 1)


def mean_sign(p):
    return np.abs(p).mean() * np.where(p >= 0, 1.0, -1.0)


def plain_error_feedback(gs, C, decay):
    es = [0 * g for g in gs[0]]
    outs = []
    for step in gs:
        ps = [decay * e + g for e, g in zip(es, step, strict=True)]
        cs = [C(p) for p in ps]
        es = [p - c for p, c in zip(ps, cs, strict=True)]
        outs.append(sum(cs) / len(cs))
    return outs


def plain_ef21(gs, C):
    hs = [0 * g for g in gs[0]]
    outs = []
    for step in gs:
        cs = [C(g - h) for g, h in zip(step, hs, strict=True)]
        hs = [h + c for h, c in zip(hs, cs, strict=True)]
        outs.append(sum(hs) / len(hs))
    return outs


def plain_ef21_sgdm(gs, C, eta):
    vs = [0 * g for g in gs[0]]
    smooth = []
    for step in gs:
        vs = [(1 - eta) * v + eta * g for v, g in zip(vs, step, strict=True)]
        smooth.append(vs)
    return plain_ef21(smooth, C)


def plain_econtrol(gs, C, eta):
    es = [0 * g for g in gs[0]]
    hs = [0 * g for g in gs[0]]
    outs = []
    for step in gs:
        for i, g in enumerate(step):
            c = C(eta * es[i] + g - hs[i])
            es[i] = es[i] + g - hs[i] - c
            hs[i] = hs[i] + c
        outs.append(sum(hs) / len(hs))
    return outs


RULES = {
    "error_feedback": (
        lambda C: compression.error_feedback(C),
        lambda gs, C: plain_error_feedback(gs, C, 1),
    ),
    "error_feedback, decay": (
        lambda C: compression.error_feedback(C, decay=0.9),
        lambda gs, C: plain_error_feedback(gs, C, 0.9),
    ),
    "ef21": (compression.ef21, plain_ef21),
    "ef21_sgdm": (
        lambda C: compression.ef21_sgdm(C, eta=0.3),
        lambda gs, C: plain_ef21_sgdm(gs, C, 0.3),
    ),
    "econtrol": (
        lambda C: compression.econtrol(C, eta=0.2),
        lambda gs, C: plain_econtrol(gs, C, 0.2),
    ),
}

rules = pytest.mark.parametrize(("wrap", "plain"), RULES.values(), ids=RULES)


@rules
@pytest.mark.parametrize(
    ("compressor", "plain_compressor"),
    [(compression.top_k(1 / 8), top_1), (compression.sign(), mean_sign)],
    ids=["top_k", "sign"],
)
def test_rules_agree_with_a_list_of_workers(wrap, plain, compressor, plain_compressor):
    gs = gradients(20)
    outs = run(wrap(compressor), gs).outs
    np.testing.assert_allclose(outs, plain(gs, plain_compressor), rtol=1e-4, atol=1e-5)


def test_error_feedback_of_the_sign_golden():
    gs = np.broadcast_to([1.0, -3.0], (4, 1, 2))
    got = run(compression.error_feedback(compression.sign()), gs)
    assert got.outs.tolist() == [[2, -2], [2, -2], [-3, -3], [4, -4]]
    residuals = got.states.residual[:, 0].tolist()
    assert residuals == [[-1, -1], [-2, -2], [2, -2], [-1, -1]]


@pytest.mark.parametrize(
    "compressor",
    [
        compression.top_k(1 / 40),
        compression.sign(),
        compression.random_k(0.1),
        compression.random_block(0.1),
        compression.threshold(3.0, capacity=4),
    ],
    ids=lambda compressor: compressor.name,
)
def test_error_feedback_loses_nothing(compressor):
    gs = gradients(200, size=40)
    got = run(compression.error_feedback(compressor), gs)
    sent = np.cumsum(got.outs, axis=0, dtype=np.float64)
    total = np.cumsum(gs.mean(axis=1), axis=0)
    left = got.states.residual.astype(np.float64).mean(axis=1)
    scale = np.abs(total).max()
    np.testing.assert_allclose(sent + left, total, atol=1e-5 * scale)


def test_error_feedback_with_decay_forgets_what_is_stated():
    decay = 0.9
    gs = gradients(100)
    compressor = compression.error_feedback(compression.top_k(1 / 8), decay=decay)
    got = run(compressor, gs)
    lost = got.states.residual.astype(np.float64).mean(axis=1)
    forgotten = lost[-1] + (1 - decay) * lost[:-1].sum(axis=0)
    total = gs.mean(axis=1).sum(axis=0)
    np.testing.assert_allclose(got.outs.sum(axis=0) + forgotten, total, rtol=1e-4)


def test_residual_stays_below_its_bound_golden():
    delta = 1 / 100
    compressor = compression.error_feedback(compression.top_k(delta))
    constant = np.full((300, 1, 100), 0.1)
    squares = (run(compressor, constant).states.residual ** 2).sum(axis=-1)
    assert squares[-1] == pytest.approx(3283.5, rel=1e-4)  # 0.01 (1 + 4 + .. 99 * 99)
    noisy = gradients(500, workers=1, size=100)
    for gs in (constant, noisy):
        residual = run(compressor, gs).states.residual
        bound = 4 * (1 - delta) / delta**2 * (gs**2).sum(axis=-1).max()
        assert (residual**2).sum(axis=-1).max() <= bound


def test_residual_of_a_threshold_stays_below_its_value():
    compressor = compression.error_feedback(compression.threshold(3.0, capacity=8))
    residual = run(compressor, gradients(200)).states.residual
    assert np.abs(residual).max() < 3
    assert np.abs(residual).max() > 2


@pytest.mark.parametrize("name", ["ef21", "ef21_sgdm", "econtrol"])
@pytest.mark.parametrize(
    "compressor",
    [compression.top_k(1 / 8), compression.sign(), compression.random_k(0.25)],
    ids=lambda compressor: compressor.name,
)
def test_out_is_the_mean_of_what_is_known_always(name, compressor):
    got = run(RULES[name][0](compressor), gradients(100))
    known = got.states.known.mean(axis=1)
    np.testing.assert_allclose(got.outs, known, rtol=1e-4, atol=1e-4)
    kept = np.broadcast_to(got.outs[:, None], got.states.mean.shape)
    np.testing.assert_allclose(got.states.mean, kept, rtol=1e-5, atol=1e-6)


def test_econtrol_residual_is_what_the_estimates_fell_short_of():
    gs = gradients(100)
    got = run(compression.econtrol(compression.top_k(1 / 8), eta=0.2), gs)
    short = np.cumsum(gs - got.states.known, axis=0)
    np.testing.assert_allclose(got.states.residual, short, rtol=1e-3, atol=1e-3)


def test_econtrol_residual_is_bounded_for_eta_of_delta_and_not_for_ten_times_it():
    gs = gradients(2000, workers=1, size=100)

    def squares(eta):
        compressor = compression.econtrol(compression.top_k(1 / 100), eta=eta)
        return (run(compressor, gs).states.residual[:, 0] ** 2).sum(axis=-1)

    small, large = squares(1 / 100), squares(1 / 10)
    assert small[1000:].max() < 2 * small[:1000].max()
    assert large[1000:].max() > 1e3 * large[:1000].max()


def test_ef21_learns_a_gradient_that_stays():
    gs = np.repeat(gradients(1, size=8), 40, axis=0)
    distance = run(compression.ef21(compression.top_k(1 / 8)), gs).states.known - gs
    squares = (distance**2).sum(axis=-1)
    assert (squares[1:] <= (1 - 1 / 8) * squares[:-1] * (1 + 1e-5) + 1e-12).all()
    assert squares[0].min() > 0.1
    assert squares[-1].max() < 1e-12


def descend(compressor: Compressor, rate: float, steps: int) -> np.ndarray:
    """Beznosikov's three workers, f_i = <a_i, x>^2 + |x|^2 / 4, from x = 1."""
    a = jnp.array([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])

    def step(carry, index):
        x, states = carry
        gs = 2 * (a @ x)[:, None] * a + x / 2
        out, states = exchange(compressor, gs, states, index)
        return (x - rate * out, states), x - rate * out

    first = jnp.ones(3), jax.vmap(compressor.feedback.init)(jnp.zeros((3, 3)))
    _, xs = jax.jit(lambda: jax.lax.scan(step, first, jnp.arange(steps)))()
    return np.asarray(xs, np.float64)


def test_top_1_alone_moves_away_by_a_known_factor():
    rate = 0.01
    xs = descend(compression.top_k(1 / 3), rate, 200)
    expected = (1 + 11 / 6 * rate) ** np.arange(1, 201)
    np.testing.assert_allclose(xs, np.stack([expected] * 3, axis=1), rtol=1e-4)


@pytest.mark.parametrize("name", RULES)
def test_top_1_with_feedback_arrives(name):
    xs = descend(RULES[name][0](compression.top_k(1 / 3)), 0.01, 5000)
    assert np.abs(xs[-1]).max() < 1e-6


@pytest.mark.parametrize("name", RULES)
def test_zero_gradients_leave_everything_at_zero(name):
    for compressor in (compression.top_k(1 / 8), compression.sign()):
        got = run(RULES[name][0](compressor), np.zeros((3, 2, 8)))
        assert not got.outs.any()
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(got.states))


@pytest.mark.parametrize("name", ["error_feedback", "error_feedback, decay", "ef21"])
def test_nothing_is_lost_where_everything_is_sent(name):
    gs = gradients(20)
    got = run(RULES[name][0](compression.top_k(1.0)), gs)
    np.testing.assert_allclose(got.outs, gs.mean(axis=1), rtol=1e-5, atol=1e-6)


def test_ef21_sgdm_with_a_weight_of_one_is_ef21():
    gs = gradients(20)
    plain = run(compression.ef21(compression.sign()), gs)
    full = run(compression.ef21_sgdm(compression.sign(), eta=1.0), gs)
    np.testing.assert_allclose(full.outs, plain.outs, rtol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_state_is_wide_and_as_large_as_stated(name):
    buffers = {"error_feedback": 1, "error_feedback, decay": 1, "ef21": 2}.get(name, 3)
    compressor = RULES[name][0](compression.top_k(0.1))
    for given, kept in (
        (jnp.bfloat16, jnp.float32),
        (jnp.float8_e4m3fn, jnp.float32),
        (jnp.float32, jnp.float32),
    ):
        leaves = jax.tree.leaves(compressor.feedback.init(jnp.zeros((3, 4), given)))
        assert [leaf.shape for leaf in leaves] == [(3, 4)] * buffers
        assert all(leaf.dtype == kept for leaf in leaves)


@pytest.mark.parametrize("name", RULES)
def test_sixteen_bit_gradients_are_added_up_in_float32(name):
    feedback = RULES[name][0](compression.top_k(0.1)).feedback
    g = jnp.ones(4, jnp.bfloat16)
    state = feedback.init(g)
    p = feedback.before(g, state)
    out, after = feedback.after(g, p, p, state)
    assert {p.dtype, out.dtype} == {jnp.dtype(jnp.float32)}
    assert jax.tree.map(jnp.result_type, after) == jax.tree.map(jnp.result_type, state)


@pytest.mark.parametrize("name", RULES)
def test_feedback_comes_once_only_and_around_contractions_only(name):
    wrap = RULES[name][0]
    with pytest.raises(ValueError, match="which already has ef21: what is lost can"):
        wrap(compression.ef21(compression.sign()))
    neither = compression.sign()._replace(law=Law())
    with pytest.raises(ValueError, match="neither a contraction nor unbiased"):
        wrap(neither)


@pytest.mark.parametrize("value", [0, -0.1, 1.5, float("nan")])
def test_shares_beyond_0_and_1_are_named(value):
    sign = compression.sign()
    message = rf"={value} must be in \(0, 1\]"
    with pytest.raises(ValueError, match="error_feedback: decay" + message):
        compression.error_feedback(sign, decay=value)
    with pytest.raises(ValueError, match="ef21_sgdm: eta" + message):
        compression.ef21_sgdm(sign, eta=value)
    with pytest.raises(ValueError, match="econtrol: eta" + message):
        compression.econtrol(sign, eta=value)
