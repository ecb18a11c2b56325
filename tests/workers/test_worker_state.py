"""Worker state is not one worker's tree: where they can be told apart, they are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.workers._worker_state import require_one_model, require_worker_state
from tests.helpers import mesh_of

TX = optax.chain(relaxjax.all_reduce("data"), optax.adam(0.1))
PARAMS = {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.zeros(4)}
MESHES = {"emulated": emulate(4), "mesh": mesh_of(4)}
CALLS: dict[str, Any] = {
    "init": lambda tree, mesh: relaxjax.init(TX, tree, mesh),
    "to_workers": relaxjax.to_workers,
    "explain": lambda tree, mesh: relaxjax.explain(TX, tree, mesh),
    "wire_bytes": lambda tree, mesh: relaxjax.wire_bytes(TX, tree, mesh),
}


@pytest.mark.parametrize("place", MESHES)
@pytest.mark.parametrize("name", CALLS)
def test_copies_of_all_workers_are_refused(name, place):
    mesh = MESHES[place]
    state = relaxjax.to_workers(PARAMS, mesh)
    message = f"{name}: each leaf is 4 equal copies .* such as 'b' of shape"
    with pytest.raises(ValueError, match=message):
        CALLS[name](state, mesh)
    CALLS[name](relaxjax.consensus(state), mesh)
    with pytest.raises(ValueError, match=message):
        CALLS[name](jax.tree.map(np.asarray, state), mesh)


RIGHT: dict[str, Any] = {
    "rows of one matrix": jnp.arange(12.0).reshape(4, 3),
    "constants": {"w": jnp.zeros((4, 3)), "b": jnp.ones(4)},
    "one leaf of several": {"w": jnp.ones((4, 1)) * jnp.arange(3.0), "b": jnp.ones(3)},
    "a number": {"w": jnp.ones((4, 1)) * jnp.arange(3.0), "b": jnp.ones(())},
    "nothing": {},
    "no elements": {"w": jnp.zeros((4, 0))},
    "copies beside rows": {
        "w": jnp.ones((4, 1)) * jnp.arange(3.0),
        "b": jnp.arange(4.0),
    },
    "copies beside keys": {
        "w": jnp.ones((4, 1)) * jnp.arange(3.0),
        "k": jax.random.split(jax.random.key(0), 4),
    },
    "NaN": {"w": jnp.full((4, 3), jnp.nan)},
}


@pytest.mark.parametrize("tree", RIGHT.values(), ids=RIGHT)
def test_what_may_be_one_model_is_taken(tree):
    relaxjax.to_workers(tree, MESHES["emulated"])


def test_two_copies_are_refused_and_one_is_not():
    row = jnp.arange(3.0)[None]
    with pytest.raises(ValueError, match="2 equal copies"):
        relaxjax.to_workers(jnp.concatenate([row, row]), emulate(2))
    assert relaxjax.to_workers(row, emulate(1)).shape == (1, 1, 3)
    zero_first = {"a": jnp.zeros(4), "b": jnp.ones((4, 1)) * jnp.arange(3.0)}
    with pytest.raises(ValueError, match="4 equal copies"):
        relaxjax.to_workers(zero_first, emulate(4))


def test_an_array_of_other_processes_is_not_looked_into():
    class Elsewhere:
        shape, is_fully_addressable = (4, 3), False

    require_one_model("test", Elsewhere(), 4)


def test_slices_have_axes_of_their_own():
    def stops(x: Any) -> bool:
        return isinstance(x, list)

    require_worker_state("test", {"a": jnp.ones(4), "b": [jnp.ones((8, 2))]}, stops)
    with pytest.raises(ValueError, match=r"leaf 'b/0' has shape \(8, 2\)"):
        require_worker_state(
            "test", {"a": jnp.ones(4), "b": [jnp.ones((8, 2))]}, lambda _: False
        )
    with pytest.raises(TypeError, match="test: leaf 'a' is the function tanh"):
        require_worker_state("test", {"a": jnp.tanh}, stops)


def test_shapes_and_tracers_are_not_looked_into():
    state = relaxjax.to_workers(PARAMS, MESHES["emulated"])
    shapes = jax.eval_shape(lambda: state)
    assert relaxjax.wire_bytes(TX, shapes, emulate(4)) > 0
    assert relaxjax.wire_bytes(TX, PARAMS, emulate(1)) == 0


@pytest.mark.parametrize("name", ["consensus", "spread", "consensus_distance"])
def test_a_tree_of_one_device_has_no_axis_of_workers(name):
    function = getattr(relaxjax, name)
    with pytest.raises(ValueError, match=rf"{name}: leaf 'w' has shape \(3, 4\) and"):
        function(PARAMS)
    with pytest.raises(ValueError, match=rf"{name}: leaf 'b' has shape \(\): worker"):
        function({"b": jnp.ones(())})
    with pytest.raises(ValueError, match=rf"{name}: leaf 'params' has shape \(\)"):
        function(jnp.ones(()))
    function(relaxjax.to_workers(PARAMS, MESHES["emulated"]))
    function({})
