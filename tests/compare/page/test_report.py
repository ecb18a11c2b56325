"""Reports: whole names, true numbers, one self-contained page, the same bytes twice."""

import io
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from relaxjax import compare
from relaxjax.cli import _app
from relaxjax.compare.kept._summary import summary
from relaxjax.compare.page import _svg, _words
from relaxjax.compare.page._figures import axes_of, curves, shown
from relaxjax.compare.page._map import letters, winners_map
from relaxjax.compare.page._margin import apart
from relaxjax.compare.page._report import write
from relaxjax.compare.page._styles import PALETTE, styles, wrapped
from relaxjax.compare.page._tables import latex, quality, speed, table, tex
from relaxjax.compare.page._winners import winners
from tests.compare.studies import (
    GBPS,
    LATENCY_MS,
    METHODS,
    NETWORKS,
    lost,
    records,
    seconds,
    study,
)

OF = study()
RUNS = records(OF)
RESULT = summary(OF, RUNS)
MANY = [f"method_{i}+quantize4+ef14@two_shot" for i in range(12)]


def texts(figure) -> list[str]:
    """What a figure says, in the order drawn."""
    root = ElementTree.fromstring(_svg.svg(figure, title="x", prefix="p"))
    found = [node for node in root.iter() if node.tag.endswith("text")]
    return ["".join(node.itertext()) for node in found]


def printed(of, width: int) -> list[str]:
    """The lines of a study's table in a terminal."""
    file = io.StringIO()
    console = Console(width=width, file=file, color_system=None)
    console.print(table(of, records(of), width=width))
    return file.getvalue().splitlines()


def hostile():
    """A study with signs that HTML, matplotlib and LaTeX would take for their own."""
    name = "<script>alert(1)</script>&|%$x$#_{} a=1~^\\"
    of = study(["all_reduce", name])
    of["task"]["split_note"] = "<b>bold</b>"
    of["command"] = "relaxjax compare '<i>.py' && true"
    return of, records(of), name


class Page(HTMLParser):
    """Collects tags with their attributes, all text, and the text of each cell."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.cells: list[str] = [""]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data):
        self.text.append(data)
        self.cells[-1] += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    write(place, OF, RUNS)
    return place


def test_files(folder):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    pictures = ("steps", "bytes", "seconds_1", "seconds_2", "winners")
    assert names == {"report.html", "report.md", "table.tex"} | {
        f"figures/{name}.{kind}" for name in pictures for kind in ("svg", "png")
    }


def test_the_page_needs_nothing_else(folder):
    page = Page((folder / "report.html").read_text())
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    css = (folder / "report.html").read_text()
    assert "@import" not in css
    assert set(re.findall(r"url\((.)", css)) <= {"#"}


def test_ids_of_a_page_are_its_own_and_all_are_there(folder):
    text = (folder / "report.html").read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 50
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(ids)


def test_every_kind_of_report_has_every_number(folder):
    page = "".join(Page((folder / "report.html").read_text()).text)
    text = (folder / "report.md").read_text()
    for row in RESULT.rows:
        for column in [*quality(RESULT), *speed(RESULT)]:
            assert column.cell(row) in page
            assert column.cell(row) in text
    for words in (*_words.reading(RESULT), *_words.conclusion(RESULT), OF["command"]):
        assert words in page
        assert words in text


def test_measured_and_predicted_are_told_apart_in_each_figure():
    for axis in axes_of(RESULT):
        said = " ".join(texts(curves(RESULT, axis)))
        assert ("predicted" in said) == axis.name.startswith("seconds")
        assert ("counted" in said) == (axis.name == "bytes")
    figure = winners_map(RESULT, OF["map"])
    assert "steps to the target measured, seconds predicted" in texts(figure)


def test_the_same_study_gives_the_same_bytes(folder, tmp_path):
    write(tmp_path, OF, json.loads(json.dumps(RUNS)))
    for path in sorted(folder.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()


def test_signs_of_html_and_latex_are_text(tmp_path):
    of, runs, name = hostile()
    write(tmp_path, of, runs)
    page = Page((tmp_path / "report.html").read_text())
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not {"b", "i"} & {tag for tag, _ in page.tags}
    assert [cell.strip() for cell in page.cells].count(name) == 2
    for file in ("steps.svg", "bytes.svg"):
        path = tmp_path / "figures" / file
        said = "".join(ElementTree.parse(path).getroot().itertext())
        assert re.sub(r"\s", "", name) in re.sub(r"\s", "", said)
    escaped = tex(name)
    assert (
        re.sub(r"\\(text\w+\{\}|[&%$#_{}])", "", escaped)
        == "scriptalert(1)/scriptx a=1"
    )
    assert len((tmp_path / "table.tex").read_text().splitlines()) == 9


def test_a_table_for_latex_has_as_many_cells_in_each_row():
    lines = latex(RESULT).splitlines()
    rows = [line for line in lines if line.endswith(r"\\")]
    kinds = re.search(r"tabular\}\{(\w+)\}", lines[1])
    assert kinds
    assert len(rows) == 1 + len(METHODS)
    assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(kinds[1])}


@pytest.mark.parametrize("width", [80, 120, 240])
def test_names_and_numbers_are_whole_in_a_terminal(width):
    lines = printed(OF, width)
    assert max(map(len, lines)) <= width
    for row in RESULT.rows:
        line = next(line for line in lines if line.strip().startswith(f"{row.method} "))
        assert _words.mean_and_spread(row) in line
        assert _words.verdict(row).partition(":")[0] in line
    assert ("a wider terminal shows" in " ".join(lines)) == (width < 240)


def test_a_name_longer_than_half_a_terminal_is_on_lines():
    name = "quasi_global_momentum+top_k0.01+error_feedback@hierarchical_neighbors"
    lines = printed(study(["all_reduce", name]), 80)
    assert name in "".join(line[:40].split("  ")[0].strip() for line in lines)
    assert max(map(len, lines)) <= 80


@given(st.text("abc_+@:,=0 ", max_size=60).map(str.strip), st.integers(4, 20))
def test_wrapping_leaves_nothing_out(name, width):
    lines = wrapped(name, width)
    assert re.sub(r"\s", "", lines) == re.sub(r"\s", "", name)


def test_a_method_has_one_color_in_all_figures():
    look = styles(list(METHODS))
    assert len({style.color for style in look.values()}) == len(METHODS)
    for axis in axes_of(RESULT):
        chart = curves(RESULT, axis).axes[0]
        long = [line for line in chart.lines if np.size(line.get_xdata()) > 2]
        drawn = [line.get_color() for line in long]
        assert drawn == [look[row.method].color for row in shown(RESULT, axis)]


def test_more_methods_than_colors_differ_in_their_strokes():
    look = styles([f"m{i}" for i in range(29)])
    assert len({(style.color, str(style.dash)) for style in look.values()}) == 29


def test_at_most_eight_lines_unless_asked():
    of = study(MANY)
    of["seconds"] = {}
    result = summary(of, records(of))
    axis = axes_of(result)[0]
    found = shown(result, axis)
    assert len(found) == 8
    assert found[0].method == MANY[0]
    assert len(shown(result, axis, None)) == 12
    others = [row for row in result.rows if row not in found]
    assert max(row.curve.mean[-1] for row in others) <= min(
        row.curve.mean[-1] for row in found[1:]
    )


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 0.1)), max_size=8))
def test_names_in_the_margin_do_not_overlap(places):
    wanted, heights = [p for p, _ in places], [h for _, h in places]
    found = apart(wanted, heights, -0.5, 1.5)
    order = np.argsort(wanted, kind="stable")
    ends = [(found[i] - heights[i] / 2, found[i] + heights[i] / 2) for i in order]
    gaps = [after[0] - before[1] for before, after in pairwise(ends)]
    assert all(gap >= -1e-9 for gap in gaps)
    if all(gap > 1e-9 for gap in gaps):  # no two touch, so that each is where it should
        assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("methods", [list(METHODS), MANY[:8]], ids=["six", "long"])
def test_texts_of_a_figure_do_not_overlap_and_are_inside(methods):
    of = study(methods, seconds={})
    result = summary(of, records(of))
    for axis in axes_of(result)[:2]:
        figure = curves(result, axis)
        figure.savefig(io.BytesIO())
        boxes = [text.get_window_extent() for text in figure.texts[1:]]
        assert len(boxes) == len(methods)
        for i, box in enumerate(boxes):
            assert 0 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
            assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
            assert not any(box.overlaps(other) for other in boxes[:i])


def test_a_method_that_sends_nothing_is_left_out_of_bytes(tmp_path):
    of = study(["all_reduce", "local_sgd"])
    runs = [
        one | {"bytes_per_step": 0.0} if one["method"] == "local_sgd" else one
        for one in records(of)
    ]
    write(tmp_path, of, runs)
    text = (tmp_path / "report.md").read_text()
    assert "Not drawn: local_sgd (which sends nothing)." in text


def test_a_diverged_method_is_a_row_and_a_line_with_an_end(tmp_path):
    of = study(["all_reduce", "power_sgd"])
    good = [("power_sgd", "tune"), ("all_reduce", "tune"), ("all_reduce", "report")]
    runs = [one for one in records(of) if (one["method"], one["phase"]) in good]
    runs += [lost("power_sgd", seed) for seed in of["seeds"]]
    write(tmp_path, of, runs)
    text = (tmp_path / "report.md").read_text()
    words = "diverged (3 of 3) | - | worse: 3 of 3 runs diverged"
    assert f"| `power_sgd` | {words} |" in text
    assert "| `power_sgd` | not reached | not reached |" in text
    result = summary(of, runs)
    assert "diverged" in texts(curves(result, axes_of(result)[0]))
    won = {win.method for row in winners(result, of["map"]) for win in row}
    assert won == {"all_reduce"}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_unfinished_study_has_a_report(tmp_path, count):
    write(tmp_path, OF, RUNS[-count:] if count else [])
    text = (tmp_path / "report.md").read_text()
    assert "Read with care" in text
    assert "The study is not finished" in text


def test_the_winner_is_the_smallest_product_of_steps_and_seconds():
    cells = winners(RESULT, OF["map"])
    by_hand = {row.method: row.steps_to_target for row in RESULT.rows}
    for y, late in enumerate(LATENCY_MS):
        for x, wide in enumerate(GBPS):
            times = {
                name: steps * seconds(name, late / 1000, wide / 8 * 1e9)
                for name, steps in by_hand.items()
                if steps is not None
            }
            best = min(times, key=lambda name: times[name])
            win = cells[y][x]
            assert win.method == best
            assert win.times == pytest.approx(times["all_reduce"] / times[best])
            second = sorted(times.values())[1]
            assert win.close == (second <= 1.1 * times[best])
    assert letters(cells, list(METHODS))["all_reduce"] == "A"


def test_colors_are_those_that_people_tell_apart():
    """Okabe and Ito's, and each is seen on both grounds: a contrast of at least 1.9."""

    def light(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [
            p / 12.92 if p <= 0.04 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        ]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for theme, ground in (("light", "#ffffff"), ("dark", "#15181d")):
        changed = _svg.THEMES[theme]
        for color in PALETTE:
            pair = sorted((light(changed.get(color, color)), light(ground)))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 1.9, (theme, color)


def test_what_a_loss_shows_where_it_falls_far():
    of = study(["all_reduce", "power_sgd"])
    of["task"] |= {"better": "lower", "metric_name": "loss"}
    runs = [one for one in records(of) if one["phase"] == "report"]
    for one in runs:
        one["curve"] = [
            [s, loss, 2.3 * math.exp(-s / 60)] for s, loss, _ in one["curve"]
        ]
        one["validation"] = one["curve"][-1][2]
    result = summary(of, runs)
    assert curves(result, axes_of(result)[0]).axes[0].get_yscale() == "log"
    assert curves(RESULT, axes_of(RESULT)[0]).axes[0].get_yscale() == "linear"
    assert curves(RESULT, axes_of(RESULT)[1]).axes[0].get_xscale() == "log"


def test_one_seed_has_neither_spread_nor_verdict():
    of = study(["all_reduce", "power_sgd"], seeds=(101,))
    result = summary(of, records(of))
    row = result.rows[1]
    assert row.spread is None
    assert _words.verdict(row) == (
        "no verdict: a verdict needs 3 report seeds; there is 1"
    )
    assert "[" not in _words.difference(row)
    assert "±" not in _words.mean_and_spread(row)


def test_where_seconds_do_not_come_from_a_plan_the_report_says_so():
    of = study(["all_reduce", "power_sgd"])
    assert not any("traced" in words for words in _words.reading(summary(of, [])))
    of["seconds_source"]["power_sgd"] = "traced bytes"
    said = " ".join(_words.reading(summary(of, [])))
    assert "those of power_sgd, from traced bytes and rounds of messages" in said


def test_the_conclusion_names_only_what_reaches_the_target():
    words = " ".join(_words.conclusion(RESULT))
    reach = {r.method: r.bytes_to_target for r in RESULT.rows if r.bytes_to_target}
    best = min(reach, key=lambda name: reach[name])
    assert f"{best} reaches the target with the fewest bytes" in words
    hard = summary(OF | {"target": 2.0}, RUNS)
    assert "reach" not in " ".join(_words.conclusion(hard))


def test_what_sends_nothing_has_the_fewest_bytes_and_what_diverged_is_never_first():
    quick, silent = list(METHODS)[1:3]
    runs = [
        run
        | ({"bytes_per_step": 0.0} if run["method"] == silent else {})
        | ({"test": None} if run["method"] == quick else {})
        for run in RUNS
    ]
    of = OF | {"seconds": OF["seconds"] | {quick: dict.fromkeys(NETWORKS, 1e-9)}}
    swift = OF["map"]["seconds"] | {quick: np.zeros((len(LATENCY_MS), len(GBPS)))}
    found = summary(of, runs)
    words = " ".join(_words.conclusion(found))
    assert f"{silent} reaches the target with the fewest bytes: 0 B" in words
    assert "is predicted to reach the target first" in words
    assert f"{quick} is predicted to reach the target first" not in words
    cells = winners(found, OF["map"] | {"seconds": swift})
    assert quick not in {win.method for row in cells for win in row}


def kept(folder, of, runs) -> compare.Results:
    """A study as it is on disk."""
    (folder / "study.json").write_text(json.dumps(of))
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in runs))
    return compare.Results(folder)


def test_a_notebook_shows_verdicts_and_a_table_escaped(tmp_path):
    of = study()
    of["task"]["metric_name"] = "<i>"
    found = Page(kept(tmp_path, of, RUNS)._repr_html_())
    assert {tag for tag, _ in found.tags} == {"p", "table", "tr", "th", "td"}
    assert set(METHODS) <= set(found.cells)
    assert "".join(found.text).startswith("Test <i> against all_reduce, seed by seed")


@pytest.mark.long
def test_the_command_ends_with_the_table_the_verdicts_and_the_path(tmp_path):
    results = kept(tmp_path, OF, RUNS)
    done = CliRunner().invoke(_app.app, ["compare", str(tmp_path)])
    assert done.exit_code == 0, done.output
    table = results.table()
    assert "accuracy" in table
    assert done.stdout.startswith(table)
    *verdicts, last = done.stdout.removeprefix(table).splitlines()
    assert verdicts == results.conclusion()
    assert "Worse: " in verdicts[0]
    assert last == f"Report: {tmp_path / 'report.html'}"
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "0.5"], "leave --target out"),
        (["--relaxation", "gossip"], "leave --relaxation out"),
        (["--out", "elsewhere"], "leave --out out"),
    ],
)
def test_a_study_that_is_there_is_not_asked_anew(tmp_path, more, message):
    kept(tmp_path, OF, RUNS)
    refused = CliRunner().invoke(_app.app, ["compare", str(tmp_path), *more])
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.split())


@pytest.mark.parametrize("budget", [".s", "1.2.3s", "s"])
def test_a_budget_is_a_time(budget):
    told = CliRunner().invoke(_app.app, ["compare", "digits", "--budget", budget])
    assert told.exit_code == 2
    assert "must be a time, as in 90s" in " ".join(told.output.split())
