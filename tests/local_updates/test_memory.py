"""What methods that synchronize later keep and need, as their docstrings state it."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, compression
from tests import helpers
from tests.helpers import mesh_of

N = 4
PARAMS = {
    "wide": np.ones((256, 128), np.float32),
    "back": np.ones((128, 254), np.float32),
    "bias": np.ones(256, np.float32),
}
MODEL = sum(x.nbytes for x in PARAMS.values())
SGD = optax.sgd(0.1)  # keeps nothing
FED: Any = {"compressor": compression.error_feedback(compression.quantize(8))}
DELAYS = [[3, 0, 1, 2]]


def after(method: Any, **how: Any) -> Any:
    return optax.chain(SGD, method("data", 4, **how))


def waiting(first: Any) -> Any:
    return optax.chain(first, all_reduce("data"), SGD)


# Models that the state holds beside the optimizer's.
KEPT: dict[str, tuple[Any, int]] = {
    "local_sgd": (after(relaxjax.local_sgd), 1),
    "local_sgd, fed back": (after(relaxjax.local_sgd, **FED), 2),
    "slow_momentum": (after(relaxjax.slow_momentum), 2),
    "slow_momentum, fed back": (after(relaxjax.slow_momentum, **FED), 3),
    "diloco": (relaxjax.diloco(SGD, "data", 4), 2),
    "diloco, fed back": (relaxjax.diloco(SGD, "data", 4, **FED), 3),
    "streaming_diloco": (relaxjax.streaming_diloco(SGD, "data", 4), 3),
    "streaming_diloco, fed back": (
        relaxjax.streaming_diloco(SGD, "data", 4, **FED),
        4,
    ),
    "decoupled_diloco": (relaxjax.decoupled_diloco(SGD, "data", sync_every=4), 3),
    "decoupled_diloco, fed back": (
        relaxjax.decoupled_diloco(SGD, "data", sync_every=4, **FED),
        4,
    ),
    "asynchronous_diloco": (
        relaxjax.asynchronous_diloco(SGD, "data", [[0], [1]], SGD),
        2,
    ),
    "asynchronous_diloco, delayed_nesterov": (
        relaxjax.asynchronous_diloco(
            SGD, "data", [[0], [1]], relaxjax.delayed_nesterov(0.7, every=N)
        ),
        4,
    ),
    "asynchronous_diloco, heloco": (
        relaxjax.asynchronous_diloco(
            SGD, "data", [[0], [1]], relaxjax.heloco(0.7, weights=1 / N)
        ),
        3,
    ),
    "desynced": (relaxjax.desynced(SGD, "data", periods={"params": 4}), 0),
    "desynced, fed back": (
        relaxjax.desynced(SGD, "data", periods={"params": 4}, **FED),
        2,
    ),
    "sparta": (optax.chain(SGD, relaxjax.sparta("data", 0.5)), 0),
    "sparta, late": (optax.chain(SGD, relaxjax.sparta("data", 0.5, delay=4)), 2),
    "eager_diloco": (relaxjax.eager_diloco(SGD, "data", 4), 3),
    "eager_diloco, fed back": (relaxjax.eager_diloco(SGD, "data", 4, **FED), 4),
    "sparse_loco": (relaxjax.sparse_loco(SGD, "data", 4), 2),
    "asynchronous_average": (after(relaxjax.asynchronous_average), 2),
    "noloco": (relaxjax.noloco(SGD, "data", relaxjax.topology.ring(N), 4), 2),
    "post_local_sgd": (relaxjax.post_local_sgd(SGD, "data", 4, 10), 1),
    "hierarchical_local_sgd": (
        optax.chain(SGD, relaxjax.hierarchical_local_sgd({4: "data"})),
        1,
    ),
    "delay": (waiting(relaxjax.delay(2)), 2),
    "bounded_staleness": (waiting(relaxjax.bounded_staleness("data", DELAYS)), 3),
    "dc_asgd": (waiting(relaxjax.dc_asgd("data", DELAYS)), 6),
}
rows = pytest.mark.parametrize(("tx", "models"), KEPT.values(), ids=KEPT)


def scaled(params: Any, batch: Any) -> Any:
    return jax.tree.map(lambda p: p * batch.mean(), params)


def memory_of(tx: Any) -> tuple[int, Any]:
    """Bytes of a worker's state beside the params, and what a step needs by device."""
    params, state = relaxjax.init(tx, PARAMS, mesh_of(N))
    step = relaxjax.data_parallel(helpers.step_of(scaled, tx), mesh_of(N), donate=True)
    compiled = step.lower(params, state, np.ones(N, np.float32)).compile()
    kept = sum(x.nbytes for x in jax.tree.leaves(state)) // N
    return kept, compiled.memory_analysis()


@pytest.mark.few(2)
@rows
def test_state_is_as_large_as_stated(tx, models):
    """To the bytes of counters and of a batch; and it is updated in its place."""
    kept, memory = memory_of(tx)
    assert 0 <= kept - models * MODEL <= 64
    assert 0 <= memory.argument_size_in_bytes - (1 + models) * MODEL <= 96
    assert 0 <= memory.alias_size_in_bytes - (1 + models) * MODEL <= 96


@pytest.mark.parametrize(("how", "models"), [({}, 3), (FED, 6)], ids=["exact", "codes"])
def test_a_step_of_local_sgd_needs_a_few_models_in_between(how, models):
    """Silent or not: it is one program, in which a branch is taken."""
    _, memory = memory_of(after(relaxjax.local_sgd, **how))
    assert 0 < memory.temp_size_in_bytes <= 1.01 * models * MODEL
