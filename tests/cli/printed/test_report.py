"""What a run shows while it goes, and leaves behind."""

import json
import math
from io import StringIO
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from relaxjax.cli.printed import _report
from relaxjax.cli.training._loop import Bar
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


def two_runs() -> list[_report.Record]:
    """Eight workers and one, whose losses are the same."""
    curve = [(10, 2.0, 0.5), (20, 0.5, 0.8), (30, 0.02, 0.9)]
    many = record_of(
        workers=8, bytes_per_step=2_500_000, steps_per_second=2.0, curve=curve
    )
    one = record_of(relaxation="no relaxation", steps_per_second=5.0, curve=curve)
    return [many, one]


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Plots runs and returns the figure."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))

    def draw(records, *, shared=True):
        _report.plot(records, tmp_path / "curves.png", shared=shared)
        return figures[-1]

    return draw


def test_curves_are_against_steps_bytes_and_seconds(drawn):
    steps, sent, seconds = drawn(two_runs()).axes
    assert {panel.get_yscale() for panel in (steps, sent, seconds)} == {"log"}
    assert steps.get_ylabel() == "training loss"
    assert sent.get_xlabel() == "sent by the busiest worker"
    assert seconds.get_xlabel() == "time, estimated at 1 Gbit/s"
    for panel, scales in ((steps, (1.0, 1.0)), (seconds, (1 / 5 / 8 + 0.02, 1 / 5))):
        one, many = panel.get_lines()
        for line, scale in zip((many, one), scales, strict=True):
            assert line.get_xdata() == pytest.approx([scale * n for n in (10, 20, 30)])
            assert list(line.get_ydata()) == [2.0, 0.5, 0.02]
    level, many = sent.get_lines()
    assert many.get_xdata() == pytest.approx([2.5e6 * n for n in (10, 20, 30)])
    assert list(level.get_ydata()) == [0.02, 0.02]
    (text,) = sent.texts
    assert text.get_text() == "no relaxation, 1 worker (dotted)\nsends nothing"


def test_curves_that_coincide_show_both(drawn):
    """The one on top is thin, what it hides is wide, and their colors differ."""
    figure = drawn(two_runs())
    below, above = figure.axes[0].get_lines()
    assert below.get_linewidth() > 3 * above.get_linewidth()
    assert below.get_color() != above.get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "all_reduce, 8 workers: bits per character 0.5",
        "no relaxation, 1 worker: bits per character 0.5",
    ]


@pytest.mark.parametrize(
    ("shared", "alone", "expected"),
    [
        (True, True, 1 / 5 / 8 + 0.02),
        (False, True, 1 / 5 / 8 + 0.02),
        (True, False, 1 / 2 / 8 + 0.02),  # eight workers, one after the other
        (False, False, 1 / 2 + 0.02),
    ],
)
def test_estimated_seconds(shared, alone, expected):
    records = two_runs()[: 1 + alone]
    seconds = _report.estimated_seconds(records, shared=shared)
    assert seconds[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("loss", "rate"), [(math.nan, 1.0), (math.inf, 0.0), (0.0, 1e-3)]
)
def test_any_curve_is_drawn(tmp_path, loss, rate):
    record = record_of(steps_per_second=rate, curve=[(1, loss, 0.5), (2, loss, 0.5)])
    _report.plot([record], tmp_path / "curves.png", shared=True)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_ticks_are_numbers_that_people_read(drawn):
    slow = two_runs()
    slow[1] = record_of(relaxation="no relaxation", steps_per_second=1e-3)
    quick = [record_of(relaxation="no relaxation", steps_per_second=100.0)]
    for runs, unit in (([two_runs()[0], *quick], " s"), (quick, " ms"), (slow, " s")):
        figure = drawn(runs)
        FigureCanvasAgg(figure).draw()
        loss, sent, seconds = (
            [tick.get_text() for tick in ticks]
            for ticks in (
                figure.axes[0].get_yticklabels(),
                figure.axes[1].get_xticklabels(),
                figure.axes[2].get_xticklabels(),
            )
        )
        assert runs is quick or {"0.1", "1"} <= set(loss)
        assert runs is quick or any(label.endswith(" MB") for label in sent)
        assert any(label.endswith(unit) for label in seconds)
        assert not any("ks" in label for label in seconds)
