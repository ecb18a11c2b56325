"""The ablation and the memory of the network bench: variants, and short runs."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.interpreters.partial_eval import dce_jaxpr

from benchmarks.network import ablation as _network_ablation
from benchmarks.network import memory as _network_memory
from benchmarks.network.ablation import ABLATIONS
from benchmarks.network.jax_worker import transformation
from benchmarks.network.methods import ALONE, METHODS, PAIRS, RELAXJAX, Method
from benchmarks.network.problem import Shape
from benchmarks.network.variants import wait_for_all
from benchmarks.report import Run
from relaxjax.hosts import Namespaces
from tests.helpers import assert_equal

PARAMS = {"b": jnp.zeros(3), "u": jnp.zeros((4, 5)), "w": jnp.zeros((5, 3))}


def method(name: str, without: str = "") -> dict[str, Any]:
    row = Method(system=RELAXJAX, name=name, without=without)
    return row.plain(rate=0.1, steps=10)


def step(told: dict[str, Any], grads: Any) -> Any:
    tx = transformation(told, 4)

    def one(g):
        return tx.update(g, tx.init(PARAMS), PARAMS)[0]

    return jax.vmap(one, axis_name="data")(grads)


def drawn(n: int = 4) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=(n, *x.shape)), jnp.float32), PARAMS
    )


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("without", ["fusion", "overlap"])
@pytest.mark.parametrize("name", ["all_reduce@ring", "gossip", "local_sgd@ring"])
def test_a_variant_computes_the_same(name, without):
    grads = drawn()
    found, whole = (step(method(name, w), grads) for w in (without, ""))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7),
        found,
        whole,
    )


@pytest.mark.parametrize(
    ("without", "messages"), [("", 2), ("overlap", 2), ("fusion", 3)]
)
def test_without_fusion_each_leaf_has_its_messages(without, messages):
    """Of two workers a ring has two rounds; vectors travel beside coded matrices."""
    tx = transformation(method("all_reduce+quantize8@ring", without), 2)

    def one(g):
        return tx.update(g, tx.init(PARAMS), PARAMS)[0]

    jaxpr = str(jax.make_jaxpr(one, axis_env=[("data", 2)])(PARAMS))
    rings = jaxpr.count(" ppermute[")
    assert (rings + 2 * jaxpr.count(" psum[")) / 2 == messages


def test_waiting_for_all_changes_no_bit_and_ties_each_to_all():
    grads = {**PARAMS, "nan": jnp.array([jnp.nan, -0.0, jnp.inf])}
    wait = wait_for_all()

    def through(g):
        return wait.update(g, optax.EmptyState())[0]

    before, after = (
        jax.tree.map(lambda x: np.asarray(x).view(np.uint32), tree)
        for tree in (grads, through(grads))
    )
    assert_equal(after, before)
    jaxpr = jax.make_jaxpr(through)(grads).jaxpr
    for i in range(len(grads)):
        _, needed = dce_jaxpr(jaxpr, [k == i for k in range(len(grads))])
        assert all(needed)


def test_every_ablation_is_of_one_thing():
    """At least four families for each."""
    named: dict[str, set[str]] = {}
    for whole, without in ABLATIONS:
        assert not whole.without
        assert whole.system == without.system
        assert (whole.system == PAIRS) == (without.without == "hierarchy")
        named.setdefault(without.without, set()).add(whole.label)
    assert {k: len(v) for k, v in named.items()} == {
        "overlap": 4,
        "fusion": 4,
        "hierarchy": 4,
    }


@pytest.mark.slow
def test_an_ablation_over_loopback(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Namespaces, "missing", staticmethod(lambda: "not here"))
    few = [a for a in ABLATIONS if a.whole.name in ("gossip", "all_reduce@ring")]
    run = Run("network_ablation", tmp_path)
    found = _network_ablation.ablation(run, Shape(8, 1, 2), rounds=1, ablations=few)
    assert (tmp_path / "network_ablation.json").exists()
    whats = [row["what"] for row in found["rows"]]
    assert whats == ["overlap"] * 2 + ["fusion"] * 2 + ["hierarchy"]
    for row in found["rows"]:
        assert row["ratio"][0] == pytest.approx(row["lacking"] / row["whole"])
    assert "Steps without" in capsys.readouterr().out


@pytest.mark.slow
def test_memory_is_the_peak_of_the_steps_alone(tmp_path, capsys):
    few = [m for m in METHODS if m.label in (ALONE, "all_reduce")]
    run = Run("network_memory", tmp_path)
    found = _network_memory.memory(run, few, Shape(8, 1, 2))
    alone, plain = found["rows"]
    assert (alone["method"], plain["method"]) == (ALONE, "all_reduce")
    assert plain["more"] == 0
    assert alone["more"] == alone["peak"] - plain["peak"]
    assert 50 * 2**20 < plain["peak"] < 4 * 2**30
    assert math.isfinite(alone["models"])
    assert "Resident memory" in capsys.readouterr().out


def test_memory_needs_linux(monkeypatch, tmp_path):
    monkeypatch.setattr(_network_memory, "_PROC", Path(tmp_path))
    with pytest.raises(ValueError, match="which Linux has"):
        _network_memory.memory(Run("", tmp_path), METHODS, Shape(8, 1))
