"""Bounds where each part alone binds, their metrics, and makespans with pushes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax.schedule import (
    Graph,
    bounds,
    efficiency,
    gap,
    lower_bound,
    makespan,
    random_graph,
    speedup_potential,
)
from relaxjax.schedule.orders._makespan import prepare

TIGHT = {
    "the last recv is followed by what depends on it": (
        Graph({"a": 10, "b": 10}, {"x": (2, ["a"]), "y": (4, ["b"])}),
        20 + 2,
    ),
    "by all that depends on it": (
        Graph({"a": 10, "b": 10}, {"x": (2, ["a"]), "y": (4, ["b", "x"])}),
        20 + 4,
    ),
    "a recv on which nothing depends comes last": (
        Graph({"a": 10, "b": 10}, {"x": (2, ["a"])}),
        20,
    ),
    "the unit waits for its first operation's recvs": (
        Graph({"a": 1, "b": 2}, {"x": (10, ["b", "a"]), "y": (10, ["x"])}),
        20 + 3,
    ),
    "less what needs no recv": (
        Graph(
            {"a": 4, "b": 4},
            {"w": (1, []), "v": (2, ["w"]), "x": (10, ["a"]), "y": (9, ["b"])},
        ),
        22 + (4 - 3),
    ),
    "which may be all the waiting": (
        Graph({"a": 1}, {"w": (5, []), "x": (10, ["a"])}),
        15,
    ),
    "pushes wait for the first that is ready": (
        Graph(
            {"a": 1, "b": 1},
            {"x": (1, ["a"]), "y": (1, ["b"])},
            {"a": (10, ["x"]), "b": (9, ["x", "y"])},
        ),
        19 + 2,
    ),
    "the longest path ends in an operation": (
        Graph(
            {"a": 3, "b": 3, "c": 3},
            {"x": (2, ["a"]), "y": (2, ["x"]), "z": (8, ["y", "b", "c"])},
        ),
        9 + 8,
    ),
    "the longest path ends in a push": (
        Graph({"a": 3}, {"x": (2, ["a"]), "y": (2, ["x"])}, {"a": (4, ["y"])}),
        3 + 2 + 2 + 4,
    ),
}


@pytest.mark.parametrize(("graph", "least"), TIGHT.values(), ids=TIGHT)
def test_each_part_of_the_bound_is_reached(graph, least):
    spans = [makespan(graph, p) for p in itertools.permutations(graph.recvs)]
    assert lower_bound(graph) == min(spans) == least
    assert lower_bound(graph) <= bounds(graph).upper


def test_the_longest_path_can_bind_alone():
    """No order reaches it here, as the unit has other things to do."""
    graph = Graph({"a": 9, "b": 1}, {"x": (9, ["a"]), "w": (1, []), "y": (1, ["b"])})
    # 10 + min(9, 1) = 11, 11 + max(0, 1 - 1) = 11, and 9 + 9.
    assert lower_bound(graph) == 18


def test_the_metrics_at_the_ends_of_their_ranges():
    graph = Graph({"w": 2.0}, {"dot": (3.0, ["w"])}, {"w": (1.0, ["dot"])})
    assert bounds(graph) == (3.0, 6.0)
    assert [efficiency(graph, m) for m in (3.0, 4.5, 6.0)] == [1.0, 0.5, 0.0]
    assert speedup_potential(graph) == 1.0
    assert gap(graph, 9.0) == 0.5
    alone = Graph({"w": 2.0}, {})
    assert (efficiency(alone, 2.0), speedup_potential(alone)) == (1.0, 0.0)
    nothing = Graph({}, {})
    assert (efficiency(nothing, 0.0), speedup_potential(nothing)) == (1.0, 0.0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_makespan_may_be_off_by_rounding_and_no_more(scale):
    graph = Graph({"w": 2 * scale}, {"dot": (3 * scale, ["w"])})
    lower, upper = bounds(graph)
    assert efficiency(graph, lower * (1 - 1e-12)) == pytest.approx(1)
    assert efficiency(graph, upper * (1 + 1e-12)) == pytest.approx(0, abs=1e-9)
    assert gap(graph, upper * (1 - 1e-12)) == pytest.approx(0, abs=1e-9)
    for wrong in (lower * (1 - 1e-7), upper * (1 + 1e-7)):
        with pytest.raises(ValueError, match="makespan must lie between"):
            efficiency(graph, wrong)
    with pytest.raises(ValueError, match="makespan must be at least the bound"):
        gap(graph, upper * (1 - 1e-7))


def test_batches_of_orders_of_no_recvs():
    idle = Graph({}, {"x": (2.0, []), "y": (3.0, ["x"])})
    assert prepare(idle).makespans(np.zeros((2, 0), int)).tolist() == [5.0, 5.0]


@st.composite
def graphs_with_pushes(draw):
    """Times are multiples of 1/8, so that sums are exact in any order."""
    family = draw(st.sampled_from(["random", "towers", "pairs", "chain"]))
    seed = draw(st.integers(0, 10_000))
    plain = random_graph(family, recvs=draw(st.integers(2, 5)), seed=seed)
    times = st.integers(0, 20).map(lambda n: n / 8)
    ops = {"warm": (draw(times), [])}
    ops |= {name: (draw(times), needs) for name, (_, needs) in plain.ops.items()}
    needs = st.lists(st.sampled_from([*plain.recvs, *ops]), max_size=2, unique=True)
    sends = {name: (draw(times), draw(needs)) for name in plain.recvs}
    return Graph({name: draw(times) for name in plain.recvs}, ops, sends)


def walked(graph, order):
    """Makespan with pushes: at each moment the graph's first ready operation runs."""
    ends = itertools.accumulate(graph.recvs[name] for name in order)
    known = dict(zip(order, ends, strict=True))
    now = 0.0
    for _ in graph.ops:
        left = {
            op: max([0.0, *(known[n] for n in needs)])
            for op, (_, needs) in graph.ops.items()
            if op not in known and all(n in known for n in needs)
        }
        now = max(now, min(left.values()))
        op = next(op for op, ready in left.items() if ready <= now)
        now += graph.ops[op][0]
        known[op] = now
    pushed = 0.0
    queue = [
        (max([0.0, *(known[n] for n in needs)]), t) for t, needs in graph.sends.values()
    ]
    for ready, seconds in sorted(queue):
        pushed = max(pushed, ready) + seconds
    return max([pushed, *known.values()])


@settings(derandomize=True, deadline=None, max_examples=150)
@given(graphs_with_pushes(), st.randoms(use_true_random=False))
def test_makespan_with_pushes_is_what_walking_over_time_gives(graph, rng):
    order = list(graph.recvs)
    rng.shuffle(order)
    assert makespan(graph, order) == walked(graph, order)
    assert lower_bound(graph) <= walked(graph, order) <= bounds(graph).upper


def test_pushes_alone():
    assert makespan(Graph({}, {}, {"g": (0.5, []), "h": (0.25, [])}), []) == 0.75
