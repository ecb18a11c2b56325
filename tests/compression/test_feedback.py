"""Rules of feedback, against plain numpy with a list of workers, and their laws."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import compression
from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression import Compressor, Law
from tests import helpers
from tests.compression.draws import largest_k


class Run(NamedTuple):
    outs: np.ndarray  # [steps, d]: what all workers get
    states: Any  # after each step: [steps, workers, d]


def exchange(compressor: Compressor, gs: jax.Array, states: Any, step: jax.Array):
    """One step of all workers: the mean of what each delivered, and what follows."""
    feedback = compressor.feedback
    shared = fold(key_words(0), step)

    def delivered(g, state, worker):
        noise = Keys(shared, fold(shared, worker + 1)) if compressor.random else None
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


def plain_momentum_correction(gs, C, m, nesterov=False, masking=True):
    us = [0 * g for g in gs[0]]
    vs = [0 * g for g in gs[0]]
    outs = []
    for step in gs:
        cs = []
        for i, g in enumerate(step):
            us[i] = m * (us[i] + g) if nesterov else m * us[i] + g
            waiting = vs[i] + us[i] + (g if nesterov else 0)
            c = C(waiting)
            vs[i] = waiting - c
            for k in range(len(g)):
                if masking and abs(c[k]) > abs(vs[i][k]):
                    us[i][k] = 0
            cs.append(c)
        outs.append(sum(cs) / len(cs))
    return outs


def plain_loco(gs, C, beta, reset_every):
    es = [0 * g for g in gs[0]]
    outs = []
    for t, step in enumerate(gs):
        cs = []
        for i, g in enumerate(step):
            h = g + es[i]
            c = C(h)
            e = (1 - beta) * es[i] + beta * (h - c)
            s = np.abs(e).max()
            es[i] = np.round(e / s * 127) * s / 127
            if (t + 1) % reset_every == 0:
                es[i] = 0 * e
            cs.append(c)
        outs.append(sum(cs) / len(cs))
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
    "intersection_feedback": (
        compression.intersection_feedback,
        lambda gs, C: plain_error_feedback(gs, C, 1),  # nothing is selected twice
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
    "momentum_correction": (
        lambda C: compression.momentum_correction(C, momentum=0.8),
        lambda gs, C: plain_momentum_correction(gs, C, 0.8),
    ),
    "momentum_correction, nesterov": (
        lambda C: compression.momentum_correction(C, momentum=0.8, nesterov=True),
        lambda gs, C: plain_momentum_correction(gs, C, 0.8, nesterov=True),
    ),
    "momentum_correction, no masking": (
        lambda C: compression.momentum_correction(C, momentum=0.8, masking=False),
        lambda gs, C: plain_momentum_correction(gs, C, 0.8, masking=False),
    ),
    "loco": (
        lambda C: compression.loco(C, beta=0.3, reset_every=7),
        lambda gs, C: plain_loco(gs, C, 0.3, 7),
    ),
}
BUFFERS = {
    "error_feedback": 1,
    "intersection_feedback": 1,
    "error_feedback, decay": 1,
    "ef21": 2,
}
BUFFERS |= {name: 2 for name in RULES if name.startswith("momentum_correction")}
IN_FULL = [name for name in RULES if name != "loco"]  # its residual is in eight bits

rules = pytest.mark.parametrize(("wrap", "plain"), RULES.values(), ids=RULES)


@pytest.mark.few(3)
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


def residual_of(state):
    codes, most = state.codes.astype(np.float64), state.largest.astype(np.float64)
    return codes * most[..., None] / 127


@pytest.mark.few(3)
@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize("reset_every", [None, 30])
@pytest.mark.parametrize(
    "compressor",
    [compression.quantize(4), compression.top_k(1 / 40), compression.sign()],
    ids=lambda compressor: compressor.name,
)
def test_loco_owes_its_residual_over_beta_up_to_eight_bits(
    compressor, reset_every, beta
):
    steps, gs = 200, gradients(200, size=40)
    wrapped = compression.loco(compressor, beta=beta, reset_every=reset_every)
    result = run(wrapped, gs)
    owed = residual_of(result.states).mean(axis=1) / beta  # [steps, d]
    sent = np.cumsum(result.outs, axis=0, dtype=np.float64)
    total = np.cumsum(gs.mean(axis=1), axis=0)
    # At most half a code is rounded away in each step.
    room = np.cumsum(result.states.largest.astype(np.float64).mean(axis=1)) / 254 / beta
    room = room * (1 + 1e-3) + 1e-5 * np.abs(total).max()
    if reset_every is None:
        assert (np.abs(sent + owed - total) <= room[:, None]).all()
        assert np.abs(owed).max() > 0.05
        return
    # A reset drops what is owed then, and no more: between two of them all holds.
    for first in range(0, steps, reset_every):
        last = min(first + reset_every, steps) - 1
        before = (sent[first - 1], total[first - 1], room[first - 1])
        off, wanted, so_far = before if first else (0, 0, 0)
        for t in (last - 1, last):
            missing = np.abs((sent[t] - off) + owed[t] - (total[t] - wanted))
            holds = (missing <= room[t] - so_far + 1e-4).all()
            assert holds == (t < last or last == steps - 1)
        assert result.states.codes[last].any() == (last == steps - 1)


def test_loco_with_beta_1_is_error_feedback_but_for_the_eight_bits():
    gs, compressor = gradients(20, size=64), compression.quantize(2)
    plain = run(compression.error_feedback(compressor), gs[:1])
    eight = run(compression.loco(compressor, beta=1.0), gs[:1])
    np.testing.assert_array_equal(plain.outs, eight.outs)
    most = np.abs(plain.states.residual).max(axis=-1)
    np.testing.assert_allclose(eight.states.largest, most, rtol=1e-6)
    off = np.abs(residual_of(eight.states) - plain.states.residual)
    assert (off <= most[..., None] / 254 * (1 + 1e-4)).all()
    assert off.max() > most.min() / 254 / 2


def test_loco_keeps_a_byte_per_element_and_eight_per_leaf():
    state = compression.loco(compression.quantize(4)).feedback.init(
        jnp.zeros((30, 40), jnp.bfloat16)
    )
    assert state.codes.shape == (30, 40)
    assert sum(x.size * x.dtype.itemsize for x in state) == 30 * 40 + 8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_loco_keeps_what_it_owed_where_something_is_not_finite(bad):
    feedback = compression.loco(compression.quantize(4)).feedback
    zero = jnp.zeros(3)
    _, state = feedback.after(jnp.ones(3), zero, zero, feedback.init(zero))
    owed = feedback.before(zero, state)
    g = jnp.array([1.0, bad, 2.0])
    _, state = feedback.after(g, zero, g, state)
    again = feedback.before(zero, state)
    assert np.isfinite(again).all()
    np.testing.assert_allclose(again[1], owed[1], rtol=1e-2)


def test_loco_of_tiny_and_empty_leaves():
    feedback = compression.loco(compression.quantize(4), beta=1.0).feedback
    for g in (jnp.zeros((0, 3)), jnp.full((), 1e-30), jnp.full((2, 2), 1e-40)):
        _, state = feedback.after(g, 0 * g, g, feedback.init(g))
        p = feedback.before(g, state)
        assert p.shape == g.shape
        np.testing.assert_allclose(p, 2 * g, rtol=1e-2, atol=1e-37)


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_loco_resets_after_whole_steps(value):
    with pytest.raises(ValueError, match=f"loco: reset_every={value} must be a whole"):
        compression.loco(compression.sign(), reset_every=value)


def test_momentum_correction_golden():
    """Two workers with the same gradient; before each send, and what is sent."""
    gs = np.broadcast_to([1.0, -3.0, 2.0], (4, 2, 3))
    result = run(compression.momentum_correction(compression.top_k(1 / 3)), gs)
    sent = [[0, -3, 0], [0, 0, 5.8], [0, -8.7, 0], [9.049, 0, 0]]
    np.testing.assert_allclose(result.outs, sent, rtol=1e-6)
    waiting = result.states.accumulated[:, 1] + result.outs
    expected = [[1, -3, 2], [2.9, -3, 5.8], [5.61, -8.7, 2], [9.049, -3, 5.8]]
    np.testing.assert_allclose(waiting, expected, rtol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize(
    "compressor",
    [
        compression.top_k(1 / 40),
        compression.random_k(0.1),
        compression.threshold(3.0, capacity=4),
        compression.sign(),
    ],
    ids=lambda compressor: compressor.name,
)
def test_momentum_correction_sends_all_that_was_added(compressor, masking, nesterov):
    """Sent and waiting == the stream; without masking, that of momentum SGD."""
    m, gs = 0.8, gradients(200, size=40)
    wrapped = compression.momentum_correction(
        compressor, momentum=m, nesterov=nesterov, masking=masking
    )
    result = run(wrapped, gs)
    old = np.concatenate([0 * gs[:1], result.states.velocity[:-1].astype(np.float64)])
    if not masking:  # from the gradients alone
        old = np.zeros_like(gs)
        for t in range(1, len(gs)):
            last = old[t - 1], gs[t - 1]
            old[t] = m * (last[0] + last[1]) if nesterov else m * last[0] + last[1]
    added = m * (old + gs) + gs if nesterov else m * old + gs
    sent = np.cumsum(result.outs, axis=0, dtype=np.float64)
    left = result.states.accumulated.astype(np.float64).mean(axis=1)
    total = np.cumsum(added.mean(axis=1), axis=0)
    np.testing.assert_allclose(sent + left, total, atol=2e-5 * np.abs(total).max())


def test_momentum_of_everything_sent_is_momentum_sgd_or_with_masking_plain_sgd():
    gs, everything = gradients(20), compression.top_k(1.0)
    for nesterov in (False, True):
        how = {"momentum": 0.8, "nesterov": nesterov}
        unmasked = compression.momentum_correction(everything, masking=False, **how)
        trace = optax.trace(0.8, nesterov)
        state, expected = trace.init(jnp.zeros(8)), []
        for g in gs.mean(axis=1):
            out, state = trace.update(jnp.asarray(g), state)
            expected.append(out)
        np.testing.assert_allclose(
            run(unmasked, gs).outs, expected, rtol=1e-4, atol=1e-5
        )
        masked = run(compression.momentum_correction(everything, **how), gs)
        factor = 1.8 if nesterov else 1
        np.testing.assert_allclose(
            masked.outs, factor * gs.mean(axis=1), rtol=1e-5, atol=1e-6
        )


def test_without_momentum_it_is_error_feedback():
    gs, compressor = gradients(20), compression.top_k(1 / 8)
    without = run(compression.momentum_correction(compressor, momentum=0.0), gs)
    plain = run(compression.error_feedback(compressor), gs)
    np.testing.assert_array_equal(without.outs, plain.outs)


def test_a_velocity_ends_where_it_is_sent_and_only_there():
    codec = compression.momentum_correction(compression.top_k(1 / 8))
    feedback, g = codec.feedback, jnp.arange(1.0, 9.0)
    state = feedback.init(g)
    _, state = feedback.after(g, jnp.where(g == 8, g, 0), g, state)
    assert state.velocity.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    # Less than half of it delivered, or as good as nothing: it goes on.
    _, state = feedback.after(g, jnp.array([1e-7, 0.5] + [0] * 6), g, feedback.init(g))
    assert state.velocity.tolist() == g.tolist()


def test_error_feedback_of_the_sign_golden():
    gs = np.broadcast_to([1.0, -3.0], (4, 1, 2))
    result = run(compression.error_feedback(compression.sign()), gs)
    assert result.outs.tolist() == [[2, -2], [2, -2], [-3, -3], [4, -4]]
    residuals = result.states.residual[:, 0].tolist()
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
    result = run(compression.error_feedback(compressor), gs)
    sent = np.cumsum(result.outs, axis=0, dtype=np.float64)
    total = np.cumsum(gs.mean(axis=1), axis=0)
    left = result.states.residual.astype(np.float64).mean(axis=1)
    scale = np.abs(total).max()
    np.testing.assert_allclose(sent + left, total, atol=1e-5 * scale)


def test_error_feedback_with_decay_forgets_what_is_stated():
    decay = 0.9
    gs = gradients(100)
    compressor = compression.error_feedback(compression.top_k(1 / 8), decay=decay)
    result = run(compressor, gs)
    lost = result.states.residual.astype(np.float64).mean(axis=1)
    forgotten = lost[-1] + (1 - decay) * lost[:-1].sum(axis=0)
    total = gs.mean(axis=1).sum(axis=0)
    np.testing.assert_allclose(result.outs.sum(axis=0) + forgotten, total, rtol=1e-4)


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


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["ef21", "ef21_sgdm", "econtrol"])
@pytest.mark.parametrize(
    "compressor",
    [compression.top_k(1 / 8), compression.sign(), compression.random_k(0.25)],
    ids=lambda compressor: compressor.name,
)
def test_out_is_the_mean_of_what_is_known_always(name, compressor):
    result = run(RULES[name][0](compressor), gradients(100))
    known = result.states.known.mean(axis=1)
    np.testing.assert_allclose(result.outs, known, rtol=1e-4, atol=1e-4)
    outs = np.broadcast_to(result.outs[:, None], result.states.mean.shape)
    np.testing.assert_allclose(result.states.mean, outs, rtol=1e-5, atol=1e-6)


def test_econtrol_residual_is_what_the_estimates_fell_short_of():
    gs = gradients(100)
    result = run(compression.econtrol(compression.top_k(1 / 8), eta=0.2), gs)
    short = np.cumsum(gs - result.states.known, axis=0)
    np.testing.assert_allclose(result.states.residual, short, rtol=1e-3, atol=1e-3)


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


@pytest.mark.few(3)
@pytest.mark.parametrize("name", IN_FULL)
def test_top_1_with_feedback_arrives(name):
    xs = descend(RULES[name][0](compression.top_k(1 / 3)), 0.01, 5000)
    assert np.abs(xs[-1]).max() < 1e-6


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RULES)
def test_zero_gradients_leave_everything_at_zero(name):
    for compressor in (compression.top_k(1 / 8), compression.sign()):
        result = run(RULES[name][0](compressor), np.zeros((3, 2, 8)))
        assert not result.outs.any()
        left = result.states._replace(age=0) if name == "loco" else result.states
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(left))


@pytest.mark.parametrize(
    "name", ["error_feedback", "error_feedback, decay", "ef21", "loco"]
)
def test_nothing_is_lost_where_everything_is_sent(name):
    gs = gradients(20)
    result = run(RULES[name][0](compression.top_k(1.0)), gs)
    np.testing.assert_allclose(result.outs, gs.mean(axis=1), rtol=1e-5, atol=1e-6)


def test_error_feedback_of_an_absent_worker_waits():
    # What its messages lost for others is added, without decay.
    feedback = compression.error_feedback(compression.sign(), decay=0.5).feedback
    e, c, mean = (jnp.array(x) for x in ([4.0, 2.0], [-1.0, 0.0], [8.0, 9.0]))
    assert feedback.absent is not None
    out, state = feedback.absent(c, mean, feedback.init(e)._replace(residual=e))
    np.testing.assert_array_equal(out, mean)
    np.testing.assert_array_equal(state.residual, [5.0, 2.0])


def test_ef21_sgdm_with_a_weight_of_one_is_ef21():
    gs = gradients(20)
    plain = run(compression.ef21(compression.sign()), gs)
    full = run(compression.ef21_sgdm(compression.sign(), eta=1.0), gs)
    np.testing.assert_allclose(full.outs, plain.outs, rtol=1e-6)


@pytest.mark.parametrize("name", IN_FULL)
def test_state_is_wide_and_as_large_as_stated(name):
    buffers = BUFFERS.get(name, 3)
    compressor = RULES[name][0](compression.top_k(0.1))
    for dtype, buffer_dtype in (
        (jnp.bfloat16, jnp.float32),
        (jnp.float8_e4m3fn, jnp.float32),
        (jnp.float32, jnp.float32),
    ):
        leaves = jax.tree.leaves(compressor.feedback.init(jnp.zeros((3, 4), dtype)))
        assert [leaf.shape for leaf in leaves] == [(3, 4)] * buffers
        assert all(leaf.dtype == buffer_dtype for leaf in leaves)


@pytest.mark.parametrize("name", RULES)
def test_a_state_may_be_donated(name):
    x = jnp.ones((3, 4))
    state = RULES[name][0](compression.top_k(0.1)).feedback.init(x)
    helpers.assert_no_shared_buffer((x, state))


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
    with pytest.raises(ValueError, match="loco: beta" + message):
        compression.loco(sign, beta=value)


@pytest.mark.parametrize("value", [1, -0.1, float("nan")])
def test_momentum_beyond_0_and_1_is_named(value):
    with pytest.raises(ValueError, match=r"momentum_correction: momentum=.* in \[0, 1"):
        compression.momentum_correction(compression.sign(), momentum=value)
