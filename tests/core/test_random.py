"""The counter's bits: uniform, and unrelated between keys and neighbors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax._core import _random

SIZE = 1 << 16


def draws(count: int = 64) -> np.ndarray:
    words = jax.vmap(lambda i: _random.fold(_random.key_words(0), i))(jnp.arange(count))
    return np.asarray(jax.vmap(lambda w: _random.uniform(w, SIZE))(words), np.float64)


def test_uniform_in_mean_variance_and_bins():
    u = draws()
    assert u.min() >= 0
    assert u.max() < 1
    tolerance = 5 / np.sqrt(u.size)
    assert abs(u.mean() - 1 / 2) < tolerance * np.sqrt(1 / 12)
    assert abs(u.var() - 1 / 12) < tolerance * np.sqrt(1 / 180)
    counts, _ = np.histogram(u, bins=256, range=(0, 1))
    expected = u.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize("shift", [0, 1, 2, 64])
def test_keys_and_neighbors_are_uncorrelated(shift):
    u = draws() - 0.5
    for step in (1, 2, 32):  # other keys, at elements that lie `shift` apart
        one, other = u[step:, shift:], u[:-step, : SIZE - shift]
        assert abs((one * other).mean()) < 5 / 12 / np.sqrt(one.size)
    if shift:
        one, other = u[:, shift:], u[:, :-shift]
        assert abs((one * other).mean()) < 5 / 12 / np.sqrt(one.size)


def test_every_bit_is_fair():
    words = _random.key_words(7)
    bits = np.unpackbits(np.asarray(_random.bits(words, SIZE)).view(np.uint8))
    means = bits.reshape(SIZE, 32).mean(axis=0)
    assert np.abs(means - 0.5).max() < 5 * 0.5 / np.sqrt(SIZE)


def test_seeds_and_keys_make_other_words():
    made = [
        _random.key_words(0),
        _random.key_words(1),
        _random.key_words(-1),
        _random.key_words(jax.random.key(0)),
        _random.key_words(jax.random.key(1)),
        _random.fold(_random.key_words(0), 1),
    ]
    assert len({tuple(np.asarray(words)) for words in made}) == len(made)
    raw = _random.key_words(jax.random.PRNGKey(3))
    assert (_random.key_words(jax.random.key(3)) == raw).all()


def test_same_under_vmap():
    words = jnp.stack([_random.key_words(0), _random.key_words(1)])
    both = jax.vmap(lambda w: _random.bits(w, 100))(words)
    assert (both[1] == _random.bits(words[1], 100)).all()
