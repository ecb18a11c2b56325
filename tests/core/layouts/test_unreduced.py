"""A mapping of its own, over the devices of Explicit axes, for any init and update."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from relaxjax._core.layouts import _unreduced
from relaxjax._core.layouts._unreduced import (
    opens_own_mapping,
    refuse_unreduced,
    unreduced,
)

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def mesh_of(shape=(2,), names=("data",), kinds=None):
    devices = jax.devices()[: int(np.prod(shape))]
    kinds = kinds or (EXPLICIT,) * len(shape)
    return jax.make_mesh(shape, names, axis_types=kinds, devices=devices)


def init(params):
    """A residual like params, a number, and a vector that is like nothing."""
    return {
        "residual": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros(()),
        "other": jnp.zeros(3),
    }


def update(updates, state, params=None, **extra):
    """The mean of the workers' gradients; the state keeps each worker's own."""
    out = jax.tree.map(lambda u: lax.pmean(u, extra.get("over", "data")), updates)
    if params is not None:
        out = jax.tree.map(jnp.add, out, params)
    count = state["count"] + extra.get("step", 1)
    return out, state | {"residual": updates, "count": count}


def mapped(names: Any = "data") -> Any:
    return opens_own_mapping("mine", names, init, update)


def gradient(w, x, names: Any = "data"):
    """The gradient of sum(x w) by w, left unreduced: that of a worker is its rows'."""
    return jax.grad(lambda w: jnp.sum(x @ w))(unreduced(w, names))


def test_gradients_are_means_and_the_state_has_a_row_for_each_worker():
    made, updated = mapped()
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    with jax.set_mesh(mesh_of()):
        w = jax.device_put(jnp.zeros((2, 1)), P())
        state = made(w)
        assert state["residual"].shape == (2, 2, 1)
        assert state["count"].shape == (2,)
        for leaf in jax.tree.leaves(state):
            assert leaf.sharding.spec[0] in ("data", ("data",))

        @jax.jit
        def step(w, state, x):
            return updated(gradient(w, x), state, w + 1, step=5)

        out, state = step(w, state, jax.device_put(x, P("data")))
    # The sum of all rows is the mean of twice the workers' sums, [2, 4] and [10, 12].
    np.testing.assert_array_equal(out, x.sum(0)[:, None] + 1)
    rows = np.stack([x[:2].sum(0), x[2:].sum(0)])[:, :, None]
    np.testing.assert_array_equal(state["residual"], 2 * rows)
    np.testing.assert_array_equal(state["count"], [5, 5])
    assert out.sharding.is_fully_replicated


def test_over_two_axes_beside_a_third_that_shards():
    """n is the product of the axes; a state that mirrors a leaf lies as it does."""
    names = ("host", "data")
    made, updated = mapped(names)
    mesh = mesh_of((2, 2, 2), (*names, "fsdp"))
    with jax.set_mesh(mesh):
        w = jax.device_put(jnp.zeros((2, 4)), P(None, "fsdp"))
        state = made(w)
        assert state["residual"].sharding.spec == P(names, None, "fsdp")
        # Of a bare array all floats are its own: each part may have another vector.
        assert state["other"].sharding.spec == P(names, "fsdp")
        typed = unreduced({"w": w}, names)["w"]
        spec = jax.typeof(typed).sharding.spec
        assert spec.reduced == set(names)
        assert spec.partitions == (None, "fsdp")
        twice = unreduced(unreduced(w, "host"), "data")
        assert jax.typeof(twice).sharding.spec.reduced == set(names)

        def step(w, state, x):
            return updated(gradient(w, x, names), state, over=names)

        x = jax.device_put(jnp.ones((8, 2)), P(names))
        out, state = jax.jit(step)(w, state, x)
    np.testing.assert_array_equal(out, np.full((2, 4), 8))
    np.testing.assert_array_equal(state["residual"], np.full((4, 2, 4), 8))
    assert out.sharding.spec == P(None, "fsdp")


def test_the_mesh_is_that_of_the_params():
    made, _ = mapped()
    w = jax.device_put(jnp.zeros((2, 1)), jax.NamedSharding(mesh_of(), P()))
    assert jax.eval_shape(made, w)["residual"].shape == (2, 2, 1)


def test_a_state_beside_an_axis_that_is_left_to_the_compiler():
    made, _ = mapped()
    with jax.set_mesh(mesh_of((2, 2), ("data", "model"), (EXPLICIT, AUTO))):
        w = jax.device_put(jnp.zeros((2, 2)), P())
        assert made(w)["residual"].shape == (2, 2, 2)


def test_elsewhere_it_is_the_plain_pair():
    made, updated = mapped()
    assert made(jnp.zeros(2))["count"].shape == ()

    def one(u):
        return updated(u, made(u))[0]

    out = jax.vmap(one, axis_name="data")(jnp.array([1.0, 3.0]))
    assert out.tolist() == [2, 2]
    with jax.set_mesh(mesh_of((2,), ("data",), (AUTO,))):
        w = jax.device_put(jnp.zeros(2), P())
        assert made(w)["count"].shape == ()
    with jax.set_mesh(mesh_of((2,), ("other",))):
        w = jax.device_put(jnp.zeros(2), P())
        assert made(w)["count"].shape == ()
    with pytest.raises(TypeError, match="mine: leaf 'a' is the function tanh"):
        made({"a": jnp.tanh})


def test_all_its_axes_must_be_explicit():
    names = ("host", "data")
    made, _ = mapped(names)
    with jax.set_mesh(mesh_of((2, 2), names, (EXPLICIT, AUTO))):
        w = jax.device_put(jnp.zeros(2), P())
        assert made(w)["count"].shape == ()
        with pytest.raises(ValueError, match=r"axis 'data' is Auto \(leaf 'params' is"):
            unreduced(w, names)
    with (
        jax.set_mesh(mesh_of()),
        pytest.raises(ValueError, match="axis 'host' is not one of the params' mesh"),
    ):
        unreduced({"a": jax.device_put(jnp.zeros(2), P())}, names)
    with pytest.raises(ValueError, match="axis 'data' is not one of the params' mesh"):
        unreduced({"a": np.zeros(2)}, "data")


def test_an_axis_that_is_bound_already_opens_no_mapping():
    mesh = mesh_of()
    seen = []

    def body(x):
        seen.append(_unreduced._mesh_of(x, ("data",)))
        return x

    jax.eval_shape(
        jax.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False),
        jnp.zeros(2),
    )
    assert seen == [None]
    with jax.set_mesh(mesh):
        assert _unreduced._mesh_of(jax.device_put(jnp.zeros(2), P()), ("data",))
        for names in (("data", "host"), ("host", "data")):
            found = []
            with jax.set_mesh(mesh_of((2, 2), names)):
                jax.vmap(
                    lambda x, n=names, f=found: f.append(_unreduced._mesh_of(x, n)),
                    axis_name="data",
                )(jax.device_put(jnp.zeros((1, 2)), P()))
            assert found == [None]
        mixed = [np.zeros(2), jax.device_put(jnp.zeros(2), P())]
        assert _unreduced._mesh_of(mixed, ("data",))


def test_what_it_refuses():
    made, updated = mapped()
    with jax.set_mesh(mesh_of()):
        w = jax.device_put(jnp.zeros((2, 1)), P())
        state = jax.eval_shape(made, w)
        with pytest.raises(
            ValueError,
            match=r"mine: the gradient of leaf 'params' .* summed over \['data'\]",
        ):
            jax.eval_shape(updated, w, state)

        def step(w, state, x, **extra):
            return updated(gradient(w, x), state, **extra)

        x = jax.device_put(jnp.ones((4, 2)), P("data"))
        jax.eval_shape(lambda *args: step(*args, weight=None), w, state, x)
        with pytest.raises(ValueError, match="mine: weight= with gradients of"):
            jax.eval_shape(lambda *args: step(*args, weight=1.0), w, state, x)
        over = jax.device_put(jnp.zeros((4, 2)), P(None, "data"))
        with pytest.raises(ValueError, match=r"leaf 'a' \(.*sharded over the reducer"):
            unreduced({"a": over}, "data")


def test_a_method_of_models_takes_no_partial_sums():
    def sent(w, x):
        found = {"w": gradient(w, x)}
        refuse_unreduced("local_sgd", found)
        return found

    with jax.set_mesh(mesh_of()):
        w = jax.device_put(jnp.zeros((2, 1)), P())
        x = jax.device_put(jnp.ones((4, 2)), P("data"))
        with pytest.raises(ValueError, match="local_sgd: the gradient of leaf 'w'"):
            jax.eval_shape(sent, w, x)
        refuse_unreduced("local_sgd", {"w": w})
