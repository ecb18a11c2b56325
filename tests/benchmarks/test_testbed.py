"""The testbed runs, and what it reports follows from what it measured."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.testbed import Loopback, Namespaces
from benchmarks.testbed import cell as _testbed_cell
from benchmarks.testbed import cell_model as _testbed_model
from benchmarks.testbed import cell_plan as _testbed_plan
from benchmarks.testbed import study as _testbed
from benchmarks.testbed.cell_model import UNIT, towers
from relaxjax.schedule import Graph, Link


@pytest.mark.slow
def test_testbed(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(_testbed_cell.LINKS, "loopback", lambda rate: Loopback())
    result = _testbed.study(
        workers=(2,),
        servers=(2,),
        mode=("training",),
        rounds=2,
        orders=3,
        rows=4,
        width=8,
        links="loopback",
        out=str(tmp_path),
    )
    (cell,) = json.loads((tmp_path / "testbed.json").read_text())["cells"]
    assert cell == result["cells"][0]
    randoms = [f"random {i}" for i in range(3)]
    assert set(cell["orders"]) == {*_testbed.ORDERED, *randoms}
    assert {len(cell["seconds"][n]) for n in ("layer", "tic", "best", *randoms)} == {2}
    assert len(cell["seconds"]["tac"]) == len(cell["seconds"]["none"]) == 8
    assert cell["predicted"]["best"] <= cell["predicted"]["tac"]
    assert cell["seen"]["none"] == 16  # another one for every worker and step
    assert cell["communication"] > 0 < cell["computation"]
    assert "training 2/2" in capsys.readouterr().out


def cell(**others):
    orders = {"layer": "ab", "tic": "ab", "tac": "ab", "best": "ab"}
    orders |= {"random 0": "ba", "random 1": "ca"}
    seconds = {name: [2.0, 4.0] for name in orders}
    seconds |= {"random 0": [3.0, 6.0], "random 1": [5.0, 10.0]}
    seconds |= {"tac": [2.0] * 4 + [4.0] * 4, "none": [4.0] * 8}
    return {
        "orders": orders,
        "seconds": seconds,
        "predicted": dict(layer=1, tic=1, tac=1, best=1, none=2) | others,
        "stragglers": {"tac": 0.1, "none": 0.3},
        "seen": {"tac": 1, "none": 8},
    }


def test_summary():
    found = _testbed.summary(cell(**{"random 0": 2, "random 1": 3}))
    assert found["gain"]["tac"] == [1.0, 1.0, 1.0]  # (4, 8) over (2, 4)
    assert found["gain"]["none"][0] == pytest.approx(0.5)
    assert found["gain_predicted"]["tac"] == 1.5
    assert found["random"] == 6.0
    assert (
        found["tau"] == found["tau_least"] == 1.0
    )  # "ab" is one order, however often it is named
    assert _testbed.summary(cell(**{"random 0": 3, "random 1": 2}))["tau"] < 1.0
    assert found["tail"] == {"tac": 4 / 3, "none": 1.0}


def test_a_plan_knows_the_busiest_link():
    model = towers(width=8, blocks=1)
    nbytes = sum(model.nbytes.values())
    bare = Graph(dict.fromkeys(model.nbytes, 0.0), {}, nbytes=model.nbytes)
    names = list(model.nbytes)
    assert len(names) == 8
    for workers, servers, busy in ((1, 1, 1), (4, 1, 4), (1, 2, 1)):
        cluster = _testbed_plan.Cluster(
            workers, servers, Link(0.0, nbytes), segment_bytes=64
        )
        seconds = _testbed_plan.simulated(bare, cluster, names)
        assert seconds == pytest.approx(busy, rel=0.2)


def test_towers_are_unlike():
    model = towers(width=8)
    assert model.nbytes["wide0a/params"] == 2 * model.nbytes["heavy0/params"]
    assert model.needs["join1"] == ("heavy1", "deep1b", "wide1b")
    out = np.asarray(np.ones((2, 8), "f4"))
    for layer in model.layers[:2]:
        out = layer.apply(layer.params, out)
    assert out.shape == (2, 8)


def test_layers_that_wait(monkeypatch):
    slept = []
    monkeypatch.setattr(_testbed_model.time, "sleep", slept.append)
    model = towers(width=4, compute="stated")
    assert model.nbytes == towers(width=4).nbytes
    wide, join = model.layers[4], model.layers[6]
    assert (wide.name, join.name) == ("wide0a", "join0")
    x = jnp.ones((2, 4))
    y, back = jax.vjp(wide.apply, wide.params, x)
    np.testing.assert_allclose(y, 1 + np.tile(wide.params[0], (2, 1)))
    w_slope, x_slope = back(jnp.ones_like(y))
    np.testing.assert_allclose(w_slope, np.eye(4, 1) * np.full(8, 2.0))
    np.testing.assert_allclose(x_slope, 2 * x)
    np.testing.assert_allclose(slept, [2 * UNIT, 4 * UNIT])
    np.testing.assert_allclose(
        join.apply(join.params, x, x, x), 3 + np.tile(join.params[0], (2, 1))
    )


def test_names_that_are_none(monkeypatch):
    run = CliRunner().invoke(app, ["testbed", "--mode", "dreaming"])
    assert run.exit_code == 2
    assert "mode must be one of ['inference', 'training'], got 'dreaming'" in run.output
    monkeypatch.setattr(Namespaces, "missing", staticmethod(lambda: "no root"))
    with pytest.raises(ValueError, match="no root; take loopback"):
        _testbed.check(modes=None, compute="real", links="namespaces")
    with pytest.raises(ValueError, match="links must be one of"):
        _testbed.check(modes=None, compute="real", links="string")
