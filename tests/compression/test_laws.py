"""What every compressor declares, checked; one row each."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from relaxjax import compression
from relaxjax.compression import Compressor
from tests.compression.draws import drawer, noise_of, once, squared
from tests.compression.inputs import SIZES, inputs, sizes

# Where float32 flushes what is smaller.
TINY = float(np.finfo(np.float32).tiny)


class Row(NamedTuple):
    make: Callable[[], Compressor]
    # Bytes of the payload of d elements, written out by hand.
    stated_bytes: Callable[[int], int]


def rotated_bytes(d: int, block: int) -> int:
    block = min(block, 2 ** math.ceil(math.log2(d)))
    return -(-d // block) * (-(-block // 8) + 4)


ROWS: dict[str, Row] = {
    "sign": Row(compression.sign, lambda d: -(-d // 8) + 4),
    "sign, blocks of 64": Row(
        lambda: compression.sign(block_size=64), lambda d: -(-d // 8) + 4 * -(-d // 64)
    ),
    "top_k": Row(
        lambda: compression.top_k(0.01),
        lambda d: {1: 5, 2: 5, 7: 5, 64: 5, 1000: 53, 4099: 451}[d],
    ),
    "top_k, blocks of 64": Row(
        lambda: compression.top_k(0.1, block_size=64),
        lambda d: {1: 5, 2: 5, 7: 5, 64: 34, 1000: 532, 4099: 2162}[d],
    ),
    "top_k, exact": Row(
        lambda: compression.top_k(0.25, block_size=None),
        lambda d: {1: 5, 2: 5, 7: 9, 64: 76, 1000: 1313, 4099: 5766}[d],
    ),
    "top_k of two bits": Row(
        lambda: compression.top_k(
            0.25, block_size=64, values=compression.quantize(2, block_size=16)
        ),
        lambda d: {1: 6, 2: 6, 7: 6, 64: 20, 1000: 320, 4099: 1300}[d],
    ),
    "top_k of two bits, rounded at random": Row(
        lambda: compression.top_k(
            0.25,
            block_size=None,
            values=compression.quantize(2, stochastic_rounding=True),
        ),
        lambda d: {1: 6, 2: 6, 7: 6, 64: 20, 1000: 384, 4099: 1959}[d],
    ),
    "random_k": Row(lambda: compression.random_k(0.3), lambda d: 4 * -(-3 * d // 10)),
    "random_block": Row(
        lambda: compression.random_block(0.3), lambda d: 4 * -(-3 * d // 10)
    ),
    "threshold": Row(
        lambda: compression.threshold(0.5, capacity=100),
        lambda d: {1: 5, 2: 9, 7: 31, 64: 304, 1000: 525, 4099: 563}[d],
    ),
    # Dense compressors.
    "identity": Row(compression.identity, lambda d: 4 * d),
    "bfloat16": Row(lambda: compression.cast(jnp.bfloat16), lambda d: 2 * d),
    "float16": Row(lambda: compression.cast(jnp.float16), lambda d: 2 * d),
    "float8": Row(
        lambda: compression.cast(jnp.float8_e4m3fn), lambda d: d + 4 * -(-d // 128)
    ),
    "float8, one block": Row(
        lambda: compression.cast(jnp.float8_e4m3fn, block_size=None), lambda d: d + 4
    ),
    **{
        f"quantize{bits}, blocks of {block}, {stochastic=}": Row(
            lambda bits=bits, block=block, stochastic=stochastic: compression.quantize(
                bits, block_size=block, stochastic_rounding=stochastic
            ),
            lambda d, bits=bits, block=block: (
                -(-bits * d // 8) + 4 * -(-d // (block or d))
            ),
        )
        for bits in (8, 4, 2)
        for block in ((128,) if bits == 8 else (7, None))
        for stochastic in (False, True)
    },
    **{
        f"mx {element}, {scale}": Row(
            lambda element=element, scale=scale: compression.mx(element, scale=scale),
            lambda d, bits=bits: -(-bits * d // 8) + -(-d // 32),
        )
        for element, bits in (("e4m3", 8), ("e5m2", 8), ("e3m2", 6), ("int8", 8))
        for scale in ("rceil", "even")
    },
    **{
        f"mx {element}, {scale}": Row(
            lambda element=element, scale=scale: compression.mx(element, scale=scale),
            lambda d, bits=bits: -(-bits * d // 8) + -(-d // 32),
        )
        for element, bits in (("e2m3", 6), ("e2m1", 4))
        for scale in ("floor", "ceil")
    },
    "nvfp4": Row(compression.nvfp4, lambda d: -(-d // 2) + -(-d // 16) + 4),
    "min_max_uint8": Row(compression.min_max_uint8, lambda d: d + 8),
    "min_max_uint8, blocks of 64": Row(
        lambda: compression.min_max_uint8(block_size=64),
        lambda d: d + 8 * -(-d // 64),
    ),
    **{
        f"codebook{bits}": Row(
            lambda bits=bits: compression.codebook(bits),
            lambda d, bits=bits: -(-bits * d // 8) + 4 * 2**bits,
        )
        for bits in (8, 4, 2)
    },
    "codebook4, blocks of 100": Row(
        lambda: compression.codebook(4, block_size=100),
        lambda d: -(-d // 2) + 64 * -(-d // 100),
    ),
    "qsgd1, one block": Row(
        lambda: compression.qsgd(1, block_size=None), lambda d: -(-d // 4) + 4
    ),
    "qsgd7": Row(lambda: compression.qsgd(7), lambda d: -(-d // 2) + 4 * -(-d // 128)),
    "qsgd16": Row(  # 33 codes, 6 bits
        lambda: compression.qsgd(16), lambda d: -(-6 * d // 8) + 4 * -(-d // 128)
    ),
    "tern_grad": Row(compression.tern_grad, lambda d: -(-d // 5) + 4),
    "tern_grad, blocks of 64": Row(
        lambda: compression.tern_grad(block_size=64),
        lambda d: -(-d // 5) + 4 * -(-d // 64),
    ),
    "natural": Row(compression.natural, lambda d: d + -(-d // 8)),
    **{
        f"dithering{levels}, {p=}": Row(
            lambda levels=levels, p=p: compression.dithering(levels, p=p),
            lambda d, width=width: -(-width * d // 8) + 4 * -(-d // 128),
        )
        for levels, width, p in ((1, 2, 1), (3, 3, 2), (7, 4, math.inf))
    },
    "drive": Row(compression.drive, lambda d: rotated_bytes(d, 1024)),
    "rotated_sign": Row(compression.rotated_sign, lambda d: rotated_bytes(d, 1024)),
    "rotated_sign, blocks of 16": Row(
        lambda: compression.rotated_sign(block_size=16), lambda d: rotated_bytes(d, 16)
    ),
    "rotated quantize4": Row(
        lambda: compression.rotated(compression.quantize(4)),
        lambda d: 16 * -(-d // 32) + 4 * -(-d // 128) + 4,
    ),
    "rotated qsgd7, mixed by 8": Row(
        lambda: compression.rotated(compression.qsgd(7), block_size=8),
        lambda d: 4 * -(-d // 8) + 4 * -(-d // 128) + 4,
    ),
    "in_cosines quantize4": Row(
        lambda: compression.in_cosines(compression.quantize(4)),
        lambda d: 32 * -(-d // 64) + 4 * -(-d // 128) + 4,
    ),
    "in_cosines of 12, natural": Row(
        lambda: compression.in_cosines(compression.natural(), block_size=12),
        lambda d: 12 * -(-d // 12) + -(-12 * -(-d // 12) // 8) + 4,
    ),
}

rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@pytest.mark.few(20)
@rows
@pytest.mark.parametrize("size", SIZES)
def test_payload_is_as_small_as_stated(row, size):
    x = jax.ShapeDtypeStruct((size,), jnp.float32)
    assert compression.payload_bytes(row.make(), x) == row.stated_bytes(size)


@pytest.mark.few(5)
@rows
@sizes
def test_every_input_gives_a_finite_result_and_no_more_error_than_declared(row, size):
    compressor = row.make()
    draw = drawer(compressor, draws=50)
    for name, x in inputs(size):
        out = draw(x)
        assert np.isfinite(out).all(), name
        if compressor.law.delta is not None:
            bound = (1 - compressor.law.delta(size)) * squared(x)
            error = squared(out - x).mean()
            assert error <= bound * (1 + 1e-5) + size * TINY**2, name


@functools.cache
def drawer_of(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """40 draws, compiled once for each size; 1 where nothing is random."""
    compressor = ROWS[name].make()
    return drawer(compressor, 40 if compressor.random else 1)


@st.composite
def any_array(draw: st.DrawFn) -> np.ndarray:
    """float32 of any magnitudes, side by side or apart."""
    size = draw(st.sampled_from([1, 6, 130]))
    scale = 10.0 ** draw(st.integers(-25, 25))
    spread = draw(st.sampled_from([0, 2, 9]))
    mantissas = arrays(np.float64, size, elements=st.floats(-1, 1, width=32))
    powers = arrays(np.int64, size, elements=st.integers(-spread, spread))
    return (draw(mantissas) * 10.0 ** draw(powers) * scale).astype(np.float32)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(x=any_array())
def test_any_array_loses_no_more_than_declared(name, x):
    compressor = ROWS[name].make()
    out = drawer_of(name)(x)
    assert np.isfinite(out).all()
    errors = squared(out - x)
    slack = 5 * errors.std() / np.sqrt(len(out)) + x.size * TINY**2
    if compressor.law.delta is not None:
        bound = (1 - compressor.law.delta(x.size)) * squared(x)
        assert errors.mean() <= bound * (1 + 1e-5) + slack
    if compressor.law.omega is not None:
        # The mean says nothing of what is too rare to be drawn 40 times.
        bound = compressor.law.omega(x.size) * squared(x)
        assert np.median(errors) <= 2 * bound * (1 + 1e-5) + slack + 1e-12 * squared(x)


@pytest.mark.few(12)
@rows
@pytest.mark.parametrize("size", [1, 7, 300])
def test_the_mean_is_as_exact_and_the_variance_as_small_as_declared(row, size):
    compressor = row.make()
    if compressor.law.omega is None:
        return
    draw = drawer(compressor, draws=1000)
    for name, x in inputs(size):
        out = draw(x)
        rounding = (2.0**-22) ** 2 * squared(x) + size * TINY**2
        error = squared(out - x)
        # Five deviations of the mean, and room for what is too rare to be drawn.
        off = np.sqrt(squared(out.mean(axis=0) - x))
        rare = 10 * np.sqrt(squared(x)) / len(out)
        room = 5 * np.sqrt(error.mean() / len(out)) + rare + np.sqrt(rounding)
        assert off <= room, name
        bound = compressor.law.omega(size) * squared(x)
        slack = 5 * error.std() / np.sqrt(len(out))
        assert error.mean() <= bound * (1 + 1e-5) + slack + rounding, name


@pytest.mark.few(5)
@rows
def test_what_is_not_finite_stays_visible(row):
    draw = drawer(row.make(), draws=1)
    for bad in (np.nan, np.inf, -np.inf):
        for where in (0, 17, 99):
            x = np.ones(100, np.float32)
            x[where] = bad
            assert not np.isfinite(draw(x)).all(), (bad, where)


@pytest.mark.few(4)
@rows
def test_empty_arrays_pass(row):
    assert once(row.make(), np.zeros(0, np.float32)).shape == (0,)


@pytest.mark.few(3)
@rows
def test_decoding_needs_only_the_payload_and_what_is_shared(row):
    compressor = row.make()
    x = jnp.asarray(next(inputs(1000))[1])
    noise = noise_of(3) if compressor.random else None
    decode = jax.jit(lambda payload, noise: compressor.decompress(payload, 1000, noise))
    payload = jax.jit(compressor.compress)(x, noise)
    expected = decode(payload, noise)
    if noise is not None:
        noise = noise._replace(own=noise.own + 1)
    assert (decode(payload, noise) == expected).all()


@pytest.mark.few(6)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_near_the_largest_float_comes_back_finite(name):
    """What a code rounds up, or a rotation brings together, would be infinite."""
    make, rng = ROWS[name].make, np.random.default_rng(0)
    draw, top = drawer(make(), 8), float(np.finfo(np.float32).max)
    for size in (1, 3, 7, 64):
        for sign in (np.array, np.abs, lambda x: -np.abs(x)):
            x = sign(rng.normal(size=size))
            for share in (1.0, 0.999):
                x *= share * top / np.abs(x).max()
                out = draw(x.astype(np.float32))
                assert np.isfinite(out).all(), (size, share)
