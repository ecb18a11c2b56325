"""Graphs small enough to check by hand."""

import math

import pytest

from relaxjax.schedule import (
    Graph,
    bounds,
    efficiency,
    makespan,
    optimum,
    priorities_tic,
    properties,
    speedup_potential,
    tac,
    tic,
)

INF = math.inf

FIGURE_1A = Graph(
    recvs={"recv1": 1, "recv2": 1},
    ops={"op1": (1, ["recv1"]), "op2": (1, ["op1", "recv2"])},
)
WEIGHTED = Graph(
    recvs={"recv1": 2, "recv2": 3},
    ops={"op1": (4, ["recv1"]), "op2": (1, ["op1", "recv2"])},
)
CHAIN = Graph(
    recvs={"r1": 1, "r2": 1, "r3": 1, "r4": 1},
    ops={
        "o1": (1, ["r1"]),
        "o2": (1, ["o1", "r2"]),
        "o3": (1, ["o2", "r3"]),
        "o4": (1, ["o3", "r4"]),
    },
)
JOIN = Graph(
    recvs={"A": 3, "B": 1, "C": 5},
    ops={
        "a": (2, ["A"]),
        "b": (4, ["B"]),
        "c": (4, ["C"]),
        "z": (0, ["a", "b", "c"]),
    },
)
TIES = Graph(
    recvs={"r0": 2, "r1": 6, "r2": 7, "r3": 1, "r4": 8},
    ops={f"c{i}": (t, [f"r{i}"]) for i, t in enumerate([3, 5, 5, 1, 9])},
)

# graph, P, M+, numbers of TIC, order of TAC, its makespan, worst, (U, L, S)
GOLDEN = {
    "figure 1a": (
        FIGURE_1A, [1, 0], [2, 2], [0, 0], "recv1 recv2", 3, 4, (4, 2, 1.0),
    ),
    "weighted": (
        WEIGHTED, [4, 0], [5, 5], [0, 0], "recv1 recv2", 7, 10, (10, 5, 1.0),
    ),
    "chain": (
        CHAIN, [1, 0, 0, 0], [2, 2, 3, 4], [0, 0, 2, 3], "r1 r2 r3 r4", 5, 8,
        (8, 4, 1.0),
    ),
    "join": (
        JOIN, [2, 4, 4], [9, 9, 9], [0, 0, 0], "B C A", 12, 16, (19, 10, 0.9),
    ),
    "ties": (
        TIES, [3, 5, 5, 1, 9], [INF] * 5, [0] * 5, "r0 r4 r1 r2 r3", 30, 34,
        (47, 24, 0.9583),
    ),
}  # fmt: skip

EFFICIENCY = {
    "figure 1a": 0.5,
    "weighted": 0.6,
    "chain": 0.75,
    "join": 0.7778,
    "ties": 0.7391,
}


@pytest.fixture(params=GOLDEN)
def case(request):
    return request.param, *GOLDEN[request.param]


def test_properties(case):
    _, graph, P, M_plus, *_ = case
    by_name = properties(graph)
    assert [by_name[name].P for name in graph.recvs] == P
    assert [by_name[name].M_plus for name in graph.recvs] == M_plus
    assert [by_name[name].M for name in graph.recvs] == list(graph.recvs.values())


def test_tic_numbers(case):
    _, graph, _, _, numbers, *_ = case
    assert list(priorities_tic(graph).values()) == numbers


def test_tac_order_and_makespan(case):
    name, graph, _, _, _, order, seconds, *_ = case
    assert tac(graph) == order.split()
    assert makespan(graph, tac(graph)) == seconds
    assert round(efficiency(graph, seconds), 4) == EFFICIENCY[name]


def test_optimum_and_worst(case, permutations_of):
    _, graph, _, _, _, _, seconds, worst, _ = case
    spans = [makespan(graph, order) for order in permutations_of(graph)]
    assert makespan(graph, optimum(graph)) == seconds == min(spans)
    assert max(spans) == worst


def test_bounds(case):
    *_, graph_bounds = case
    graph = case[1]
    lower, upper = bounds(graph)
    assert (upper, lower, round(speedup_potential(graph), 4)) == graph_bounds


def test_tic_on_a_join_takes_ties_by_name():
    assert tic(JOIN) == ["A", "B", "C"]
    assert makespan(JOIN, ["A", "B", "C"]) == 13


def test_the_published_sort_misses_the_minimum():
    assert tac(TIES, select="reference_sort") == ["r0", "r1", "r2", "r3", "r4"]
    assert makespan(TIES, ["r0", "r1", "r2", "r3", "r4"]) == 33
    assert round(efficiency(TIES, 33), 4) == 0.6087


def test_an_op_of_one_recv_puts_tic_last():
    graph = Graph(
        recvs={"alone": 1, "a": 1, "b": 1},
        ops={"x": (1, ["alone"]), "y": (1, ["a", "b"])},
    )
    assert tic(graph) == ["a", "b", "alone"]
    assert priorities_tic(graph) == {"alone": 2, "a": 0, "b": 0}
