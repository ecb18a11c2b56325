"""Every refusal, by its message."""

import math
import re

import pytest

from relaxjax.schedule import (
    Graph,
    best,
    efficiency,
    gap,
    local_search,
    makespan,
    optimum,
    properties,
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
        (
            {"recvs": ["w"]},
            TypeError,
            "recvs must be of type Mapping, got ['w']: write {",
        ),
        ({"ops": None}, TypeError, "ops must be a dict by name, got None"),
        ({"recvs": {1: 2.0}}, TypeError, "recvs must have names as keys, got 1"),
        ({"recvs": {"": 2.0}}, TypeError, "recvs must have names as keys, got ''"),
        (
            {"ops": {"dot": (1, None)}},
            TypeError,
            "ops['dot'] needs a list of names, got None: write [] if it needs",
        ),
        ({"ops": {"dot": (1, [["w"]])}}, TypeError, "ops['dot'] needs names of recvs"),
        (
            {"nbytes": {"w": -5}},
            ValueError,
            "nbytes['w'] must be at least 0, got -5",
        ),
        (
            {"nbytes": {"v": 5}},
            ValueError,
            "nbytes names ['v'], which are neither recvs nor sends",
        ),
        ({"nbytes": {"w": 0.5}}, TypeError, "nbytes['w'] must be a whole number"),
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


@pytest.mark.parametrize("order", ["ab", None, 3])
def test_an_order_is_a_list(order):
    graph = Graph(recvs={"a": 1, "b": 1}, ops={})
    with pytest.raises(TypeError, match="order must be a list of recv names, got"):
        makespan(graph, order)


def test_names_of_nothing():
    with pytest.raises(ValueError, match="op must name an operation of the graph"):
        Graph(**OK).dep("w")
    with pytest.raises(ValueError, match=r"outstanding must name recvs.*\['dot'\]"):
        properties(Graph(**OK), outstanding=["dot"])


def test_gap_below_the_bound():
    with pytest.raises(ValueError, match=r"at least the bound 2\.0 s, got 1"):
        gap(Graph(**OK), 1)


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
