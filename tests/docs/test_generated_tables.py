"""Tables that pages make from files of figures."""

import json
import re

import numpy as np

from scripts.pictures import course, frontier, goodput
from scripts.tables import gpu, kept, mutants, points
from scripts.tables.studies import table, to_target
from tests.compare import studies


def test_each_part_and_device_has_a_table(tmp_path):
    assert gpu.page(tmp_path) == [gpu.NOTHING]
    known = {"part": "codecs", "device": "NVIDIA H100", "jax": "0.12"}
    rows = {"sign": {"GB/s": 1.23456, "seconds": [1, 2]}, "cast": {"bytes": 7}}
    (tmp_path / "a.json").write_text(json.dumps({"conditions": known, "rows": rows}))
    assert gpu.page(tmp_path) == [
        "**codecs**: NVIDIA H100, JAX 0.12",
        "",
        "|  | GB/s | bytes |",
        "|---|---|---|",
        "| sign | 1.235 |  |",
        "| cast |  | 7 |",
        "",
    ]


def test_a_kept_table_has_numbers_pairs_and_intervals(monkeypatch):
    rows = [
        ["a", 0.0, [0.5, 24], [-0.304, -0.6, 0.03]],
        ["b", 1.005, None, [0.97306, 0.1, -0.2, 0.4]],
        ["c", 7, "1/5", "none"],
    ]
    file = {"columns": ["", "x", "y", "z"], "digits": [3, 1, 2], "rows": rows}
    monkeypatch.setattr(kept, "result", lambda _: file | {"best": ["b"]})
    assert kept.table("name")[2:] == [
        "| a | 0.000 | 0.5, 24 | -0.30 [-0.60, +0.03] |",
        "| **b** | 1.005 |  | 0.97 (+0.10 [-0.20, +0.40]) |",
        "| c | 7 | 1/5 | none |",
    ]


def test_mutants_add_up(tmp_path, monkeypatch):
    path = tmp_path / "mutants.toml"
    row = '["relaxjax/{}.py"]\ntests = []\n{}\n'
    figures = "made = 5\nkilled = 3\nequivalent = 1\nsurvived = 1"
    seen = row.format("b", figures) + row.format("a", figures)
    path.write_text(seen + row.format("c", ""))
    monkeypatch.setattr(mutants, "TABLE", path)
    assert mutants.table()[2:] == [
        "| `a.py` | 5 | 3 | 1 | 1 |",
        "| `b.py` | 5 | 3 | 1 | 1 |",
        "| all 2 | 10 | 6 | 2 | 2 |",
    ]


def test_marks_are_the_runs_under_kills(tmp_path):
    def run(name, minutes, faults, **parts):
        schedule = [[1.0, what, 0] for what in faults]
        said = {"minutes": minutes, "schedule": schedule, "islands": 3}
        carrier = "ray" if name == "b" else "folder"
        file = {"conditions": said | {"carrier": carrier}, **parts}
        (tmp_path / f"{name}.json").write_text(json.dumps(file))

    run("a", 2, ["kill", "syncer", "freeze"], islands={"goodput": 0.9})
    run("b", 4, ["kill"], islands={"goodput": 0.8}, **{"fail-stop": {"goodput": 0.7}})
    run("c", 4, ["kill", "disk"], torchft={"goodput": 0.6})
    found = goodput.points(tmp_path)
    assert [(p.who, p.rate, p.goodput) for p in found] == [
        ("fail-stop", 0.25, 0.7),
        ("islands on Ray", 0.25, 0.8),
        ("torchft", 0.25, 0.6),
        ("islands", 1.0, 0.9),
    ]
    (axes,) = goodput.drawn(found).axes
    _, labels = axes.get_legend_handles_labels()
    assert labels == [f"{who}, 3 processes" for who in goodput.COLORS]


def test_a_course_has_a_line_for_each_way_and_a_mark_for_each_kill():
    conditions = {"pace": 2, "rows": 10, "islands": 3, "minutes": 0.1}
    way = {"course": [(1.0, 50), (3.0, 170)], "faults": [{"at": 2.0}, {"at": 4.0}]}
    run = {"conditions": conditions, "islands": way, "fail-stop": way}
    (axes,) = course.drawn(run).axes
    ideal, islands, _, kills = (np.asarray(x.get_xydata()) for x in axes.lines)
    np.testing.assert_allclose(ideal, [[0, 0], [6, 0.36]])
    np.testing.assert_allclose(islands, [[0, 0], [1, 0.05], [3, 0.17]])
    assert [*kills[:, 0]] == [2, 4]


def point(name, fewer, worse):
    metric = None if worse is None else 1.0
    return points.Point(name, 0.1, fewer, metric, worse)


def test_a_front_is_what_no_other_beats():
    found = [
        point("alike, more bytes", 2, 0.4),
        point("good", 3, 0.5),
        point("better", 5, 0.4),
        point("few", 9, 1.0),
        point("fewest", 30, 2.0),
        point("worse than few", 8, 1.5),
        point("diverged", 99, None),
    ]
    names = [p.name for p in points.front(found)]
    assert names == ["better", "few", "fewest"]


def test_a_study_has_a_table_and_a_picture(tmp_path):
    names = ["all_reduce", "power_sgd", "gossip@ring", "local_sgd"]
    of = studies.study(names, metric="accuracy")
    lines = [r for r in studies.records(of) if r["method"] != "local_sgd"]
    lost = [studies.lost("power_sgd", seed) for seed in of["seeds"]]
    kept = [r for r in lines if r["method"] != "power_sgd" or r["phase"] != "report"]
    (tmp_path / "study.json").write_text(json.dumps(of))
    text = "\n".join(json.dumps(r) for r in kept + lost) + "\n"
    (tmp_path / "results.jsonl").write_text(text)
    _, _, base, gossip, power = table(tmp_path)
    assert base.startswith("| `all_reduce` | 0.003 | 1/1 | 0.96")
    assert power.startswith("| `power_sgd` | 0.003 | 1/60.8 | diverged |")
    assert gossip.startswith("| **`gossip@ring`** | 0.003 | 1/2 | 0.95")
    mean, low, high = map(float, re.findall(r"-?\d+\.\d", gossip.split("|")[5]))
    assert 0.5 < low < mean < high < 2
    heads, _, first, *others = to_target(tmp_path)
    assert heads.startswith("| relaxation | steps to target | step on 1gbit,10ms | to ")
    assert first.startswith("| `all_reduce` | ")
    assert len(others) == 3
    (axes,) = frontier.drawn(points.points(tmp_path)).axes
    assert axes.get_legend_handles_labels()[1] == ["1  gossip@ring"]
    assert [text.get_text() for text in axes.texts] == ["1"]
