"""Periods, and steps that are not walked, against a walk of every step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, emulate, gossip, local_sgd, topology
from relaxjax.programs import _period
from relaxjax.programs._period import Step, expanded, period_of, walked_steps
from relaxjax.programs._questions import FAR, Question, stands, steps_alike
from relaxjax.workers import workers_of

SGD = optax.sgd(0.1)
PARAMS = {"a": jnp.zeros((6, 5)), "b": jnp.zeros(30)}
TXS: dict[str, tuple[Any, int | None]] = {
    "all_reduce": (optax.chain(all_reduce("data"), SGD), 1),
    "local_sgd": (optax.chain(SGD, local_sgd("data", 40)), 40),
    "sparta": (optax.chain(SGD, relaxjax.sparta("data", 0.1, every=25)), 25),
    "gossip": (
        optax.chain(SGD, gossip("data", topology.one_peer_exponential(4), every=30)),
        60,
    ),
    "decoupled": (
        relaxjax.decoupled_diloco(
            SGD, "data", sync_every=36, fragments=2, overlap=1, merge="mean"
        ),
        36,
    ),
    "desynced": (
        relaxjax.desynced(
            optax.adam(0.1), "data", periods={"params": 20, "mu": 30, "nu": 60}
        ),
        60,
    ),
    "accumulate": (relaxjax.accumulate(optax.chain(all_reduce("data"), SGD), 35), 35),
    "warm-up": (
        optax.chain(relaxjax.power_sgd("data", rank=1, start_after=50), SGD),
        1,
    ),
    "a few steps of warm-up": (
        optax.chain(relaxjax.power_sgd("data", rank=1, start_after=4), SGD),
        1,
    ),
    "an optimizer alone": (optax.adam(0.1), 1),
    "draws that no conditional looks at": (
        optax.chain(SGD, relaxjax.lossy_push_sum("data", topology.ring(4), 0.1)),
        1,
    ),
}


FLAG = 2 * 3 * 4  # bytes of one number's all-reduce, of four workers
WRAPPED: dict[str, tuple[Any, Any]] = {
    "accumulate 2": (lambda tx: relaxjax.accumulate(tx, 2), lambda b: b / 2),
    "accumulate 3": (lambda tx: relaxjax.accumulate(tx, 3), lambda b: b / 3),
    "accumulate 10": (lambda tx: relaxjax.accumulate(tx, 10), lambda b: b / 10),
    "skip": (lambda tx: relaxjax.skip_nonfinite(tx, "data"), lambda b: b + FLAG),
    "skip, accumulate 2": (
        lambda tx: relaxjax.skip_nonfinite(relaxjax.accumulate(tx, 2), "data"),
        lambda b: b / 2 + FLAG,
    ),
    "accumulate 2, skip": (
        lambda tx: relaxjax.accumulate(relaxjax.skip_nonfinite(tx, "data"), 2),
        lambda b: (b + FLAG) / 2,
    ),
}
"""Wrappers, and the bytes of a step by those of the method inside."""
INSIDE = {
    "all_reduce": optax.chain(all_reduce("data"), SGD),
    "local_sgd": optax.chain(SGD, local_sgd("data", 3)),
    "gossip": optax.chain(SGD, gossip("data", topology.ring(4), every=2)),
    "diloco": relaxjax.diloco(SGD, "data", 4),
    "streaming": relaxjax.streaming_diloco(SGD, "data", 6, fragments=2, overlap=1),
    "accumulate": relaxjax.accumulate(optax.chain(all_reduce("data"), SGD), 2),
    "desynced": TXS["desynced"][0],
    "sparta": optax.chain(SGD, relaxjax.sparta("data", 0.1, every=3)),
    "power_sgd": optax.chain(relaxjax.power_sgd("data", rank=1), SGD),
    "acp_sgd": optax.chain(relaxjax.acp_sgd("data", rank=1), SGD),
    "deep": relaxjax.deep_gradient_compression("data", density=0.1),
}


def workers(count: int = 4) -> Any:
    return workers_of(emulate(count), None, "test")


def sizes(steps: list[Step]) -> list[int]:
    return [int(step.sent.max()) for step in steps]


def each_walked(monkeypatch: Any, tx: Any, count: int) -> list[int]:
    with monkeypatch.context() as patch:
        patch.setattr(_period, "_alike", lambda *args: 0)
        return sizes(expanded(walked_steps(tx, PARAMS, workers(), count)))


@pytest.mark.few(11)
@pytest.mark.parametrize("name", TXS)
def test_steps_that_are_left_out_send_what_they_would(name, monkeypatch):
    tx, _ = TXS[name]
    expected = each_walked(monkeypatch, tx, 150)
    walked = list(walked_steps(tx, PARAMS, workers(), 150))
    assert sizes(expanded(walked)) == expected
    assert len(walked) < 120
    for count in (1, 2, 41):
        found = expanded(walked_steps(tx, PARAMS, workers(), count))
        assert sizes(found) == expected[:count]


@pytest.mark.few(11)
@pytest.mark.parametrize("name", TXS)
def test_a_period_is_what_all_later_steps_repeat(name, monkeypatch):
    tx, period = TXS[name]
    found, closed = period_of(tx, PARAMS, workers())
    assert (len(found), closed) == (period, True)
    if name == "warm-up":
        return  # of the first phase, which is long
    later = each_walked(monkeypatch, tx, 40 + 3 * len(found))[40:]
    at = [sizes(found)[(40 + i) % len(found)] for i in range(len(later))]
    assert later == at


def test_what_a_later_phase_looks_at_is_known_when_it_begins():
    """The first phase has no conditional, and takes a mean in each of its 20 steps."""
    tx = relaxjax.post_local_sgd(SGD, "data", 8, 20)
    walked = walked_steps(tx, PARAMS, workers(), 60)
    sent = [i for i, size in enumerate(sizes(expanded(walked))) if size]
    assert sent == [*range(20), 27, 35, 43, 51, 59]


def test_a_step_that_no_counter_decides_is_walked_twice():
    """Whatever its state counts, draws or decides, as long as no bytes depend on it."""

    def halved(updates, state, params=None):
        del params
        half = jax.tree.map(lambda u: u / 2, updates)
        due = state % 1000 == 7
        return jax.lax.cond(due, lambda: half, lambda: updates), state + 1

    halves = optax.GradientTransformation(lambda params: jnp.int32(0), halved)
    tx, _ = TXS["draws that no conditional looks at"]
    tx = optax.chain(halves, optax.scale_by_schedule(lambda n: 1 / (1 + n)), tx)
    walked = walked_steps(tx, PARAMS, workers(), None)
    assert [one.asked for one, _ in zip(walked, range(3), strict=False)] == [{}] * 3
    assert len(period_of(tx, PARAMS, workers()).steps) == 1


def deciding(condition: Any) -> Any:
    """Sends where the condition holds of the number of steps."""

    def update(updates, state, params=None):
        del params
        sent = jax.lax.cond(
            condition(state),
            lambda: jax.tree.map(lambda u: jax.lax.psum(u, "data"), updates),
            lambda: updates,
        )
        return sent, state + 1

    return optax.GradientTransformation(lambda params: jnp.int32(0), update)


ASKED_OTHERWISE: dict[str, Any] = {
    "as a bool": lambda n: (n - 40).astype(bool),
    "as a byte": lambda n: n.astype(jnp.int8) < 0,
    "by a table": lambda n: jnp.asarray([1, 0] * 50)[n % 100] > 0,
    "by a branch": lambda n: jax.lax.switch(
        n - 38, [lambda: n < 0] * 3 + [lambda: n > 0]
    ),
}


@pytest.mark.parametrize("name", ASKED_OTHERWISE)
def test_questions_without_a_comparison_are_seen(name, monkeypatch):
    tx = deciding(ASKED_OTHERWISE[name])
    expected = each_walked(monkeypatch, tx, 300)
    assert 0 < sum(size > 0 for size in expected) < 300
    assert sizes(expanded(walked_steps(tx, PARAMS, workers(), 300))) == expected


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int8])
@pytest.mark.parametrize("step", [1, 3, -1])
def test_counters_of_few_bits_wrap_around(dtype, step, monkeypatch):
    """A state that counts in bytes, and sends at one of its numbers."""

    def update(updates, state, params=None):
        del params
        sent = jax.lax.cond(
            state == 3,
            lambda: jax.tree.map(lambda u: jax.lax.psum(u, "data"), updates),
            lambda: updates,
        )
        return sent, state + dtype(step % 256) if step > 0 else state - dtype(1)

    tx = optax.GradientTransformation(lambda params: jnp.zeros((), dtype), update)
    expected = each_walked(monkeypatch, tx, 600)
    assert 1 < sum(size > 0 for size in expected) < 5
    assert sizes(expanded(walked_steps(tx, PARAMS, workers(), 600))) == expected
    found, closed = period_of(tx, PARAMS, workers())
    assert (len(found), closed) == (256, True)


def test_rounds_that_grow_have_no_period(monkeypatch):
    """A power of two: bits decide, which move by no steady amount."""
    grows = deciding(lambda n: (n & (n - 1)) == 0)
    monkeypatch.setattr(_period, "_WALKED", 70)
    found, closed = period_of(grows, PARAMS, workers())
    assert (len(found), closed) == (70, False)
    sent = [i for i, size in enumerate(sizes(found)) if size]
    assert sent == [0, 1, 2, 4, 8, 16, 32, 64]
    said = str(relaxjax.explain(grows, PARAMS, emulate(4)))
    assert "the mean of the first 70 steps, which have no period" in said


def test_what_is_far_off_is_seen(monkeypatch):
    """In the 5000th step for the first time, and then in each."""
    late = deciding(lambda n: n >= 5000)
    assert len(list(walked_steps(late, PARAMS, workers(), 6000))) < 20
    steps = sizes(expanded(walked_steps(late, PARAMS, workers(), 6000)))
    assert [i for i, size in enumerate(steps) if size] == list(range(5000, 6000))
    found, closed = period_of(late, PARAMS, workers())
    assert (len(found), closed, sizes(found)[0] > 0) == (1, True, True)


@pytest.mark.long
def test_rounds_of_rounds():
    """Every third step, and every 1000th of these more."""

    def condition(n):
        return (n % 3 == 1) & ((n // 3) % 1000 != 7)

    found, closed = period_of(deciding(condition), PARAMS, workers())
    assert (len(found), closed) == (3000, True)
    sent = [i for i, size in enumerate(sizes(found)) if size]
    assert sent == [i for i in range(3000) if i % 3 == 1 and i // 3 != 7]


def test_at_most_so_many_steps_are_looked_at(monkeypatch):
    monkeypatch.setattr(_period, "_MOST", 90)
    found, closed = period_of(TXS["desynced"][0], PARAMS, workers())
    assert (len(found), closed) == (60, True)
    monkeypatch.setattr(_period, "_MOST", 50)
    assert period_of(TXS["desynced"][0], PARAMS, workers())[1] is False


def at(*questions: Question) -> dict[tuple[int, int], Question]:
    return {(i, 0): question for i, question in enumerate(questions)}


ALIKE: list[Any] = [
    ("ge", [(0, 9), (1, 9), (2, 9)], 6),  # of 3 to 8 steps; in the 9th it changes
    ("ge", [(9, 9), (10, 9), (11, 9)], FAR),
    ("lt", [(7, 1), (5, 1), (3, 1)], 0),
    ("lt", [(20, 1), (18, 2), (16, 3)], 4),
    ("eq", [(7, 9), (8, 9), (9, 9)], 0),
    ("eq", [(3, 3), (3, 3), (3, 3)], FAR),
    ("eq", [(1, 5), (2, 5), (4, 5)], 0),  # not steadily
    ("rem", [(3, 10), (4, 10), (5, 10)], 4),
    ("rem", [(1, 10), (4, 10), (7, 10)], 0),
    ("div", [(10, 10), (11, 10), (12, 10)], 7),
    ("rem", [(5, 10), (4, 10), (3, 10)], 0),  # backwards: nobody knows
    ("rem", [(-3, 10), (-2, 10), (-1, 10)], 0),
    ("xor", [(1, 2), (2, 2), (3, 2)], 0),
    ("xor", [(2, 2), (2, 2), (2, 2)], FAR),
    ("gather", [(1,), (2,), (3,)], 0),
]


@pytest.mark.parametrize(("name", "numbers", "steps"), ALIKE)
def test_for_how_long_an_answer_stays(name, numbers, steps):
    first, second, third = (at(Question(name, n)) for n in numbers)
    assert steps_alike(third, second, first) == steps
    other = at(Question(name, numbers[0]), Question(name, numbers[0]))
    assert steps_alike(third, second, other) == 0


@pytest.mark.parametrize(("name", "numbers", "steps"), ALIKE)
def test_an_answer_does_stay(name, numbers, steps):
    """By hand, of the primitives that a counter is asked by."""
    ask = {
        "ge": lambda a, b: a >= b,
        "lt": lambda a, b: a < b,
        "eq": lambda a, b: a == b,
        "rem": lambda a, b: a // b,  # which multiple it is over
        "div": lambda a, b: a // b,
    }.get(name)
    if ask is None or len(numbers[0]) < 2:
        return
    last, move = np.array(numbers[2]), np.subtract(numbers[2], numbers[1])
    now = ask(*last)
    assert all(ask(*(last + i * move)) == now for i in range(1, min(steps, 50) + 1))


@pytest.mark.few(24)
@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("around", WRAPPED)
def test_a_wrapper_sends_what_is_inside_as_often_as_it_calls_it(around, inside):
    """Its own counter may stand still while that of the wrapper moves, or either."""
    wrap, expected = WRAPPED[around]
    bare = relaxjax.wire_bytes(INSIDE[inside], PARAMS, emulate(4), steps=240) / 240
    found = period_of(wrap(INSIDE[inside]), PARAMS, workers())
    assert found.closed
    assert np.mean(sizes(found.steps)) == pytest.approx(expected(bare))


def test_powers_of_an_optimizers_count_keep_no_period_open():
    """Whether steps are finite depends on them, and yet tells nothing of a period."""
    tx: Any = relaxjax.skip_nonfinite(
        optax.chain(optax.adam(0.1), local_sgd("data", 3)), "data"
    )
    found = period_of(tx, PARAMS, workers())
    assert found.closed
    assert len(found.steps) == 3


@pytest.mark.parametrize("inside", ["local_sgd", "diloco", "accumulate"])
def test_rounds_that_all_take_part_in_are_counted_as_rounds(inside):
    """Flags and weights go with them, in each step a few bytes."""
    bare = relaxjax.wire_bytes(INSIDE[inside], PARAMS, emulate(4))
    tx: Any = relaxjax.participation(INSIDE[inside], "data", [[1, 1, 1, 1]])
    assert bare < relaxjax.wire_bytes(tx, PARAMS, emulate(4)) <= bare + 3 * FLAG


@pytest.mark.parametrize("inside", ["local_sgd", "sparta", "desynced"])
def test_data_that_decide_count_as_the_most_that_they_may_send(inside):
    """Counters are unknown after the first step, which sends less."""
    tx: Any = optax.apply_if_finite(INSIDE[inside], 3)
    each = [relaxjax.wire_bytes(tx, PARAMS, emulate(4), start=i) for i in range(4)]
    assert each[0] < each[1] == each[3] == relaxjax.wire_bytes(tx, PARAMS, emulate(4))


def test_a_flag_of_the_first_step_ends_with_it():
    """Whoever asks nothing more does not stand as the one who asked last."""

    def mean(updates: Any) -> Any:
        return jax.lax.pmean(updates, "data")

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        del params
        return jax.lax.cond(state, mean, lambda x: x, updates), jnp.array(False)

    def init(params: Any) -> Any:
        del params
        return jnp.array(True)

    tx = optax.GradientTransformation(init, update)
    assert sizes(period_of(tx, PARAMS, workers()).steps) == [0]


def test_a_count_that_nobody_knows_stays_in_its_phase():
    tx: Any = optax.apply_if_finite(TXS["warm-up"][0], 3)
    warm = relaxjax.wire_bytes(TXS["warm-up"][0], PARAMS, emulate(4), start=0)
    assert relaxjax.wire_bytes(tx, PARAMS, emulate(4)) == warm


def test_a_period_that_is_longer_than_what_is_walked_is_not_one_of_silence(monkeypatch):
    monkeypatch.setattr(_period, "_WALKED", 64)
    tx = relaxjax.accumulate(optax.chain(SGD, local_sgd("data", 30)), 4)
    with pytest.raises(ValueError, match="no period is over within them"):
        relaxjax.wire_bytes(tx, PARAMS, emulate(4))
    assert relaxjax.wire_bytes(tx, PARAMS, emulate(4), steps=120) == 360


def test_how_a_question_stands():
    def stand(name: str, now: Any, before: Any = None) -> frozenset:
        latest = at(Question(name, before)) if before else {}
        return frozenset(stands(at(Question(name, now)), latest).items())

    assert stand("rem", (3, 10)) == stand("rem", (13, 10)) != stand("rem", (4, 10))
    assert stand("rem", (3, FAR)) == stand("rem", (4, FAR))
    assert stand("ge", (5, 3), (4, 3)) == stand("ge", (9, 3), (8, 3))  # for good
    assert stand("ge", (1, 9), (0, 9)) != stand("ge", (2, 9), (1, 9))
    assert stand("ge", (3, 3), (2, 3)) != stand("ge", (1, 3), (2, 3))
    assert stand("ge", (0, FAR)) == stand("ge", (0, FAR + 1))
    assert stand("xor", (1, 3)) != stand("xor", (2, 3))
