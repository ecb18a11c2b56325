"""What every compressor declares, checked; one row each."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax._noise import Noise, fold, words_of
from relaxjax.compression import Compressor
from tests.compression.inputs import SIZES, inputs

# Where float32 flushes what is smaller.
TINY = float(np.finfo(np.float32).tiny)


class Row(NamedTuple):
    make: Callable[[], Compressor]
    # Bytes of the payload of d elements, written out by hand.
    stated_bytes: Callable[[int], int]


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
    "random_k": Row(lambda: compression.random_k(0.3), lambda d: 4 * -(-3 * d // 10)),
    "random_block": Row(
        lambda: compression.random_block(0.3), lambda d: 4 * -(-3 * d // 10)
    ),
    "threshold": Row(
        lambda: compression.threshold(0.5, capacity=100),
        lambda d: {1: 5, 2: 9, 7: 31, 64: 304, 1000: 525, 4099: 563}[d],
    ),
}

rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def noise_of(seed: int) -> Noise:
    words = words_of(seed)
    return Noise(shared=words, own=fold(words, 1))


def decoded(compressor: Compressor, x: jax.Array, noise: Noise | None) -> jax.Array:
    return compressor.decompress(compressor.compress(x, noise), x.size, noise)


def once(compressor: Compressor, x: np.ndarray, seed: int = 0) -> np.ndarray:
    noise = noise_of(seed) if compressor.random else None
    return np.asarray(decoded(compressor, jnp.asarray(x), noise), np.float64)


def many(compressor: Compressor, x: np.ndarray, draws: int) -> np.ndarray:
    """[draws, d]: the decoded array for as many seeds (one if deterministic)."""
    if not compressor.random:
        return once(compressor, x)[None]
    words = jax.vmap(lambda i: fold(words_of(0), i))(jnp.arange(draws))
    own = jax.vmap(lambda w: fold(w, 1))(words)

    def draw(shared, own):
        return decoded(compressor, jnp.asarray(x), Noise(shared, own))

    return np.asarray(jax.jit(jax.vmap(draw))(words, own), np.float64)


def squared(x: np.ndarray) -> np.ndarray:
    return np.sum(np.asarray(x, np.float64) ** 2, axis=-1)


@rows
@pytest.mark.parametrize("size", SIZES)
def test_payload_is_as_small_as_stated(row, size):
    x = jax.ShapeDtypeStruct((size,), jnp.float32)
    assert compression.payload_bytes(row.make(), x) == row.stated_bytes(size)


@rows
@pytest.mark.parametrize("size", SIZES)
def test_every_input_gives_a_finite_result_and_no_more_error_than_declared(row, size):
    compressor = row.make()
    for name, x in inputs(size):
        out = many(compressor, x, draws=50)
        assert np.isfinite(out).all(), name
        if compressor.law.delta is not None:
            bound = (1 - compressor.law.delta(size)) * squared(x)
            error = squared(out - x).mean()
            assert error <= bound * (1 + 1e-5) + size * TINY**2, name


@rows
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 17, 99])
def test_what_is_not_finite_stays_visible(row, bad, where):
    x = np.ones(100, np.float32)
    x[where] = bad
    assert not np.isfinite(once(row.make(), x)).all()


@rows
def test_empty_arrays_pass(row):
    assert once(row.make(), np.zeros(0, np.float32)).shape == (0,)


@rows
def test_decoding_needs_only_the_payload_and_what_is_shared(row):
    compressor = row.make()
    x = jnp.asarray(next(inputs(1000))[1])
    noise = noise_of(3) if compressor.random else None
    payload = compressor.compress(x, noise)
    expected = compressor.decompress(payload, 1000, noise)
    if noise is not None:
        noise = noise._replace(own=noise.own + 1)
    assert (compressor.decompress(payload, 1000, noise) == expected).all()
