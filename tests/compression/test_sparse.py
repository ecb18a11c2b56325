"""Top-k, random elements and thresholds, against numpy and their exact laws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression._protocol import contractive
from relaxjax.compression._random_k import _one_of_each_stratum
from relaxjax.compression._top_k import count_of
from tests.compression.draws import drawer, largest_k, noise_of, once, squared
from tests.compression.inputs import inputs, sizes

SHARE: Any = 0.1


def top_k_of_blocks(x: np.ndarray, width: int, k: int) -> np.ndarray:
    blocks = [x[i : i + width] for i in range(0, len(x), width)]
    return np.concatenate([largest_k(block, k) for block in blocks])


@pytest.mark.parametrize(
    ("density", "size", "count"),
    [
        (0.07, 100, 7),  # 0.07 * 100 > 7 in floats
        (0.29, 100, 29),
        (0.01, 4096, 41),
        (0.001, 10, 1),
        (1e-9, 10, 1),
        (1, 10, 10),
        (0.5, 7, 4),
        (0.5, 0, 0),
        (1 / 3, 3, 1),
    ],
)
def test_density_is_rounded_up_to_whole_elements(density, size, count):
    assert count_of(density, size) == count


@pytest.mark.few(2)
@sizes
@pytest.mark.parametrize("block_size", [16, 4096, None])
def test_top_k_keeps_the_largest_of_each_block(size, block_size):
    compressor = compression.top_k(0.13, block_size=block_size)
    width = min(block_size or size, size)
    k = int(np.ceil(0.13 * width))
    for name, x in inputs(size):
        expected = top_k_of_blocks(x, width, k)
        np.testing.assert_array_equal(once(compressor, x), expected, err_msg=name)


def test_top_k_sends_twelve_bits_an_index_in_blocks_of_4096():
    x = jnp.zeros(4096).at[0x001].set(9.0).at[0x123].set(-8.0)
    payload = compression.top_k(2 / 4096).compress(x, None)
    assert payload.values.tolist() == [9, -8]
    assert payload.indices.tolist() == [0x01, 0x30, 0x12]


@pytest.mark.long
@pytest.mark.few(2)
@sizes
def test_kept_values_travel_in_the_code_that_is_given(size):
    """In two bits, q in {-1, 0, 1}, of each block's own largest."""
    two_bits = compression.quantize(2, block_size=4)
    compressor = compression.top_k(4 / 16, block_size=16, values=two_bits)
    k = int(np.ceil(min(16, size) / 4))
    for name, x in inputs(size):
        with np.errstate(over="ignore", under="ignore"):
            blocks = [x[i : i + 16] for i in range(0, size, 16)]
            chosen = [np.argsort(-np.abs(b), kind="stable")[:k] for b in blocks]
            values = np.concatenate(
                [
                    np.concatenate([b[at], np.zeros(k - len(at), np.float32)])
                    for b, at in zip(blocks, chosen, strict=True)
                ]
            )
            rounded = np.asarray(compression.roundtrip(two_bits, jnp.asarray(values)))
            expected = np.zeros_like(x)
            rows = zip(chosen, rounded.reshape(-1, k), strict=True)
            for i, (at, row) in enumerate(rows):
                expected[16 * i + at] = row[: len(at)]
        np.testing.assert_array_equal(once(compressor, x), expected, err_msg=name)


def test_sparse_loco_sends_twelve_bits_an_index_and_two_a_value():
    """A chunk of 4096 becomes 64 indices, 64 values and a scale."""
    x = jax.ShapeDtypeStruct((3 * 4096,), jnp.float32)
    compressor = compression.top_k(64 / 4096, values=compression.quantize(2))
    scales = 2  # of 128 values each
    assert compression.payload_bytes(compressor, x) == 3 * (96 + 16) + 4 * scales


@pytest.mark.few(2)
@pytest.mark.parametrize(("size", "block_size"), [(64, 64), (64, 16), (10, 4096)])
def test_top_k_attains_its_law_on_a_constant(size, block_size):
    compressor = compression.top_k(0.2, block_size=block_size)
    assert compressor.law.delta is not None
    x = np.full(size, -3.0, np.float32)
    error = squared(once(compressor, x) - x) / squared(x)
    assert error == pytest.approx(1 - compressor.law.delta(size), rel=1e-6)


def test_top_k_of_all_elements_is_the_array():
    for block_size in (16, 4096, None):
        x = next(inputs(1000))[1]
        out = once(compression.top_k(1.0, block_size=block_size), x)
        np.testing.assert_array_equal(out, x)


def test_top_k_is_the_same_for_workers_under_vmap():
    compressor = compression.top_k(0.1, block_size=64)
    x = np.random.default_rng(0).normal(size=(4, 1000)).astype(np.float32)

    def there_and_back(row):
        return compressor.decompress(compressor.compress(row, None), 1000, None)

    out = np.asarray(jax.jit(jax.vmap(there_and_back))(x))
    expected = np.stack([top_k_of_blocks(row, 64, 7) for row in x])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.few(4)
@pytest.mark.parametrize("make", [compression.random_k, compression.random_block])
@pytest.mark.parametrize(
    ("size", "density"), [(1, 0.5), (7, 0.4), (10, 0.25), (13, 0.38), (64, 1.0)]
)
def test_every_element_has_the_same_chance_and_none_is_drawn_twice(make, size, density):
    draws = 20_000
    k = count_of(density, size)
    chosen = drawer(make(density), draws)(np.ones(size, np.float32)) != 0
    assert (chosen.sum(axis=1) == k).all()
    share = k / size
    tolerance = 5 * np.sqrt(share * (1 - share) / draws)
    assert np.abs(chosen.mean(axis=0) - share).max() <= tolerance


@pytest.mark.few(2)
@pytest.mark.parametrize("make", [compression.random_k, compression.random_block])
@pytest.mark.parametrize(("size", "density"), [(7, 0.4), (64, 0.25), (1000, 0.1)])
def test_random_elements_are_unbiased_and_their_error_is_exact(make, size, density):
    compressor = make(density)
    omega = size / count_of(density, size) - 1
    assert compressor.law.omega(size) == pytest.approx(omega)
    x = np.random.default_rng(1).normal(size=size).astype(np.float32)
    draws = 8000
    out = drawer(compressor, draws)(x)
    tolerance = 5 * np.abs(x) * np.sqrt(omega / draws)
    assert (np.abs(out.mean(axis=0) - x) <= tolerance + 1e-6).all()
    errors = squared(out - x) / squared(x)
    assert abs(errors.mean() - omega) <= 5 * errors.std() / np.sqrt(draws) + 1e-6


@pytest.mark.parametrize("make", [compression.random_k, compression.random_block])
def test_random_elements_become_a_projection_under_feedback(make):
    compressor = contractive(make(0.3))
    x = np.random.default_rng(2).normal(size=50).astype(np.float32)
    out = drawer(compressor, 4000)(x)
    sent = out != 0
    assert (sent.sum(axis=1) == 15).all()
    np.testing.assert_allclose(out, np.where(sent, x, 0), rtol=3e-7)
    losses = squared(out - x) / squared(x)
    assert abs(losses.mean() - 0.7) <= 5 * losses.std() / np.sqrt(4000)


@pytest.mark.parametrize("make", [compression.random_k, compression.random_block])
def test_sums_of_payloads_decode_to_sums(make):
    compressor = make(0.2)
    noise = noise_of(0)
    xs = np.random.default_rng(3).normal(size=(3, 100)).astype(np.float32)
    payloads = [compressor.compress(jnp.asarray(x), noise) for x in xs]
    summed = jax.tree.map(lambda *leaves: sum(leaves), *payloads)
    expected = sum(once(compressor, x) for x in xs)
    out = compressor.decompress(summed, 100, noise)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [compression.random_k, compression.random_block])
def test_all_workers_draw_the_same_elements_and_each_step_others(make):
    compressor = make(0.1)
    x = jnp.arange(1.0, 1001.0)
    words = key_words(0)
    first, second = (
        compressor.compress(x, Keys(shared=words, own=fold(words, i))) for i in (1, 2)
    )
    assert (first == second).all()
    other = compressor.compress(x, Keys(shared=fold(words, 5), own=words))
    assert (first != other).any()


@pytest.mark.parametrize("make", [compression.random_k, compression.random_block])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_visible_even_if_not_drawn(make, bad):
    x = np.ones(200, np.float32)
    x[57] = bad
    for out in drawer(make(0.02), 50)(x):
        assert np.isnan(out).sum() == 4


def test_random_k_draws_one_of_each_stratum():
    chosen = drawer(compression.random_k(0.1), 200)(np.ones(1003, np.float32)) != 0
    for row in chosen:
        (where,) = np.nonzero(row)
        gaps = np.diff(np.append(where, where[0] + 1003))
        assert gaps.max() < 2 * 10  # neighbors lie in strata of 9 or 10


def test_random_block_is_one_run_on_the_ring():
    chosen = drawer(compression.random_block(0.3), 200)(np.ones(50, np.float32))
    for row in chosen != 0:
        assert (row & ~np.roll(row, 1)).sum() == 1


@pytest.mark.parametrize("size", [2**31 - 1, 2**31 - 7])
def test_random_k_does_not_overflow_below_two_to_the_31(size):
    for seed in range(20):
        drawn = np.asarray(_one_of_each_stratum(size, 1000, key_words(seed)), np.int64)
        assert drawn.min() >= 0
        assert drawn.max() < size
        gaps = np.diff(np.sort(drawn))
        assert gaps.min() > 0
        assert gaps.max() < 2 * (size // 1000 + 1)


@pytest.mark.long
@pytest.mark.few(2)
@sizes
def test_threshold_loses_less_than_its_value_everywhere(size):
    for value in (0.0, 0.5, 2.0):
        compressor = compression.threshold(value, capacity=size)
        for name, x in inputs(size):
            out = once(compressor, x)
            expected = np.where(np.abs(x) >= np.float32(value), x, 0)
            np.testing.assert_array_equal(out, expected, err_msg=name)


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("sign", [1, -1])
def test_threshold_is_compared_with_magnitudes_and_the_value_itself_is_sent(sign):
    x = sign * np.array([0.5, 3.0, 0.4, 1.0, 2.0, 0.0], np.float32)
    expected = sign * np.array([0.0, 3.0, 0.0, 1.0, 2.0, 0.0])
    for capacity in (3, 4, 100):
        out = once(compression.threshold(1.0, capacity), x)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.long
def test_threshold_sends_the_largest_where_more_reach_it_than_there_is_room():
    for name, x in inputs(64):
        out = once(compression.threshold(0.1, capacity=5), x)
        expected = largest_k(np.where(np.abs(x) >= np.float32(0.1), x, 0), 5)
        np.testing.assert_array_equal(out, expected, err_msg=name)


def test_threshold_sends_nan_and_infinity_and_what_there_is_room_for():
    x = np.array([1.0, -np.inf, 5.0, np.nan, 0.0], np.float32)
    out = once(compression.threshold(2.0, capacity=3), x)
    np.testing.assert_array_equal(out, [0, -np.inf, 5, np.nan, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compression.top_k(0), r"top_k: density=0 must be in \(0, 1\]"),
        (lambda: compression.top_k(1.5), r"density=1.5 must be in \(0, 1\]"),
        (lambda: compression.top_k(float("nan")), "density=nan"),
        (lambda: compression.top_k(0.1, block_size=0), "top_k: block_size=0 must be"),
        (
            lambda: compression.top_k(
                0.1, values=compression.error_feedback(compression.sign())
            ),
            "top_k: values=sign with error_feedback: .* wrap top_k",
        ),
        (lambda: compression.random_k(-0.1), r"random_k: density=-0.1 must be"),
        (lambda: compression.random_block(2), r"random_block: density=2 must be"),
        (lambda: compression.threshold(-1.0, 5), "value=-1.0 must be finite and not"),
        (lambda: compression.threshold(float("nan"), 5), "value=nan"),
        (lambda: compression.threshold(float("inf"), 5), "value=inf"),
        (lambda: compression.threshold(1.0, 0), "capacity=0 must be a positive int"),
        (lambda: compression.threshold(1.0, SHARE), "of the elements use top_k"),
    ],
)
def test_bad_knobs_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_arrays_and_missing_keys_are_named():
    with pytest.raises(ValueError, match="random_k is random and key=None"):
        compression.roundtrip(compression.random_k(0.5), jnp.ones(4))
    with pytest.raises(ValueError, match="x is int32, and compressors take real"):
        compression.roundtrip(compression.top_k(0.5), jnp.arange(4))
