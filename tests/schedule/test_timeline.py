"""Traces and charts."""

import json
import sys

import pytest

from relaxjax.schedule import (
    Cluster,
    Link,
    ordered,
    random_graph,
    simulate,
    tac,
)

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
    assert len(events) + len(named) == len(trace["traceEvents"])
    assert len(events) == len(run.spans)
    for event in events:
        assert event["tid"] in threads
        assert event["pid"] == 1
        assert event["dur"] >= 0
        assert event["ts"] >= 0
        assert isinstance(event["name"], str)
    times = [e["ts"] for e in events]
    assert times == sorted(times)


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


def test_png(run, tmp_path):
    path = tmp_path / "timeline.png"
    run.save_png(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_png_without_matplotlib_names_the_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "relaxjax\[cli\]"'):
        run.save_png(tmp_path / "timeline.png")
