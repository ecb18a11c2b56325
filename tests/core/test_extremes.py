"""The largest and the least element of arrays of every length, and of a NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from relaxjax._core._extremes import extremes, largest, largest_of
from tests.helpers import mesh_of

SIZES = (1, 16, 31, 32, 127, 1000, 4096, 4100, 65_536)


def least(x, axis=None, **options):
    return extremes(x, axis, **options)[0]


def most(x, axis=None, **options):
    return extremes(x, axis, **options)[1]


RULES = {
    "largest": (largest, lambda x, axis: np.max(np.abs(x), axis)),
    "least": (least, np.min),
    "most": (most, np.max),
}
NEGATIVE_NAN = np.float32(np.nan).view(np.int32) | np.int32(-(2**31))
BAD = {
    "NaN": np.float32(np.nan),
    "-NaN": NEGATIVE_NAN.view(np.float32),
    "inf": np.float32(np.inf),
    "-inf": np.float32(-np.inf),
}
rules = pytest.mark.parametrize(("rule", "reference"), RULES.values(), ids=RULES.keys())


def samples(size: int, dtype=np.float32) -> np.ndarray:
    """Sound rows of several magnitudes, and one row for each of BAD at three places."""
    rng = np.random.default_rng(size)
    scale = np.array([0, 1e-4, 1, 1e4])[:, None]
    rows = [rng.normal(size=(4, size)) * scale]
    for bad in BAD.values():
        for place in {0, size // 2, size - 1}:
            row = rng.normal(size=(1, size))
            row[0, place] = bad
            rows.append(row)
    return np.concatenate(rows).astype(dtype)


@rules
@pytest.mark.parametrize("size", SIZES)
def test_rows_of_any_length_give_what_numpy_gives(rule, reference, size):
    x = samples(size)
    assert np.isnan(x).any()
    for axis in (None, -1):
        found = jax.jit(lambda x, a=axis: rule(x, a))(x)
        np.testing.assert_array_equal(found, reference(x, axis))


@rules
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, np.int32, np.uint8])
def test_other_dtypes_keep_theirs(rule, reference, dtype):
    x = np.nan_to_num(samples(4096)).clip(0, 200).astype(dtype)
    found = jax.jit(lambda x: rule(x, 1))(x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, reference(x, 1))
    if jnp.issubdtype(dtype, jnp.floating):
        x[1, 17] = np.nan
        np.testing.assert_array_equal(
            np.isnan(rule(jnp.asarray(x), 1)), [0, 1, *[0] * 14]
        )


@pytest.mark.few(18)
@rules
@pytest.mark.parametrize("axis", [0, 2, (0, 2), (1, 2), (0, 1, 2), None])
def test_any_axes_stay_or_go_also_under_vmap(rule, reference, axis):
    x = np.random.default_rng(0).normal(size=(33, 5, 70)).astype(np.float32)
    x[3, 1, 2] = np.nan
    expected = reference(x, axis)
    np.testing.assert_array_equal(rule(x, axis), expected)
    shape = np.expand_dims(expected, axis).shape if axis is not None else (1, 1, 1)
    assert rule(x, axis, keepdims=True).shape == shape
    many = jax.vmap(lambda x: rule(x, axis))(np.stack([x, -x]))
    np.testing.assert_array_equal(many, [expected, reference(-x, axis)])


@pytest.mark.parametrize("size", [1, 5000])
def test_over_a_mesh_a_nan_of_any_device_is_the_largest(size):
    x = -np.random.default_rng(0).uniform(size=(5, 4, size)).astype(np.float32)
    for device in range(4):
        x[device, device, 0] = np.nan
    over = jax.shard_map(
        lambda x: largest_of(x, "data"),
        mesh=mesh_of(4),
        in_specs=P("data"),
        out_specs=P(),
    )
    for each in x:
        found = jax.jit(over)(each)
        np.testing.assert_array_equal(found[0], np.max(np.abs(each), 0))


def test_the_largest_of_nothing_is_zero():
    assert largest(jnp.zeros((0,))) == 0
    np.testing.assert_array_equal(largest(jnp.zeros((3, 0)), 1), np.zeros(3))


@pytest.mark.long
def test_complex_numbers_and_doubles_have_a_largest_magnitude():
    x = np.full(5000, 3 + 4j, np.complex64)
    assert largest(jnp.asarray(x)) == 5
    x[70] = np.nan
    assert np.isnan(largest(jnp.asarray(x)))
    with jax.enable_x64(True):
        y = jnp.asarray(np.r_[np.linspace(-3, 2, 5000), 1e-300])
        assert (largest(y), *extremes(y)) == (3, -3, 2)
        assert np.isnan(extremes(y.at[9].set(jnp.nan))).all()


def test_a_gpu_reduces_one_row_of_integers_once():
    """CPUs alone are given vectors: elsewhere the compiler has its own."""
    x = jax.ShapeDtypeStruct((8, 65_536), np.float32)
    traced = jax.jit(lambda x: largest(x, 1)).trace(x)
    for platform, reductions in (("cuda", 1), ("tpu", 1), ("cpu", 5)):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        found = [line for line in text.splitlines() if "stablehlo.reduce(" in line]
        assert len(found) == reductions, platform
        assert all("xi32>" in line and "f32" not in line for line in found), platform
