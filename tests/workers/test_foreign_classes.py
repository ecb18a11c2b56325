"""State of classes that look at what they are given, and traces that must not leak."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from tests.helpers import mesh_of

PARAMS = {"w": jnp.ones((4, 3)), "b": jnp.zeros(3)}
BATCH = np.arange(12.0, dtype=np.float32).reshape(4, 3)
SGD = optax.sgd(0.1)
FORMS: dict[str, Any] = {
    "all_reduce": optax.chain(relaxjax.all_reduce("data"), SGD),
    "power_sgd": optax.chain(relaxjax.power_sgd("data", rank=1, start_after=2), SGD),
    "diloco": relaxjax.diloco(SGD, "data", 2),
    "gossip": optax.chain(SGD, relaxjax.gossip("data", relaxjax.topology.ring(2))),
}


class Strict:
    """A scale whose constructor refuses what is no floating array."""

    def __init__(self, x: Any):
        """Keeps `x`; JAX's own placeholders are plain objects."""
        if type(x) is not object and not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(f"no scale: {x}")
        self.x = x


jax.tree_util.register_pytree_node(
    Strict, lambda s: ((s.x,), None), lambda _, x: Strict(*x)
)


def step_of(tx: Any) -> Any:
    """A step over params, an optimizer's state, and a scale that it doubles."""

    def step(params, state, scale, rows):
        grads = jax.grad(lambda p: jnp.sum((rows @ p["w"].T) ** 2) + p["b"].sum())
        updates, state = tx.update(grads(params), state, params)
        params = optax.apply_updates(params, updates)
        return params, state, Strict(scale.x * 2), {}

    return step


def trained(tx: Any, mesh: Any) -> Any:
    params, state = relaxjax.init(tx, PARAMS, mesh)
    scale: Any = relaxjax.to_workers(Strict(jnp.float32(1)), mesh)
    step = relaxjax.data_parallel(step_of(tx), mesh)
    for _ in range(3):
        params, state, scale, _ = step(params, state, scale, BATCH)
    return params, scale


@pytest.mark.parametrize("mesh", [relaxjax.emulate(2), mesh_of(2)])
@pytest.mark.parametrize("name", FORMS)
def test_state_of_a_class_that_checks_its_leaf(name, mesh):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, scale = trained(FORMS[name], mesh)
    assert [*np.asarray(scale.x)] == [8, 8]


@pytest.mark.parametrize("mesh", [relaxjax.emulate(2), mesh_of(2)])
@pytest.mark.parametrize("name", FORMS)
def test_no_trace_leaks(name, mesh):
    expected, _ = trained(FORMS[name], mesh)
    with jax.checking_leaks():
        params, _ = trained(FORMS[name], mesh)
    jax.tree.map(np.testing.assert_array_equal, params, expected)
