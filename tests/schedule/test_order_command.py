"""The command, on a small file of a user's."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from relaxjax.cli._order import order

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

constant = 3
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "lonely.py").write_text("def f(w):\n    return w\n")
    monkeypatch.chdir(tmp_path)
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
        (["model.py:forward", "--gbps", "0"], "bandwidth must be > 0"),
        (["model.py:forward", "--random-orders", "0"], "--random-orders"),
    ],
)
def test_user_errors_exit_with_2_and_no_traceback(call, arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in re.sub(r"[│\s]+", " ", result.output)
    assert "Traceback" not in result.output
