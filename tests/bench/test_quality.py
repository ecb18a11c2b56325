"""What `relaxjax bench quality-at-bytes` reports follows from what it trained."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import relaxjax
from relaxjax.bench import _quality
from relaxjax.bench._quality_methods import BASELINES, MESH, TARGETS, Method, methods
from relaxjax.cli._app import app
from relaxjax.compression import error_feedback, sign, top_k
from relaxjax.tasks import TASKS

TOP_K = Method(name="top_k", make=lambda p: error_feedback(top_k(p)), algorithm="psum")


def few(budget, task):
    """A sparse method at every budget, and a dense code at the first."""
    del task
    yield Method(name="top_k", make=top_k, algorithm="one_shot")
    if budget == 32:
        yield Method(name="sign", make=lambda _: sign(), algorithm="two_shot")


def row(metric, sent, budget=32, *, name="accuracy", fits=True, worse=0.0):
    return {
        "metric": name,
        "metrics": [metric],
        "bytes": sent,
        "budget": budget,
        "fits": fits,
        "worse": [worse, None, None],
    }


def test_quality(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_quality, "methods", few)
    found = _quality.quality(tasks=["digits"], steps=3, seeds=2, out=str(tmp_path))
    assert json.loads((tmp_path / "quality.json").read_text()) == found
    assert (tmp_path / "quality-digits.png").read_bytes().startswith(b"\x89PNG")
    assert [r["budget"] for r in found["rows"]] == [1, 1, 32, 32, 100, 400]
    ring = found["rows"][0]["bytes"]
    for r in found["rows"]:
        assert r["fits"] == (r["bytes"] * r["budget"] <= ring)
        assert len(r["metrics"]) in (1, 2)
        base = found["rows"][0]["metrics"][: len(r["metrics"])]
        if r["optimizer"] == "adamw":
            gaps = 1 - np.divide(r["metrics"], base)
            assert r["worse"][0] == pytest.approx(gaps.mean())
    assert [r["fits"] for r in found["rows"]] == [True, True, True, False, True, True]
    printed = capsys.readouterr().out
    assert all(f"digits, 1/{budget}: target" in printed for budget in TARGETS)


def test_a_sparse_method_uses_its_budget_up():
    task = TASKS["digits"](0)
    ring = BASELINES[0].bytes(task, 1.0)
    assert ring == 2 * 7 * -(-26122 // 8) * 4
    for method in methods(100, "digits"):
        density = method.density(task, ring / 100)
        one_more = density + 1 / 26122
        assert method.bytes(task, density) <= ring / 100 < method.bytes(task, one_more)


def test_every_method_sends_what_its_row_says():
    task = TASKS["digits"](0)
    for method in {m.label: m for b in TARGETS for m in methods(b, "digits")}.values():
        tx = method.transformation(task, 10, 0.01)
        sent = relaxjax.wire_bytes(tx, task.params, MESH)
        assert sent == method.bytes(task, 0.01), method.label


def test_order_of_reducer_and_optimizer():
    task = TASKS["digits"](0)
    made = [
        Method(name="", make=None, algorithm="psum", after=after, optimizer="sgd")
        for after in (False, True)
    ]
    kinds = [[type(s) for s in m.transformation(task, 9, 1.0).init({})] for m in made]
    assert kinds[0][0] is kinds[1][1] is relaxjax.AllReduceState


def test_uncompressed_training_learns():
    task = TASKS["digits"](0)
    tx = BASELINES[0].transformation(task, 40, 1.0)
    assert _quality.held_out(task, tx, 40, 0) > 0.8


def test_worse_is_paired_and_has_a_sign():
    better = {"metric": "accuracy", "metrics": [0.99, 0.96]}
    mean, low, high = _quality._worse(better, [0.9, 0.96, 0.5])
    assert mean == pytest.approx(-0.05)
    # Student's t with one degree of freedom, of -0.1 and 0.
    assert (low, high) == pytest.approx(
        (-0.05 - 12.7062 * 0.05, -0.05 + 12.7062 * 0.05)
    )
    bits = {"metric": "bits_per_character", "metrics": [3.3]}
    assert _quality._worse(bits, [3.0]) == pytest.approx([0.1, None, None])


def test_the_best_are_the_front_and_the_closest():
    rows = [
        row(0.9, 100, worse=0.1),
        row(0.8, 100, worse=0.01),  # dominated, but closest to its own baseline
        row(0.95, 120, fits=False, worse=-1.0),
        row(0.7, 50, 100, worse=0.3),
        row(float("nan"), 50, 100, worse=float("nan")),
        row(0.6, 60, 400, worse=0.4),
    ]
    assert _quality._best(rows) == [0, 1, 2, 3, 5]
    flipped = [row(3.0, 10, 32, name="bits"), row(4.0, 10, 32, name="bits", worse=1.0)]
    flipped += [row(5.0, 20, b, name="bits") for b in (100, 400)]
    assert _quality._best(flipped) == [0, 2, 3]


def test_command(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(_quality, "quality", lambda **options: seen.append(options))
    words = ["bench", "quality-at-bytes", "--steps", "9", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, [*words, "--task", "chars"]).exit_code == 0
    assert [s["tasks"] for s in seen] == [("digits", "chars"), ("chars",)]
    assert seen[0]["steps"] == 9
    assert seen[0]["out"] == str(tmp_path)
