"""Adasum: its laws, a golden vector, extremes of the range, and its bytes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax import compiled_wire_bytes, emulate, wire_bytes
from relaxjax.collectives import adasum, adasum_wire_bytes
from tests.collectives import references
from tests.collectives.mappings import (
    MAPPINGS,
    as_transformation,
    by_mesh,
    by_typed_mesh,
    by_vmap,
    draw,
    lower_on_mesh,
    mapped_on_mesh,
)
from tests.helpers import optimized_hlo


def of(*vectors, dtype=np.float32) -> np.ndarray:
    """What every worker receives; it must be the same for all."""
    out = by_vmap(adasum, np.asarray(vectors, dtype))
    assert len({row.tobytes() for row in out}) == 1
    return out[0]


A, B = draw(2, (40,), np.float32)


def test_golden():
    np.testing.assert_array_equal(of((1, 0), (1, 1)), (1.25, 0.75))


def test_equal_vectors_count_once():
    for n in (1, 2, 3, 8, 13):
        np.testing.assert_array_equal(of(*[A] * n), A)


def test_orthogonal_vectors_are_added():
    a, b = np.array([[3, 0, 4, 0], [0, 7, 0, 1e-3]], np.float32)
    np.testing.assert_array_equal(of(a, b), a + b)
    np.testing.assert_array_equal(of(*np.eye(7)), np.ones(7))


def test_a_vector_and_its_double():
    np.testing.assert_allclose(of(A, 2 * A), 1.5 * A, rtol=1e-6)


def test_opposite_vectors_vanish():
    np.testing.assert_array_equal(of(A, -A), 0 * A)


@pytest.mark.parametrize("scale", [3.0, 1e-6, -1e9])
def test_homogeneous(scale):
    scaled = of(scale * A, scale * B)
    np.testing.assert_allclose(
        scaled, scale * of(A, B), rtol=2e-5, atol=1e-6 * scale**2
    )


def test_symmetric():
    np.testing.assert_allclose(of(A, B), of(B, A), rtol=1e-5, atol=1e-6)


def test_a_zero_vector_changes_nothing():
    np.testing.assert_array_equal(of(A, 0 * A), A)
    np.testing.assert_array_equal(of(0 * A, A, 0 * A), A)
    np.testing.assert_array_equal(of(0 * A, 0 * A), 0 * A)
    tiniest = np.float32(2.0**-126) * np.sign(A)  # where 1 / |a| overflows
    np.testing.assert_allclose(of(A, tiniest), A)


@pytest.mark.few(3)
@pytest.mark.parametrize("n", range(1, 17))
def test_equals_the_reference(n):
    blocks = draw(n, (3, 7), np.float32)
    expected = references.adasum(list(blocks))
    np.testing.assert_allclose(of(*blocks), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.few(5)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("where", MAPPINGS)
def test_every_mapping(n, where):
    blocks = draw(n, (3, 5), np.float32)
    out = MAPPINGS[where](adasum, blocks)
    assert len({row.tobytes() for row in out}) == 1
    expected = references.adasum(list(blocks))
    np.testing.assert_allclose(out[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 4)])
def test_small_and_empty_shapes(shape):
    blocks = draw(3, shape, np.float32)
    expected = references.adasum(list(blocks))
    for run in (by_vmap, by_mesh, by_typed_mesh):
        np.testing.assert_allclose(run(adasum, blocks)[2], expected, rtol=1e-5)


@pytest.mark.long
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 16),
    shape=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    dtype=st.sampled_from([np.float32, jnp.bfloat16, np.float16]),
    seed=st.integers(0, 2**16),
)
def test_any_shape_dtype_and_worker_count(n, shape, dtype, seed):
    blocks = draw(n, shape, dtype, seed)
    out = by_vmap(adasum, blocks)
    assert out.dtype == blocks.dtype
    assert len({row.tobytes() for row in out}) == 1
    expected = references.adasum(list(blocks))
    # Each level rounds every element once, and what it combines may cancel later.
    unit = float(jnp.finfo(dtype).eps)
    size = 1e-30 + sum(np.abs(np.asarray(b, np.float64)).max(initial=0) for b in blocks)
    error = np.abs(out[0].astype(np.float64) - expected).max(initial=0)
    assert error <= 8 * unit * size


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, jnp.float8_e5m2])
def test_narrow_floats_are_rounded_once_per_combination(dtype):
    a, b = np.abs(draw(2, (3000,), dtype))  # a sum of 3000 squares needs float32
    expected = references.adasum([a, b])
    error = np.abs(of(a, b, dtype=dtype).astype(np.float64) - expected)
    half = float(jnp.finfo(dtype).eps) / 2
    smallest = float(jnp.finfo(dtype).smallest_subnormal)
    assert error.max() > 0
    assert np.all(error <= 1.01 * half * np.abs(expected) + 1e-5 + smallest)


def test_two_different_nans_become_one():
    # Which one a processor keeps is its own affair, but it is the same for all workers.
    bits = np.array([[0x7FC00001], [0x7FC00002], [0x7FC00003]], np.uint32)
    for run in (by_vmap, by_mesh):
        out = run(adasum, bits.view(np.float32))
        assert np.isnan(out).all()
        assert len({row.tobytes() for row in out}) == 1


# Powers of two, so that the numbers themselves are exact.
EXTREMES = [(2.0**120, 2.0**120), (2.0**-120, 2.0**-120), (2.0**120, 2.0**-120)]


@pytest.mark.parametrize(("of_a", "of_b"), EXTREMES)
def test_squares_beyond_the_range_of_float32(of_a, of_b):
    a, b = np.float32(of_a) * A, np.float32(of_b) * B
    expected = references.adasum([a, b])
    error = np.linalg.norm(of(a, b) - expected)
    flushed = np.sqrt(a.size) * np.finfo(np.float32).tiny  # what may become zero
    assert error <= 1e-6 * np.linalg.norm(expected) + flushed


def test_largest_vectors():
    largest = np.full(4, np.finfo(np.float32).max)
    np.testing.assert_array_equal(of(largest, largest), largest)
    np.testing.assert_array_equal(of(largest, -largest), 0 * largest)


def test_nan_of_one_worker_is_seen_by_all():
    blocks = draw(5, (8,), np.float32)
    blocks[4, 3] = np.nan
    assert np.isnan(by_mesh(adasum, blocks)).all()


def test_complex_numbers_are_vectors_of_reals():
    blocks = draw(3, (6,), np.float32) + 1j * draw(3, (6,), np.float32, seed=1)
    out = by_typed_mesh(adasum, blocks.astype(np.complex64))[0]
    expected = references.adasum([np.stack([b.real, b.imag]) for b in blocks])
    np.testing.assert_allclose(out.real, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out.imag, expected[1], rtol=1e-4, atol=1e-5)


def test_float64():
    with jax.enable_x64(True):
        blocks = draw(3, (10,), np.float64)
        out = by_vmap(adasum, blocks)[0]
    np.testing.assert_allclose(out, references.adasum(list(blocks)), rtol=1e-12)


def test_two_axes_one_after_the_other():
    blocks = draw(6, (11,), np.float32).reshape(2, 3, 11)
    expected = references.adasum([references.adasum(list(host)) for host in blocks])
    mapped = jax.vmap(lambda x: adasum(x, ("host", "device")), axis_name="device")
    out = np.asarray(jax.vmap(mapped, axis_name="host")(blocks))
    np.testing.assert_allclose(out[1, 2], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.few(10)
@pytest.mark.parametrize("n", range(1, 17))
@pytest.mark.parametrize(("size", "dtype"), [(0, "float32"), (7, "bfloat16")])
def test_traced_bytes_equal_the_formula(n, size, dtype):
    x = jax.ShapeDtypeStruct((size,), dtype)
    tx = as_transformation(adasum, "data")
    assert wire_bytes(tx, x, emulate(n)) == adasum_wire_bytes(x, n)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_compiled_bytes_equal_the_formula(n):
    blocks = jax.ShapeDtypeStruct((n, 19), jnp.float32)
    x = jax.ShapeDtypeStruct((19,), jnp.float32)
    compiled = compiled_wire_bytes(mapped_on_mesh(adasum, n), blocks)
    assert compiled == adasum_wire_bytes(x, n)


def test_bytes_by_hand():
    x = jax.ShapeDtypeStruct((80,), jnp.float32)
    assert [adasum_wire_bytes(x, n) for n in (1, 2, 5, 8)] == [0, 320, 960, 960]


def test_sixteen_bits_travel_as_sixteen_bits():
    hlo = optimized_hlo(lower_on_mesh(adasum, draw(4, (64,), jnp.bfloat16)))
    sent = [line for line in hlo.splitlines() if " collective-permute(" in line]
    assert len(sent) == 4
    assert all(" u16[64]" in line for line in sent)


def test_integers_have_no_coefficients():
    with pytest.raises(ValueError, match="x is int32, and must be floating or complex"):
        adasum(jnp.ones(3, jnp.int32), "data")


def test_outside_an_axis():
    with pytest.raises(NameError, match=r"adasum: no axis named 'data'.*init"):
        adasum(jnp.ones(3), "data")
