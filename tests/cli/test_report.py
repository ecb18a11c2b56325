"""What a run shows while it goes, and leaves behind."""

import json
import math
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from relaxjax.cli import _report
from relaxjax.cli._loop import Bar
from relaxjax.tasks import Data


def record_of(**changes: Any) -> _report.Record:
    values: dict[str, Any] = {
        "relaxation": "all_reduce",
        "task": "chars",
        "workers": 1,
        "steps": 1,
        "seed": 0,
        "loss": 0.25,
        "metric_name": "bits_per_character",
        "metric": 0.5,
        "bytes_per_step": 0,
        "steps_per_second": 1.0,
        "spread": 0.0,
        "data": Data(bytes=1, sha256="0"),
        "curve": [(1, 0.25, 0.5)],
    }
    return _report.Record(**(values | changes))


def test_numbers_that_json_cannot_spell_become_null(tmp_path):
    record = record_of(loss=math.nan, spread=math.inf, curve=[(1, math.nan, 0.5)])
    _report.write(record, tmp_path / "run.json")
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["loss"] is None
    assert written["spread"] is None
    assert written["curve"] == [[1, None, 0.5]]
    assert record.title == "all_reduce, 1 worker"


def test_the_table_fits_eighty_columns_with_a_long_name():
    text, name = StringIO(), "all_reduce+quantize8@two_shot"
    record = record_of(relaxation=name, workers=8, metric=2.25, bytes_per_step=1234567)
    one = record_of(relaxation="no relaxation", metric=2.5)
    table = _report.table([record, one], caption="Workers are here.", width=80)
    Console(file=text, width=80).print(table)
    shown = text.getvalue()
    assert name in shown
    for row in (
        f"held-out bits per character │ {2.25:29.4f} │ {2.5:13.4f}",
        f"bytes per step              │ {1234567:29,} │ {0:13}",
        f"workers                     │ {8:29} │ {1:13}",
    ):
        assert f"│ {row} │" in shown
    assert "Workers are here." in shown


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(terminal):
    text = StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, no_color=True)
    with Bar(console, "toy", steps=2, metric_name="bits_per_character") as bar:
        bar.step()
        bar.step()
        bar.point(2, 0.5, 1.25, 10.0)
    shown = text.getvalue()
    assert "loss 0.5000, bits per character 1.2500, 10.0 steps/s" in shown
    assert ("2/2" in shown) == terminal
    assert ("toy: step 2" in shown) != terminal
