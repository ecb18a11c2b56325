"""Arrays and meshes that others have placed: prefetchers, loaders, `jax.set_mesh`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import emulate
from tests.helpers import mesh_of

ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
TX: Any = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.01))


def step(p: Any, s: Any, x: Any) -> Any:
    u, s = TX.update(jax.grad(lambda p: ((x @ p) ** 2).mean())(p), s, p)
    return optax.apply_updates(p, u), s, {}


def typed(axes: AxisType) -> Mesh:
    return jax.make_mesh((4,), ("data",), axis_types=(axes,))


def trained(mesh: Any, batch: Any) -> np.ndarray:
    state = relaxjax.init(TX, jnp.ones(3), mesh)
    return np.asarray(relaxjax.data_parallel(step, mesh)(*state, batch)[0])


@pytest.mark.parametrize("mesh", [emulate(4), mesh_of(4)], ids=["emulated", "mesh"])
@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [P(), P("data")])
def test_a_batch_on_a_mesh_of_others(mesh, axes, spec):
    batch = jax.device_put(ROWS, NamedSharding(typed(axes), spec))
    np.testing.assert_array_equal(trained(mesh, batch), trained(mesh, ROWS))


@pytest.mark.parametrize("mesh", [emulate(4), mesh_of(4)], ids=["emulated", "mesh"])
def test_a_batch_that_a_prefetcher_puts_on_one_device(mesh):
    batch = jax.device_put(ROWS, jax.devices()[0])
    np.testing.assert_array_equal(trained(mesh, batch), trained(mesh, ROWS))


def test_state_of_devices_in_another_order_is_refused():
    mesh = mesh_of(4)
    other = Mesh(mesh.devices[::-1], ("data",))
    state = relaxjax.init(TX, jnp.ones(3), other)
    with pytest.raises(
        ValueError, match=r"'0' lies on the devices \[3, 2, 1, 0\], and"
    ):
        relaxjax.data_parallel(step, mesh)(*state, ROWS)


def test_emulated_workers_inside_of_a_typed_mesh_are_refused():
    with (
        jax.set_mesh(typed(AxisType.Explicit)),
        pytest.raises(ValueError, match=r"inside jax.set_mesh of a mesh with Explicit"),
    ):
        trained(emulate(4), ROWS)
    with jax.set_mesh(typed(AxisType.Auto)):
        inside = trained(emulate(4), ROWS)
    np.testing.assert_array_equal(inside, trained(emulate(4), ROWS))


@pytest.mark.parametrize("workers", [1, 4])
def test_a_weight_of_each_row_is_refused(workers):
    mesh = emulate(workers)
    state = relaxjax.to_workers(np.float32(0), mesh)
    step = relaxjax.data_parallel(
        lambda p, x: (p, {"loss": x[:, 0], "weight": x[:, 1]}), mesh
    )
    with pytest.raises(
        ValueError, match=rf"'weight' has shape \({8 // workers},\) on each"
    ):
        step(state, ROWS)
