"""deep_gradient_compression: against a list of workers, its law, its phases."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import (
    accumulate,
    advance_phases,
    compression,
    deep_gradient_compression,
    emulate,
    skip_nonfinite,
    wire_bytes,
)
from tests import helpers, sharded
from tests.helpers import assert_close, mesh_of

SHAPES = {"a": (6, 5), "b": (7,), "c": (2, 3, 4), "d": ()}
MATRICES = ("a", "c")
SIZE = 30 + 24
WARM: Any = {"warmup_densities": (0.5, 0.2), "warmup_steps": 3}


def gradients(workers: int, steps: int = 20) -> list[Any]:
    """Gradients of all workers for each step; a part of them is the same in each."""
    rng = np.random.default_rng(workers)
    same = {k: rng.normal(size=(workers, *shape)) for k, shape in SHAPES.items()}
    return [
        {k: np.float32(x + rng.normal(size=x.shape)) for k, x in same.items()}
        for _ in range(steps)
    ]


def ours(tx: Any, gs: list[Any], **extra: Any) -> tuple[list[Any], list[Any]]:
    """Outputs and states after each step, [workers, ...]."""
    step = jax.jit(
        jax.vmap(lambda g, s, e: tx.update(g, s, **e), axis_name="data"),
    )
    state, outs, states = jax.vmap(tx.init, axis_name="data")(gs[0]), [], []
    for g in gs:
        out, state = step(g, advance_phases(state), extra)
        outs.append(jax.tree.map(np.asarray, out))
        states.append(state)
    return outs, states


def feedback_of(state: Any) -> Any:
    return state.exchange.inner_states["matrix"].inner_state.compressed.feedback


def theirs(
    gs: list[Any],
    densities: list[float],
    m: float,
    *,
    nesterov: bool = False,
    masking: bool = True,
    clip: float | None = None,
) -> list[Any]:
    """DGC on a list of workers, matrices as one flat array, float64."""

    def stepped(u, g):
        u = m * (u + g) if nesterov else m * u + g
        return u, u + g if nesterov else u

    n = len(gs[0]["a"])
    u, v = np.zeros((n, SIZE)), np.zeros((n, SIZE))
    vector = {k: np.zeros(SHAPES[k]) for k in ("b", "d")}
    outs = []
    for step, density in zip(gs, densities, strict=True):
        sent, of_vectors = [], []
        for i in range(n):
            g = {k: np.float64(x[i]) for k, x in step.items()}
            norm = np.sqrt(sum((x**2).sum() for x in g.values()))
            if clip is not None and norm > clip / np.sqrt(n):
                g = {k: x * clip / np.sqrt(n) / norm for k, x in g.items()}
            flat = np.concatenate([g[k].ravel() for k in MATRICES])
            u[i], moved = stepped(u[i], flat)
            v[i] += moved
            chosen = np.argsort(-np.abs(v[i]))[: int(np.ceil(density * SIZE - 1e-9))]
            c = np.zeros(SIZE)
            c[chosen] = v[i][chosen]
            v[i][chosen] = 0
            if masking:
                u[i][chosen] = 0
            sent.append(c)
            of_vectors.append({k: g[k] for k in vector})
        out = {}
        for k in vector:
            mean = np.mean([x[k] for x in of_vectors], axis=0)
            vector[k], out[k] = stepped(vector[k], mean)
        mean = np.mean(sent, axis=0)
        out["a"], out["c"] = mean[:30].reshape(6, 5), mean[30:].reshape(2, 3, 4)
        outs.append(out)
    return outs


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("workers", "how"),
    [
        (2, {}),
        (3, {"nesterov": True}),
        (5, {"clip": 6.0}),
        (8, {"masking": False, "nesterov": True, "clip": 9.0}),
    ],
)
def test_equals_a_list_of_workers(workers, how):
    gs = gradients(workers)
    tx = deep_gradient_compression(
        "data", density=0.1, momentum=0.8, block_size=None, **WARM, **how
    )
    outs, states = ours(tx, gs)
    densities = 3 * [0.5] + 3 * [0.2] + 14 * [0.1]
    for out, expected in zip(outs, theirs(gs, densities, 0.8, **how), strict=True):
        for k in SHAPES:
            np.testing.assert_allclose(out[k][0], expected[k], rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(out[k], np.stack([out[k][0]] * workers))
    assert [s.clock.phase for s in states] == 3 * [0] + 3 * [1] + 14 * [2]


@pytest.mark.few(2)
@pytest.mark.parametrize("masking", [True, False])
def test_what_is_sent_and_what_waits_is_all_that_was_added(masking):
    m, gs = 0.9, gradients(4)
    tx = deep_gradient_compression("data", density=0.05, masking=masking, **WARM)
    outs, states = ours(tx, gs)
    for k in MATRICES:
        u = np.zeros_like(gs[0][k])
        added = np.zeros(gs[0][k].shape, np.float64)
        sent = np.zeros(SHAPES[k], np.float64)
        for g, out, state in zip(gs, outs, states, strict=True):
            added += m * u + g[k]
            # Without masking, u follows from this worker's gradients alone.
            u = feedback_of(state).velocity[k] if masking else m * u + g[k]
            sent += out[k][0]
            left = np.mean(feedback_of(state).accumulated[k], axis=0)
            np.testing.assert_allclose(sent + left, added.mean(axis=0), atol=1e-4)
        assert np.abs(added.mean(axis=0) - sent).max() > 0.1


def test_all_sent_at_once_is_momentum_sgd_and_with_masking_plain_sgd():
    gs = gradients(4, steps=6)
    mean: list[Any] = [jax.tree.map(lambda x: x.mean(axis=0), g) for g in gs]
    trace: Any = optax.trace(0.9)
    state = trace.init(mean[0])
    kept, _ = ours(deep_gradient_compression("data", density=1.0, masking=False), gs)
    masked, _ = ours(deep_gradient_compression("data", density=1.0), gs)
    for g, out, without in zip(mean, kept, masked, strict=True):
        expected, state = trace.update(g, state)
        assert_close(jax.tree.map(lambda x: x[2], out), expected, 1e-5)
        wanted = {k: g[k] if k in MATRICES else expected[k] for k in SHAPES}
        assert_close(jax.tree.map(lambda x: x[2], without), wanted, 1e-5)


def test_alone_nothing_waits_and_nothing_is_masked():
    gs = gradients(1, steps=4)
    outs, _ = ours(deep_gradient_compression("data", **WARM), gs)
    trace = optax.trace(0.9)
    state = trace.init(gs[0])
    for g, out in zip(gs, outs, strict=True):
        expected, state = trace.update(g, state)
        assert_close(out, expected, 1e-6)
    params = jax.tree.map(lambda x: x[0], gs[0])
    assert wire_bytes(deep_gradient_compression("data"), params, emulate(1)) == 0


def test_zeros_stay_zeros():
    zeros = [jax.tree.map(np.zeros_like, g) for g in gradients(3, steps=2)]
    outs, states = ours(deep_gradient_compression("data", clip=1.0), zeros)
    for x in jax.tree.leaves((outs, feedback_of(states[-1]))):
        np.testing.assert_array_equal(x, 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_seen_by_all_and_leaves_no_trace_if_skipped(bad, clip):
    first, second = gradients(4, steps=2)
    second["a"][1, 2, 3] = bad
    tx = deep_gradient_compression("data", density=0.02, clip=clip)
    outs, _ = ours(tx, [first, second])
    for worker in range(4):
        assert not all(np.isfinite(x[worker]).all() for x in outs[1].values())
    outs, states = ours(skip_nonfinite(tx, "data"), [first, second])
    assert not any(np.any(x) for x in jax.tree.leaves(outs[1]))
    helpers.assert_equal(states[1].inner_state, states[0].inner_state)


def test_weights_are_of_examples_and_an_absent_worker_counts_for_nothing():
    (g,) = gradients(4, steps=1)
    g["c"][2] = np.nan
    weight = np.array([3, 1, 0, 4], np.float32)
    tx = deep_gradient_compression("data", density=1.0)
    outs, _ = ours(tx, [g], weight=weight)
    for k, x in g.items():
        present = np.where(weight.reshape(-1, *[1] * (x.ndim - 1)) == 0, 0, x)
        expected = np.average(present, 0, weight)
        np.testing.assert_allclose(outs[0][k][0], expected, rtol=1e-4, atol=1e-6)


def test_clipping_is_of_ones_own_gradient_at_a_share_of_the_norm():
    (g,) = gradients(4, steps=1)
    outs, _ = ours(deep_gradient_compression("data", density=1.0, clip=1.0), [g])
    each = [jax.tree.map(lambda x, i=i: x[i], g) for i in range(4)]
    norms = [np.sqrt(sum((x**2).sum() for x in tree.values())) for tree in each]
    for k in SHAPES:
        expected = sum(x[k] * 0.5 / norm for x, norm in zip(each, norms, strict=True))
        np.testing.assert_allclose(outs[0][k][3], expected / 4, rtol=1e-4, atol=1e-6)
    (narrow,) = ours(
        deep_gradient_compression("data", density=1.0, clip=1.0),
        [jax.tree.map(lambda x: (1000 * x).astype(np.float16), g)],
    )[0]
    assert_close(  # 1000^2 is no float16
        jax.tree.map(lambda x: x.astype(np.float32), narrow), outs[0], 1e-2
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32])
def test_dtypes_stay_and_buffers_are_wide(dtype):
    gs = [jax.tree.map(lambda x: x.astype(dtype), g) for g in gradients(2, steps=2)]
    tx: Any = deep_gradient_compression("data", clip=1.0)
    outs, states = ours(tx, gs)
    assert {x.dtype for x in jax.tree.leaves(outs)} == {np.dtype(dtype)}
    for state in (tx.init(jax.tree.map(lambda x: x[0], gs[0])), states[-1]):
        floats = [x for x in jax.tree.leaves(state) if x.dtype != jnp.int32]
        assert {x.dtype for x in floats} == {np.dtype(np.float32)}


WRAPPED = {
    "bare": lambda tx: optax.chain(tx, optax.sgd(0.05)),
    "accumulate": lambda tx: accumulate(optax.chain(tx, optax.sgd(0.05)), every=2),
    "skip_nonfinite": lambda tx: skip_nonfinite(
        optax.chain(tx, optax.sgd(0.05)), "data"
    ),
    "inject_hyperparams": lambda tx: optax.inject_hyperparams(
        lambda learning_rate: optax.chain(tx, optax.sgd(learning_rate))
    )(learning_rate=0.05),
}


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("wrapper", WRAPPED)
def test_trains_through_its_phases_in_wrappers(wrapper):
    """At density 1 in each phase without masking: momentum SGD on all examples."""
    dgc = deep_gradient_compression(
        "data",
        density=1.0,
        masking=False,
        warmup_densities=(1.0, 1.0),
        warmup_steps=1,
    )
    data = helpers.batches(6, rows=12)
    params, state, _ = helpers.train(WRAPPED[wrapper](dgc), mesh_of(4), data)
    alone = WRAPPED[wrapper](optax.trace(0.9))
    if wrapper == "skip_nonfinite":
        alone = WRAPPED["bare"](optax.trace(0.9))
    expected, _ = helpers.train_alone(alone, data)
    assert relaxjax.spread(params) == 0.0
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)
    (clock,) = [
        x
        for x in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, relaxjax.Clock))
        if isinstance(x, relaxjax.Clock)
    ]
    assert clock.phase == 2
    assert clock.count[0] == (3 if wrapper == "accumulate" else 6)


@pytest.mark.long
def test_bytes_follow_the_phases_and_are_those_compiled():
    tx: Any = deep_gradient_compression("data", density=0.05, block_size=16, **WARM)
    params = {k: jnp.zeros(shape) for k, shape in SHAPES.items()}
    vectors = 2 * 3 * 4 * 2  # psum of 7 elements and 1: chunks of 2
    flat = jax.ShapeDtypeStruct((SIZE,), jnp.float32)

    def in_phase(phase):
        def local(g):
            g = jax.tree.map(lambda x: x[0], g)
            state = tx.init(g)
            clock = dataclasses.replace(state.clock, phase=phase)
            out, _ = tx.update(g, state._replace(clock=clock))
            return jax.tree.map(lambda x: x[None], out)

        spec = P("data")
        mapped = jax.shard_map(
            local, mesh=mesh_of(4), in_specs=spec, out_specs=spec, check_vma=False
        )
        return jax.jit(mapped)

    stacked = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((4, *x.shape), x.dtype), params
    )
    found = []
    for phase, density in enumerate((0.5, 0.2, 0.05)):
        codec = compression.top_k(density, block_size=16)
        stated = 3 * compression.payload_bytes(codec, flat) + vectors
        assert wire_bytes(tx, params, emulate(4), start=3 * phase) == stated
        two = wire_bytes(tx, params, emulate(4), start=3 * phase, steps=2)
        assert two == 2 * stated
        assert relaxjax.compiled_wire_bytes(in_phase(phase), stacked) == stated
        found.append(stated)
    assert found[0] > found[1] > found[2]


def test_beside_tensor_parallelism_each_device_sends_its_own_shard():
    mesh = sharded.mesh_of(4, 2)
    params = sharded.sharded(sharded.problem(), mesh)
    dgc = deep_gradient_compression(
        "data", density=1.0, masking=False, specs=sharded.SPECS
    )
    tx: Any = optax.chain(dgc, optax.sgd(0.1))
    params, state = relaxjax.init(tx, params, mesh, axis_name="data")
    gradient = jax.grad(sharded.loss_fn)
    one = helpers.step_of(gradient, tx)
    step = relaxjax.data_parallel(one, mesh, axis_name="data")
    data = helpers.batches(3, rows=8)
    for batch in data:
        params, state, _ = step(params, state, batch)
    velocity = feedback_of(state[0]).velocity["layer1"]["w"]
    assert velocity.sharding.spec == P("data", None, "model")

    alone: Any = optax.sgd(0.1, momentum=0.9)
    expected = jax.tree.map(jnp.asarray, sharded.problem())
    own, step = alone.init(expected), jax.jit(helpers.step_of(gradient, alone))
    for batch in data:
        expected, own, _ = step(expected, own, batch)
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"density": 0}, r"density=0 must be in \(0, 1\]"),
        ({"momentum": 1.0}, r"momentum=1.0 must be in \[0, 1\)"),
        ({"warmup_densities": (0.5, 2)}, r"warmup_densities=\(0.5, 2\) holds 2, which"),
        ({"warmup_steps": 0}, r"warmup_steps=0 must be a whole number, 1 or more"),
        ({"warmup_steps": 1.5}, r"warmup_steps=1.5 must be a whole number"),
        ({"clip": 0}, r"clip=0 must be positive and finite"),
        ({"clip": float("inf")}, r"clip=inf must be positive"),
        ({"block_size": 0}, r"block_size=0 must be at least 1"),
    ],
)
def test_bad_numbers_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        deep_gradient_compression("data", **words)


def test_vectors_alone_and_integers_are_refused():
    tx = deep_gradient_compression("data")
    with pytest.raises(ValueError, match="would compress nothing"):
        tx.init({"b": jnp.zeros(3)})
    with pytest.raises(ValueError, match="deep_gradient_compression: leaf 'w' is int"):
        tx.init({"w": jnp.zeros((3, 3), jnp.int32)})
