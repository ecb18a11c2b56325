"""Split models in the network bench: what they send, and a short run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.network import inside as _inside
from benchmarks.network import jax_inside
from benchmarks.network.methods import RELAXJAX, Method
from benchmarks.network.problem import Problem, Shape, problem, task
from benchmarks.report import Run
from relaxjax import activations
from relaxjax.hosts import Namespaces

WIDTH, LAYERS, ROWS = 64, 2, 8
EIGHT = {"forward": "e4m3", "backward": "e5m2"}
FOUR = {"forward": "e2m1", "backward": "e2m1"}


def told(name: str, without: str = "", **codes: str) -> dict:
    method = Method(system=RELAXJAX, name=name, options=codes, without=without)
    return method.plain(steps=10, rate=1e-2)


@pytest.fixture(scope="module")
def small() -> Problem:
    return problem(task(WIDTH, LAYERS), processes=1, steps=2, windows=1)


def losses(name: str, small: Problem, hosts: int, **codes: str) -> list[float]:
    own = jax_inside.begin(told(name, **codes), small, jax.devices()[:hosts])
    return [own.step(np.zeros(0)) for _ in range(4)]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["tensor", "pipeline"])
@pytest.mark.parametrize("codes", [{}, EIGHT, FOUR], ids=["none", "eight", "four"])
@pytest.mark.parametrize("hosts", [2, 4])
def test_bare_legs_send_the_bytes_of_a_step(name, codes, hosts):
    layers = 4
    model = jax_inside.model_of(told(name, **codes), (WIDTH, layers), (ROWS, 33), hosts)
    kind, batch = jax_inside.NAMES[name], jnp.zeros((ROWS, 33), jnp.int32)

    def sent(loss, params):
        found = activations.traced_bytes(
            loss, params, batch, axes={jax_inside.AXIS: hosts}
        )
        return found[jax_inside.AXIS]

    step = sent(lambda p, rows: kind.loss(p, rows, model), kind.start(model, 0))
    bare = sent(lambda x, rows: jax_inside.bare(kind, model, x, rows)[1], np.float32(0))
    ways = step.forward, step.backward
    # Of two stages one sends forward and the other backward.
    both = max(ways) if (name, hosts) == ("pipeline", 2) else sum(ways)
    assert both == bare.forward > 0


@pytest.mark.long
def test_codes_leave_the_loss_near_and_links_alone_cost_no_bytes(small):
    whole = losses("tensor", small, 2)
    assert whole[3] < whole[0]
    np.testing.assert_allclose(losses("tensor", small, 2, **EIGHT), whole, rtol=0.02)
    assert losses("tensor", small, 2, **EIGHT) != whole
    alone = jax_inside.begin(told("tensor", "links"), small, jax.devices()[:2])
    assert np.isfinite(alone.step(np.zeros(0)))


@pytest.mark.long
def test_a_pipeline_has_its_loss_in_the_last_stage(small):
    """The first host gives 0, and the params of each stage move."""
    kind = jax_inside.NAMES["pipeline"]
    model = jax_inside.model_of(told("pipeline"), (WIDTH, 2), (ROWS, 33), 2)
    batch = jnp.asarray(np.random.default_rng(0).integers(0, 128, (ROWS, 33)))
    parts = [kind.start(model, i) for i in range(2)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *parts)
    grad = jax.value_and_grad(lambda params: kind.loss(params, batch, model))
    found, grads = jax.vmap(grad, axis_name=jax_inside.AXIS)(stacked)
    assert found[0] == 0 < found[1]
    whole = jax_inside.model_of(told("pipeline"), (WIDTH, 2), (ROWS, 33), 1)
    first, last = parts
    both = {**last, "layers": first["layers"] + last["layers"]}
    both |= {key: first[key] for key in ("symbols", "positions")}
    one = jax.vmap(lambda p: kind.loss(p, batch, whole), axis_name=jax_inside.AXIS)
    alone = one(jax.tree.map(lambda x: x[None], both))
    np.testing.assert_allclose(found[1], alone[0], rtol=1e-5)
    moved = jax.tree.map(lambda x: np.abs(np.asarray(x)).sum((1, 2)), grads["symbols"])
    assert moved[0] > 0 == moved[1]


@pytest.mark.slow
def test_a_run_over_loopback(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Namespaces, "missing", staticmethod(lambda: "not here"))
    run = Run("network_inside_2", tmp_path)
    found = _inside.inside(run, Shape(8, 2, 2), rounds=1)
    assert (tmp_path / "network_inside_2.json").exists()
    assert len(found["rows"]) == 2 * len(_inside.CODES)
    for row in found["rows"]:
        floor = row["alone"] + row["bare"]
        assert row["over_floor"][0] == pytest.approx(row["seconds"] / floor)
    assert "A split model on 2 hosts" in capsys.readouterr().out
