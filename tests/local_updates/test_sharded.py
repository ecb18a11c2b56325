"""Local steps beside tensor parallelism: each device sends its own shard alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression, emulate, wire_bytes
from tests import helpers
from tests.compiled_text import collectives
from tests.helpers import assert_close
from tests.sharded import SPECS, loss_fn, mesh_of, problem, sharded

# Element by element, so that a shard gets the same code as in the whole.
BFLOAT16 = compression.error_feedback(compression.cast(jnp.bfloat16))


def streaming(optimizer: Any, **how: Any) -> Any:
    return relaxjax.streaming_diloco(optimizer, "data", 4, overlap=1, **how)


METHODS: Any = {
    "local_sgd": lambda opt, **how: optax.chain(
        opt, relaxjax.local_sgd("data", 2, **how)
    ),
    "slow_momentum": lambda opt, **how: optax.chain(
        opt, relaxjax.slow_momentum("data", 2, **how)
    ),
    "asynchronous_average": lambda opt, **how: optax.chain(
        opt, relaxjax.asynchronous_average("data", 2, **how)
    ),
    "diloco": lambda opt, **how: relaxjax.diloco(opt, "data", 2, **how),
    "eager_diloco": lambda opt, **how: relaxjax.eager_diloco(opt, "data", 2, **how),
    "streaming_diloco": streaming,
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
CODES: Any = {
    "psum": {},
    "ring": {"algorithm": "ring"},
    "bfloat16": {"compressor": BFLOAT16, "algorithm": "one_shot"},
}


def in_turn(first: int) -> Any:
    """Every method in every code; one code of each is fast, the rest are slow."""
    return pytest.mark.parametrize(
        ("method", "how"),
        [
            pytest.param(
                METHODS[method],
                CODES[code],
                id=f"{code}-{method}",
                marks=[pytest.mark.slow] if (i + j - first) % len(CODES) else [],
            )
            for i, method in enumerate(METHODS)
            for j, code in enumerate(CODES)
        ],
    )


def pulled(params: Any, batch: Any) -> Any:
    """Toward a number, in which no device needs another."""
    return jax.tree.map(lambda p: p - jnp.mean(batch["x"]), params)


def started(tx: Any, mesh: Any, gradient: Any) -> tuple[Any, Any]:
    params = sharded(problem(), mesh) if mesh.axis_names != ("data",) else problem()
    state = relaxjax.init(tx, params, mesh, axis_name="data")
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh, axis_name="data")
    return step, state


@pytest.mark.few(2)
@in_turn(0)
def test_sharded_models_go_the_same_ways(method, how):
    optimizer = optax.sgd(0.1, momentum=0.9)
    # A rounding apart may be a code apart: then by a gradient without partial sums.
    gradient = pulled if "compressor" in how else jax.grad(loss_fn)
    ours, theirs = (
        started(tx, mesh, gradient)
        for tx, mesh in [
            (method(optimizer, specs=SPECS, **how), mesh_of(4, 2)),
            (method(optimizer, **how), emulate(4)),
        ]
    )
    (step, state), (plain, alone) = ours, theirs
    for batch in helpers.batches(8, rows=8):
        *state, _ = step(*state, batch)
        *alone, _ = plain(*alone, batch)
        assert_close(state[0], alone[0], 1e-5)
    weight = state[0]["layer1"]["w"]
    assert weight.sharding.shard_shape(weight.shape) == (1, 5, 4)  # as it was given


@pytest.mark.few(2)
@in_turn(1)
def test_nothing_is_gathered_over_the_other_axis(method, how):
    tx = method(optax.adam(1e-2), specs=SPECS, **how)
    step, state = started(tx, mesh_of(4, 2), pulled)
    batch = helpers.batches(1, rows=8)[0]
    found = collectives(helpers.optimized_hlo(step.lower(*state, batch)))
    assert found
    for _, groups in found:  # device = 2 * (index on data) + (index on model)
        assert all(len({d % 2 for d in group}) == 1 for group in groups)


@pytest.mark.few(2)
@methods
def test_what_is_kept_lies_as_the_params_do(method):
    """From the start, and after steps: each device has half of every matrix."""
    tx = method(optax.adam(1e-2), specs=SPECS, compressor=BFLOAT16)
    step, state = started(tx, mesh_of(4, 2), pulled)
    for batch in [None, *helpers.batches(4, rows=8)]:
        if batch:
            *state, _ = step(*state, batch)
        matrices = [x for x in jax.tree.leaves(state) if x.ndim == 3]
        assert len(matrices) >= 5 * 2  # model, moments, anchor, feedback
        for x in matrices:
            assert np.prod(x.sharding.shard_shape(x.shape)) == x.size / 8


def test_bytes_of_fragments_are_those_of_shards():
    """Leaves have 40, 8, 24 and 3 elements: half of the first is 20, of the rest 19."""
    tx = streaming(optax.sgd(0.1), specs=SPECS, algorithm="ring")
    mesh = mesh_of(4, 2)
    sent = [
        wire_bytes(tx, problem(), mesh, axis_name="data", start=t) for t in range(4)
    ]
    assert sent == [0, 2 * 3 * 5 * 4, 0, 2 * 3 * 5 * 4]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            {"layer1": SPECS["layer1"]},
            r"streaming_diloco: .*\['layer2/b', 'layer2/w'\]",
        ),
        (
            {**SPECS, "layer2": {"w": P("data"), "b": P()}},
            "specs= of leaf 'layer2/w' names the axis 'data'",
        ),
    ],
)
def test_specs_that_do_not_fit_the_model(specs, message):
    with pytest.raises(ValueError, match=message):
        started(streaming(optax.sgd(0.1), specs=specs), mesh_of(4, 2), pulled)


def test_sparse_loco_sends_a_part_of_each_shard():
    def tx(specs: Any) -> Any:
        return relaxjax.sparse_loco(optax.sgd(0.1), "data", 1, specs=specs)

    step, state = started(tx(SPECS), mesh_of(4, 2), pulled)
    batch = helpers.batches(1, rows=8)[0]
    params, *_ = step(*state, batch)
    assert relaxjax.spread(params) < 1e-6
    weight = params["layer1"]["w"]
    assert weight.sharding.shard_shape(weight.shape) == (1, 5, 4)
    with pytest.raises(ValueError, match="specs="):
        started(tx(None), mesh_of(4, 2), pulled)
