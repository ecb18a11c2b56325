"""The simulator: laws, runs worked by hand, and agreement of its two modes."""

import itertools
import math
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax.schedule import (
    Cluster,
    Cost,
    Graph,
    Link,
    Policy,
    Stragglers,
    Workers,
    bounds,
    byte_scheduler,
    condensed,
    dear,
    makespan,
    mg_wfbp,
    ordered,
    p3,
    random_graph,
    random_order,
    simulate,
    tac,
    unordered,
    wait_free,
)
from relaxjax.schedule.simulator import _steps as steps_module
from relaxjax.schedule.simulator._cluster import _binomial

UNIT = Link(latency=0.0, bandwidth=1.0)
ONE = Cluster(link=UNIT)
laws = settings(derandomize=True, deadline=None, max_examples=50)


@st.composite
def graphs(draw):
    family = draw(st.sampled_from(["random", "towers", "pairs", "chain"]))
    return random_graph(
        family, recvs=draw(st.integers(2, 7)), seed=draw(st.integers(0))
    )


def trained(graph):
    """A chain of backward operations after the graph's, each with a push."""
    ops, last = dict(graph.ops), next(reversed(graph.ops))
    sends = {}
    for i, name in enumerate(reversed(graph.recvs)):
        ops[f"back {i}"] = (float(i + 1), [last])
        last = f"back {i}"
        sends[name] = (graph.recvs[name], [last])
    return Graph(recvs=graph.recvs, ops=ops, sends=sends)


@laws
@given(graphs(), st.integers(0, 99))
def test_one_worker_takes_its_makespan(graph, seed):
    order = random_order(graph, seed=seed)
    for g in (graph, trained(graph)):
        assert simulate(g, ordered("", order), ONE).seconds == makespan(g, order)


@laws
@given(graphs(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_work_is_conserved_and_tracks_serve_one_at_a_time(
    graph, workers, servers, seed
):
    graph = trained(graph)
    cluster = Cluster(workers=workers, servers=servers, link=UNIT)
    run = simulate(graph, unordered(), cluster, steps=2, seed=seed)
    for w in range(workers):
        assert run.busy(f"worker {w} compute") == pytest.approx(2 * graph.computation)
        assert run.busy(f"worker {w} in") == pytest.approx(2 * graph.communication)
        assert run.busy(f"worker {w} out") == pytest.approx(2 * graph.communication)
    for way in ("in", "out"):
        total = sum(run.busy(f"server {s} {way}") for s in range(servers))
        assert total == pytest.approx(2 * workers * graph.communication)
    for track in run.tracks:
        spans = sorted((s.start, s.end) for s in run.spans if s.track == track)
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(spans))
    lower, upper = bounds(graph)
    assert 2 * lower <= run.seconds <= 2 * workers * upper
    assert all(0 < u <= 1 + 1e-9 for u in run.utilization().values())


@laws
@given(graphs(), st.integers(0, 99))
def test_condensing_changes_no_makespan(graph, seed):
    order = random_order(graph, seed=seed)
    small = condensed(graph)
    assert makespan(small, order) == makespan(graph, order)
    assert len(small.ops) <= len(graph.ops)
    row = condensed(trained(random_graph("chain", recvs=5, seed=seed)))
    long = trained(random_graph("chain", recvs=5, seed=seed))
    assert makespan(row, random_order(row)) == makespan(long, random_order(long))
    both = condensed(trained(graph))
    assert both.computation == trained(graph).computation
    assert {n: len(m) for n, (_, m) in both.sends.items()} == dict.fromkeys(
        both.sends, 1
    )


def test_same_seed_same_timeline():
    graph = trained(random_graph("chain", recvs=6))
    cluster = Cluster(3, 2, UNIT, stragglers=Stragglers(jitter=0.3))
    runs = [simulate(graph, unordered(), cluster, steps=3, seed=s) for s in (5, 5, 6)]
    assert runs[0].spans == runs[1].spans
    assert runs[0].spans != runs[2].spans


def test_every_worker_receives_in_the_order_and_random_ones_differ():
    graph = random_graph("chain", recvs=8)
    cluster = Cluster(workers=4, link=UNIT)
    run = simulate(graph, ordered("tac", tac(graph)), cluster, steps=2)
    for worker, step in itertools.product(range(4), range(2)):
        assert run.transfers(worker, step) == tac(graph)
    run = simulate(graph, unordered(), cluster, steps=2)
    seen = {tuple(run.transfers(w, s)) for w in range(4) for s in range(2)}
    assert len(seen) == 8


def test_each_server_keeps_the_order_among_its_own():
    graph = random_graph("chain", recvs=9)
    run = simulate(graph, ordered("tac", tac(graph)), Cluster(2, 3, UNIT))
    for server in range(3):
        sent = [s.name for s in run.spans if s.track == f"server {server} out"]
        ranks = [tac(graph).index(name) for name in sent]
        assert len(ranks) > 1
        assert ranks == sorted(ranks)


LAYERS = Graph(
    recvs={"w1": 2, "w2": 4},
    ops={
        "f1": (1, ["w1"]),
        "f2": (1, ["f1", "w2"]),
        "b2": (1, ["f2"]),
        "b1": (1, ["b2"]),
    },
    sends={"w2": (4, ["b2"]), "w1": (2, ["b1"])},
)


def ends(run, track):
    return {s.name: s.end for s in run.spans if s.track == track}


def test_a_step_by_hand():
    run = simulate(LAYERS, ordered("", ["w1", "w2"]), ONE)
    # pulls 0-2, 2-6; f1 2-3, f2 6-7, b2 7-8, b1 8-9; pushes w2 8-12, w1 12-14.
    assert ends(run, "worker 0 in") == {"w1": 2, "w2": 6}
    assert ends(run, "worker 0 compute") == {"f1": 3, "f2": 7, "b2": 8, "b1": 9}
    assert ends(run, "worker 0 out") == {"push w2": 12, "push w1": 14}
    assert run.seconds == 14
    assert run.exposed(0) == 10


def test_two_workers_share_a_server_and_not_their_links():
    run = simulate(LAYERS, ordered("", ["w1", "w2"]), Cluster(2, link=UNIT))
    # w1 to both: 0-2, 2-4; w2 to both: 4-8, 8-12; the second computes from 12.
    assert ends(run, "worker 0 in") == {"w1": 2, "w2": 8}
    assert ends(run, "worker 1 in") == {"w1": 4, "w2": 12}
    fast = Cluster(2, link=UNIT, server_link=Link(latency=0.0, bandwidth=2.0))
    run = simulate(LAYERS, ordered("", ["w1", "w2"]), fast)
    # The server sends w1 0-1, 1-2 and w2 2-4, 4-6; links take 2 and 4 from there.
    assert ends(run, "worker 0 in") == {"w1": 2, "w2": 6}
    assert ends(run, "worker 1 in") == {"w1": 3, "w2": 8}


def test_messages_of_two_servers_share_a_link():
    policy = ordered("", ["w1", "w2"])
    cluster = Cluster(1, 2, UNIT, segment_bytes=1.0)
    run = simulate(LAYERS, policy, cluster)
    got = [(s.name, s.start) for s in run.spans if s.track == "worker 0 in"]
    got.sort(key=lambda row: row[1])
    # w1 (2 bytes) and w2 (4) take turns until w1 is there at 3 or 4.
    assert {name for name, _ in got[:2]} == {name for name, _ in got[2:4]}
    assert [name for name, _ in got[4:]] == ["w2", "w2"]
    assert [start for _, start in got] == [0, 1, 2, 3, 4, 5]
    nbytes = [s.nbytes for s in run.spans if s.track == "worker 0 in"]
    assert nbytes == [1.0] * 6
    one = simulate(LAYERS, policy, Cluster(1, 1, UNIT, segment_bytes=1.0))
    assert one.seconds == simulate(LAYERS, policy, ONE).seconds


def test_workers_are_served_in_turns():
    graph = Graph(recvs={"w": 0}, ops={}, nbytes={"w": 6})
    link = Link(latency=0.5, bandwidth=1.0)
    run = simulate(graph, Policy(""), Cluster(2, 1, link, segment_bytes=2.0))
    sent = [s.worker for s in run.spans if s.track == "server 0 out"]
    assert sent == [0, 1, 0, 1, 0, 1]
    assert run.seconds == 2 * (0.5 + 6)  # one latency for each message, not segment


def test_without_an_order_workers_share_a_server_fairly():
    graph = Graph(recvs={"a": 0, "b": 0}, ops={}, nbytes={"a": 30, "b": 30})
    cluster = Cluster(2, 1, UNIT, segment_bytes=1.0)
    run = simulate(graph, unordered(), cluster, seed=1)
    sent = [s.worker for s in run.spans if s.track == "server 0 out"]
    assert all(sorted(sent[i : i + 2]) == [0, 1] for i in range(0, 120, 2))


def test_two_servers_send_at_once():
    run = simulate(LAYERS, ordered("", ["w1", "w2"]), Cluster(1, 2, UNIT))
    assert ends(run, "server 0 out") == {"w2": 4}
    assert ends(run, "server 1 out") == {"w1": 2}
    # One link into the worker: both start at 0, w1 was placed first in line by name.
    assert sum(s.end - s.start for s in run.spans if s.track == "worker 0 in") == 6
    assert run.transfers() in (["w1", "w2"], ["w2", "w1"])


def test_slices_let_a_later_layer_be_overtaken():
    """Push of the large w2 is cut into four; w1 slips in after the second."""
    policy = Policy(
        "", queue="priority", order=("w1", "w2"), push_queue="priority",
        partition_bytes=1,
    )  # fmt: skip
    run = simulate(LAYERS, policy, ONE)
    sent = [s.name for s in run.spans if s.track == "worker 0 out"]
    # b2 at 8, b1 at 9: one slice of w2, then both of w1, then the rest.
    assert sent == ["push w2", *["push w1"] * 2, *["push w2"] * 3]
    assert run.seconds == 14


def test_a_latency_for_each_slice():
    link = Link(latency=0.5, bandwidth=1.0)
    whole = Graph(recvs={"w": 0}, ops={}, nbytes={"w": 8})
    run = simulate(whole, Policy("", partition_bytes=2), Cluster(link=link))
    assert run.seconds == 8 + 4 * 0.5


def test_a_small_credit_costs_a_latency_per_slice_and_a_large_one_preemption():
    link = Link(latency=0.5, bandwidth=1.0)
    graph = Graph(recvs={"w": 0}, ops={}, nbytes={"w": 8})

    def seconds(credit):
        policy = Policy("", partition_bytes=2, credit_bytes=credit)
        return simulate(graph, policy, Cluster(link=link)).seconds

    # Back to back 4 * 2.5; one under way: half a second more between two slices.
    assert seconds(4) == 10.0
    assert seconds(2) == 10.0 + 3 * 0.5

    def when_w1_is_pushed(credit):
        policy = Policy(
            "", queue="priority", order=("w1", "w2"), push_queue="priority",
            partition_bytes=1, credit_bytes=credit,
        )  # fmt: skip
        return ends(simulate(LAYERS, policy, ONE), "worker 0 out")["push w1"]

    assert when_w1_is_pushed(1) == 11
    assert when_w1_is_pushed(100) == 14


def test_without_a_barrier_the_next_pull_follows_the_push():
    graph = LAYERS
    fifo = simulate(graph, Policy("fifo"), ONE, steps=2)
    overlapped = simulate(graph, Policy("", barrier=False), ONE, steps=2)
    assert fifo.seconds == 28
    pulls = [s for s in overlapped.spans if s.track == "worker 0 in" and s.step == 1]
    assert pulls[0].name == "w2"  # pushed first, at 12
    assert pulls[0].start == 12
    # w2 again 12-16, w1 14.. waits for the link until 16-18; f1 18-19, f2 19-20, b2 21,
    # b1 22; pushes w2 21-25, w1 25-27.
    assert overlapped.seconds == 27
    by_layer = simulate(graph, p3(graph, slice_bytes=1), ONE, steps=2)
    assert by_layer.seconds < overlapped.seconds


def ring(n):
    """Bytes and messages of one worker in a ring all-reduce."""
    return lambda nbytes: Cost(2 * (n - 1), 2 * (n - 1) * nbytes // n)


def test_wait_free_back_propagation_by_hand():
    graph = Graph(
        recvs=dict.fromkeys(["w1", "w2"], 0),
        ops={
            "f1": (1, ["w1"]),
            "f2": (1, ["f1", "w2"]),
            "b2": (2, ["f2"]),
            "b1": (2, ["b2"]),
        },
        sends={"w2": (0, ["b2"]), "w1": (0, ["b1"])},
        nbytes={"w1": 2, "w2": 4},
    )
    cluster = Cluster(2, link=Link(latency=0.25, bandwidth=2.0))
    run = simulate(graph, wait_free(graph, ring(2)), cluster, steps=2)
    # ring of 2: 2 messages, n bytes. w2: 0.5 + 2; w1: 0.5 + 1. f 0-2, b2 4, b1 6:
    # reduce w2 4-6.5, w1 6.5-8. Next f1 8-9, f2 10, b2 12, b1 14; w2 12-14.5, w1 16.
    network = [(s.start, s.end) for s in run.spans if s.track == "network"]
    assert network == [(4, 6.5), (6.5, 8), (12, 14.5), (14.5, 16)]
    split = simulate(graph, dear(graph, ring(2)), cluster, steps=2)
    # reduce-scatter w2 4-5.25, w1 6-6.75; all-gather w1 6.75-7.5, w2 7.5-8.75;
    # f1 7.5-8.5, f2 8.75-9.75.
    gathered = ends(split, "network")
    assert [s.name for s in split.spans if s.track == "network"][:4] == [
        "reduce w2", "reduce w1", "gather w1", "gather w2",
    ]  # fmt: skip
    assert gathered["gather w2"] > 8.75
    f2 = next(s for s in split.spans if s.name == "f2" and s.step == 1)
    assert (f2.start, f2.end) == (8.75, 9.75)
    together = mg_wfbp(graph, ring(2), Link(latency=2.0, bandwidth=2.0))
    assert together.buckets == (("w2", "w1"),)
    apart = mg_wfbp(graph, ring(2), cluster.link)
    assert apart.buckets == (("w2",), ("w1",))
    merged = simulate(graph, together, cluster)
    assert ends(merged, "network") == {"reduce w2 +1": 6 + 0.5 + 3}


def test_collectives_by_priority():
    """The urgent one overtakes those that wait."""
    graph = trained(random_graph("chain", recvs=4))
    order = tuple(graph.recvs)
    slow = Cluster(2, link=Link(latency=100.0, bandwidth=1.0))
    buckets = tuple((name,) for name in graph.sends)
    policy = Policy("", "priority", order, collective=ring(2), buckets=buckets)
    run = simulate(graph, policy, slow)
    sent = [s.name.split()[1] for s in run.spans if s.track == "network"]
    # The last layer's gradient is alone at first; then the first layer's goes.
    assert sent == ["r3", "r0", "r1", "r2"]


def test_local_steps_communicate_rarely():
    graph = trained(random_graph("chain", recvs=4))
    policy = Policy(
        "local",
        collective=ring(4),
        buckets=(tuple(graph.sends),),
        every=3,
    )
    run = simulate(graph, policy, Cluster(4, link=UNIT), steps=7)
    assert [s.step for s in run.spans if s.track == "network"] == [2, 5]


def test_a_codec_takes_its_time():
    graph = trained(random_graph("chain", recvs=2))

    def coded(nbytes):
        return Cost(1, nbytes // 4, codec_bytes=nbytes)

    cluster = Cluster(2, link=UNIT, codec_bandwidth=10.0)
    run = simulate(graph, wait_free(graph, coded), cluster)
    nbytes = round(sum(t for t in graph.recvs.values()))
    expected = sum(int(t) // 4 + int(t) / 10 for t in graph.recvs.values())
    assert run.busy("network") == pytest.approx(expected)
    assert nbytes > 0


def test_parameters_without_gradients_and_hand_made_barriers():
    """A frozen parameter is there again as soon as the worker begins its next step."""
    graph = Graph(
        recvs={"w": 1, "frozen": 1},
        ops={"f": (1, ["w", "frozen"])},
        sends={"w": (1, ["f"])},
    )
    for policy in (
        wait_free(graph, ring(2)),
        Policy("", collective=ring(2), buckets=(("w",),)),
        Policy("", barrier=False),
        Policy("fifo"),
    ):
        run = simulate(graph, policy, Cluster(2, link=UNIT), steps=3)
        assert run.busy("worker 1 compute") == 3
        assert len(run.step_times()) == 3


def test_slowest_and_fastest_are_order_statistics():
    noise = Stragglers(jitter=0.2, share=0.1, slowdown=2.0)
    rng = random.Random(0)
    n, draws = 20, 4000
    samples = [[noise.factor(rng) for _ in range(n)] for _ in range(draws)]
    for largest, drawn in ((max, noise.slowest), (min, noise.fastest)):
        one_by_one = sum(map(largest, samples)) / draws
        at_once = sum(drawn(n, rng) for _ in range(draws)) / draws
        assert at_once == pytest.approx(one_by_one, rel=0.01)


def test_numbers_of_slow_workers_at_every_scale():
    rng = random.Random(0)
    for n, p in ((50, 0.1), (100_000, 0.3)):
        mean = sum(_binomial(n, p, rng) for _ in range(4000)) / 4000
        assert mean == pytest.approx(n * p, rel=0.03)
    assert _binomial(7, 0.0, rng) == 0
    assert _binomial(7, 1.0, rng) == 7


AGREEING = trained(random_graph("chain", recvs=8, seed=4))
POLICIES = {
    "unordered": unordered(),
    "tac": ordered("tac", tac(AGREEING)),
    "fifo": Policy("fifo", barrier=False),
    "p3": p3(AGREEING, slice_bytes=2),
    "byte_scheduler": byte_scheduler(AGREEING, partition_bytes=4, credit_bytes=16),
    "wait_free": wait_free(AGREEING, ring(64)),
    "mg_wfbp": mg_wfbp(AGREEING, ring(64), UNIT),
    "dear": dear(AGREEING, ring(64)),
}
CLUSTERS = {
    "one class": Cluster(
        64, 4, UNIT, Link(0.0, 16.0), Stragglers(jitter=0.05, share=0.02, slowdown=1.5)
    ),
    "two classes": Cluster(
        [Workers(32, UNIT), Workers(32, UNIT, speed=0.8)],
        servers=4,
        server_link=Link(latency=0.0, bandwidth=16.0),
        stragglers=Stragglers(jitter=0.05),
    ),
    "slow servers": Cluster(64, 2, UNIT, Link(0.0, 4.0)),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("policy", "cluster"),
    [
        pytest.param(
            POLICIES[policy],
            CLUSTERS[cluster],
            id=f"{policy}-{cluster}",
            # One cluster for each policy, in turns; the others are slow.
            marks=[pytest.mark.slow] if (i + j) % len(CLUSTERS) else [],
        )
        for i, policy in enumerate(POLICIES)
        for j, cluster in enumerate(CLUSTERS)
    ],
)
def test_representatives_agree_with_every_worker_at_64(monkeypatch, policy, cluster):
    def mean(few):
        monkeypatch.setattr(steps_module, "REPRESENTED", 63 if few else 64)
        runs = [
            simulate(AGREEING, policy, cluster, steps=6, seed=seed) for seed in range(3)
        ]
        assert all(sum(run.weights) == 64 for run in runs)
        assert (len(runs[0].weights) == 64) is not few
        seconds = sum(run.seconds_per_step() for run in runs) / 3
        return seconds, sum(run.straggler_effect() for run in runs) / 3

    (every, spread), (few, few_spread) = mean(few=False), mean(few=True)
    assert few == pytest.approx(every, rel=0.05)
    assert few_spread == pytest.approx(spread, abs=0.08)


def test_a_hundred_thousand_identical_workers_are_twelve():
    graph = trained(random_graph("chain", recvs=5))
    run = simulate(graph, ordered("tac", tac(graph)), Cluster(100_000, 1_000, UNIT))
    assert sum(run.weights) == 100_000
    assert sorted(run.weights)[:5] == [1, 1, 1, 1, 12_499]
    assert len(run.weights) == 12
    assert run.busy("worker 0 in") == graph.communication
    alone = simulate(graph, wait_free(graph, ring(100_000)), Cluster(100_000))
    assert sum(alone.weights) == 100_000


def test_another_worker_is_the_slowest_in_every_step():
    graph = random_graph("chain", recvs=3)
    noise = Stragglers(jitter=0.5)
    cluster = Cluster(2000, 1, UNIT, None, noise)
    run = simulate(graph, ordered("", graph.recvs), cluster, steps=5)
    slowest, typical = [], set()
    for step in range(5):
        work = {
            w: sum(
                s.end - s.start
                for s in run.spans
                if s.track == f"worker {w} compute" and s.step == step
            )
            / graph.computation
            for w in range(len(run.weights))
        }
        slowest.append(max(work, key=work.__getitem__))
        assert max(work.values()) > 3  # about exp(0.5 * 3.3) = 5
        assert min(work.values()) < 1 / 3
        typical |= {round(work[w], 9) for w in work if run.weights[w] > 1}
    assert len(set(slowest[:4])) == 4
    assert slowest[4] == slowest[0]
    assert typical == {1.0}


def test_merging_counts_the_messages_before():
    """Unit messages: c waits behind b's message and takes the late d along."""
    ready = {"b": 1.0, "c": 2.5, "d": 5.0}
    graph = Graph(
        recvs={},
        ops={"ob": (1, []), "oc": (1.5, ["ob"]), "od": (2.5, ["oc"])},
        sends={name: (0, [f"o{name}"]) for name in ready},
        nbytes={"b": 6, "c": 0, "d": 0},
    )
    # b from 1 to 8 (latency 1, 6 bytes); c could start at 8 only, d is ready by then.
    policy = mg_wfbp(graph, lambda n: Cost(1, n), Link(latency=1.0, bandwidth=1.0))
    assert policy.buckets == (("b",), ("c", "d"))


def test_an_order_cuts_stragglers():
    graph = trained(random_graph("chain", recvs=12))
    cluster = Cluster(8, 1, UNIT, Link(latency=0.0, bandwidth=8.0), segment_bytes=1.0)
    loose = simulate(graph, unordered(), cluster, steps=10)
    tight = simulate(graph, ordered("tac", tac(graph)), cluster, steps=10)
    assert tight.straggler_effect() < loose.straggler_effect() / 2
    assert tight.seconds_per_step() < loose.seconds_per_step()


def test_speeds_stretch_computation():
    graph = random_graph("chain", recvs=3)
    cluster = Cluster([Workers(1, UNIT, speed=2.0), Workers(1, UNIT)])
    run = simulate(graph, ordered("", graph.recvs), cluster)
    assert run.busy("worker 0 compute") == graph.computation / 2
    slow = Cluster(link=UNIT, stragglers=Stragglers(share=1.0, slowdown=3.0))
    run = simulate(graph, ordered("", graph.recvs), slow)
    assert run.busy("worker 0 compute") == graph.computation * 3


GRAPH = random_graph("chain", recvs=2)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate(GRAPH, steps=0), "steps must be at least 1, got 0"),
        (lambda: simulate(GRAPH, ordered("", ["r0"])), "it misses ['r1']"),
        (
            lambda: simulate(trained(GRAPH), Policy("", collective=ring(2))),
            "it misses ['r1', 'r0']",
        ),
        (
            lambda: simulate(GRAPH, Policy("x", every=2, phases=2)),
            "policy 'x' is for parameter servers, which ignore ['phases', 'every']: "
            "leave them out, or give collective=",
        ),
        (
            lambda: simulate(GRAPH, Policy("", credit_bytes=1, collective=ring(2))),
            "is for collectives, which ignore ['credit_bytes']",
        ),
        (lambda: Policy("", queue="lifo"), "queue must be one of"),
        (lambda: Policy("", push_queue="random"), "push_queue must be one of"),
        (lambda: Policy("", partition_bytes=0), "partition_bytes must be at least 1"),
        (
            lambda: Policy("", credit_bytes=-1),
            "credit_bytes must be at least 1 and finite, got -1",
        ),
        (lambda: Policy("", phases=3), "phases must be 1 or 2, got 3"),
        (lambda: Cluster(0), "workers must be at least 1, got 0"),
        (lambda: Workers(0), "count must be at least 1, got 0: leave out classes"),
        (lambda: Cluster([]), "workers must hold at least one class"),
        (lambda: Cluster(1, 0), "servers must be at least 1, got 0"),
        (lambda: Workers(1, speed=0), "speed must be > 0"),
        (lambda: Cluster(segment_bytes=0), "segment_bytes must be > 0 bytes, got 0"),
        (lambda: Stragglers(share=2), "share must lie in [0, 1], got 2"),
        (
            lambda: Stragglers(slowdown=0.5),
            "slowdown must be at least 1 and finite, got 0.5",
        ),
        (lambda: Stragglers(jitter=-1), "jitter must be finite and >= 0"),
        (lambda: Stragglers(slowdown=math.nan), "finite, got nan"),
        (lambda: Cost(-1, 0), "messages must be at least 0 and finite, got -1"),
        (
            lambda: Cost(1, any_(math.nan)),
            "nbytes must be at least 0 and finite, got nan",
        ),
        (lambda: simulate(GRAPH).exposed(1), "worker must be one of 0 to 0, got 1"),
        (lambda: simulate(GRAPH).transfers(1), "worker must be one of 0 to 0, got 1"),
        (
            lambda: simulate(GRAPH).transfers(0, 5),
            "step must be one of 0 to 0, got 5",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def any_(value) -> Any:
    """A value of a kind that the type checker would refuse."""
    return value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: simulate(GRAPH, any_(tac(GRAPH))),
            "policy must be of type Policy, got ['r0', 'r1']: wrap a list of names as "
            'ordered("tac", tac(graph))',
        ),
        (
            lambda: simulate(GRAPH, unordered(), any_(4)),
            "cluster must be of type Cluster, got 4",
        ),
        (
            lambda: simulate(GRAPH, steps=any_(1.5)),
            "steps must be a whole number, got 1.5",
        ),
        (lambda: Cluster(any_(2.5)), "workers must be a whole number, got 2.5"),
        (lambda: Cluster(any_(True)), "workers must be a whole number, got True"),
        (lambda: Cluster(any_("8")), "workers must be a whole number, got '8'"),
        (lambda: Cluster(any_([8])), "workers must be of type Workers, got 8"),
        (lambda: Cluster(2, any_(1.5)), "servers must be a whole number, got 1.5"),
        (
            lambda: Cluster(2, link=any_(5)),
            "link must be of type Link, got 5: give Link(latency=..., bandwidth=...)",
        ),
        (
            lambda: Cluster(2, server_link=any_("10G")),
            "server_link must be of type Link",
        ),
        (
            lambda: Cluster(2, stragglers=any_(0.1)),
            "stragglers must be of type Stragglers",
        ),
        (lambda: Workers(any_(2.5)), "count must be a whole number, got 2.5"),
        (lambda: Policy("", every=any_(1.5)), "every must be a whole number, got 1.5"),
        (lambda: Policy("", credit_bytes=any_("4M")), "credit_bytes must be a number"),
        (lambda: Cost(1, any_("4M")), "nbytes must be a number, got '4M'"),
        (
            lambda: simulate(trained(GRAPH), wait_free(trained(GRAPH), any_(round))),
            "collective(nbytes) must be of type Cost, got",
        ),
    ],
)
def test_bad_kinds(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()


def test_byte_scheduler_beats_fifo_on_a_large_first_layer_push():
    """Its point: the first layer's small transfers need not wait for a large one."""
    graph = Graph(
        recvs={"w1": 1, "w2": 20},
        ops={
            "f1": (10, ["w1"]),
            "f2": (1, ["f1", "w2"]),
            "b2": (1, ["f2"]),
            "b1": (1, ["b2"]),
        },
        sends={"w2": (20, ["b2"]), "w1": (1, ["b1"])},
    )
    fifo = simulate(graph, Policy("fifo", barrier=False), ONE, steps=4)
    scheduled = byte_scheduler(graph, partition_bytes=1, credit_bytes=2)
    assert simulate(graph, scheduled, ONE, steps=4).seconds < 0.9 * fifo.seconds


def test_a_credit_is_each_workers_own():
    """Two workers on a server twice as fast see what one alone would see."""
    graph = Graph(recvs={"w": 0}, ops={}, nbytes={"w": 8})
    link = Link(latency=0.5, bandwidth=1.0)
    policy = Policy("", partition_bytes=2, credit_bytes=4)
    fast = Link(latency=0.0, bandwidth=1e9)

    def seconds(workers):
        return simulate(graph, policy, Cluster(workers, 1, link, fast)).seconds

    # 4 slices of 0.5 + 2 seconds, all of them back to back on the worker's own link.
    assert seconds(1) == pytest.approx(10.0)
    assert seconds(2) == pytest.approx(10.0)
    assert seconds(16) == pytest.approx(10.0)


@laws
@given(
    graphs(),
    st.sampled_from(["unordered", "fifo", "p3", "byte_scheduler"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1.0, 3.0, 2e6]),
)
def test_every_server_policy_conserves_work_and_bytes(
    graph, name, workers, servers, segment
):
    graph = trained(graph)
    policy = {
        "unordered": unordered(),
        "fifo": Policy("fifo", barrier=False),
        "p3": p3(graph, slice_bytes=4),
        "byte_scheduler": byte_scheduler(graph, partition_bytes=4, credit_bytes=6),
    }[name]
    cluster = Cluster(workers, servers, UNIT, segment_bytes=segment)
    run = simulate(graph, policy, cluster, steps=3)
    moved = 3 * graph.communication
    for w in range(workers):
        assert run.busy(f"worker {w} compute") == pytest.approx(3 * graph.computation)
        for way in ("in", "out"):
            own = [s.nbytes for s in run.spans if s.track == f"worker {w} {way}"]
            assert sum(own) == pytest.approx(moved)
    for way in ("in", "out"):
        track = f" {way}"
        served = [
            s.nbytes
            for s in run.spans
            if s.track.startswith("server") and s.track.endswith(track)
        ]
        assert sum(served) == pytest.approx(workers * moved)
    lower, upper = bounds(graph)
    assert lower <= run.seconds <= 3 * workers * upper * (1 + 1e-9)
    assert all(0 < u <= 1 + 1e-9 for u in run.utilization().values())


@laws
@given(graphs(), st.sampled_from(["wait_free", "mg_wfbp", "dear"]), st.integers(2, 4))
def test_every_collective_policy_conserves_work_and_bytes(graph, name, workers):
    graph = trained(graph)
    policy = {
        "wait_free": wait_free(graph, ring(workers)),
        "mg_wfbp": mg_wfbp(graph, ring(workers), UNIT),
        "dear": dear(graph, ring(workers)),
    }[name]
    run = simulate(graph, policy, Cluster(workers, link=UNIT), steps=3)
    for w in range(workers):
        assert run.busy(f"worker {w} compute") == pytest.approx(3 * graph.computation)
    sent = [s.nbytes for s in run.spans if s.track == "network"]
    assert sum(sent) == pytest.approx(3 * graph.communication)
    spans = sorted((s.start, s.end) for s in run.spans if s.track == "network")
    assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(spans))
    assert 3 * graph.computation <= run.seconds * (1 + 1e-9)
