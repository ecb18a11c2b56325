"""Every refusal, by its message."""

import math
import re

import pytest

from relaxjax.schedule import (
    Graph,
    best,
    efficiency,
    local_search,
    makespan,
    optimum,
    random_graph,
    tac,
)

OK = {"recvs": {"w": 1.0}, "ops": {"dot": (1.0, ["w"])}}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"ops": {"a": (1, ["b"]), "b": (1, ["a"])}},
            ValueError,
            "ops contain a cycle: a -> b -> a",
        ),
        ({"ops": {"a": (1, ["a"])}}, ValueError, "ops contain a cycle: a -> a"),
        (
            {"ops": {"tail": (1, ["b"]), "b": (1, ["c"]), "c": (1, ["b"])}},
            ValueError,
            "ops contain a cycle: b -> c -> b;",
        ),
        (
            {"ops": {"dot": (1, ["v", "w"])}},
            ValueError,
            "ops need names that are neither recvs nor ops: {'dot': ['v']}",
        ),
        (
            {"sends": {"g": (1, ["lost"])}},
            ValueError,
            "sends need names that are neither recvs nor ops: {'g': ['lost']}",
        ),
        ({"recvs": {"w": -1.0}}, ValueError, "recvs['w'] must be finite and >= 0"),
        ({"recvs": {"w": math.nan}}, ValueError, "recvs['w'] must be finite and >= 0"),
        ({"recvs": {"w": math.inf}}, ValueError, "must be finite and >= 0 seconds"),
        (
            {"recvs": {"w": None}},
            ValueError,
            "recvs['w'] has no time: give its seconds",
        ),
        ({"ops": {"dot": (None, ["w"])}}, ValueError, "ops['dot'] has no time"),
        ({"recvs": {"w": "1"}}, TypeError, "recvs['w'] must be a number of seconds"),
        ({"recvs": {"w": True}}, TypeError, "recvs['w'] must be a number of seconds"),
        ({"ops": {"dot": 1.0}}, TypeError, "ops['dot'] must be (seconds, needs)"),
        ({"ops": {"dot": (1.0, "w")}}, TypeError, "write ['w']"),
        (
            {"ops": {"w": (1.0, [])}},
            ValueError,
            "names must be unique, but recvs and ops share ['w']: rename the ops",
        ),
    ],
)
def test_graph(change, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Graph(**(OK | change))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["a"], "it misses ['b']"),
        (["a", "b", "a"], "it repeats ['a']"),
        (["a", "b", "c"], "it names unknown ['c']"),
    ],
)
def test_order(order, message):
    graph = Graph(recvs={"a": 1, "b": 1}, ops={})
    with pytest.raises(ValueError, match=re.escape(message)):
        makespan(graph, order)


def test_optimum_beyond_its_size_says_best():
    graph = random_graph("chain", recvs=21)
    with pytest.raises(
        ValueError, match=r"at most 20 recvs.*has 21; use best\(graph\)"
    ):
        optimum(graph)


def test_optimum_with_sends_says_best():
    graph = Graph(**OK, sends={"w": (1, ["dot"])})
    with pytest.raises(ValueError, match=r"has 1 sends; use best\(graph\)"):
        optimum(graph)


def test_select():
    with pytest.raises(ValueError, match=r"select must be one of .*'argmin'.*'fast'"):
        tac(Graph(**OK), select="fast")


def test_evaluations():
    with pytest.raises(ValueError, match="evaluations must be at least 1, got 0"):
        best(Graph(**OK), evaluations=0)


def test_local_search_needs_a_start():
    with pytest.raises(
        ValueError, match="starts must hold at least one order, got none"
    ):
        local_search(Graph(**OK), [])


def test_makespan_of_another_graph():
    with pytest.raises(ValueError, match=r"between L = 1\.0 and U = 2\.0 s, got 9"):
        efficiency(Graph(**OK), 9)


@pytest.mark.parametrize(
    ("family", "recvs", "message"),
    [("trees", 3, "family must be one of"), ("chain", 1, "recvs must be at least 2")],
)
def test_families(family, recvs, message):
    with pytest.raises(ValueError, match=message):
        random_graph(family, recvs=recvs)
