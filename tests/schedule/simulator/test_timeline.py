"""Traces and charts."""

import json
import sys

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax.schedule import (
    Cluster,
    Cost,
    Graph,
    Link,
    Policy,
    Span,
    Stragglers,
    Timeline,
    byte_scheduler,
    dear,
    ordered,
    p3,
    random_graph,
    record,
    simulate,
    tac,
    unordered,
)
from relaxjax.schedule.simulator import _record as record_module

GRAPH = random_graph("chain", recvs=4)
UNIT = Link(latency=0.0, bandwidth=1.0)


@pytest.fixture
def run():
    return simulate(GRAPH, ordered("tac", tac(GRAPH)), Cluster(2, 2, UNIT), steps=2)


def test_chrome_trace_obeys_the_format(run, tmp_path):
    path = tmp_path / "trace.json"
    run.save(path)
    trace = json.loads(path.read_text())
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    named = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    threads = {e["tid"]: e["args"]["name"] for e in named if e["name"] == "thread_name"}
    assert set(threads.values()) == set(run.tracks)
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    flows = [e for e in trace["traceEvents"] if e["ph"] in "sf"]
    assert len(events) + len(named) + len(flows) == len(trace["traceEvents"])
    assert len(events) == len(run.spans)
    for event in events:
        assert event["tid"] in threads
        assert event["pid"] == 1
        assert event["dur"] >= 0
        assert event["ts"] >= 0
        assert isinstance(event["name"], str)
    times = [e["ts"] for e in events]
    assert times == sorted(times)
    sorting = [e for e in named if e["name"] == "thread_sort_index"]
    assert {e["tid"] for e in sorting} == set(threads)
    assert [e["args"]["sort_index"] for e in sorting] == list(threads)
    assert list(threads.values()) == sorted(threads.values())


@pytest.mark.parametrize("policy", ["unordered", "p3", "byte_scheduler", "dear"])
def test_spans_in_a_row_do_not_overlap_in_the_trace(policy, tmp_path):
    """In whole nanoseconds, with times that are not round numbers."""
    graph = Graph(
        GRAPH.recvs,
        GRAPH.ops,
        {name: (t, ["o3"]) for name, t in GRAPH.recvs.items()},
        nbytes={name: round(1e6 * t) for name, t in GRAPH.recvs.items()},
    )
    graph = graph.scaled(ops=1e-3 / 3)
    policies = {
        "unordered": unordered(),
        "p3": p3(graph),
        "byte_scheduler": byte_scheduler(graph),
        "dear": dear(graph, lambda n: Cost(6, n)),
    }
    cluster = Cluster(3, 2, stragglers=Stragglers(jitter=0.1))
    path = tmp_path / "trace.json"
    simulate(graph, policies[policy], cluster, steps=3).save(path)
    events = json.loads(path.read_text())["traceEvents"]
    reached = {}
    for event in (e for e in events if e["ph"] == "X"):
        begin = round(event["ts"] * 1000)
        assert begin >= reached.get(event["tid"], 0)
        assert abs(event["ts"] * 1000 - begin) < 1e-3
        reached[event["tid"]] = begin + round(event["dur"] * 1000)


def test_chrome_trace_carries_bytes_and_order(run, tmp_path):
    path = tmp_path / "trace.json"
    run.save(path)
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    pulls = [e for e in events if e["tid"] == tracks["worker 1 in"] and e["ph"] == "X"]
    assert [e["args"]["order"] for e in pulls] == [0, 1, 2, 3] * 2
    assert [e["args"]["step"] for e in pulls] == [0] * 4 + [1] * 4
    for event in pulls:
        assert event["args"]["bytes"] == GRAPH.recvs[event["name"]]
        assert event["cat"] == "transfer"
        assert event["dur"] == pytest.approx(1e6 * GRAPH.recvs[event["name"]])


def test_each_message_is_a_flow_from_its_sender_to_its_receiver(run, tmp_path):
    path = tmp_path / "trace.json"
    other = simulate(GRAPH, Policy("other"), Cluster(3, link=UNIT))
    run.save(path, beside=[other])
    events = json.loads(path.read_text())["traceEvents"]
    named = [e for e in events if e["name"] == "thread_name"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in named}
    flows = {}
    for e in events:
        if e["ph"] in ("s", "f"):
            flows.setdefault(e["id"], []).append(e)
    received = [s for r in (run, other) for s in r.spans if s.track.endswith(" in")]
    assert len(flows) == len(received) > 0
    for begin, end in flows.values():
        assert (begin["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert begin["name"] == end["name"]
        assert begin["ts"] <= end["ts"]
        assert tracks[begin["pid"], begin["tid"]].endswith(" out")
        assert tracks[end["pid"], end["tid"]].endswith(" in")
    ends = sorted((e["pid"], e["tid"], e["ts"]) for _, e in flows.values())
    assert len(set(ends)) == len(ends)


def test_png(run, tmp_path):
    path = tmp_path / "timeline.png"
    run.save_png(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_png_without_matplotlib_names_the_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "relaxjax\[cli\]"'):
        run.save_png(tmp_path / "timeline.png")


def test_two_timelines_lie_side_by_side(run, tmp_path):
    path = tmp_path / "both.json"
    other = simulate(GRAPH, Policy("other"), Cluster(1, link=UNIT))
    run.save(path, beside=[other])
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "tac", 2: "other"}
    spans = [e for e in events if e["ph"] == "X" and e["pid"] == 2]
    assert len(spans) == len(other.spans)


def test_recorded_steps_bear_the_names_of_scopes():
    def step(x, w):
        with jax.named_scope("bucket0"):
            x = x @ w
        with jax.named_scope("gossip"):
            return jnp.tanh(x) @ w

    run = record(step, jnp.ones((64, 64)), jnp.ones((64, 64)), steps=2, name="real")
    assert run.name == "real"
    assert {span.step for span in run.spans} == {0, 1}
    assert {t[:16] for t in run.tracks} == {"worker 0 compute"}
    assert any(span.name.startswith("bucket0/") for span in run.spans)
    assert any(span.name.startswith("gossip/") for span in run.spans)
    assert all(0 <= s.start <= s.end <= run.seconds for s in run.spans)
    assert [len(step) for step in run.step_times()] == [1, 1]


def test_what_runs_at_once_lies_on_further_tracks():
    spans = [
        Span("worker 0 compute", "a", 0.0, 4.0, 0, 0, 0),
        Span("worker 0 compute", "b", 1.0, 2.0, 0, 0, 0),
        Span("worker 0 compute", "c", 3.0, 6.0, 0, 0, 0),
        Span("worker 0 compute", "d", 8.0, 9.0, 0, 0, 0),
        Span("worker 0 network", "e", 1.0, 10.0, 8, 0, 0),
        Span("worker 00 compute", "f", 0.0, 10.0, 8, 0, 0),
    ]
    placed = record_module._in_lanes(spans)
    lanes = {s.name: s.track.removeprefix("worker 0 ") for s in placed[:5]}
    assert lanes == {
        "a": "compute", "b": "compute 2", "c": "compute 2", "d": "compute",
        "e": "network",
    }  # fmt: skip
    run = Timeline("", placed, record_module._clock(placed))
    assert run.exposed(0) == 10 - 7
    assert run.utilization()["worker 0 compute"] == 0.5
    overlapping = Timeline("", spans, record_module._clock(spans))
    assert overlapping.busy("worker 0 compute") == 7


@pytest.mark.parametrize(
    "reducer",
    [relaxjax.all_reduce("data"), relaxjax.power_sgd("data", rank=1, start_after=50)],
    ids=["all_reduce", "in a warm-up"],
)
def test_a_recorded_data_parallel_step(reducer):
    """The program of the metrics, which runs beside it, is left out."""
    mesh = jax.make_mesh((2,), ("data",))
    tx = optax.chain(reducer, optax.sgd(0.1))

    def train_step(w, opt_state, batch):
        loss, grad = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(w)
        updates, opt_state = tx.update(grad, opt_state, w)
        return optax.apply_updates(w, updates), opt_state, {"loss": loss}

    w, opt_state = relaxjax.init(tx, jnp.ones((32, 8)), mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    run = record(step, w, opt_state, jnp.ones((4, 32)), steps=2)
    assert run.clock.workers == 2
    assert len(run.step_times()) == 2
    sent = [s for s in run.spans if "network" in s.track]
    assert {s.worker for s in sent} == {0, 1}
    assert {s.nbytes for s in sent} == {32 * 8 * 4}
    assert 0 <= run.exposed(0) <= run.seconds


def test_recorded_collectives_have_tracks_and_bytes():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def reduce(x):
        with jax.named_scope("bucket1"):
            return jax.lax.psum(x, "data")

    spec = jax.sharding.PartitionSpec("data")
    step = jax.jit(
        jax.shard_map(reduce, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    )
    run = record(step, jnp.ones((2, 1000)), steps=1)
    sent = [s for s in run.spans if s.track.endswith("network")]
    assert {s.track for s in sent} == {"worker 0 network", "worker 1 network"}
    assert {s.nbytes for s in sent} == {4000}
    assert all("bucket1" in s.name for s in sent)


def test_nothing_recorded_is_an_error(monkeypatch):
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        record(lambda x: x, jnp.ones(3), steps=0)
    monkeypatch.setattr(record_module, "_read_events", lambda folder: [])
    with pytest.raises(RuntimeError, match="the profiler saw no operation"):
        record(lambda x: x, jnp.ones(3), steps=1)
