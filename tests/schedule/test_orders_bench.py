"""The benchmarks of orders run, at small sizes."""

import json

import pytest

from relaxjax.bench import _orders_quality as quality_bench
from relaxjax.bench import _orders_speed as speed_bench
from relaxjax.bench import _orders_throughput as throughput_bench
from relaxjax.bench import _report as report
from relaxjax.bench._orders import main
from relaxjax.bench._zoo import MODELS
from relaxjax.schedule import Graph, random_graph


def test_gaps_of_random_graphs():
    found = quality_bench._random_graphs(6, 3)
    assert set(found) == {"random", "towers", "pairs", "all"}
    for orders in found.values():
        assert orders["best"]["mean"] == 0.0  # few recvs: exact
        assert orders["random"]["mean"] > orders["tac"]["mean"] >= 0.0
        assert orders["search only"]["max"] <= orders["tac"]["max"]


def test_ratio_is_of_all_transfers():
    graph = random_graph("chain", recvs=4)
    pushed = Graph(graph.recvs, graph.ops, {"r0": (3.0, ["o3"])})
    for g in (graph, pushed):
        scaled = quality_bench.at_ratio(g, 0.5)
        transfers = scaled.communication + sum(t for t, _ in scaled.sends.values())
        assert transfers / scaled.computation == pytest.approx(0.5)


def test_comparison_of_throughput():
    graph = random_graph("chain", recvs=8)
    sized = Graph(
        graph.recvs, graph.ops, nbytes={n: int(t) for n, t in graph.recvs.items()}
    )
    row = throughput_bench._compare(sized, 1.0, 2, 1, 20)
    assert row["distinct"] > 0.9
    assert row["tac"] > 1.1
    assert row["straggler tac"] < row["straggler"]


def test_large_graphs_have_the_size_they_are_asked_for():
    for shape in ("layered", "tangled"):
        graph = speed_bench.large_graph(shape, 60, recvs=6)
        assert (len(graph.ops), len(graph.recvs)) == (60, 6)
        assert speed_bench.large_graph(shape, 60, recvs=6) == graph


def test_zoo_has_the_sizes_of_the_papers():
    """VGG-16: 138 357 544 parameters (Simonyan and Zisserman, configuration D)."""
    model = MODELS["vgg16"]()
    graph = Graph.from_function(model.apply, model.params, *model.args)
    assert sum(graph.nbytes.values()) == 4 * 138_357_544
    assert len(graph.recvs) == 32


def test_reports(tmp_path, capsys):
    report.show("Title", ("name", "value"), [("x", 0.123456), ("y", 3)])
    printed = capsys.readouterr().out
    assert "0.1235" in printed
    path = report.save({"a": 1}, tmp_path / "new", "figure")
    assert json.loads(path.with_suffix(".json").read_text()) == {"a": 1}
    report.plot(path, "t", ("x", "y"), {"line": ([1, 2], [3.0, 4.0])})
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    told = report.conditions(seed=3)
    assert told["seed"] == 3
    assert told["machine"]
    assert report.peak_gib() > 0


def test_unknown_bench(capsys):
    assert main(["colors"]) == 2
    assert "quality | speed | throughput | scale" in capsys.readouterr().out
