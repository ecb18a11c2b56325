"""Dense compressors one by one: golden vectors, exact variances, bad input."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax.compression import Compressor, _quantize
from relaxjax.compression._protocol import contractive
from relaxjax.compression._tern_grad import _pack, _unpack
from tests.compression.draws import drawer, once, squared
from tests.compression.inputs import inputs


def gauss(size: int) -> np.ndarray:
    return dict(inputs(size))["gauss"]


def test_min_max_uint8_golden():
    x = jnp.array([-1, 0, 0.5, 2], jnp.float32)
    compressor = compression.min_max_uint8()
    payload = compressor.compress(x, None)
    np.testing.assert_array_equal(payload.codes, [0, 85, 127, 255])
    expected = [-1.000000033, 0, 0.494117664, 2.000000067]
    np.testing.assert_allclose(compressor.decompress(payload, 4, None), expected, 1e-6)


@pytest.mark.parametrize("offset", [1e4, 2e5, 1e7])
def test_min_max_uint8_never_wraps_at_a_large_offset(offset):
    x = (offset + np.linspace(-1, 1, 1000)).astype(np.float32)
    decoded = once(compression.min_max_uint8(), x)
    spacing = float(np.spacing(np.float32(offset)))
    assert np.abs(decoded - x).max() <= (x.max() - x.min()) / 510 + 8 * spacing


def test_min_max_uint8_does_not_see_what_fills_the_last_block():
    x = (100 + gauss(100)).astype(np.float32)
    decoded = once(compression.min_max_uint8(block_size=64), x)
    assert np.abs(decoded - x).max() <= np.ptp(x) / 510 * 1.01


@pytest.mark.few(2)
@pytest.mark.parametrize(("bits", "expected"), [(2, 0.180), (4, 0.0124), (8, 2.5e-4)])
def test_codebook_loses_what_is_known_for_gaussian_elements(bits, expected):
    x = gauss(1 << 20)
    decoded = once(compression.codebook(bits), x)
    assert squared(decoded - x) / squared(x) == pytest.approx(expected, rel=0.1)


@pytest.mark.few(2)
@pytest.mark.parametrize("block_size", [None, 100])
@pytest.mark.parametrize("name", ["gauss", "heavy tail", "offset", "huge"])
def test_codebook_is_a_projection_that_keeps_the_mean(name, block_size):
    x = dict(inputs(950))[name].astype(np.float64)
    decoded = once(compression.codebook(4, block_size=block_size), x.astype(np.float32))
    assert abs(decoded @ (x - decoded)) <= 1e-5 * squared(x)
    for start in range(0, 950, block_size or 950):
        block = slice(start, start + (block_size or 950))
        near = 1e-6 * np.abs(x[block]).max()
        assert abs(decoded[block].mean() - x[block].mean()) <= near


def test_float16_and_bfloat16_clamp_what_is_finite():
    x = np.array([3.4e38, -3.4e38, 1e5, 1.0], np.float32)
    for dtype in (jnp.bfloat16, jnp.float16):
        decoded = once(compression.cast(dtype), x)
        limit = float(jnp.finfo(dtype).max)
        np.testing.assert_array_equal(np.abs(decoded[:2]), limit)
        assert decoded[1] < 0
    assert decoded[2] == 65504


def test_casts_round_to_nearest():
    x = gauss(1000)
    expected = x.astype(jnp.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(once(compression.cast(jnp.bfloat16), x), expected)
    expected = x.astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(once(compression.cast(jnp.float16), x), expected)
    decoded = once(compression.cast(jnp.float8_e4m3fn, block_size=1000), x)
    large = np.abs(x) > np.abs(x).max() * 2**-14
    assert (np.abs(decoded - x)[large] <= np.abs(x)[large] * 1.0001 / 17).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_nearest_quantization_attains_its_law(bits):
    levels = 2 ** (bits - 1) - 1
    compressor = compression.quantize(bits)
    # All but one just below the middle between zero and the first code.
    x = np.full(128, 0.4999 / levels, np.float32)
    x[0] = 1
    assert compressor.law.delta is not None
    bound = 1 - compressor.law.delta(128)
    assert squared(once(compressor, x) - x) / squared(x) == pytest.approx(
        bound, rel=1e-3
    )


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_stochastic_quantization_attains_its_law(bits):
    levels = 2 ** (bits - 1) - 1
    compressor = compression.quantize(bits, stochastic_rounding=True)
    root = math.sqrt(1 + 127 / levels**2)
    x = np.full(128, (root - 1) * levels / 127, np.float32)
    x[0] = 1
    error = squared(drawer(compressor, 4000)(x) - x)
    assert compressor.law.omega is not None
    assert error.mean() / squared(x) == pytest.approx(
        compressor.law.omega(128), rel=0.02
    )


def test_laws_by_hand_for_blocks_and_what_is_shorter():
    whole, blocks = compression.sign().law.delta, compression.sign(block_size=64).law
    assert whole is not None
    assert blocks.delta is not None
    assert [whole(d) for d in (0, 1, 100)] == [1, 1, 1 / 100]
    assert [blocks.delta(d) for d in (1, 10, 100)] == [1, 1 / 10, 1 / 64]
    for block_size, longest in ((None, 1000), (128, 128)):
        nearest = compression.quantize(8, block_size=block_size).law.delta
        at_random = compression.quantize(
            8, block_size=block_size, stochastic_rounding=True
        ).law.omega
        assert nearest is not None
        assert at_random is not None
        for d, others in ((0, 0), (1, 0), (5, 4), (1000, longest - 1)):
            t = others / 127**2
            assert nearest(d) == pytest.approx(1 / (1 + t / 4), rel=1e-12)
            assert at_random(d) == pytest.approx((math.sqrt(1 + t) - 1) / 2, rel=1e-9)


def test_the_scale_of_many_equal_elements_is_exact():
    np.testing.assert_allclose(once(compression.sign(), np.ones(4099, "f")), 1, 1e-6)


def test_quantization_has_blocks_of_128_unless_told():
    x = jax.ShapeDtypeStruct((129,), jnp.float32)
    assert compression.payload_bytes(compression.quantize(8), x) == 129 + 2 * 4


def test_an_integer_stays_what_it_is_whatever_is_drawn(monkeypatch):
    # 0 is the least draw, and of 2^24 the only one that would round it up.
    monkeypatch.setattr(_quantize, "uniform", lambda words, size: jnp.zeros(size))
    y = jnp.array([-7.0, 0.0, 3.0])
    rounded = _quantize.round_at_random(y, jnp.zeros(2, jnp.uint32))
    np.testing.assert_array_equal(rounded, y)


@pytest.mark.parametrize("block_size", [None, 50])
def test_tern_grad_has_exactly_the_variance_of_the_formula(block_size):
    x = gauss(200)
    decoded = drawer(compression.tern_grad(block_size=block_size), 20000)(x)
    error = squared(decoded - x)
    wide = np.abs(x.astype(np.float64)).reshape(-1, block_size or 200)
    exact = (wide.max(axis=1) * wide.sum(axis=1) - squared(wide)).sum()
    assert abs(error.mean() - exact) <= 5 * error.std() / np.sqrt(len(error))


def test_five_ternary_digits_make_a_byte():
    packed = jnp.arange(243, dtype=jnp.uint8)
    digits = np.asarray(_unpack(packed, 5 * 243), int).reshape(243, 5)
    np.testing.assert_array_equal(digits @ 3 ** np.arange(5), np.arange(243))
    assert set(np.unique(digits)) == {0, 1, 2}
    np.testing.assert_array_equal(_pack(jnp.asarray(digits.ravel())), packed)


def test_natural_attains_an_eighth_and_does_not_overflow():
    x = np.full(100, 4 / 3, np.float32)
    decoded = drawer(compression.natural(), 20000)(x)
    assert set(np.unique(decoded)) == {1.0, 2.0}
    assert squared(decoded - x).mean() / squared(x) == pytest.approx(1 / 8, rel=0.01)
    most = np.full(100, np.finfo(np.float32).max)
    assert (once(compression.natural(), most) == 2.0**127).all()


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_dithering_gives_only_its_levels(p):
    x = gauss(128)
    norm = np.linalg.norm(x.astype(np.float64), p)
    decoded = np.abs(drawer(compression.dithering(4, p=p), 200)(x)) / norm
    steps = [0, 1 / 8, 1 / 4, 1 / 2, 1]
    assert np.abs(decoded[..., None] - steps).min(axis=-1).max() < 1e-6


@pytest.mark.parametrize("size", [1, 5, 1000, 4099])
def test_drive_has_the_right_length_along_x(size):
    draw = drawer(compression.drive(), 5)
    for name, x in inputs(size):
        if name == "subnormal":
            continue
        x = x.astype(np.float64)
        for decoded in draw(x.astype(np.float32)):
            assert decoded @ x == pytest.approx(squared(x), rel=1e-5), name


def test_a_rotated_sign_loses_half_of_two_equal_elements():
    x = np.zeros(256, np.float32)
    x[[3, 77]] = 1
    decoded = drawer(compression.rotated_sign(), 10)(x)
    np.testing.assert_allclose(squared(decoded - x), 1, rtol=1e-5)
    x = gauss(1024)
    decoded = drawer(compression.rotated_sign(), 50)(x)
    lost = squared(decoded - x).mean() / squared(x)
    assert lost == pytest.approx(1 - 2 / math.pi, rel=0.03)


def test_error_feedback_refuses_drive():
    with pytest.raises(ValueError, match="drive: it is neither a contraction nor"):
        contractive(compression.drive())


@pytest.mark.long
def test_the_seed_matters_and_decides():
    x = jnp.asarray(gauss(100))
    compressor = compression.qsgd(3)
    one, again, other = (compression.roundtrip(compressor, x, key=k) for k in (0, 0, 1))
    assert (one == again).all()
    assert (one != other).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compression.quantize(3), r"bits=3 must be 8, 4 or 2; .* use qsgd"),
        (lambda: compression.codebook(5), r"bits=5 must be 8, 4 or 2; .* use qsgd"),
        (lambda: compression.cast(jnp.int8), r"dtype=int8 must be bfloat16.* quantize"),
        (lambda: compression.cast("e4m3"), r"dtype=e4m3 must be bfloat16.* quantize"),
        (
            lambda: compression.qsgd(0),
            r"qsgd: levels=0 must be a whole .* 1 and 32767",
        ),
        (
            lambda: compression.dithering(121),
            r"levels=121 must be a whole .* 1 and 120",
        ),
        (lambda: compression.dithering(3, p=3), r"p=3 must be 1, 2 or math.inf"),
        (lambda: compression.drive(block_size=12), r"block_size=12 must be a power"),
        (
            lambda: compression.rotated_sign(block_size=0),
            r"rotated_sign: block_size=0 must be a power of two",
        ),
        (
            lambda: compression.quantize(8, block_size=0),
            r"quantize: block_size=0 must be at least 1 and whole, or None for one",
        ),
        (
            lambda: compression.sign(block_size=12),
            r"sign: block_size=12 must be a positive multiple of 8, or None",
        ),
    ],
)
def test_bad_input_is_refused_with_a_remedy(
    make: Callable[[], Compressor], message: str
):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        compression.min_max_uint8,
        compression.tern_grad,
        lambda block_size: compression.codebook(4, block_size=block_size),
        lambda block_size: compression.qsgd(4, block_size=block_size),
        lambda block_size: compression.dithering(4, block_size=block_size),
        lambda block_size: compression.cast(jnp.bfloat16, block_size=block_size),
    ],
)
def test_every_block_size_is_checked(make):
    with pytest.raises(ValueError, match="block_size=-1 must be at least 1"):
        make(block_size=-1)


def test_codes_are_the_same_inside_and_outside_of_jit():
    x = jnp.asarray(gauss(1000))
    compressor = compression.quantize(4)
    inside = jax.jit(compressor.compress)(x, None)
    outside = compressor.compress(x, None)
    np.testing.assert_array_equal(inside.codes, outside.codes)
