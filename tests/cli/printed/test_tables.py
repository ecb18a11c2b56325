"""Tables of all commands at 80 and 120 columns: names whole, figures in line."""

import math
import re
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from relaxjax.cli import _check, app
from relaxjax.cli.printed import _report, _tables
from relaxjax.cli.training import _order_report
from relaxjax.cli.training._job import Order
from relaxjax.ps import CompiledOrder
from relaxjax.schedule import Graph
from tests.cli.printed.test_report import record_of

WIDTHS = (80, 120)
FILE = """
import jax.numpy as jnp

def loss(params, x):
    return sum(jnp.sum((x @ p["attention"]["kernel"]) ** 2) for p in params.values())

def loss_args():
    layer = {"attention": {"kernel": jnp.ones((64, 64))}}
    return {f"transformer_layer_number_{i}": layer for i in range(12)}, jnp.ones(64)
"""
LAYERS = [f"transformer_layer_number_{i}/attention/kernel" for i in range(12)]


def lines(line: str, width: int) -> list[str]:
    """What a command prints into a pipe of so many columns."""
    env = {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}
    result = CliRunner().invoke(app, line.split(), env=env, prog_name="relaxjax")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mode", ["forward", "train"])
def test_an_order_has_every_parameters_name_whole(width, mode, tmp_path):
    (tmp_path / "file.py").write_text(FILE)
    shown = lines(f"order {tmp_path}/file.py:loss --mode {mode}", width)
    assert set(LAYERS) <= set(re.split(r"[\s│]+", "\n".join(shown)))


@pytest.mark.few(2)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["local_sgd", "gossip+quantize8", "zero_one_adam"])
def test_what_is_explained_breaks_no_word(name, width):
    wide, narrow = lines(f"explain {name}", 1000), lines(f"explain {name}", width)
    assert " ".join(wide).split() == " ".join(narrow).split()
    assert max(map(len, narrow)) <= width


LONG = "asynchronous_average+min_max_uint8+ef21_sgdm@two_shot"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["all_reduce", "all_reduce+sign+ef14@two_shot", LONG])
def test_a_runs_table_breaks_a_name_at_its_parts_alone(name, width):
    record = record_of(relaxation=name, workers=8, bytes_per_step=123456789)
    one = record_of(relaxation="no relaxation")
    table = _report.table([record, one], caption="", width=width)
    shown = printed(table, width)
    parts = re.findall(r"[+@]?[^+@]+", name)
    words = set(re.split(r"[\s│┃]+", shown))
    assert name in words or set(parts) <= words
    assert "123,456,789" in words
    assert max(map(len, shown.splitlines())) <= width
    assert name in words or len(name) > 29


def printed(table: Table, width: int) -> str:
    file = StringIO()
    _tables.show(Console(file=file, width=width, color_system=None), table)
    return file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_compiled_orders_have_whole_names(width):
    order = Order("tac", Graph({}, {}), tuple(LAYERS))
    table = _order_report.table(order, CompiledOrder(tuple(LAYERS), tuple(LAYERS)))
    words = printed(table, width).split()
    assert all(words.count(name) == 3 for name in LAYERS)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_checks_runs_have_whole_names_and_figures_in_line(width):
    name = "all_reduce+rotated_sign+ef14@two_shot"
    rows = [(name, 182896.0, 1.9, 0.5194), ("mine", 7616.5, 2.045, 0.5)]
    keys = ("label", "bytes_per_step", "loss", "metric")
    runs = [dict(zip(keys, row, strict=True)) for row in rows]
    told = {"steps": 3, "task": "digits", "metric": "accuracy"}
    table = _check._quality_table({"conditions": told, "quality": runs})
    shown = printed(table, width)
    assert name in shown.split()
    first, second = (x for x in shown.splitlines() if re.search(r"\d\.\d", x))
    points = [[m.start() for m in re.finditer(r"\.", x)] for x in (first, second)]
    assert points[0] == points[1]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.5469, 109.375, 0.0], ["0.547", "109.375", "0.000"]),
        ([2500.0, 316.9], ["2,500", "317"]),
        ([1e-9, 1.0], ["0.000000", "1.000000"]),
        ([8, 12345], ["8", "12,345"]),
        ([2.5, None, "failed", math.nan], ["2.50", "-", "failed", "nan"]),
        ([], []),
    ],
)
def test_figures_of_a_column_have_the_same_decimals(values, shown):
    assert _tables.aligned(values) == shown
