"""The `order` command, on a small file like a user's."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from relaxjax.cli._order import order
from relaxjax.cli.printed._order_tables import SYMBOLS

ROOT = Path(__file__).parents[2]

FILE = """
import jax, jax.numpy as jnp

def forward(params, x):
    for layer in params:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x

def loss(params, x):
    return jnp.sum(forward(params, x))

def example_args():
    layer = {"w": jax.ShapeDtypeStruct((8, 8), jnp.float32), "b": jnp.ones(8)}
    return [layer, layer], jax.ShapeDtypeStruct((4, 8), jnp.float32)

def scale(w=jnp.ones(3), x=jnp.ones(3)):
    return w * x

def needy(w, x):
    return w * x

def needy_args():
    return jnp.ones(3)

def wide(params):
    return sum(jnp.sum(p) for p in params)

def wide_args():
    return ([jnp.ones(2)] * 25,)

def unlucky(w):
    return w

def unlucky_args():
    raise KeyError("lost")

constant = 3
"""

NEIGHBOR = """
from __future__ import annotations
from dataclasses import dataclass
import flax.linen as nn, jax, jax.numpy as jnp
from layers_beside import WIDTH

@dataclass
class Sizes:
    width: int = WIDTH

class Net(nn.Module):
    sizes: Sizes

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(self.sizes.width)(x)))

def forward(variables, x):
    return Net(Sizes()).apply(variables, x)

def forward_args():
    x = jnp.ones((2, 4))
    return jax.eval_shape(Net(Sizes()).init, jax.random.key(0), x), x
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "lonely.py").write_text("def f(w):\n    return w\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "layers_beside.py").write_text("WIDTH = 5\n")
    (tmp_path / "deep" / "net.py").write_text(NEIGHBOR)
    monkeypatch.chdir(tmp_path)
    for name in ("model", "broken", "lonely", "net", "layers_beside"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    del sys.modules["layers_beside"]
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer()
    app.command()(order)

    def run(*arguments):
        return CliRunner().invoke(app, arguments)

    return run


def test_json(call):
    result = call("model.py:forward", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["orders"]["tac"] == ["0/w", "0/b", "1/w", "1/b"]
    assert set(report["orders"]) >= {"best", "tic", "optimum", "layer"}
    assert [t["name"] for t in report["transfers"]] == report["orders"]["best"]
    assert report["transfers"][0]["bytes"] == 256
    spans, limits = report["makespan"], report["bounds"]
    assert limits["lower"] <= limits["graph_lower"] <= spans["optimum"] <= spans["best"]
    assert spans["best"] <= spans["tac"] <= limits["upper"]
    assert spans["best"] < spans["random"] <= limits["upper"]
    assert report["attributed"] == 1.0


def test_tables(call):
    result = call("model.py:forward", "--random-orders", "7")
    assert result.exit_code == 0, result.output
    for text in ("0/w", "M+", "random, mean of 7", "optimum", "over the bound", "S = "):
        assert text in result.stdout


def test_every_symbol_is_explained(call):
    """In the output, and with the same letters in the docs."""
    shown = call("model.py:forward").stdout
    page = (ROOT / "docs" / "orders.md").read_text()
    for symbol, meaning in SYMBOLS.items():
        lines = [x for x in shown.splitlines() if x.split()[:1] == [symbol]]
        assert [x for x in lines if meaning.split()[0] in x.split()], symbol
        assert f"\n| `{symbol}` |" in page
    columns = re.findall(r"┃ *(M\+|[A-Z]) *(?=┃)", shown)
    letters = re.findall(r"\b([A-Z]) = ", shown)
    assert set(columns) | set(letters) == {"M", "P", "M+", "E", "L", "U", "S"}
    assert set(columns) | set(letters) == set(SYMBOLS)


def test_ranks_begin_at_one_as_in_the_picture(call):
    shown = call("model.py:forward").stdout
    rows = re.findall(r"│ (\d+) +│ (\S+)", shown)
    best = json.loads(call("model.py:forward", "--json").stdout)["orders"]["best"]
    assert rows == [(str(rank), name) for rank, name in enumerate(best, start=1)]


def test_training_graph_and_files(call, tmp_path):
    result = call(
        "model.py:loss",
        "--mode",
        "train",
        "--json",
        "--trace",
        "t.json",
        "--png",
        "t.png",
    )
    assert result.exit_code == 0, result.output
    assert "optimum" not in json.loads(result.stdout)["orders"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert any(e["name"].startswith("push ") for e in events)
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_defaults_and_single_arguments_serve_as_examples(call):
    assert call("model.py:scale", "--json").exit_code == 0
    assert call("model.py:wide").exit_code == 0
    assert "optimum" not in json.loads(call("model.py:wide", "--json").stdout)["orders"]


def test_a_file_may_import_its_neighbors_and_define_dataclasses(call):
    result = call("deep/net.py:forward", "--json")
    assert result.exit_code == 0, result.output
    sizes = {t["name"]: t["bytes"] for t in json.loads(result.stdout)["transfers"]}
    assert sizes["params/Dense_1/kernel"] == 4 * 5 * 4
    assert "deep" not in "".join(sys.path)


def test_tables_and_files_name_what_could_not_be_saved(call, tmp_path):
    for option in ("--trace", "--png"):
        result = call("model.py:forward", "--json", option, "absent/x")
        assert result.exit_code == 2
        assert "the timeline was not saved" in re.sub(r"[│\s]+", " ", result.output)
    assert call("model.py:forward", "--json", "--png", "chart").exit_code == 0
    assert (tmp_path / "chart").read_bytes().startswith(b"\x89PNG")


def test_links_change_times(call):
    slow = json.loads(call("model.py:forward", "--json", "--gbps", "0.01").stdout)
    fast = json.loads(call("model.py:forward", "--json", "--gbps", "100").stdout)
    assert slow["makespan"]["best"] > 2 * fast["makespan"]["best"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.py"], "expected FILE.py:FUNCTION"),
        (["absent.py:f"], "no such file: absent.py"),
        (["broken.py:f"], "could not be imported: ZeroDivisionError"),
        (["model.py:absent"], "defines no function 'absent'"),
        (["model.py:constant"], "defines no function 'constant'"),
        (["lonely.py:f"], "define f_args() or example_args()"),
        (["model.py:needy"], "could not be traced with its example arguments"),
        (["model.py:unlucky"], "unlucky_args() failed: KeyError: 'lost'"),
        (["model.py:forward", "--gbps", "0"], "bandwidth must be > 0"),
        (["model.py:forward", "--random-orders", "0"], "--random-orders"),
    ],
)
def test_user_errors_exit_with_2_and_no_traceback(call, arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in re.sub(r"[│\s]+", " ", result.output)
    assert "Traceback" not in result.output
