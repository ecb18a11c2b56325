"""Microscaling to the bit, and what no two libraries agree on, as laws."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from relaxjax import compression, golden
from relaxjax.compression.formats._elements import ELEMENTS
from relaxjax.compression.formats._mx import SCALES
from tests.golden import references

elements = pytest.mark.parametrize("element", ELEMENTS)
scales = pytest.mark.parametrize("scale", SCALES)
RULES = ("floor", "ceil", "even", "rceil")
# Unbiased exponents of the scale by floor, ceil, even, rceil, for four elements.
TABLE = {
    1: ("-8 -8 -8 -8", "-15 -15 -15 -15", "-2 -2 -2 -2", "-2 -2 -2 -2"),
    1.75: ("-8 -7 -8 -8", "-15 -14 -15 -15", "-2 -1 -2 -2", "-2 -1 -1 -1"),
    1.76: ("-8 -7 -8 -7", "-15 -14 -15 -14", "-2 -1 -2 -2", "-2 -1 -1 -1"),
    1.9: ("-8 -7 -8 -7", "-15 -14 -14 -14", "-2 -1 -2 -1", "-2 -1 -1 -1"),
    448: ("0 1 0 0", "-7 -6 -7 -7", "6 7 6 6", "6 7 7 7"),
    449: ("0 1 0 1", "-7 -6 -7 -6", "6 7 6 6", "6 7 7 7"),
    500: ("0 1 1 1", "-7 -6 -6 -6", "6 7 7 7", "6 7 7 7"),
    6: ("-6 -5 -6 -6", "-13 -12 -13 -13", "0 1 0 0", "0 1 0 0"),
    6.5: ("-6 -5 -6 -6", "-13 -12 -13 -13", "0 1 0 0", "0 1 0 1"),
    3.4e38: ("119 120 120 120", "112 113 113 113", *["125 126 126 126"] * 2),
}
DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


def coded(code, x):
    """Its payload, unpacked, and what is decoded; compiled."""
    bits = ELEMENTS[code.name.removeprefix("mx_")].bits
    payload = jax.jit(code.compress)(x, None)
    decoded = jax.jit(lambda p: code.decompress(p, x.size, None))(payload)
    codes = compression.unpack(payload.codes, bits, x.size)
    return np.asarray(codes), np.asarray(payload.scale), np.asarray(decoded)


def spread(seed: int, size: int) -> np.ndarray:
    """Elements of several binades, block by block, and halves between codes."""
    rng = np.random.default_rng(seed)
    powers = 2.0 ** rng.integers(-40, 40, -(-size // 32)).repeat(32)[:size]
    fine = rng.normal(size=size) * 2.0 ** rng.integers(-9, 3, size)
    halves = np.round(fine * 16) / 32
    return (np.where(rng.random(size) < 0.5, fine, halves) * powers).astype(np.float32)


SMALL = [vector for vector in golden.load() if vector.function in ("mx", "nvfp4")]


def test_golden_vectors():
    some = SMALL[::5] + SMALL[-4:]  # all of them in the slow test of the golden vectors
    rows = golden.compare(golden.implementation, some)
    assert {row.status for row in rows} == {"pass"}, rows
    assert len(SMALL) == 30


@pytest.mark.parametrize(
    ("place", "element"), [*enumerate(("e4m3", "e5m2", "e2m3", "e2m1"))]
)
def test_scales_are_those_of_the_table(place, element):
    rows = [row[place].split() for row in TABLE.values()]
    x = jnp.asarray([*TABLE], jnp.float32)
    for rule, expected in zip(RULES, zip(*rows, strict=True), strict=True):
        found = jax.jit(lambda x, rule=rule: SCALES[rule](x, ELEMENTS[element]))(x)
        assert (found - 127).tolist() == [*map(int, expected)], rule


@pytest.mark.few(15)
@pytest.mark.parametrize("most", [0, 2.0**-126, 2.0**-130])
@pytest.mark.parametrize("element", DTYPES)
def test_the_least_scale_is_byte_0(most, element):
    for scale in SCALES:
        code = compression.mx(element, scale=scale)
        _, byte, decoded = coded(code, jnp.float32([most]))
        assert byte[0] == 0
        assert decoded[0] == (most if most >= 2.0**-126 else 0)


@pytest.mark.parametrize("element", DTYPES)
def test_a_scale_whose_quotient_is_subnormal_is_not_flushed(element):
    """d = 1.5 x 2^-127 is zero to processors, and 1.5 would saturate at byte 0."""
    most = ELEMENTS[element].largest * 1.5 * 2.0**-127
    _, byte, decoded = coded(compression.mx(element), jnp.asarray([most, -most / 2]))
    assert byte[0] == 1
    off = np.abs(decoded - np.asarray([most, -most / 2])) / most
    assert off.max() <= 2.0 ** -(ELEMENTS[element].mantissa + 1)


@elements
@scales
@pytest.mark.few(12)
@pytest.mark.parametrize("x64", [False, True])
def test_codes_scales_and_values_are_those_of_plain_numpy(element, scale, x64):
    x = spread(0, 420)
    with jax.enable_x64(x64):
        codes, bytes_, decoded = coded(
            compression.mx(element, scale=scale), jnp.asarray(x)
        )
    expected = references.mx({"element": element, "scale": scale}, x.tolist())
    np.testing.assert_array_equal(bytes_, expected["scale"])
    np.testing.assert_array_equal(codes, expected["codes"])
    np.testing.assert_array_equal(decoded, expected["decoded"])


@pytest.mark.parametrize("element", DTYPES)
def test_elements_are_those_of_ml_dtypes(element):
    kind, dtype = ELEMENTS[element], DTYPES[element]
    middles = (kind.values[1:] + kind.values[:-1]) / 2
    drawn = np.random.default_rng(0).uniform(-kind.largest, kind.largest, 4000)
    y = np.concatenate([kind.values, -kind.values, middles, -middles, drawn])
    y = y.astype(np.float32)
    codes = np.asarray(jax.jit(kind.encode)(y))
    np.testing.assert_array_equal(codes, y.astype(dtype).view(np.uint8))
    decoded = np.asarray(jax.jit(kind.decode)(codes))
    np.testing.assert_array_equal(decoded, y.astype(dtype).astype(np.float32))


@pytest.mark.long
@pytest.mark.parametrize(("element", "dtype"), [("e4m3", "float8_e4m3fn")])
def test_scales_and_elements_are_those_of_jax(element, dtype):
    peer = pytest.importorskip("jax._src.cudnn.scaled_matmul_stablehlo")
    x = spread(1, 640).reshape(1, -1)
    config = peer.BlockScaleConfig(
        mode="mxfp8",
        block_size=32,
        data_type=jnp.dtype(dtype),
        scale_type=jnp.float8_e8m0fnu,
        global_scale=None,
        infer_only=False,
    )
    codes, scale = peer.quantize(jnp.asarray(x), config)
    ours = compression.mx(element).compress(jnp.asarray(x[0]), None)
    np.testing.assert_array_equal(np.asarray(scale).view(np.uint8).ravel(), ours.scale)
    np.testing.assert_array_equal(np.asarray(codes).view(np.uint8).ravel(), ours.codes)


@pytest.mark.few(18)
@elements
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_is_nan_and_its_neighbors_are_not(element, bad):
    x = np.ones(8192, np.float32)  # where XLA's own maximum drops a NaN
    x[4100] = bad
    codes, scale, decoded = coded(compression.mx(element), jnp.asarray(x))
    assert scale[128] == 255
    assert not codes[4096:4128].any()
    assert np.isnan(decoded[4096:4128]).all()
    assert (np.delete(decoded, slice(4096, 4128)) == 1).all()


@elements
@scales
@pytest.mark.few(8)
def test_zeros_stay_and_nothing_finite_becomes_infinite(element, scale):
    top = np.finfo(np.float32).max
    rows = [
        np.zeros(32),
        np.full(32, top),
        np.linspace(-1, 1, 32) * top,
        [2.0**-126] * 32,
    ]
    x = jnp.asarray(np.concatenate(rows), jnp.float32)
    codes, bytes_, decoded = coded(compression.mx(element, scale=scale), x)
    assert bytes_[0] == 0
    assert not codes[:32].any()
    assert not decoded[:32].any()
    assert np.isfinite(decoded).all()
    least = 0.74 if element == "e2m1" else 0.87  # floor saturates a quarter, an eighth
    assert (decoded[32:64] >= least * top).all()


@elements
@scales
@pytest.mark.few(8)
def test_decoding_again_changes_nothing_and_a_power_of_two_no_code(element, scale):
    code, x = compression.mx(element, scale=scale), spread(2, 3200)
    codes, bytes_, once = coded(code, jnp.asarray(x))
    np.testing.assert_array_equal(coded(code, jnp.asarray(once))[2], once)
    moved = coded(code, jnp.asarray(x * 2**9))
    live = bytes_ > 0
    np.testing.assert_array_equal(
        moved[0].reshape(-1, 32)[live], codes.reshape(-1, 32)[live]
    )
    np.testing.assert_array_equal(moved[1][live], bytes_[live] + 9)


@pytest.mark.parametrize("scale", ["rceil", "ceil"])
def test_an_element_loses_a_sixteenth_or_half_a_step_at_most(scale):
    x = spread(3, 3200)
    _, bytes_, decoded = coded(compression.mx("e4m3", scale=scale), jnp.asarray(x))
    s = 2.0 ** (bytes_.repeat(32) - 127.0)
    assert (np.abs(decoded - x) <= np.maximum(np.abs(x) / 16, 2.0**-10 * s)).all()


@pytest.mark.parametrize(
    ("element", "scale", "expected"),
    [
        ("e4m3", "floor", 8.7e-4),
        ("e4m3", "rceil", 7.0e-4),
        ("e5m2", "rceil", 2.8e-3),
        ("e2m3", "rceil", 8.0e-4),
        ("e3m2", "rceil", 2.8e-3),
        ("e2m1", "rceil", 1.3e-2),
        ("int8", "rceil", 6.8e-5),
    ],
)
def test_gaussian_elements_lose_what_is_known(element, scale, expected):
    x = np.random.default_rng(0).normal(size=1 << 18).astype(np.float32)
    _, _, decoded = coded(compression.mx(element, scale=scale), jnp.asarray(x))
    lost = np.sum((decoded - x) ** 2) / np.sum(x**2)
    assert lost == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize(
    ("element", "floor", "even", "rceil", "ceil"),
    [
        ("e4m3", 0.985, 0.991, 0.9967, 0.9967),
        ("e5m2", 0.985, 0.988, 0.988, 0.988),
        ("e2m3", 0.990, 0.990, 0.990, 0.971),
        ("e3m2", 0.985, 0.988, 0.988, 0.988),
        ("e2m1", 0.891, 0.847, 0.824, 0.674),
    ],
)
def test_the_declared_contraction_is_the_known_one(element, floor, even, rceil, ceil):
    known = {"floor": floor, "even": even, "rceil": rceil, "ceil": ceil}
    for scale, delta in known.items():
        declared = compression.mx(element, scale=scale).law.delta
        assert declared is not None
        assert declared(32) == pytest.approx(delta, abs=1.3e-3)


@pytest.mark.long
def test_bfloat16_goes_in_and_comes_out():
    x = jnp.asarray([1.9, -1, 0.3, 0.01], jnp.bfloat16)
    out = compression.roundtrip(compression.mx("e4m3"), x)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, jnp.asarray([1.875, -1, 0.3125, 0.009765625]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"element": "e3m4"}, "mx: element='e3m4' must be one of e4m3, e5m2"),
        (
            {"element": "int8", "scale": "up"},
            "mx: scale='up' must be one of rceil, floor",
        ),
    ],
)
def test_other_names_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        compression.mx(**wrong)


@pytest.mark.long
@pytest.mark.few(6)
@elements
def test_formats_trace_under_strict_promotion(element):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for scale in SCALES:
            compression.roundtrip(compression.mx(element, scale=scale), jnp.ones(70))
