"""The hierarchical all-reduce over two axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from relaxjax import compiled_wire_bytes, emulate, wire_bytes
from relaxjax.collectives import hierarchical_all_reduce, hierarchical_wire_bytes
from tests.collectives import references
from tests.collectives.mappings import as_transformation, assert_same, draw

AXES = ("host", "device")


def reduce(x):
    return hierarchical_all_reduce(x, AXES)


def by_vmap(blocks: np.ndarray, hosts: int) -> np.ndarray:
    stacked = blocks.reshape(hosts, len(blocks) // hosts, *blocks.shape[1:])
    mapped = jax.vmap(jax.vmap(reduce, axis_name="device"), axis_name="host")
    return np.asarray(jax.jit(mapped)(stacked)).reshape(blocks.shape)


def on_mesh(n: int, hosts: int, check_vma: bool):
    devices = np.asarray(jax.devices()[:n]).reshape(hosts, -1)
    return jax.jit(
        jax.shard_map(
            lambda x: reduce(x[0]) if check_vma else reduce(x[0])[None],
            mesh=jax.sharding.Mesh(devices, AXES),
            in_specs=P(AXES),
            out_specs=P() if check_vma else P(AXES),
            check_vma=check_vma,
        )
    )


@pytest.mark.few(3)
@pytest.mark.parametrize(("hosts", "devices"), [(1, 1), (1, 3), (4, 1), (2, 4), (3, 2)])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((), np.float32), ((0, 2), np.float32), ((19,), jnp.bfloat16), ((3, 5), np.int8)],
)
def test_equals_the_reference(hosts, devices, shape, dtype):
    n = hosts * devices
    blocks = draw(n, shape, dtype)
    expected = references.hierarchical(list(blocks), hosts)
    assert_same(by_vmap(blocks, hosts), expected)
    assert_same(np.asarray(on_mesh(n, hosts, False)(blocks)), expected)
    typed = np.asarray(on_mesh(n, hosts, True)(blocks))
    assert_same(np.stack([typed] * n), expected)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    hosts=st.integers(1, 4),
    devices=st.integers(1, 4),
    shape=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    dtype=st.sampled_from([np.float32, jnp.bfloat16, np.float16, np.int32]),
    seed=st.integers(0, 2**16),
)
def test_any_shape_dtype_and_worker_count(hosts, devices, shape, dtype, seed):
    blocks = draw(hosts * devices, shape, dtype, seed)
    expected = references.hierarchical(list(blocks), hosts)
    assert_same(by_vmap(blocks, hosts), expected)


@pytest.mark.parametrize("hosts", range(1, 5))
@pytest.mark.parametrize("devices", range(1, 5))
@pytest.mark.parametrize(
    ("size", "dtype"), [(0, "int32"), (7, "float16"), (96, "float32")]
)
def test_traced_bytes_equal_the_formula(hosts, devices, size, dtype):
    x = jax.ShapeDtypeStruct((size,), dtype)
    tx = as_transformation(hierarchical_all_reduce, AXES)
    mesh = emulate({"host": hosts, "device": devices})
    stated = hierarchical_wire_bytes(x, (hosts, devices))
    assert wire_bytes(tx, x, mesh) == stated


@pytest.mark.parametrize(("hosts", "devices"), [(2, 4), (3, 2)])
def test_compiled_bytes_equal_the_formula(hosts, devices):
    n = hosts * devices
    blocks = jax.ShapeDtypeStruct((n, 19), jnp.float32)
    compiled = compiled_wire_bytes(on_mesh(n, hosts, False), blocks)
    x = jax.ShapeDtypeStruct((19,), jnp.float32)
    assert compiled == hierarchical_wire_bytes(x, (hosts, devices))


def test_bytes_by_hand():
    # Inside 2 * 3 chunks of 20 floats, across 2 * 1 chunks of 10.
    x = jax.ShapeDtypeStruct((80,), jnp.float32)
    assert hierarchical_wire_bytes(x, (2, 4)) == 4 * (6 * 20 + 2 * 10)


def test_error_of_two_roundings():
    blocks = np.abs(draw(8, (500,), jnp.bfloat16))
    exact = blocks.astype(np.float64).sum(0)
    out = by_vmap(blocks, 2)[0].astype(np.float64)
    worst = np.max(np.abs(out - exact) / exact) / 2.0**-8
    assert 0 < worst <= 2.01


def test_only_a_shard_crosses_the_hosts():
    blocks = draw(8, (64,), jnp.bfloat16)
    text = on_mesh(8, 2, False).lower(blocks).as_text()
    scattered = [line for line in text.splitlines() if "stablehlo.all_to_all" in line]
    inside, across = scattered
    # Groups are spelled by devices, or by the name of the axis in newer JAX.
    assert "[[0, 1, 2, 3], [4, 5, 6, 7]]" in inside or '"device"' in inside
    assert "(tensor<4x16xui16>)" in inside
    assert "[[0, 4], [1, 5], [2, 6], [3, 7]]" in across or '"host"' in across
    assert "(tensor<2x8xui16>)" in across


def test_nan_of_one_worker_is_seen_by_all():
    blocks = draw(6, (8,), np.float32)
    blocks[4, 3] = np.nan
    out = np.asarray(on_mesh(6, 2, False)(blocks))
    assert np.isnan(out[:, 3]).all()
    assert np.isfinite(np.delete(out, 3, axis=1)).all()


@pytest.mark.parametrize("name", ["data", ("data",), ("a", "b", "c")])
def test_needs_two_axes(name):
    message = r"axis_name=.* must be two axes, the outer \(slow\) one first.*two_shot"
    with pytest.raises(ValueError, match=message):
        hierarchical_all_reduce(jnp.ones(3), name)


def test_outside_an_axis():
    with pytest.raises(
        NameError, match="hierarchical_all_reduce: no axis named 'host'"
    ):
        hierarchical_all_reduce(jnp.ones(3), AXES)
