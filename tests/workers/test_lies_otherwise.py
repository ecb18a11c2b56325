"""Worker state that was moved, as by `jax.device_put`, Orbax or one's own `jax.jit`.

A step, and whatever looks at the state, gives what it gives where the state lies by its
workers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, emulate

EXPLICIT = jax.make_mesh((4,), ("data",))
AUTO = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
MESHES = {"explicit": EXPLICIT, "auto": AUTO, "emulated": emulate(4)}
LIES: dict[str, Any] = {
    "by workers": P("data"),
    "whole": P(),
    "by columns": P(None, None, "data"),
    "on the first device": jax.devices()[0],
    "on another device": jax.devices()[2],
}
TX: Any = optax.chain(all_reduce("data"), optax.sgd(0.1))
TX_ADAM: Any = optax.chain(all_reduce("data"), optax.adam(1.0))
PARAMS = {"w": jnp.arange(24.0).reshape(6, 4)}
BATCH = np.arange(48, dtype=np.float32).reshape(8, 6) / 50


def moved(state: Any, lies: str, mesh: Any) -> Any:
    """The state, on the mesh or, of emulated workers, on some mesh of one's own."""
    place = LIES[lies]
    on = mesh if isinstance(mesh, jax.sharding.Mesh) else EXPLICIT
    put = NamedSharding(on, place) if isinstance(place, P) else place
    return jax.device_put(state, put)


def stepped(mesh: Any) -> Any:
    def step(p, s, x):
        loss, g = jax.value_and_grad(lambda p: ((x @ p["w"] - 1) ** 2).mean())(p)
        u, s = TX.update(g, s, p)
        return optax.apply_updates(p, u), s, {"loss": loss}

    return relaxjax.data_parallel(step, mesh)


@pytest.mark.few(16)
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("taken", [0, 2])
def test_a_step_takes_it(taken, mesh, lies):
    """As its first state, or later, as after a restore."""
    mesh = MESHES[mesh]
    params, state = relaxjax.init(TX, PARAMS, mesh)
    train = stepped(mesh)
    for _ in range(taken):
        params, state, _ = train(params, state, BATCH)
    right = stepped(mesh)(params, state, BATCH)
    params, state, metrics = train(moved(params, lies, mesh), state, BATCH)
    np.testing.assert_allclose(params["w"], right[0]["w"], rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], right[2]["loss"], rtol=1e-5)
    again = train(params, state, BATCH)
    assert jax.typeof(again[0]["w"]) == jax.typeof(params["w"])


def test_an_error_of_the_step_stays_its_own():
    def step(w, x):
        raise ValueError("odd numbers only")

    train = relaxjax.data_parallel(step, EXPLICIT)
    for _ in range(2):
        with pytest.raises(ValueError, match="odd numbers only"):
            train(relaxjax.to_workers(jnp.ones(3), EXPLICIT), BATCH)


@pytest.mark.few(10)
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize("mesh", ["explicit", "auto"])
@pytest.mark.parametrize("how", ["called", "jitted"])
def test_a_mean_and_distances_are_the_same(how, mesh, lies):
    rng = np.random.default_rng(0)
    rows = {
        "w": rng.normal(size=(4, 6, 4)).astype(np.float32),
        "n": np.arange(32, dtype=np.int32).reshape(4, 2, 4),
    }
    state = moved(rows, lies, MESHES[mesh])
    mean = jax.jit(relaxjax.consensus)(state) if how == "jitted" else None
    mean = relaxjax.consensus(state) if mean is None else mean
    np.testing.assert_allclose(mean["w"], rows["w"].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mean["n"], rows["n"][0])
    apart = np.ptp(rows["w"].astype(np.float64), axis=0).max()
    assert relaxjax.spread({"w": state["w"]}) == pytest.approx(apart, rel=1e-6)
    squares = ((rows["w"] - rows["w"].mean(0)) ** 2).sum() / 4
    difference = relaxjax.replica_difference({"w": state["w"]})
    assert difference == relaxjax.replica_difference({"w": rows["w"]})
    assert difference is not None
    assert (difference.worker, difference.elements) == (1, 24)
    found = relaxjax.consensus_distance(state)
    assert found == pytest.approx(np.sqrt(squares), rel=1e-5)


@pytest.mark.parametrize("donate", [False, True])
def test_an_error_while_a_step_runs_is_the_users_and_it_runs_once(donate):
    """On an axis of one worker, where the state's leaves may lie as if whole."""
    mesh, called = jax.make_mesh((1,), ("data",)), []

    def looked(_):
        called.append(1)
        if len(called) == 3:
            raise ValueError("a bad batch")
        return np.float32(1)

    def step(p, s, x):
        one = jax.pure_callback(looked, jax.ShapeDtypeStruct((), jnp.float32), x.sum())
        u, s = TX_ADAM.update({"w": jnp.full(3, one)}, s, p)
        return optax.apply_updates(p, u), s, {}

    p, s = relaxjax.init(TX_ADAM, {"w": jnp.zeros(3)}, mesh)
    train = relaxjax.data_parallel(step, mesh, donate=donate)
    batch = np.ones((8, 2), np.float32)
    for _ in range(2):
        p, s, _ = train(p, s, batch)
        jax.block_until_ready(p)
    with pytest.raises(Exception, match="a bad batch"):
        jax.block_until_ready(train(p, s, batch))
    assert len(called) == 3


@pytest.mark.parametrize("lies", ["whole", "on the first device"])
@pytest.mark.parametrize("mesh", ["explicit", "auto"])
def test_a_tree_of_one_device_is_refused_wherever_it_lies(mesh, lies):
    train = relaxjax.data_parallel(lambda s, x: (s, {}), MESHES[mesh])
    for leaf in (jnp.ones(()), jnp.ones((6, 4))):
        with pytest.raises(ValueError, match="without a leading axis of 4 workers"):
            train(moved({"n": leaf}, lies, MESHES[mesh]), BATCH)
