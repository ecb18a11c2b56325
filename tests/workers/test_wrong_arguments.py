"""Arguments in another's place: the message names the argument and what it must be."""

import inspect
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp, plan, ps, schedule, topology

MESH, PARAMS, SGD = emulate(4), {"w": jnp.ones(3)}, optax.sgd(0.1)
ANY: Any = SGD  # what the types say is wrong, and users write
GRAPH: Any = topology.ring(4)
RATE: Any = "1gbit"
WORD: Any = "data"
NETWORK = plan.Network(workers=4, link=schedule.Link(1e-4, 1e9))
GIVEN: dict[str, Any] = {
    "axis_name": "data",
    "mesh": MESH,
    "params": PARAMS,
    "topology": topology.ring(4),
    "compressor": compression.error_feedback(compression.sign()),
    "arrivals": [[0, 1], [2, 3]],
    "network": NETWORK,
    "periods": {"w": 2},
    "loss_fn": lambda params, batch: jnp.sum(params["w"]),
    "batch": jnp.ones((4, 3)),
}


def required(function: Any) -> list[inspect.Parameter]:
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_KEYWORD
    ]


def taking_transformations() -> dict[str, tuple[Any, str]]:
    """Every public function that takes a transformation, and the argument's name."""
    found = {}
    for room in (relaxjax, ps, fsdp, plan):
        for name in room.__all__:
            function = getattr(room, name)
            if not inspect.isfunction(function) or name == "transformation":
                continue
            for parameter in inspect.signature(function).parameters.values():
                if "GradientTransformation" in str(parameter.annotation):
                    label = f"{room.__name__}.{name}: {parameter.name}"
                    found[label] = function, parameter.name
    return found


TAKING = taking_transformations()


def test_they_were_found():
    names = " ".join(TAKING)
    for name in ("diloco", "parameter_server", "accumulate", "init", "wire_bytes"):
        assert f"relaxjax.{name}: " in names
    assert {"relaxjax.diloco: outer", "relaxjax.local_sgd: reducer"} <= {*TAKING}
    assert len(TAKING) > 30


@pytest.mark.parametrize("label", TAKING)
@pytest.mark.parametrize(
    "wrong", ["data", optax.sgd, 0.7], ids=["an axis", "not called", "a rate"]
)
def test_what_is_no_transformation_is_named(label, wrong):
    function, name = TAKING[label]
    given = {
        p.name: SGD
        if "GradientTransformation" in str(p.annotation)
        else GIVEN.get(p.name, 2)
        for p in required(function)
    }
    with pytest.raises(TypeError, match=f"{name}=.* must be a gradient transformation"):
        function(**{**given, name: wrong})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: relaxjax.all_reduce(ANY), "axis_name=Gradient.*other's place"),
        (lambda: relaxjax.gossip(GRAPH, WORD), "axis_name=Topology.*other's place"),
        (
            lambda: plan.auto("data", SGD, PARAMS, network=RATE, compute=0.1),
            r"network must be of type Network, got '1gbit': say plan.Network",
        ),
        (lambda: plan.sharded(plan.Model.of_size(9, compute=1), RATE), "type Network"),
        (lambda: plan.choices(plan.Model.of_size(9, compute=1), RATE), "type Network"),
        (lambda: plan.xla_flags(RATE), "xla_flags: network must be of type"),
        (lambda: plan.Network(workers=4, link=RATE), "link must be of type Link"),
    ],
)
def test_others_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_an_axis_that_the_mesh_has_not():
    for tx in (
        optax.chain(relaxjax.all_reduce("batch"), SGD),
        relaxjax.diloco(SGD, "batch", 2),
        relaxjax.parameter_server(SGD, "batch"),
    ):
        with pytest.raises(NameError, match="no axis named 'batch' here, only 'data'"):
            relaxjax.init(tx, PARAMS, MESH)


EIGHT = topology.exponential(8)


@pytest.mark.parametrize(
    "tx",
    [
        relaxjax.gossip("data", EIGHT),
        relaxjax.gossip("data", topology.ring(8), compressor=compression.sign()),
        relaxjax.push_sum("data", EIGHT),
        relaxjax.noloco(SGD, "data", EIGHT, 2),
    ],
    ids=["gossip", "choco", "push_sum", "noloco"],
)
def test_a_topology_of_other_workers_is_refused_at_once(tx):
    with pytest.raises(ValueError, match="is of 8 workers, and the axis 'data' has 4"):
        relaxjax.init(optax.chain(SGD, tx), PARAMS, MESH)
    tx.init(PARAMS)  # outside an axis there is nothing to compare with


def step(params: Any, state: Any, batch: Any) -> Any:
    return params, state, {}


def test_a_batch_in_two_arguments():
    tx = optax.chain(relaxjax.all_reduce("data"), SGD)
    state = relaxjax.init(tx, PARAMS, MESH)
    take = relaxjax.data_parallel(step, MESH)
    with pytest.raises(ValueError, match=r"Only the last argument is the batch: pass"):
        take(*state, jnp.ones((8, 3)), jnp.ones(8))
    with pytest.raises(ValueError, match="state argument 0") as caught:
        take(jnp.ones((8, 3)), *state)
    assert "Only the last" not in str(caught.value)

    def two(params: Any, state: Any, inputs: Any, labels: Any) -> Any:
        return params, state, {}

    with pytest.raises(
        TypeError, match=r"returned 3 values. A batch of several arrays"
    ):
        relaxjax.data_parallel(two, MESH)(*state, jnp.ones((4, 3)), jnp.ones(4))
