"""`explain` says what stands where, what it sends and keeps, and what is wrong."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import (
    activations,
    all_reduce,
    compression,
    emulate,
    explain,
    merges,
    topology,
)

PARAMS = {"w": jnp.zeros((30, 20)), "b": jnp.zeros(20)}
ADAM = optax.adam(1e-3)
MESH = emulate(4)
RING = topology.ring(4)
# Relaxations in their order, steps of a period, whether something is wrong.
CHAINS: dict[str, tuple[Any, list[str], int, str]] = {
    "all_reduce": (optax.chain(all_reduce("data"), ADAM), ["all_reduce"], 1, ""),
    "signs": (
        optax.chain(
            all_reduce(
                "data", compressor=compression.error_feedback(compression.sign())
            ),
            ADAM,
        ),
        ["all_reduce"],
        1,
        "",
    ),
    "power_sgd": (
        optax.chain(relaxjax.power_sgd("data", start_after=20), ADAM),
        ["power_sgd"],
        1,
        "",
    ),
    "local_sgd": (
        optax.chain(ADAM, relaxjax.local_sgd("data", 5)),
        ["local_sgd"],
        5,
        "",
    ),
    "diloco": (relaxjax.diloco(ADAM, "data", 7), ["diloco"], 7, ""),
    "tracking": (
        optax.chain(
            relaxjax.gradient_tracking("data", RING),
            optax.sgd(0.1),
            relaxjax.gossip("data", RING),
        ),
        ["gradient_tracking", "gossip"],
        1,
        "",
    ),
    "one_bit_adam": (
        relaxjax.one_bit_adam("data", 1e-3, freeze_step=9),
        ["one_bit_adam"],
        1,
        "",
    ),
    "parameter_server": (
        relaxjax.parameter_server(ADAM, "data"),
        ["parameter_server"],
        1,
        "",
    ),
    "no reducer": (ADAM, [], 1, "nothing in this transformation"),
    "gossip before adam": (
        optax.chain(relaxjax.gossip("data", RING), ADAM),
        ["gossip"],
        1,
        "gossip stands before",
    ),
    "local_sgd before adam": (
        optax.chain(relaxjax.local_sgd("data", 3), ADAM),
        ["local_sgd"],
        3,
        "local_sgd stands before",
    ),
    "two reducers": (
        optax.chain(all_reduce("data"), all_reduce("data"), ADAM),
        ["all_reduce", "all_reduce"],
        1,
        "has reduced over",
    ),
}


def test_a_mean_of_few_bytes_is_not_rounded_to_a_whole_one():
    """One meeting in 5000 steps, of 1000 elements over a ring of four."""
    tx = optax.chain(optax.sgd(0.1), relaxjax.local_sgd("data", 5000))
    found = explain(tx, {"w": jnp.zeros(1000)}, MESH)
    sent = 2 * 3 * 250 * 4
    assert found.sends == {4999: sent}
    assert found.bytes_per_step == sent / 5000
    assert "sends 1.2 bytes a step" in str(found)


def test_state_of_any_form_is_counted():
    """Of a transformation by hand: a dict of buffers, and one array."""
    buffers = {"sum": jnp.zeros(1000), "square": jnp.zeros(500)}

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        del params
        return updates, state

    own = optax.GradientTransformation(lambda params: (buffers, jnp.zeros(10)), update)
    tx = optax.chain(all_reduce("data"), own, ADAM)
    found = explain(tx, PARAMS, MESH)
    assert found.state_mb["other"] == pytest.approx(4 * 1510 / 1e6)
    assert set(found.state_mb) == {"ScaleByAdamState", "other"}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_in_words_and_data(name):
    tx, relaxations, period, problem = CHAINS[name]
    found = explain(tx, PARAMS, MESH)
    assert [x["name"] for x in found.relaxations] == relaxations
    assert found.period == period
    assert math.ceil(found.bytes_per_step) == relaxjax.wire_bytes(tx, PARAMS, MESH)
    assert bool(found.sends) == bool(relaxations)
    assert len(found.problems) == bool(problem)
    assert all(problem in text for text in found.problems)
    text = str(found)
    for number, relaxation in enumerate(relaxations, 1):
        assert f"{number}. {relaxation} over data" in text
    assert json.loads(json.dumps(found.as_dict()))["period"] == period


RULED = {
    "all_reduce": lambda rule: optax.chain(all_reduce("data", op=rule), ADAM),
    "diloco": lambda rule: relaxjax.diloco(ADAM, "data", 3, merge=rule),
    "local_sgd": lambda rule: optax.chain(
        ADAM,
        relaxjax.local_sgd("data", 3, merge=rule, reducer=relaxjax.power_sgd("data")),
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RULED)
def test_a_rule_is_named_where_contributions_are_merged(name):
    rules = [merges.clipped(), merges.nearest(1, merges.median())]
    for rule in rules[: 1 if name == "local_sgd" else 2]:
        found = explain(RULED[name](rule), PARAMS, MESH)
        assert [x["merge"] for x in found.relaxations] == [rule.name]
        assert found.problems == []
        assert f"; merges by {rule.name}\n" in str(found)
    plain = explain(optax.chain(all_reduce("data"), ADAM), PARAMS, MESH)
    assert "merge" not in plain.relaxations[0]


def test_state_is_counted_by_what_holds_it():
    tx = optax.chain(
        all_reduce("data", compressor=compression.error_feedback(compression.sign())),
        ADAM,
    )
    found = explain(tx, PARAMS, MESH)
    assert found.state_mb["AllReduceState"] == pytest.approx(620 * 4 / 1e6)
    assert found.state_mb["ScaleByAdamState"] == pytest.approx(2 * 620 * 4e-6, rel=0.01)


def test_phases_are_named():
    found = explain(CHAINS["power_sgd"][0], PARAMS, MESH)
    assert found.phase_ends == [20]
    assert "advance_phases" in str(found)


def split_mesh():
    devices = np.asarray(jax.devices()[:8]).reshape(2, 4)
    return jax.sharding.Mesh(devices, ("data", "model"))


def test_a_loss_that_sends_is_counted_both_ways_on_each_axis():
    """Codes of a row of 64: 64 bytes and two scales; a sum takes two shots."""
    forward, backward = compression.mx("e4m3"), compression.mx("e2m1")

    def loss(params, batch):
        x = activations.copy(batch, "model", backward=backward)
        y = activations.all_reduce(x @ params, "model", forward=forward)
        return jnp.mean(y**2)

    mesh, tx = split_mesh(), optax.chain(all_reduce("data"), ADAM)
    asked = {"loss": loss, "batch": jnp.ones((8, 64))}
    params = jnp.zeros((64, 64))
    found = explain(tx, params, mesh, axis_name="data", **asked)
    sent = {"model": [2 * 3 * 2 * (64 + 2), 0]}  # of the batch no gradient is asked
    assert found.loss_sends == sent
    assert json.loads(json.dumps(found.as_dict()))["loss_sends"] == sent
    assert "the loss sends 792 bytes forward and 0 backward over model\n" in str(found)
    alone = explain(tx, params, mesh, axis_name="data")
    assert alone.loss_sends == {}
    assert "the loss" not in str(alone)
    assert alone.bytes_per_step == found.bytes_per_step


def test_the_backward_pass_of_a_loss_is_for_the_params():
    """And of its first number, whatever else it returns."""

    def loss(params, batch):
        x = activations.copy(jnp.tanh(batch @ params[0]), "model", backward=code)
        return jnp.mean(activations.all_reduce(x @ params[1], "model")), {"tokens": 8}

    code, params = compression.mx("e2m1"), jnp.zeros((2, 64, 64))
    found = explain(
        optax.chain(all_reduce("data"), ADAM),
        params,
        split_mesh(),
        axis_name="data",
        loss=loss,
        batch=jax.ShapeDtypeStruct((8, 64), jnp.float32),
    )
    assert found.loss_sends == {"model": [2 * 3 * 2 * 64 * 4, 2 * 3 * 2 * (32 + 2)]}


def test_an_update_is_traced_once_for_its_order_and_once_for_its_bytes():
    traced = []

    def update(updates, state, params=None):
        del params
        traced.append(1)
        return updates, state

    own = optax.GradientTransformation(lambda params: (), update)
    explain(optax.chain(own, all_reduce("data"), ADAM), PARAMS, MESH)
    assert len(traced) == 2


def test_a_notebook_shows_its_lines():
    tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
    found = relaxjax.explain(tx, jnp.zeros(1000), relaxjax.emulate(4))
    html = found._repr_html_()
    assert html.count("<p>") == len(str(found).splitlines()) > 2
    assert html.startswith("<p>1. all_reduce over data: gradients")


EIGHT = all_reduce("data", compressor=compression.quantize(8))
SIDES: dict[str, tuple[Any, str]] = {
    "before": (optax.chain(EIGHT, ADAM), "gradients, before the optimizer"),
    "behind": (
        optax.chain(ADAM, EIGHT),
        "updates, behind an optimizer that remembers gradients in 'mu'",
    ),
    "behind one without memory": (
        optax.chain(optax.sgd(0.1), EIGHT),
        "gradients, before the optimizer",
    ),
    "in its place": (
        optax.chain(relaxjax.deep_gradient_compression("data"), optax.sgd(0.1)),
        "gradients, before the optimizer, in place of its momentum",
    ),
}


@pytest.mark.parametrize("name", SIDES)
def test_a_line_says_where_a_reducer_stands(name):
    tx, where = SIDES[name]
    found = explain(tx, PARAMS, MESH)
    first = str(found).splitlines()[0]
    assert first.endswith(f" over data: {where}")
    assert found.relaxations[0].get("behind") == ("mu" if name == "behind" else None)
    assert json.loads(json.dumps(found.as_dict()))["relaxations"] == found.relaxations
