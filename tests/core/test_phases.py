"""Clocks, and when they are read, without a training."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from relaxjax._core import _phase_watch, _phases
from relaxjax._core._phase_watch import Phases
from relaxjax._core._phases import (
    Clock,
    advance_phases,
    clock,
    clocks_of,
    hosted,
    making,
    phase_starts,
    phased,
    reached,
    renewed,
    set_phases,
    ticking,
    timed,
)
from relaxjax._core.traced._ticks import ticks_often


def state_of(*clocks):
    return {"clocks": list(clocks), "x": jnp.arange(3)}


def phases_of(state):
    return [c.phase for c in clocks_of(state)]


def ticked(state):
    """One step later: each clock in new arrays."""
    return jax.tree.map(
        lambda x: x.tick() if isinstance(x, Clock) else x,
        state,
        is_leaf=lambda x: isinstance(x, Clock),
    )


def test_a_clock_at_its_start():
    start = clock(2, 5)
    assert start.count.dtype == jnp.int32
    assert (int(start.count), start.ends, start.phase) == (0, (2, 5), 0)
    assert clock(0, 3).phase == 1
    assert Clock(jnp.int32(4), (1,)).phase == 0
    assert [start.at(n).phase for n in (0, 1, 2, 3, 4, 5, 9)] == [0, 0, 1, 1, 1, 2, 2]
    later = start.at(2).tick()
    assert (int(later.count), later.phase) == (1, 1)


def test_ends_and_phases_are_structure_and_counts_are_not():
    leaves, structure = jax.tree.flatten(clock(2))
    assert len(leaves) == 1
    assert structure != jax.tree.structure(clock(2).at(2))
    assert structure != jax.tree.structure(clock(3))
    assert structure == jax.tree.structure(clock(2).tick())


def test_ticking_collects_the_ends_to_come():
    with ticking() as seen:
        hosted(clock(2, 5)).tick()
        hosted(clock(2, 5)).at(2).tick()
        clock(3).tick()  # ends its phases by itself
        with ticking() as inner:
            hosted(clock(7)).tick()
        hosted(clock(2)).at(3).tick()
        hosted(clock()).tick()  # has none
    hosted(clock(9)).tick()
    assert (seen, inner) == ([(2, 5), (5,), ()], [(7,)])
    assert _phases._TICKED.get(None) is None


def test_clocks_that_are_made_are_collected_outside_too():
    with making() as seen:
        first = clock(3)
        clock()  # has one phase
        with making() as inner:
            second = clock(0, 2)
    clock(4)
    assert seen == [first, second]
    assert inner == [second]
    assert _phases._MADE.get(None) is None


def test_a_renewed_state_has_the_structure_of_a_new_one():
    late = {"a": hosted(clock(0, 1, 5).at(9)), "b": (hosted(clock(3)), clock())}
    new = {"a": clock(0, 1, 5), "b": (clock(3), clock())}
    assert jax.tree.structure(renewed(late)) == jax.tree.structure(new)
    assert jax.tree.structure(late) != jax.tree.structure(new)


def test_who_makes_a_clock_is_shown_a_renewed_state():
    state = clock(2).at(2)

    def shown(makes: bool) -> Any:
        def look(state):
            now = (state.hosted, state.phase)
            if makes and now != (clock(2).hosted, 0):
                raise ValueError("another structure")
            return now

        return timed(look, state)

    assert shown(False) == (True, 1)
    assert shown(True) == (False, 0)


def test_who_makes_none_hears_of_other_errors():
    shown = []
    with pytest.raises(ValueError, match="not of a clock"):
        timed(lambda state: int(shown.append(state) or "not of a clock"), clock(2))
    assert len(shown) == 1


def test_phases_are_set_from_counts_with_worker_axes_or_without():
    stacked = Clock(jnp.full(4, 5, jnp.int32), (2, 5), 0)
    state = state_of(stacked, Clock(jnp.int32(1), (1, 9)), clock(1))
    advanced = advance_phases(state)
    assert phases_of(advanced) == [2, 1, 0]
    assert advanced["x"] is state["x"]
    assert advanced["clocks"][0].count is stacked.count
    assert [c.hosted for c in clocks_of(state)] == [False] * 3
    assert [c.hosted for c in clocks_of(advanced)] == [True] * 3
    assert [c.hosted for c in clocks_of(reached(advanced))] == [True] * 3
    assert phases_of(reached(state)) == [2, 1, 0]
    assert not any(c.hosted for c in clocks_of(reached(state)))
    assert advance_phases({"x": 1}) == {"x": 1}
    assert phases_of(set_phases(state, [0, 9, 1])) == [0, 2, 1]
    assert len(clocks_of(state)) == 3
    with pytest.raises(ValueError, match="called inside a jitted function"):
        jax.jit(advance_phases)(state)


def test_copies_at_the_start_of_each_phase():
    state = state_of(clock(3, 9), clock(0, 2, 3))
    starts = list(phase_starts(state))
    counts = [[int(c.count) for c in clocks_of(s)] for s in starts]
    assert counts == [[0, 0], [2, 2], [3, 3], [9, 9]]
    assert [phases_of(s) for s in starts] == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert all(s["x"] is not state["x"] for s in starts)
    assert clocks_of(starts[2])[0].count.dtype == jnp.int32
    assert [phases_of(s) for s in phase_starts(clock(1))] == [[0], [1]]


def read_at(monkeypatch, ends, steps, again=(), each=1):
    """Phases before each step, and the steps at which counts were read."""
    reads, found, number = [], [], 0
    real = _phase_watch.reached

    def advance(state):
        reads.append(number)
        return real(state)

    monkeypatch.setattr(_phase_watch, "reached", advance)
    phases, state = Phases(), state_of(*(clock(*e) for e in ends))
    for number in range(steps):
        if number in again:  # as from a checkpoint: the same counts in other arrays
            state = jax.tree.map(jnp.copy, state)
        state = phases.advanced(state)
        found.append(phases_of(state))
        for _ in range(each):
            state = ticked(state)
        phases.returned(state, **({"several": True} if each > 1 else {}))
    return found, reads


def test_counts_are_read_only_when_an_end_may_be_due(monkeypatch):
    found, reads = read_at(monkeypatch, [(3, 7)], 10)
    assert found == [[0]] * 3 + [[1]] * 4 + [[2]] * 3
    assert reads == [0, 3, 7]


def test_of_several_clocks_the_nearest_end_counts(monkeypatch):
    found, reads = read_at(monkeypatch, [(6,), (2, 4), ()], 8)
    assert [row[0] for row in found] == [0] * 6 + [1] * 2
    assert [row[1] for row in found] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert reads == [0, 2, 4, 6]


def test_of_calls_of_several_steps_all_counts_are_read_up_to_the_last_end(monkeypatch):
    found, reads = read_at(monkeypatch, [(3, 4)], 6, each=2)
    assert found == [[0]] * 2 + [[2]] * 4
    assert reads == [0, 1, 2]


def test_counts_in_other_arrays_are_read_again(monkeypatch):
    found, reads = read_at(monkeypatch, [(5,)], 7, again=(2,))
    assert found == [[0]] * 5 + [[1]] * 2
    assert reads == [0, 2, 5]


def test_a_state_without_ends_is_never_read(monkeypatch):
    found, reads = read_at(monkeypatch, [(), ()], 3)
    assert (found, reads) == ([[0, 0]] * 3, [])
    state = {"x": jnp.ones(2)}
    assert Phases().advanced(state) is state


class Timed(NamedTuple):
    clock: Any
    last: Any


def powers(traced: list[int]) -> Any:
    """An update that multiplies by ten to the phase, in float32 from phase 2 on."""

    def update(updates, state, params=None, *, weight):
        del params
        phase = state.clock.phase
        traced.append(phase)
        out = updates * weight * 10**phase
        out = out.astype(jnp.float32) if phase > 1 else out
        return out, Timed(state.clock.tick(), state.last + phase)

    return phased(update)


def test_a_step_that_no_host_sees_holds_all_phases_to_come():
    traced: list[int] = []
    step = jax.jit(powers(traced))
    state = Timed(clock(0, 2, 3), jnp.int32(0))
    found = []
    for _ in range(5):
        out, state = step(jnp.float16(1), state, weight=2)
        found.append(float(out))
        assert out.dtype == jnp.float32
    assert found == [20, 20, 200, 2000, 2000]
    assert (int(state.last), int(state.clock.count)) == (10, 5)
    assert (state.clock.phase, state.clock.hosted) == (1, False)
    assert set(traced) == {1, 2, 3}


def test_a_step_holds_one_phase_if_a_host_sets_it_or_none_is_to_come():
    traced: list[int] = []
    update = powers(traced)
    for time in (hosted(clock(2)), clock(1, 2).at(2), clock()):
        out, _ = update(jnp.float16(1), Timed(time, jnp.int32(0)), weight=1)
        assert out.dtype == (jnp.float32 if time.phase else jnp.float16)
    assert traced == [0, 2, 0]


def test_updates_keep_a_dtype_that_all_phases_share():
    def update(updates, state, params=None):
        return {"w": updates}, Timed(state.clock.tick(), state.last)

    out, _ = phased(update)(jnp.float16(1), Timed(clock(2), jnp.int32(0)))
    assert out["w"].dtype == jnp.float16


def over_steps(start):
    return jax.lax.scan(lambda time, _: (time.tick(), 0), start, length=3)[0]


def one_by_one(start):
    return start.tick().tick()


def of_a_jitted_step(start):
    one = jax.jit(lambda time: time.tick())
    return one(one(start))


def by_turns(start):
    later = jax.lax.cond(start.count > 2, lambda x: x.tick(), lambda x: x, start)
    return later.tick()


def inside(start):
    total = jax.lax.fori_loop(0, 3, lambda i, x: x + i, 0)
    solved, _ = jax.scipy.sparse.linalg.cg(lambda x: 2 * x, jnp.ones(2))
    return jax.jit(lambda time: time.tick())(start), total, solved


def conditional(start):
    return jax.lax.cond(start.count > 2, lambda x: x, lambda x: x.tick(), start)


def from_the_step(start):
    """A count that is made in the step ticks once."""
    made = dataclasses.replace(start, count=jax.lax.iota(jnp.int32, 1)[0])
    return made.tick()


def nested(start):
    return jax.lax.while_loop(lambda x: x.count < 3, conditional, start)


def beside(start):
    """Two clocks tick once each, and a loop reads what has ticked."""
    later = start.tick()
    read = jax.lax.fori_loop(0, 3, lambda i, x: x + later.count, 0)
    return later, hosted(clock(3)).tick(), read


@pytest.mark.parametrize(
    "step", [over_steps, one_by_one, of_a_jitted_step, by_turns, nested]
)
def test_several_steps_in_one_are_told(step):
    assert ticks_often(jax.make_jaxpr(step)(hosted(clock(2))).jaxpr)


@pytest.mark.parametrize("step", [inside, conditional, beside, from_the_step])
def test_one_step_is_told_from_several(step):
    assert not ticks_often(jax.make_jaxpr(step)(hosted(clock(2))).jaxpr)
