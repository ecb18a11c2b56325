"""Rows, figures and files of a report, from records written by hand."""

import re
from typing import Any

import pytest

from relaxjax.compare._report import _escaped, table, write
from relaxjax.compare._summary import rows, target_of, unequal_budgets

METHODS = ["all_reduce", "diloco sync_every=4", "never_run", "lost_it"]


def record(method: str, phase: str, seed: int, curve: Any, **more: Any) -> dict:
    whole = [[10 * (i + 1), 1.0, x] for i, x in enumerate(curve)]
    ends = None if None in curve else curve[-1]
    test = ends if phase == "report" else None
    return {
        "key": f"{method}{phase}{seed}{more}",
        "method": method,
        "phase": phase,
        "seed": seed,
        "learning_rate": 0.1,
        "options": {},
        "curve": whole,
        "validation": ends,
        "test": test,
        "diverged": ends is None,
        "stopped_at": None,
        "bytes_per_step": 100.0 if method == "all_reduce" else 25.0,
        **more,
    }


def study() -> dict[str, Any]:
    network = {"name": "1gbit,10ms", "latency": 0.01, "bandwidth": 1.25e8}
    each = {m: {"1gbit,10ms": 0.5 if m == "all_reduce" else 0.1} for m in METHODS}
    grid = {m: [[s["1gbit,10ms"]] * 2] * 2 for m, s in each.items()}
    return {
        "version": "0",
        "task": {
            "name": "<task> & co",
            "metric_name": "loss",
            "better": "lower",
            "data": {"bytes": 3, "sha256": "ab" * 32},
            "file": "my_task.py",
            "split_note": "a tenth",
            "params": 7,
        },
        "methods": METHODS,
        "seeds": [0, 1, 2],
        "tune": 1,
        "workers": 2,
        "steps": 40,
        "batch_size": 8,
        "networks": [network],
        "compute_seconds": 0.01,
        "compute_source": "stated",
        "seconds": each,
        "seconds_source": dict.fromkeys(METHODS, "plan") | {"lost_it": "traced bytes"},
        "map": {"gbps": [1, 10], "latency_ms": [1, 10], "seconds": grid},
        "conditions": {"machine": "x"},
        "command": "relaxjax compare my_task.py --relaxation 'diloco sync_every=4'",
        "target": None,
    }


def records() -> list[dict[str, Any]]:
    base = [record(METHODS[0], "report", s, [4, 3, 2, 1 + s / 10]) for s in range(3)]
    late = [record(METHODS[1], "report", s, [4, 4, 2, 1 + s / 10]) for s in range(3)]
    lost = [record(METHODS[3], "report", 0, [4, None])]
    return base + late + lost


def test_the_target_is_the_baselines_end_less_two_percent():
    assert target_of(study(), records()) == pytest.approx(1.1 * 1.02)
    assert target_of(study() | {"target": 3}, records()) == 3
    higher = study()
    higher["task"]["better"] = "higher"
    assert target_of(higher, records()) == pytest.approx(1.1 * 0.98)
    assert target_of(study(), []) is None


def test_steps_to_a_target_are_interpolated():
    """At 2.5: halfway from 3 at 20 to 2 at 30; from 4 at 20, three quarters of it."""
    base, late, never, lost = rows(study() | {"target": 2.5}, records())
    assert base.steps_to_target == 25
    assert late.steps_to_target == 27.5
    assert base.seconds_to_target == {"1gbit,10ms": 12.5}
    assert late.seconds_to_target == {"1gbit,10ms": 2.75}
    assert never.steps_to_target is None
    assert lost.steps_to_target is None


def test_rows_in_words():
    base, late, never, lost = rows(study(), records())
    assert base.verdict == "baseline"
    assert late.verdict == "not distinguishable"
    assert never.verdict == "not run"
    assert lost.verdict == "diverged in a run"
    assert base.mean == pytest.approx(1.1)
    assert base.curve[0] == (10, 4)


def test_unequal_budgets_are_said():
    more = [*records(), record(METHODS[1], "tune", 1000, [1])]
    assert unequal_budgets(rows(study(), records())) == ""
    assert "diloco sync_every=4 1" in unequal_budgets(rows(study(), more))


def test_the_files(tmp_path):
    write(tmp_path, study(), records())
    page = (tmp_path / "report.html").read_text()
    assert "&lt;task&gt; &amp; co" in page
    assert not re.search(r"(src|href)=.?https?:|@import|url\([^#]", page)
    assert page.count("<svg") == 4
    for method in METHODS:
        assert method in page
        assert method in (tmp_path / "report.md").read_text()
    assert "diverged in a run" in page
    assert "Not all runs are there: never_run, lost_it" in page
    assert "those of lost_it are its traced bytes" in page
    latex = (tmp_path / "table.tex").read_text()
    assert r"all\_reduce" in latex
    assert latex.count(r"\\") == 1 + len(METHODS)
    for name in ("steps", "bytes", "seconds-at-1gbit-10ms", "map"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_of_nothing(tmp_path):
    write(tmp_path, study(), [])
    assert "not run" in (tmp_path / "report.html").read_text()


def test_a_report_is_the_same_twice(tmp_path):
    seen = []
    for _ in range(2):
        write(tmp_path, study(), records())
        seen.append((tmp_path / "report.html").read_text())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("width", [80, 120])
def test_names_are_whole_in_the_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = table(study(), records())
    for method in METHODS:
        assert method in text


def test_latex_is_escaped():
    assert _escaped("a_b & 5 % # $ {}") == r"a\_b \& 5 \% \# \$ \{\}"
