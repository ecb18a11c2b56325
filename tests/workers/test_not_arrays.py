"""Models with leaves that are no arrays, as Equinox has them, are refused by name."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import schedule
from tests.test_contract import ROWS

MESH = relaxjax.emulate(4)
TX = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """A layer whose activation is a leaf, as in `equinox.nn.MLP`."""

    weight: Any
    activation: Any


def unit_step(x):
    return jnp.where(x > 0, 1.0, 0.0)


def model(activation: Any) -> Any:
    return {"layers": [Layer(jnp.ones((4, 3)), activation)]}


def loss(params):
    return params["layers"][0].weight.sum()


def train(params):
    step = relaxjax.data_parallel(lambda params, batch: (params, {}), MESH)
    return step(params, jnp.ones(4))


DOORS = {
    "init": lambda p: relaxjax.init(TX, p, MESH),
    "init, reduced in the step": lambda p: relaxjax.init(
        optax.sgd(0.1), p, MESH, reduced_in_step=True
    ),
    "to_workers": lambda p: relaxjax.to_workers(p, MESH),
    "data_parallel": train,
    "consensus": relaxjax.consensus,
    "spread": relaxjax.spread,
    "consensus_distance": relaxjax.consensus_distance,
    "explain": lambda p: relaxjax.explain(TX, p, MESH),
    "wire_bytes": lambda p: relaxjax.wire_bytes(TX, p, MESH),
    "backward_order": lambda p: schedule.backward_order(loss, p),
    "Graph.from_loss": lambda p: schedule.Graph.from_loss(loss, p),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_the_leaf_and_the_remedy(door):
    with pytest.raises(TypeError) as caught:
        DOORS[door](model(unit_step))
    message = str(caught.value)
    assert "layers/0/activation' is the function unit_step, and not" in message
    assert "eqx.partition(model, eqx.is_inexact_array)" in message
    assert "register_dataclass" in message


@pytest.mark.parametrize(
    "row", [pytest.param(r, id=n) for n, r in ROWS.items() if not r.served]
)
def test_every_transformation_names_it_without_init(row):
    with pytest.raises(TypeError, match="'layers/0/activation' is the function"):
        row.make(optax.identity()).init(model(unit_step))


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [("relu", "of type str"), (object(), "of type object"), (jax.nn.relu, "the func")],
    ids=["name", "object", "custom_jvp"],
)
def test_what_else_is_no_array(leaf, kind):
    with pytest.raises(TypeError, match=f"activation' is {kind}"):
        relaxjax.init(TX, model(leaf), MESH)


def test_what_is_static_or_none_is_no_leaf():
    params, _ = relaxjax.init(TX, model(None), MESH)
    assert params["layers"][0].weight.shape == (4, 4, 3)
