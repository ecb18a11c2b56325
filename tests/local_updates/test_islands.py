"""Islands: a worker is a group of devices that share a model; islands meet seldom."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression, emulate
from tests import helpers
from tests.compiled_text import by_condition
from tests.helpers import assert_close

ISLANDS, INSIDE, STEPS = 2, 4, 8
SPECS = {"wide": P("fsdp"), "back": P("fsdp"), "bias": P()}
SGD = optax.sgd(0.1, momentum=0.9)
METHODS: Any = {
    "local_sgd": lambda **how: optax.chain(SGD, relaxjax.local_sgd("island", 4, **how)),
    "slow_momentum": lambda **how: optax.chain(
        SGD, relaxjax.slow_momentum("island", 4, **how)
    ),
    "diloco": lambda **how: relaxjax.diloco(SGD, "island", 4, **how),
    "streaming_diloco": lambda **how: relaxjax.streaming_diloco(
        SGD, "island", 4, **how
    ),
    "decoupled_diloco": lambda **how: relaxjax.decoupled_diloco(
        SGD, "island", sync_every=4, **how
    ),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
# Element by element, so that a shard gets the same code as in the whole.
BFLOAT16 = compression.error_feedback(compression.cast(jnp.bfloat16))
codes = pytest.mark.parametrize(
    "how",
    [{}, {"compressor": BFLOAT16, "algorithm": "one_shot"}],
    ids=["exact", "bfloat16"],
)


def mesh_of() -> Mesh:
    devices = np.asarray(jax.devices()[: ISLANDS * INSIDE])
    return Mesh(devices.reshape(ISLANDS, INSIDE), ("island", "fsdp"))


def problem() -> Any:
    rng = np.random.default_rng(0)
    return {
        "wide": rng.normal(size=(8, 16)).astype(np.float32) / 3,
        "back": rng.normal(size=(16, 4)).astype(np.float32) / 3,
        "bias": np.ones(4, np.float32),
    }


def batches() -> list[Any]:
    rng = np.random.default_rng(1)
    return [
        {
            "x": rng.normal(size=(16, 8)).astype(np.float32),
            "y": rng.normal(size=(16, 4)).astype(np.float32),
        }
        for _ in range(STEPS)
    ]


def loss_fn(params: Any, batch: Any) -> jax.Array:
    out = jnp.tanh(batch["x"] @ params["wide"]) @ params["back"] + params["bias"]
    return jnp.mean((out - batch["y"]) ** 2)


def on_islands(tx: Any) -> tuple[Any, Any, list[Any]]:
    """The step, the state, and batches that are split over both axes."""
    mesh = mesh_of()
    params = jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), problem(), SPECS
    )
    both = NamedSharding(mesh, P(("island", "fsdp")))
    data = [jax.device_put(batch, both) for batch in batches()]
    return (*started(tx, params, mesh), data)


def started(tx: Any, params: Any, mesh: Any) -> tuple[Any, Any]:
    step = helpers.step_of(jax.grad(loss_fn), tx)
    return (
        relaxjax.data_parallel(step, mesh, axis_name="island"),
        relaxjax.init(tx, params, mesh, axis_name="island"),
    )


@pytest.mark.few(2)
@methods
@codes
def test_an_island_is_a_worker(method, how):
    step, state, data = on_islands(method(specs=SPECS, **how))
    plain, alone = started(method(**how), problem(), emulate({"island": ISLANDS}))
    for batch, same in zip(data, batches(), strict=True):
        *state, _ = step(*state, batch)
        *alone, _ = plain(*alone, same)
        assert_close(state[0], alone[0], 1e-5)
    assert np.abs(state[0]["wide"] - problem()["wide"]).max() > 0.01


def crosses(groups: list[list[int]]) -> bool:
    """Whether a group has devices of two islands."""
    return any(len({device // INSIDE for device in group}) > 1 for group in groups)


@pytest.mark.few(2)
@methods
@codes
def test_nothing_crosses_but_in_a_meeting(method, how):
    step, state, data = on_islands(method(specs=SPECS, **how))
    always, meeting = by_condition(helpers.optimized_hlo(step.lower(*state, data[0])))
    assert any(len(group) == INSIDE for _, groups in always for group in groups)
    assert not any(crosses(groups) for _, groups in always)
    meeting = [groups for _, groups in meeting if crosses(groups)]  # not lengths inside
    assert meeting
    for groups in meeting:  # those of the same shard, one of each island
        assert sorted(map(sorted, groups)) == [[d, d + INSIDE] for d in range(INSIDE)]


@pytest.mark.few(2)
@methods
@codes
def test_a_device_holds_a_quarter(method, how):
    """The model, the momentum, the anchor and all else, before and after steps."""
    step, state, data = on_islands(method(specs=SPECS, **how))
    for batch in [None, *data]:
        if batch:
            *state, _ = step(*state, batch)
        matrices = [x for x in jax.tree.leaves(state) if x.ndim == 3]
        assert len(matrices) >= 3 * 2
        for x in matrices:
            assert np.prod(x.sharding.shard_shape(x.shape)) == x[0].size / INSIDE
