"""The benchmarks of orders run, at small sizes."""

import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks import report
from benchmarks.models import MODELS, ImageModel
from benchmarks.orders import quality as quality_bench
from benchmarks.orders import scale as scale_bench
from benchmarks.orders import speed as speed_bench
from benchmarks.orders import throughput as throughput_bench
from relaxjax.schedule import Graph, random_graph, unordered


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
    setting = throughput_bench.Regime("whole", 2, 1)
    row = throughput_bench._compare(sized, 1.0, setting, 20)
    assert row["distinct"] > 0.9
    assert row["tac"] > 1.1
    assert row["straggler tac"] < row["straggler"]


def test_slices_spread_what_one_server_would_hold():
    graph = random_graph("chain", recvs=3)
    sized = Graph(graph.recvs, graph.ops, nbytes={"r0": 10**8, "r1": 10, "r2": 10})

    def busiest(condition):
        setting = throughput_bench.Regime(condition, 2, 4)
        run = throughput_bench._run(sized, unordered(), setting, 1)
        return max(run.busy(f"server {s} out") for s in range(4))

    assert busiest("sliced") < 0.3 * busiest("whole")
    assert busiest("fine") == pytest.approx(busiest("whole"))


def tiny():
    """Three layers as shapes."""
    params = {n: jax.ShapeDtypeStruct((8, 8), jnp.float32) for n in ("a", "b", "c")}

    def apply(params, x):
        return jnp.tanh(jnp.tanh(x @ params["a"]) @ params["b"]) @ params["c"]

    return ImageModel(apply, params, (jax.ShapeDtypeStruct((4, 8), jnp.float32),))


def saved(out, name):
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((out / f"{name}.json").read_text())


@pytest.mark.slow
def test_quality_end_to_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quality_bench, "LARGE", (15,))
    monkeypatch.setattr(quality_bench, "MODELS", {"vgg16": tiny})
    result = quality_bench.quality(graphs=9, random_orders=3, out=str(tmp_path))
    assert saved(tmp_path, "quality") == result
    assert set(result["large_graphs"]) == {"random, 15 recvs", "pairs, 15 recvs"}
    assert set(result["models"]) == {f"vgg16, rho {r}" for r in (0.5, 1.0, 2.0)}
    for row in result["models"].values():
        assert (row["recvs"], row["against"]) == (3, "optimum")
        assert row["best"] == 0.0 <= row["random"]
    targets = result["targets"]
    assert targets["models where best is worse than TAC (0)"] == 0
    assert targets["CNN forward, best over the bound (<= 0.001)"] >= 0
    assert "Forward graphs" in capsys.readouterr().out


@pytest.mark.long
def test_speed_end_to_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(speed_bench, "SIZES", (40, 80))
    result = speed_bench.speed(repeats=1, layers=1, out=str(tmp_path))
    assert saved(tmp_path, "speed") == result
    made = [(r["shape"], r["order"], r["ops"], r["recvs"]) for r in result["rows"]]
    assert made == [
        *(
            (shape, order, ops, ops // 10)
            for shape in ("layered", "tangled")
            for ops in (40, 80)
            for order in ("tic", "tac")
        ),
        ("4 recvs", "tac", 40, 4),
        ("4 recvs", "tac", 80, 4),
    ]
    assert all(0 < r["min"] <= r["median"] <= r["max"] for r in result["rows"])
    assert result["from_function"]["train"]["ops"] > 60
    assert "TIC, 80 operations" in capsys.readouterr().out


def test_throughput_end_to_end(tmp_path, capsys, monkeypatch):
    settings = [
        throughput_bench.Regime("whole", 1, 1),
        throughput_bench.Regime("whole", 2, 1),
        throughput_bench.Regime("sliced", 2, 2),
        throughput_bench.Regime("fine", 2, 2),
    ]
    monkeypatch.setattr(throughput_bench, "COMPARED", {"tiny": tiny})
    monkeypatch.setattr(throughput_bench, "RHOS", (1.0,))
    monkeypatch.setattr(throughput_bench, "SETTINGS", settings)
    result = throughput_bench.throughput(random_orders=4, out=str(tmp_path))
    assert saved(tmp_path, "throughput") == result
    assert len(result["rows"]) == 2 * len(settings)
    assert {row["graph"] for row in result["rows"]} == {"inference", "training"}
    falls = result["stragglers"]
    assert set(falls) == {
        "one server, whole", "several servers, sliced", "several servers, fine",
    }  # fmt: skip
    assert all(0 <= f["fell"] <= f["clusters"] == 2 for f in falls.values())
    policies = [row["policy"] for row in result["neighbors"]]
    assert policies[:4] == ["unordered", "fifo", "tic", "tac"]
    assert {"p3", "byte_scheduler", "wait_free", "dear"} <= set(policies)
    assert all(row["seconds"] > 0 for row in result["neighbors"])
    assert "Straggler effect" in capsys.readouterr().out


def test_scale_end_to_end(tmp_path, capsys, monkeypatch):
    clusters = [
        ("2", lambda: scale_bench._uniform(2), 2),
        ("2000, mixed", lambda: scale_bench._mixed(2000), 1),
    ]
    monkeypatch.setattr(scale_bench, "MODEL", tiny)
    monkeypatch.setattr(scale_bench, "CLUSTERS", clusters)
    result = scale_bench.scale(out=str(tmp_path))
    assert saved(tmp_path, "scale") == result
    few, many = result["rows"]
    assert (few["workers"], few["simulated"], few["steps"]) == (2, 2, 2)
    assert (many["workers"], many["simulated"]) == (2000, 48)
    assert many["step"] > few["step"] > 0
    assert few["peak"] > 0
    assert "Simulation at scale" in capsys.readouterr().out


def test_the_clusters_of_the_figure_are_as_named():
    sizes = [make().size for _, make, _ in scale_bench.CLUSTERS]
    assert sizes == [16, 64, 100_000, 100_000, 4096, 256, 1024]
    kinds = scale_bench._mixed(4096).classes
    assert sum(kind.count for kind in kinds) == 4096


def test_large_graphs_have_the_size_they_are_asked_for():
    for shape in ("layered", "tangled"):
        graph = speed_bench.large_graph(shape, 60, recvs=6)
        assert (len(graph.ops), len(graph.recvs)) == (60, 6)
        assert speed_bench.large_graph(shape, 60, recvs=6) == graph


def test_models_have_the_sizes_of_the_papers():
    """VGG-16: 138 357 544 parameters (Simonyan and Zisserman, configuration D)."""
    model = MODELS["vgg16"]()
    graph = Graph.from_function(model.apply, model.params, *model.args)
    assert sum(graph.nbytes.values()) == 4 * 138_357_544
    assert len(graph.recvs) == 32


def test_reports(tmp_path, capsys):
    report.show("Title", ("name", "value"), [("x", 0.123456), ("y", 3)])
    printed = capsys.readouterr().out
    assert "0.1235" in printed
    run = report.Run("figure", tmp_path / "new", {"seed": 3})
    lines = {"line": ([1, 2], [3.0, 4.0])}
    rows = [{"name": "x", "value": 2}]
    table = report.Table.of("T", rows, "name", ("twice", lambda r: 2 * r["value"]))
    assert table == ("T", ["name", "twice"], [["x", 4]])
    conditions = run.conditions(more=1)
    assert conditions["machine"]
    assert (conditions["seed"], conditions["more"]) == (3, 1)
    plots = [
        report.Plot("t", ("x", "y"), lines),
        report.Plot("t", ("x", "y"), {}, "-b"),
    ]
    result = {"conditions": conditions, "a": 1}
    assert run.finish(result, tables=[table], notes=["met"], plots=plots) == result
    assert saved(run.out, "figure") == result
    assert (run.out / "figure-b.png").exists()
    printed = capsys.readouterr().out
    assert printed.index('"seed": 3') < printed.index("twice") < printed.index("met")
    assert report.peak_gib() > 0
