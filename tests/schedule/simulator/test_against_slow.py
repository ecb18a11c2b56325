"""The simulator against one that a person can check by eye, on random graphs.

All times are sums of powers of two, so that equal instants are equal floats, and every
span must be the same one: ties are part of the rule.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax.schedule import (
    Cluster,
    Cost,
    Graph,
    Link,
    Policy,
    Workers,
    makespan,
    mg_wfbp,
    ordered,
    simulate,
)
from tests.schedule.slow_simulator import SlowSimulator

HALVES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@st.composite
def graphs(draw, latency):
    """Pulls that nobody needs, free transfers, pushes of their own sizes."""
    seconds = st.sampled_from(
        [0.0, latency / 2, *(latency + t for t in (0, 0.5, 1, 2, 4, 8))]
    )
    recvs = {f"r{i}": draw(seconds) for i in draw(st.permutations(range(4)))}
    recvs = dict(list(recvs.items())[: draw(st.integers(1, 4))])
    ops = {}
    for i in range(draw(st.integers(1, 6))):
        pool = st.sampled_from([*recvs, *ops])
        ops[f"o{i}"] = draw(HALVES), draw(st.lists(pool, unique=True, max_size=3))
    pushed = draw(st.lists(st.sampled_from([*recvs, "other"]), unique=True))
    needs = st.lists(st.sampled_from(list(ops)), unique=True, min_size=1, max_size=2)
    sends = {name: (draw(seconds), draw(needs)) for name in pushed}
    known = draw(st.lists(st.sampled_from([*recvs]), unique=True))
    nbytes = {name: draw(st.sampled_from([0, 1, 2, 4, 8])) for name in known}
    return Graph(recvs, ops, sends, nbytes)


@st.composite
def runs(draw):
    """A graph, a policy, a cluster and a number of steps."""
    latency = draw(st.sampled_from([0.0, 0.25, 1.0]))
    link = st.builds(
        Link,
        st.sampled_from([0.0, latency]),
        st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        st.sampled_from([None, None, 1.0]),
    )
    first = Link(latency, 1.0)
    graph = draw(graphs(latency))
    policy = Policy(
        "",
        draw(st.sampled_from(["fifo", "priority"])),
        tuple(draw(st.permutations(list(graph.recvs)))),
        push_queue=draw(st.sampled_from(["fifo", "priority"])),
        partition_bytes=draw(st.sampled_from([None, None, 1, 2, 4])),
        credit_bytes=draw(st.sampled_from([None, None, 1, 2, 8])),
        barrier=draw(st.booleans()),
    )
    speed = st.sampled_from([0.5, 1.0, 2.0])
    more = st.builds(Workers, st.integers(1, 2), link, speed)
    cluster = Cluster(
        [Workers(draw(st.integers(1, 3)), first), *draw(st.lists(more, max_size=1))],
        servers=draw(st.integers(1, 3)),
        link=first,
        server_link=draw(st.one_of(st.none(), link)),
        segment_bytes=draw(st.sampled_from([1e9, 1e9, 1.0, 2.0])),
    )
    return graph, policy, cluster, draw(st.integers(1, 3))


def check(run):
    graph, policy, cluster, steps = run
    slow = SlowSimulator(graph, policy, cluster, steps)
    seconds = slow.run()
    fast = simulate(graph, policy, cluster, steps=steps)
    assert sorted(span[:4] for span in fast.spans) == sorted(slow.spans)
    assert fast.seconds == seconds


@pytest.mark.long
@settings(derandomize=True, deadline=None, max_examples=60)
@given(runs())
def test_every_span_is_that_of_the_slow_simulator(run):
    check(run)


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(runs())
def test_every_span_of_many_more(run):
    check(run)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(graphs(latency=0.25), st.randoms(use_true_random=False))
def test_transfers_take_the_seconds_that_the_graph_says(graph, rng):
    """Whatever the latency of the link, on one worker: pulls and pushes."""
    graph = Graph(graph.recvs, graph.ops, graph.sends)
    order = rng.sample([*graph.recvs], len(graph.recvs))
    cluster = Cluster(link=Link(0.25, 2.0))
    run = simulate(graph, ordered("", order), cluster)
    assert run.busy("server 0 out") == sum(graph.recvs.values())
    assert run.busy("worker 0 out") == sum(t for t, _ in graph.sends.values())
    assert run.seconds == run.step_times()[0][0] == makespan(graph, order)


def test_a_collective_takes_the_bytes_of_the_push():
    """Not those of the pull of the same name."""
    graph = Graph(
        recvs={"a": 1.0, "b": 1.0},
        ops={"oa": (1.0, ["a"]), "ob": (1.0, ["b"])},
        sends={"a": (8.0, ["oa"]), "b": (4.0, ["ob"])},
    )
    link = Link(latency=1.0, bandwidth=2.0)
    merged = mg_wfbp(graph, lambda nbytes: Cost(1, nbytes), link)
    assert merged.buckets == (("a",), ("b",))  # a occupies the network from 1 to 9
    run = simulate(graph, merged, Cluster(2, link=link))
    sent = [(s.start, s.end) for s in run.spans if s.track == "network"]
    assert sent == [(1.0, 9.0), (9.0, 13.0)]


def test_a_slow_sender_does_not_hold_its_receiver():
    """A long push over a slow link leaves the server's link to a short one."""
    graph = Graph({}, {"o": (1.0, [])}, {"w": (100.0, ["o"])}, {"w": 1})
    server = Link(0.0, 8.0)
    workers = [Workers(1, Link(0.0, 0.01)), Workers(1, Link(0.0, 1.0))]
    run = simulate(graph, Policy(""), Cluster(workers, server_link=server))
    received = {s.worker: s.end for s in run.spans if s.track == "server 0 in"}
    assert received == {0: 101.0, 1: 2.0}
