"""Help and tables are whole at the widths of usual terminals."""

import re

import pytest
from typer.testing import CliRunner

from relaxjax._core.foreign._words import fixed
from relaxjax.cli._app import COMMANDS, app, load
from relaxjax.cli.printed._plan_table import show as print_plan
from relaxjax.plan import Model, Network, Ranking, rank
from relaxjax.schedule import Link

WIDTHS = [80, 120]
widths = pytest.mark.parametrize("width", WIDTHS)


def output(*arguments: str, width: int) -> list[str]:
    env = {"COLUMNS": str(width), "TERMINAL_WIDTH": str(width), "NO_COLOR": "1"}
    result = CliRunner().invoke(app, list(arguments), env=env)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


@widths
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_every_option_whole(command, width):
    lines = output(command, "--help", width=width)
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "\u2026" in line]
    words = set(re.split(r"[\s,=/]+", "\n".join(lines)))
    for option in load(command).params:
        for name in [*option.opts, *option.secondary_opts]:
            if name.startswith("-"):
                assert name in words, name


@widths
def test_the_list_of_commands_is_whole(width):
    text = "\n".join(output("--help", width=width))
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", text, re.M), name


@pytest.fixture(scope="module")
def found() -> tuple[Ranking, Network]:
    """All relaxations on a long link, so that numbers are wide too."""
    network = Network(workers=8, link=Link(0.05, 1.25e8, 6 * 2**20))
    model = Model.of_size(125_000_000, compute=0.3)
    return rank(model, network, bucket_bytes=2**23), network


@pytest.mark.slow
def test_names_in_a_plan_are_whole_and_the_choice_stands_first(
    found, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    ranking, network = found
    print_plan(ranking, network, len(ranking.rows))
    text = capsys.readouterr().out
    assert "\x1b" not in text
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if "relaxation" in line)
    table = lines[head + 2 :][: len(ranking.rows)]
    assert table[0].startswith(f"* {ranking.choice.label} ")
    labels = [re.split(r"  +", line[2:])[0] for line in table]
    assert sorted(labels) == sorted(row.label for row in ranking.rows)
    others = [float(re.split(r"  +", line[2:])[1]) for line in table[1:]]
    assert others == sorted(others)
    assert max(map(len, table)) <= 120
    both = zip(table, labels, strict=True)
    points = {line.index(".", len(label) + 2) for line, label in both}
    assert len(points) == 1  # the decimal points of steps stand in one column


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_plan_in_a_narrow_terminal_has_names_and_figures_whole(
    width, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    network = Network(workers=8, link=Link(0.05, 1.25e8, 6 * 2**20))
    model = Model.of_size(125_000, compute=0.3)
    ranking = rank(model, network, bucket_bytes=2**23)
    print_plan(ranking, network, 12)
    text = capsys.readouterr().out
    assert "\u2026" not in text
    others = [row for row in ranking.rows if row is not ranking.choice]
    for row in [ranking.choice, *others[:11]]:
        step = f"{1e3 * row.seconds:.1f}"
        assert re.search(rf"{re.escape(row.label)}\s+{re.escape(step)}\s", text)


def test_what_is_small_is_no_zero():
    small = ["--params", "500", "--compute-ms", "0.01", "--workers", "4"]
    lines = output("plan", *small, "--bandwidth-gbps", "10", width=120)
    rows = [line for line in lines if "unmeasured" in line or "lossy" in line]
    assert rows
    for row in rows:
        figures = [float(x) for x in row.split() if re.fullmatch(r"[\d.]+", x)]
        assert figures, row
        assert min(figures) > 0, row


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (0.049, 1, "0.049"),
        (0.05, 1, "0.1"),
        (0.0009999, 2, "0.0010"),
        (-0.00002, 4, "-0.000020"),
        (0.0, 2, "0.00"),
        (float("nan"), 2, "nan"),
        (1234.5, 1, "1234.5"),
    ],
)
def test_two_digits_are_left_of_a_small_number(value, places, text):
    assert fixed(value, places) == text
