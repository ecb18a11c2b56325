"""Methods under a schedule: the bits of a constant one, meetings, resumes, resizes."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, periods, topology, wire_bytes
from relaxjax.checkpoint import Checkpoints, plan_of
from relaxjax.programs import first_steps
from relaxjax.workers import _step_programs, workers_of
from tests import helpers
from tests.helpers import mesh_of, pulled, targets_of
from tests.local_updates.test_local_sgd import identity_ref, sign_ref

N, STEPS = 4, 24
SGD, ADAM = optax.sgd(0.1), optax.adam(0.05)
RING, TURNS = topology.ring(N), topology.one_peer_exponential(N)
RATE = optax.cosine_decay_schedule(0.1, STEPS)
SIGN = compression.error_feedback(compression.sign())
QSR = periods.qsr(RATE, 0.15, least=2, steps=STEPS)
TABLE = periods.table([3, 1, 1, 5, 2, 8, 4])


def gossiped(method: Callable[..., Any], graph: Any = RING, **how: Any) -> Any:
    return lambda h: optax.chain(SGD, method("data", graph, every=h, **how))


METHODS: dict[str, Callable[[Any], Any]] = {
    "local_sgd": lambda h: optax.chain(ADAM, relaxjax.local_sgd("data", h)),
    "local_sgd in signs": lambda h: optax.chain(
        SGD, relaxjax.local_sgd("data", h, compressor=SIGN, algorithm="one_shot")
    ),
    "diloco": lambda h: relaxjax.diloco(ADAM, "data", h),
    "slow_momentum": lambda h: optax.chain(
        optax.sgd(RATE), relaxjax.slow_momentum("data", h, learning_rate=RATE)
    ),
    "sparse_loco": lambda h: relaxjax.sparse_loco(ADAM, "data", h, chunk_size=8),
    "eager_diloco": lambda h: relaxjax.eager_diloco(ADAM, "data", h),
    "post_local_sgd": lambda h: relaxjax.post_local_sgd(SGD, "data", h, 0),
    "asynchronous_average": lambda h: optax.chain(
        SGD, relaxjax.asynchronous_average("data", h, delay=1)
    ),
    "streaming_diloco": lambda h: relaxjax.streaming_diloco(
        ADAM, "data", h, fragments=1, overlap=1, mixing=0.25
    ),
    "decoupled_diloco": lambda h: relaxjax.decoupled_diloco(
        ADAM, "data", sync_every=h, fragments=1, overlap=1, present=0.7
    ),
    "desynced": lambda h: relaxjax.desynced(ADAM, "data", periods=h),
    "desynced, apart": lambda h: relaxjax.desynced(
        ADAM, "data", periods={"params": h, "mu": 2, "nu": 4}
    ),
    "gossip": gossiped(relaxjax.gossip, TURNS),
    "gossip in signs": gossiped(relaxjax.gossip, compressor=compression.sign()),
    "combine_then_adapt": gossiped(relaxjax.combine_then_adapt, TURNS),
    "exact_diffusion": gossiped(relaxjax.exact_diffusion, topology.lazy(RING)),
    "gradient_tracking": lambda h: optax.chain(
        relaxjax.gradient_tracking("data", RING, every=h),
        SGD,
        relaxjax.gossip("data", RING, every=h),
    ),
    "push_sum": gossiped(relaxjax.push_sum, TURNS),
    "lossy_push_sum": gossiped(relaxjax.lossy_push_sum, loss=0.2),
    "quasi_global_momentum": gossiped(relaxjax.quasi_global_momentum, TURNS),
    "noloco": lambda h: relaxjax.noloco(ADAM, "data", TURNS, h),
    "relay_sum": gossiped(relaxjax.relay_sum, topology.chain(N)),
    "moniqua": gossiped(relaxjax.moniqua, theta=2.0, bits=8),
    "dcd_psgd": gossiped(relaxjax.dcd_psgd, compressor=compression.quantize(8)),
    "deep_squeeze": gossiped(relaxjax.deep_squeeze, compressor=compression.sign()),
}
DIFFERENT = (
    "asynchronous_average",
    "streaming_diloco",
    "decoupled_diloco",
    "desynced, apart",
)
"""Under TABLE their periods are longer, or they merge late, or have several."""


def models(tx: Any, mesh: Any, steps: int = STEPS) -> np.ndarray:
    """All models after each step."""
    return np.stack([x for x, _ in pulled(tx, targets_of(N), mesh, steps)])


def of(kind: type, state: Any) -> list[Any]:
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, kind))
    return [x for x in leaves if isinstance(x, kind)]


@pytest.mark.few(14)
@pytest.mark.parametrize("place", [emulate, mesh_of])
@pytest.mark.parametrize("name", METHODS)
def test_a_constant_schedule_is_the_number(name, place):
    steps = 9
    found = models(METHODS[name](lambda step: 3), place(N), steps)
    expected = models(METHODS[name](3), place(N), steps)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", [n for n in METHODS if n not in DIFFERENT])
def test_something_is_sent_when_the_schedule_says(name):
    params, mesh = helpers.problem(), emulate(N)
    steps = first_steps(
        METHODS[name](TABLE), params, workers_of(mesh, None, "test"), STEPS
    )
    met = periods.meetings(TABLE, STEPS)
    assert [i for i, step in enumerate(steps, 1) if step.sent.any()] == met


def test_parts_of_a_model_take_turns_in_each_lap():
    params, workers = helpers.problem(), workers_of(emulate(N), None, "test")

    def sends(tx: Any) -> list[int]:
        steps = first_steps(tx, params, workers, 30)
        return [i for i, step in enumerate(steps, 1) if step.sent.any()]

    rule = periods.table([5, 2, 8, 12])
    how: dict[str, Any] = {"fragments": 2, "overlap": 1}
    # Laps of 6, 4 (as each part has 2 steps at least), 12, 12
    streaming = relaxjax.streaming_diloco(ADAM, "data", rule, **how)
    assert sends(streaming) == [3, 6, 8, 10, 14, 18, 24, 30]
    decoupled = relaxjax.decoupled_diloco(ADAM, "data", sync_every=rule, **how)
    late = [4, 7, 8, 9, 13, 17, 23, 29]  # laps of 6, 2, 8, 12, read a step before
    assert sends(decoupled) == late


def local_sgd_ref(targets: np.ndarray, met: list[int], compress: Any) -> np.ndarray:
    """Models of all workers after each step, which meet after the ones that are met."""
    n, d = targets.shape
    x, lost, anchor, seen = np.zeros((n, d)), np.zeros((n, d)), np.zeros(d), []
    for step in range(1, STEPS + 1):
        x = x - 0.1 * (x - targets)
        if step in met:
            p = lost + x - anchor
            sent = np.stack([compress(row) for row in p])
            lost, anchor = p - sent, anchor + sent.mean(axis=0)
            x = np.stack([anchor] * n)
        seen.append(x)
    return np.stack(seen)


@pytest.mark.parametrize("place", [emulate, mesh_of])
@pytest.mark.parametrize(
    ("how", "compress"),
    [({}, identity_ref), ({"compressor": SIGN, "algorithm": "one_shot"}, sign_ref)],
    ids=["exact", "signs"],
)
def test_against_a_list_of_workers(how, compress, place):
    tx = optax.chain(SGD, relaxjax.local_sgd("data", QSR, **how))
    met = periods.meetings(QSR, STEPS)
    assert len(set(np.diff([0, *met]))) >= 4
    expected = local_sgd_ref(targets_of(N), met, compress)
    np.testing.assert_allclose(models(tx, place(N)), expected, rtol=1e-4, atol=1e-5)


def test_gossip_takes_its_graphs_by_turns_of_meetings():
    met = periods.meetings(TABLE, STEPS)
    x, expected, targets = np.zeros((N, 5)), [], targets_of(N)
    for step in range(1, STEPS + 1):
        x = x - 0.1 * (x - targets)
        if step in met:
            x = TURNS.matrix(met.index(step)) @ x
        expected.append(x)
    found = models(METHODS["gossip"](TABLE), mesh_of(N))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_slow_momentum_sees_the_rate_of_the_last_local_step():
    met, beta, alpha = periods.meetings(TABLE, STEPS), 0.5, 1.0
    targets = targets_of(N)
    x, a, u, expected = np.zeros((N, 5)), np.zeros(5), np.zeros(5), []
    for step in range(1, STEPS + 1):
        g = np.float32(np.asarray(RATE(step - 1)))
        x = x - g * (x - targets)
        if step in met:
            u = beta * u + (a - x.mean(axis=0)) / g
            a = a - alpha * g * u
            x = np.stack([a] * N)
        expected.append(x)
    found = models(METHODS["slow_momentum"](TABLE), emulate(N))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_exact_diffusion_divides_by_the_steps_of_the_round():
    met, targets = periods.meetings(TABLE, STEPS), targets_of(N)
    w = topology.lazy(RING).matrix()
    x, c, expected = np.zeros((N, 5)), np.zeros((N, 5)), []
    for step in range(1, STEPS + 1):
        x = x - 0.1 * (x - targets) + c
        if step in met:
            begun = max((m for m in met if m < step), default=0)
            x, before = w @ x, x
            c = c + (x - before) / (step - begun)
        expected.append(x)
    found = models(METHODS["exact_diffusion"](TABLE), emulate(N))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", METHODS)
def test_a_recorded_table_repeats_the_run_to_the_bit(name):
    lengths = np.diff([0, *periods.meetings(QSR, STEPS)]).tolist()
    found = models(METHODS[name](periods.table(lengths)), emulate(N))
    expected = models(METHODS[name](QSR), emulate(N))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.few(4)
@pytest.mark.parametrize("swap", [4, 5, 13])
@pytest.mark.parametrize("name", ["diloco", "slow_momentum", "gossip", "push_sum"])
def test_a_resumed_run_meets_when_it_would_have(name, swap, tmp_path):
    """Through a checkpoint, with a new transformation and a new program."""
    mesh, data = mesh_of(N), helpers.batches(STEPS, rows=8)

    def go_on(state: Any, part: Any) -> Any:
        step = relaxjax.data_parallel(helpers.train_step_of(METHODS[name](QSR)), mesh)
        for batch in part:
            *state, _ = step(*state, batch)
        return tuple(state)

    fresh = relaxjax.init(METHODS[name](QSR), helpers.problem(), mesh)

    def opened(rule: Any) -> Checkpoints:
        tx = METHODS[name](rule)
        return Checkpoints(tmp_path, mesh, plan=plan_of(tx, helpers.problem(), mesh))

    with opened(QSR) as folder:
        folder.save(swap, go_on(fresh, data[:swap]))
    with opened(QSR) as folder:
        _, half = folder.restore(fresh)
    helpers.assert_equal(go_on(half, data[swap:]), go_on(fresh, data))
    other = periods.table([3, 1, 1, 5, 2, 8, 5])
    with (
        opened(other) as folder,
        pytest.raises(ValueError, match="the checkpoint is of another run"),
    ):
        folder.restore(fresh)


@pytest.mark.parametrize("name", ["diloco", "gossip"])
def test_counters_go_on_when_workers_leave(name):
    data = helpers.batches(7, rows=8)
    tx, few = METHODS[name](TABLE), emulate(2)
    params, state, _ = helpers.train(tx, emulate(N), data)
    if name == "gossip":
        pair = relaxjax.gossip("data", topology.complete(2), every=TABLE)
        tx = optax.chain(SGD, pair)
    like = relaxjax.init(tx, helpers.problem(), few)
    (_, state), _ = relaxjax.checkpoint.resized((params, state), like)
    (found,) = of(periods.Meetings, state)
    assert [x.tolist() for x in found] == [[7] * 2, [5] * 2, [10] * 2, [3] * 2]


@pytest.mark.long
def test_steps_are_silent_by_a_program_that_sends_nothing(monkeypatch):
    monkeypatch.setattr(_step_programs, "host_is_asked", lambda workers: True)
    tx, mesh = METHODS["diloco"](TABLE), mesh_of(N)
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    programs: Any = step._programs
    state: Any = tuple(relaxjax.init(tx, helpers.problem(), mesh))
    data = helpers.batches(STEPS, rows=8)
    whole, silent = (
        str(program.lower(state, data[0]).compile().as_text())
        for program in (programs.whole, programs.silent)
    )
    assert ("all-reduce" in whole, " while(" in whole) == (True, True)
    assert ("all-reduce" in silent, " while(" in silent) == (False, False)
    taken: list[int] = []
    inner = programs.silent
    programs.silent = lambda *args: taken.append(len(asked)) or inner(*args)
    asked: list[Any] = []
    for batch in data:
        *state, _ = step(*state, batch)
        asked.append(batch)
    # Meetings end steps 2, 3, 4, 9, 11, 19 and 23; the step after each one asks.
    assert taken == [1, 6, 7, 8, 13, 14, 15, 16, 17, 18, 21, 22]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["local_sgd", "gossip"])
def test_a_scan_over_steps_is_the_loop(name):
    tx, targets = METHODS[name](TABLE), jnp.asarray(targets_of(N), jnp.float32)

    def one(carry, _):
        x, state = carry
        updates, state = tx.update(x - target_of(), state, x)
        return (optax.apply_updates(x, updates), state), x

    def target_of() -> Any:
        return targets[jax.lax.axis_index("data")]

    def start() -> Any:
        x = 0 * target_of()
        return x, tx.init(x)

    def scanned(_: Any) -> Any:
        return jax.lax.scan(one, start(), length=STEPS)[0][0]

    mapped = functools.partial(jax.vmap, axis_name="data")
    found = jax.jit(mapped(scanned))(jnp.arange(N))
    np.testing.assert_allclose(found, models(tx, emulate(N))[-1], rtol=1e-5, atol=1e-6)


def test_post_local_sgd_counts_the_steps_of_its_first_part():
    seen = periods.post_local(10, 5)  # of all steps: 1 until the tenth
    tx = relaxjax.post_local_sgd(SGD, "data", seen, 7)
    apart = [relaxjax.spread(x) > 1e-6 for x in models(tx, mesh_of(N))]
    assert [step for step, are in enumerate(apart, 1) if not are] == [
        *range(1, 11),
        15,
        20,
    ]


def test_what_is_told_of_a_schedule():
    params, mesh = helpers.problem(), emulate(N)
    tx = METHODS["local_sgd"](QSR)
    met = periods.meetings(QSR, STEPS)
    once = wire_bytes(METHODS["local_sgd"](1), params, mesh)
    assert wire_bytes(tx, params, mesh, steps=STEPS) == len(met) * once
    with pytest.raises(ValueError, match="wire_bytes: steps=None must be a number"):
        wire_bytes(tx, params, mesh)
    told = relaxjax.explain(tx, params, mesh, steps=STEPS)
    lengths = np.diff([0, *met])
    assert told.apart == [lengths.min(), lengths.max()]
    assert (told.period, told.repeats) == (STEPS, False)
    assert f"{lengths.min()} .. {lengths.max()} steps from one meeting" in str(told)
    assert relaxjax.explain(METHODS["local_sgd"](3), params, mesh).apart == []
    none = relaxjax.explain(tx, params, mesh, steps=1)
    assert (none.apart, none.bytes_per_step) == ([], 0)


def test_a_long_run_is_counted_by_its_meetings():
    """Silent steps are alike, and not walked."""
    rule = periods.table([50, 100, 400])
    tx, params, mesh = METHODS["local_sgd"](rule), helpers.problem(), emulate(N)
    once = wire_bytes(METHODS["local_sgd"](1), params, mesh)
    met = len(periods.meetings(rule, 100_000))
    assert wire_bytes(tx, params, mesh, steps=100_000) == met * once


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (lambda step: 3 if step < 4 else 8, "local_sgd: sync_every looks at the step"),
        (lambda step: jnp.ones(3), r"must return one number .* float32\[3\]"),
        (lambda step: step < 4, r"must return one number of steps, .* bool\[\]"),
    ],
)
def test_schedules_that_are_none(schedule, said):
    tx = relaxjax.local_sgd("data", schedule)
    with pytest.raises(ValueError, match=said):
        jax.jit(lambda x: tx.init(x))(jnp.zeros(3))


def test_methods_that_take_no_schedule_say_so():
    every: Any = TABLE
    with pytest.raises(ValueError, match=r"every=.* must be a whole number"):
        relaxjax.sparta("data", every=every)
    with pytest.raises(ValueError, match=r"every=.* must be a whole number"):
        relaxjax.accumulate(SGD, every)
