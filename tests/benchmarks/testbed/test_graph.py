"""Steps become graphs and timelines, of which the schedule predicts seconds."""

import numpy as np
import pytest

from benchmarks import testbed as host
from benchmarks.testbed.records import Event, Work
from relaxjax.schedule import Graph, Link, makespan
from tests.benchmarks.testbed.models import towers

MODEL = towers()
LAYERS = [layer.name for layer in MODEL.layers]


def step(*, train: bool, seconds: float = 1.0) -> host.Step:
    """A worker that takes `seconds` for each operation, and arrives in order."""
    names = [*LAYERS, "loss", *(f"back {n}" for n in LAYERS)] if train else LAYERS
    ops = tuple(Event(n, i, i + seconds) for i, n in enumerate(names))
    arrivals = tuple(Event(n, i, i + 1) for i, n in enumerate(MODEL.leaves))
    work = Work(5.0, 20.0, arrivals, arrivals[:1] if train else (), ops, None)
    return host.Step((work, work._replace(seconds=10.0, began=6.0)), None)


def test_a_graph_of_inference():
    steps = [step(train=False, seconds=s) for s in (1.0, 2.0, 9.0)]
    graph = host.measured_graph(MODEL, steps, Link(0.0, 4.0))
    assert graph.ops["stem"] == (2.0, ("stem/b", "stem/w"))
    assert graph.ops["join"] == (2.0, ("join/params", "left", "more"))
    assert graph.ops["double"] == (2.0, ("join",))
    assert graph.recvs["stem/w"] == 15.0
    assert graph.nbytes == MODEL.nbytes
    assert not graph.sends
    assert makespan(graph, MODEL.leaves) > 0


def test_a_graph_of_training():
    graph = host.measured_graph(MODEL, [step(train=True)], Link(0.0, 4.0))
    assert graph.ops["loss"] == (1.0, ("head",))
    assert graph.ops["back head"] == (1.0, ("loss",))
    assert graph.ops["back stem"] == (1.0, ("back left", "back right"))
    assert graph.sends["stem/w"] == (15.0, ("back stem",))
    assert set(graph.sends) == set(graph.recvs) == set(MODEL.leaves)


def test_no_steps():
    with pytest.raises(ValueError, match="steps hold no operations"):
        host.measured_graph(MODEL, [], Link())


def test_what_a_step_says():
    found = step(train=False)
    assert found.seconds == 20.0
    assert found.straggler_effect == 0.5
    assert found.orders == (tuple(MODEL.leaves),) * 2


def test_a_timeline():
    run = host.timeline("seen", [step(train=True)] * 2, MODEL.nbytes)
    assert run.step_times() == [[20.0, 10.0]] * 2
    assert run.straggler_effect() == 0.5
    assert run.transfers(1, 1) == list(MODEL.leaves)
    assert {"worker 0 in", "worker 1 compute", "worker 0 out"} <= set(run.tracks)
    pushed = [span for span in run.spans if span.name.startswith("push ")]
    assert {span.nbytes for span in pushed} == {MODEL.nbytes["stem/b"]}


def test_leaves_live_where_the_simulator_has_them():
    owner = host.placed(MODEL, 2)
    load = [0, 0]
    for name, server in owner.items():
        load[server] += MODEL.nbytes[name]
    assert max(load) - min(load) <= max(MODEL.nbytes.values())
    names = sorted(MODEL.nbytes, key=lambda n: (-MODEL.nbytes[n], n))
    assert (owner[names[0]], owner[names[1]]) == (0, 1)
    graph = Graph({"a": 0.0}, {}, nbytes={"a": 3})
    assert graph.nbytes == {"a": 3}
    np.testing.assert_equal(host.placed(MODEL, 1), dict.fromkeys(owner, 0))
