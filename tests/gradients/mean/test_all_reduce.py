"""all_reduce: what it computes, that buckets do not matter, and what it refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, collectives, compression
from relaxjax._core.layouts._sharding import as_on_devices
from relaxjax.gradients.mean._all_reduce import mean_over_workers
from relaxjax.gradients.mean._exact_mean import ALGORITHMS
from relaxjax.programs import shape_of
from relaxjax.schedule import plan_buckets
from tests import helpers, sharded
from tests.collectives import references
from tests.helpers import assert_close, assert_equal, mesh_of

EXPLICIT = [name for name in ALGORITHMS if name != "hierarchical"]


def gradients(n: int, dtype=np.float32):
    """Stacked gradients of n workers, with empty and 0-d leaves among them."""
    trees = [helpers.problem(seed, dtype) for seed in range(n)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *trees)
    return {**stacked, "empty": np.zeros((n, 0, 3), dtype)}


def mean_ref(stacked, op: str = "mean"):
    """The mean over a list of workers' trees, in float64, for each of them."""

    def one(x):
        total = sum(np.asarray(block, np.float64) for block in x)
        return np.stack([total / (len(x) if op == "mean" else 1)] * len(x))

    return jax.tree.map(lambda x: one(x).astype(x.dtype), stacked)


def reduce_on(stacked, n: int, where: str, **knobs):
    tx: Any = all_reduce("data", **knobs)

    def update(g):
        return tx.update(g, tx.init(g))[0]

    if where == "vmap":
        return jax.jit(jax.vmap(update, axis_name="data"))(stacked)
    mapped = jax.shard_map(
        lambda g: jax.tree.map(
            lambda x: x[None], update(jax.tree.map(lambda x: x[0], g))
        ),
        mesh=mesh_of(n),
        in_specs=P("data"),
        out_specs=P("data"),
        check_vma=False,
    )
    return jax.jit(mapped)(stacked)


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["auto", "psum", *EXPLICIT])
@pytest.mark.parametrize("op", ["mean", "sum"])
@pytest.mark.parametrize("where", ["mesh", "vmap"])
def test_equals_the_list_of_workers(algorithm, op, where):
    stacked = gradients(5)
    out = reduce_on(stacked, 5, where, algorithm=algorithm, op=op)
    assert_close(out, mean_ref(stacked, op), 1e-6)
    assert relaxjax.spread(out) == 0.0


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 6),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    bucket_bytes=st.sampled_from([1, 8, 20, 10**6]),
    algorithm=st.sampled_from(["psum", *EXPLICIT]),
    dtype=st.sampled_from([np.float32, jnp.bfloat16, np.float16]),
    seed=st.integers(0, 1000),
)
def test_any_tree(n, sizes, bucket_bytes, algorithm, dtype, seed):
    rng = np.random.default_rng(seed)
    stacked = [rng.normal(size=(n, size)).astype(dtype) for size in sizes]
    tolerance = 1e-6 if dtype == np.float32 else 3e-2
    out = reduce_on(stacked, n, "vmap", algorithm=algorithm, bucket_bytes=bucket_bytes)
    scale = [1e-6 + np.abs(x.astype(np.float32)).max(initial=0) for x in stacked]
    for got, expected, size in zip(out, mean_ref(stacked), scale, strict=True):
        error = np.abs(np.asarray(got, np.float32) - expected.astype(np.float32))
        assert error.max(initial=0) <= tolerance * size


@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_buckets_and_order_change_nothing_but_rounding(algorithm):
    stacked = gradients(4)
    whole = reduce_on(stacked, 4, "mesh", algorithm=algorithm)
    names = ["empty", "scale", "layer1/b", "layer1/w", "layer2/w"]
    for knobs in ({"bucket_bytes": 40}, {"bucket_bytes": 64, "order": names}):
        out = reduce_on(stacked, 4, "mesh", algorithm=algorithm, **knobs)
        assert_close(out, whole, 1e-6)


@pytest.mark.parametrize("order", [None, ["scale", "layer2/w", "layer1/w", "layer1/b"]])
def test_psum_keeps_groups_apart_in_the_program(order):
    tx: Any = all_reduce("data", bucket_bytes=100, order=order)
    grads = helpers.problem()
    jaxpr = on_four_devices(lambda g: tx.update(g, tx.init(g))[0], grads)
    primitives = [eqn.primitive.name for eqn in jaxpr.eqns]
    assert primitives.count("psum") == 3
    assert helpers.psum_groups_of(jaxpr) == 3
    # Only an explicit order is enforced.
    assert primitives.count("optimization_barrier") == (2 if order else 0)


def on_four_devices(function, *args):
    """Its program on devices, which is another than that of emulated workers."""
    with as_on_devices({"data": 4}, ["data"]):
        return jax.make_jaxpr(function, axis_env=[("data", 4)])(*args)


def test_small_leaves_of_a_group_are_one_operand_for_each_dtype():
    small = {"bias": jnp.arange(3.0), "scale": jnp.float32(2), "w": jnp.ones((2, 5))}
    grads = {
        **small,
        "half": jnp.ones(4, jnp.bfloat16),
        "halves": jnp.ones((2, 2), jnp.bfloat16),
        "large": jnp.ones((130, 128)),
    }
    tx: Any = all_reduce("data", algorithm="psum")

    def run(g):
        return tx.update(g, tx.init(g))[0]

    jaxpr = on_four_devices(run, grads)
    sizes = [
        (shape_of(v).shape, shape_of(v).dtype.name)
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "psum"
        for v in eqn.invars
    ]
    assert sorted(sizes) == [
        ((8,), "bfloat16"),
        ((14,), "float32"),
        ((130, 128), "float32"),
    ]
    emulated = jax.make_jaxpr(run, axis_env=[("data", 4)])(grads)
    sums = [eqn for eqn in emulated.eqns if eqn.primitive.name == "psum"]
    assert sum(len(eqn.invars) for eqn in sums) == len(
        grads
    )  # nothing is sent, or copied
    two = jax.tree.map(lambda x: jnp.stack([x, 3 * x]), grads)
    out = jax.vmap(run, axis_name="data")(two)
    assert_equal(out, jax.tree.map(lambda x: jnp.stack([2 * x, 2 * x]), grads))


def test_ring_sends_buckets_in_the_order_given():
    order = ["layer1/b", "scale", "layer2/w", "layer1/w"]
    tx: Any = all_reduce("data", algorithm="ring", bucket_bytes=140, order=order)
    grads = helpers.problem()
    mapped = jax.shard_map(
        lambda g: tx.update(g, tx.init(g))[0],
        mesh=mesh_of(2),
        in_specs=P(),
        out_specs=P(),
        check_vma=False,
    )
    lines = helpers.optimized_hlo(jax.jit(mapped).lower(grads)).splitlines()
    sent = [line for line in lines if " collective-permute(" in line]
    # Scheduled order of the entry computation: 8 + 84 bytes, then the large leaf.
    sizes = [int(line.split("f32[")[1].split("]")[0]) for line in sent]
    assert sizes == [15, 15, 18, 18]


WIDE = [(algorithm, 64) for algorithm in ("psum", "two_shot", "one_shot")]
WIDE += [(algorithm, 5) for algorithm in ("psum", "ring", "bidirectional_ring")]


@pytest.mark.few(6)
@pytest.mark.parametrize("dtype", [np.float16, jnp.float8_e5m2])
@pytest.mark.parametrize(("algorithm", "n"), WIDE)
def test_means_of_narrow_floats_over_their_whole_range(algorithm, n, dtype):
    """Equal to the mean in float64, rounded: neither overflow nor underflow."""
    rng, kind = np.random.default_rng(0), jnp.finfo(dtype)
    tiny, largest = float(kind.smallest_subnormal), float(kind.max)
    rows = [rng.integers(-40, 41, (n, 16)) * tiny]
    rows += [np.full((n, 2), x * tiny) for x in (1, 2, 17)]
    rows += [rng.normal(size=(n, 16)), np.full((n, 3), largest)]
    rows += [largest * rng.uniform(-1, 1, (n, 16))]
    stacked = np.concatenate(rows, axis=1).astype(dtype)
    out = np.asarray(reduce_on(stacked, n, "vmap", algorithm=algorithm), np.float64)
    exact = stacked.astype(np.float64).mean(0)
    hops = n if "ring" in algorithm else 1
    rounding = hops * np.maximum(float(kind.eps) / 2 * np.abs(exact), 0.51 * tiny)
    if hops > 1:  # the mean so far may be larger than the mean
        rounding = np.maximum(rounding, float(kind.eps) * np.abs(stacked).max(0))
    assert (np.abs(out[0] - exact) <= rounding).all()
    equal = slice(16, 22)  # all workers alike, in the bits
    np.testing.assert_array_equal(out[0, equal], exact[equal])


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", [np.float16, jnp.float8_e4m3fn])
@pytest.mark.parametrize("algorithm", ["psum", *EXPLICIT])
def test_mean_of_large_narrow_floats_does_not_overflow(dtype, algorithm):
    largest = float(jnp.finfo(dtype).max)
    stacked = {"w": np.full((4, 3), largest, dtype)}
    out = reduce_on(stacked, 4, "vmap", algorithm=algorithm)
    np.testing.assert_array_equal(np.asarray(out["w"], np.float32), largest)


def test_nan_of_one_worker_is_seen_by_all():
    stacked = gradients(4)
    stacked["layer1"]["w"][2, 0, 0] = np.nan
    for algorithm in ("psum", *EXPLICIT):
        out = reduce_on(stacked, 4, "mesh", algorithm=algorithm, bucket_bytes=64)
        assert np.isnan(np.asarray(out["layer1"]["w"])[:, 0, 0]).all()
        assert np.isfinite(np.asarray(out["layer2"]["w"])).all()
        assert np.isfinite(np.asarray(out["layer1"]["w"])[:, 1:]).all()


@pytest.mark.slow
def test_two_axes():
    stacked = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), gradients(6))
    for algorithm in ("psum", *ALGORITHMS):
        tx: Any = all_reduce(("host", "device"), algorithm=algorithm)

        def update(g, tx=tx):
            return tx.update(g, tx.init(g))[0]

        out = jax.vmap(jax.vmap(update, axis_name="device"), axis_name="host")(stacked)
        out = jax.tree.map(lambda x: np.asarray(x).reshape(6, *x.shape[2:]), out)
        assert_close(out, mean_ref(gradients(6)), 1e-6)


def test_tiny_and_large_float16_on_two_levels():
    values = np.array([2.0**-24, 1e-6, 1.0, 65504.0], np.float16)
    tx: Any = all_reduce(("host", "device"), algorithm="hierarchical")
    run = jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="device")
    out = jax.vmap(run, axis_name="host")(np.tile(values, (2, 3, 1)))
    np.testing.assert_array_equal(out, np.tile(values, (2, 3, 1)))


def on_two_axes(where: str):
    if where == "emulated":
        return relaxjax.emulate({"host": 2, "device": 3})
    devices = np.reshape(jax.devices()[:6], (2, 3))
    return jax.sharding.Mesh(devices, ("host", "device"))


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["mesh", "emulated"])
def test_hierarchical_trains_like_one_worker(where):
    reducer = all_reduce(("host", "device"), algorithm="hierarchical", bucket_bytes=100)
    data = helpers.batches(3, 12)
    tx: Any = optax.chain(reducer, optax.adam(0.01))
    params, _, _ = helpers.train(tx, on_two_axes(where), data)
    expected, _ = helpers.train_alone(optax.adam(0.01), data)
    assert relaxjax.spread(params) == 0.0
    assert_close(jax.tree.map(lambda x: x[0], params), expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("sizes", [{"host": 2, "device": 4}, {"host": 3, "device": 2}])
def test_bytes_of_packed_buckets(algorithm, sizes):
    tx = all_reduce(tuple(sizes), algorithm=algorithm, bucket_bytes=100)
    params = helpers.problem(dtype=np.float16)
    sent = relaxjax.wire_bytes(tx, params, relaxjax.emulate(sizes))
    stated = getattr(collectives, f"{algorithm}_wire_bytes")
    expected = 0
    for bucket in plan_buckets(params, bucket_bytes=100):
        size = sum(segment.size for segment in bucket.segments)
        flat = jax.ShapeDtypeStruct((size,), np.float16)
        if algorithm == "hierarchical":
            expected += stated(flat, tuple(sizes.values()))
        else:
            expected += sum(stated(flat, n) for n in sizes.values())
    assert sent == expected


def test_psum_sends_a_leaf_that_is_larger_than_a_message_once():
    params = {"large": np.zeros(64, np.float32), "small": np.zeros(8, np.float32)}
    tx = all_reduce("data", bucket_bytes=100)
    sent = relaxjax.wire_bytes(tx, params, relaxjax.emulate(4))
    assert sent == 2 * 3 * (64 + 8) / 4 * 4


@pytest.mark.few(2)
@pytest.mark.parametrize("where", ["mesh", "vmap"])
def test_adasum_of_each_leaf(where):
    stacked = gradients(3)
    out = reduce_on(stacked, 3, where, op="adasum", bucket_bytes=8)
    for got, leaf in zip(jax.tree.leaves(out), jax.tree.leaves(stacked), strict=True):
        expected = references.adasum(list(leaf))
        np.testing.assert_allclose(got[2], expected, rtol=1e-4, atol=1e-6)
    assert relaxjax.spread(out) == 0.0


def test_adasum_of_equal_gradients_is_one_of_them():
    same = jax.tree.map(lambda x: np.stack([x] * 5), helpers.problem())
    assert_equal(reduce_on(same, 5, "vmap", op="adasum"), same)


def test_adasum_beside_an_axis_of_the_compiler():
    mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:4], (2, 2)), ("data", "model"))
    tx: Any = optax.chain(all_reduce("data", op="adasum"), optax.sgd(0.1))
    data = helpers.batches(2, 4)
    params, _, _ = helpers.train(tx, mesh, data, axis_name="data")
    expected, _, _ = helpers.train(tx, mesh_of(2), data)
    assert relaxjax.spread(params) == 0.0
    assert_close(params, expected)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"algorithm": "rign"}, "algorithm='rign' is not one of auto, psum, ring"),
        ({"op": "max"}, "op='max' is not one of mean, sum"),
        ({"bucket_bytes": 0}, "bucket_bytes=0 must be a positive number of bytes"),
        (
            {"algorithm": "hierarchical"},
            r"algorithm='hierarchical': axis_name='data' must be two axes.*two_shot",
        ),
        (
            {"op": "adasum", "algorithm": "ring"},
            r"op='adasum' with algorithm='ring': .*leave algorithm at 'auto'",
        ),
    ],
)
def test_bad_knobs(knobs, message):
    with pytest.raises(ValueError, match=message):
        all_reduce("data", **knobs)


@pytest.mark.parametrize("name", [3, ("a", 1), ()])
def test_bad_axis_names(name):
    with pytest.raises(TypeError, match="an axis name is a string, or a tuple"):
        all_reduce(name)


def test_axis_named_twice():
    with pytest.raises(ValueError, match="names an axis twice"):
        all_reduce(("data", "data"))


def test_its_operations_are_known_to_be_of_gradients():
    found = helpers.stations_of(all_reduce("data"))
    assert found == {("all_reduce", "gradients", ("data",))}


def test_outside_any_axis():
    tx: Any = all_reduce("data")
    grads = helpers.problem()
    with pytest.raises(NameError, match=r"no axis named 'data'.*relaxjax.init"):
        tx.update(grads, tx.init(grads))


def test_leaves_that_have_no_mean():
    tx: Any = all_reduce("data")
    with pytest.raises(ValueError, match=r"leaf 'steps/0' is int32.*optax.partition"):
        tx.init({"steps": [jnp.zeros(2, jnp.int32)]})


def test_updates_that_have_no_mean():
    tx: Any = all_reduce("data")

    def update(x):
        return tx.update({"w": x.astype(int)}, tx.init({"w": x}))

    with pytest.raises(ValueError, match=r"all_reduce: leaf 'w' is int32"):
        jax.eval_shape(jax.vmap(update, axis_name="data"), jnp.zeros((2, 3)))


def test_order_is_checked_when_the_tree_is_known():
    tx: Any = all_reduce("data", order=["w"])
    with pytest.raises(ValueError, match=r"order misses leaf \['b'\]"):
        tx.init({"w": jnp.zeros(2), "b": jnp.zeros(2)})


def test_an_order_is_read_once():
    tx: Any = all_reduce("data", order=iter(["b", "a"]))

    def update(x):
        return tx.update({"a": x, "b": x}, tx.init({"a": x, "b": x}))[0]

    found = jax.eval_shape(jax.vmap(update, axis_name="data"), jnp.zeros(2))
    assert list(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (
            {"w": np.zeros((3, 2))},
            r"leaf 'w' was float32\[2,2\] and is now float32",
        ),
        ({"w": np.zeros((2, 2)), "v": np.zeros(1)}, r"leaf 'v' was absent"),
        ({}, r"leaf 'w' was float32\[2,2\] and is now absent"),
    ],
)
def test_a_tree_that_changed_since_init(now, message):
    tx: Any = optax.chain(all_reduce("data"), optax.sgd(0.1))
    _, opt_state = relaxjax.init(tx, {"w": jnp.zeros((2, 2))}, relaxjax.emulate(2))
    step = relaxjax.data_parallel(
        lambda params, state, batch: (
            *tx.update(params, state, params),
            batch.sum(),
        ),
        relaxjax.emulate(2),
    )
    params = relaxjax.to_workers(now, relaxjax.emulate(2))
    with pytest.raises(ValueError, match=f"tree changed since init: {message}"):
        step(params, opt_state, np.zeros(2, np.float32))


def test_gradients_that_are_already_reduced():
    tx: Any = all_reduce("data")

    def step(params, x):
        grads = jax.grad(lambda p: jnp.sum(p["w"] * x))(params)
        return tx.update(grads, tx.init(params))[0]

    f = jax.shard_map(step, mesh=mesh_of(2), in_specs=(P(), P("data")), out_specs=P())
    with pytest.raises(ValueError, match=r"leaf 'w' is already the same.*to_local"):
        f({"w": jnp.ones(())}, jnp.ones(2))


def test_packing_beside_an_axis_of_the_compiler():
    mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:4], (2, 2)), ("data", "model"))
    tx: Any = optax.chain(all_reduce("data", algorithm="ring"), optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"would gather.*'model'.*algorithm='psum'"):
        helpers.train(tx, mesh, helpers.batches(1, 4), axis_name="data")


def test_psum_beside_an_axis_of_the_compiler():
    mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:4], (2, 2)), ("data", "model"))
    tx: Any = optax.chain(all_reduce("data"), optax.adam(0.01))
    data = helpers.batches(3, 4)
    params, _, _ = helpers.train(tx, mesh, data, axis_name="data")
    expected, _ = helpers.train_alone(optax.adam(0.01), data)
    assert_close(jax.tree.map(lambda x: x[0], params), expected)
    assert_equal(relaxjax.consensus(params), jax.tree.map(lambda x: x[0], params))


@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_each_device_reduces_its_own_shard(algorithm):
    """By weight; and of the leaves that are not masked."""
    mesh, rng = sharded.mesh_of(2, 2), np.random.default_rng(0)
    specs = {"w": P("model"), "b": P()}
    tx: Any = all_reduce("data", algorithm=algorithm, specs=specs)
    part: Any = optax.masked(tx, {"w": True, "b": False})

    def local(g, weight):
        g = jax.tree.map(lambda x: x[0], g)
        whole, _ = tx.update(g, tx.init(g), weight=weight[0])
        some, _ = part.update(g, part.init(g))
        return jax.tree.map(lambda x: x[None], (whole, some))

    spec = P("data")
    f = jax.shard_map(
        local, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"data"}
    )
    g = {k: rng.normal(size=(2, *s)) for k, s in (("w", (4, 3)), ("b", (3,)))}
    g = jax.tree.map(np.float32, g)
    stacked = {
        k: jax.device_put(x, NamedSharding(mesh, P("data", *specs[k])))
        for k, x in g.items()
    }
    whole, some = jax.jit(f)(stacked, np.array([1.0, 3.0], np.float32))
    assert whole["w"].sharding.spec == some["w"].sharding.spec == P("data", "model")
    for k, x in g.items():
        np.testing.assert_allclose(whole[k], [x[0] / 4 + x[1] * 3 / 4] * 2, atol=1e-6)
    np.testing.assert_allclose(some["w"], [g["w"].mean(axis=0)] * 2, atol=1e-6)
    np.testing.assert_array_equal(some["b"], g["b"])


def test_a_mean_as_a_function_of_updates_and_a_weight():
    mean = mean_over_workers("data", op="sum")

    def run(x, w):
        return mean({"x": x})["x"], mean({"x": x}, w)["x"]

    found = jax.vmap(run, axis_name="data")(jnp.array([1.0, 4.0]), jnp.array([3.0, 0]))
    assert_equal(found, ([5.0, 5.0], [3.0, 3.0]))


def test_state_survives_flax_serialization():
    from flax import serialization

    tx: Any = optax.chain(all_reduce("data"), optax.adam(0.1))
    state = tx.init(jax.tree.map(jnp.asarray, helpers.problem()))
    raw = serialization.to_bytes(state)
    restored: Any = serialization.from_bytes(state, raw)
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    assert restored[0].layout.lines == state[0].layout.lines


def slope(dtype: Any, **how: Any) -> tuple[float, float]:
    """The sum of an update of a * g, of three buckets, and its derivative at a = 1."""
    g = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (4, 40)), dtype)
    tx: Any = all_reduce("data", bucket_bytes=64, **how)

    def total(a: jax.Array) -> jax.Array:
        def one(x: jax.Array) -> jax.Array:
            return tx.update(a.astype(x.dtype) * x, tx.init(x))[0].sum()

        return jax.vmap(one, axis_name="data")(g).sum().astype(jnp.float32)

    value, by_a = jax.value_and_grad(total)(jnp.float32(1))
    return float(value), float(by_a)


@pytest.mark.parametrize("algorithm", ["psum", *EXPLICIT])
def test_an_exact_update_has_its_derivative(algorithm):
    value, by_a = slope(jnp.float32, algorithm=algorithm)
    np.testing.assert_allclose(by_a, value, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        (jnp.float32, {"compressor": compression.top_k(0.5)}),
        (jnp.bfloat16, {"algorithm": "two_shot"}),
    ],
)
def test_what_travels_as_integers_has_none(dtype, how):
    """As docs/collectives.md says."""
    value, by_a = slope(dtype, **how)
    assert value > 0
    assert by_a == 0
