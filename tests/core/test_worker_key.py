"""Keys of workers' own in a step: those of `to_workers`, under every mapping."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relaxjax
from tests.helpers import mesh_of

AXES = ("host", "device")
MESHES = {
    "emulated": (relaxjax.emulate(4), "data"),
    "devices": (mesh_of(4), "data"),
    "two axes": (relaxjax.emulate({"host": 2, "device": 2}), AXES),
    "two axes of devices": (
        jax.sharding.Mesh(np.asarray(jax.devices()[:4]).reshape(2, 2), AXES),
        AXES,
    ),
}


def own(mesh, axis, key):
    """The data of each worker's own key."""

    def step(data, batch):
        mine = relaxjax.worker_key(key, axis)
        typed = jnp.issubdtype(mine.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(mine) if typed else mine, {}

    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    data = jax.random.key_data(key) if typed else key
    start = relaxjax.to_workers(jnp.zeros_like(data), mesh)
    return relaxjax.data_parallel(step, mesh)(start, jnp.zeros(4))[0]


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("name", MESHES)
def test_they_are_those_of_to_workers(name):
    mesh, axis = MESHES[name]
    for key in (jax.random.key(3), jax.random.split(jax.random.key(3), (2, 3))):
        expected = jax.random.key_data(relaxjax.to_workers(key, mesh))
        np.testing.assert_array_equal(own(mesh, axis, key), expected)
    raw = jax.random.PRNGKey(3)
    expected = jax.random.key_data(relaxjax.to_workers(jax.random.key(3), mesh))
    np.testing.assert_array_equal(own(mesh, axis, raw), expected)


def test_dropout_of_a_step_differs_between_workers():
    """A key of the step's counter alone is the same on all workers."""
    mesh = relaxjax.emulate(4)

    def masks(key_of):
        def step(mask, count, batch):
            key = key_of(jax.random.fold_in(jax.random.key(0), count))
            return jax.random.bernoulli(key, 0.5, (64,)), count + 1, {}

        start = relaxjax.to_workers((jnp.zeros(64, bool), 0), mesh)
        return relaxjax.data_parallel(step, mesh)(*start, jnp.zeros(4))[0]

    assert len(np.unique(masks(lambda key: key), axis=0)) == 1
    mine = masks(lambda key: relaxjax.worker_key(key, "data"))
    assert len(np.unique(mine, axis=0)) == 4


def test_outside_the_axis():
    with pytest.raises(NameError, match="worker_key: no axis named 'data' here"):
        relaxjax.worker_key(jax.random.key(0), "data")
