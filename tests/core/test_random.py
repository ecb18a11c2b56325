"""The counter's bits: uniform, and unrelated between keys and neighbors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax._core import _random

SIZE = 1 << 16


def mixed(x: int, t: int) -> int:
    """The equation of the module, in Python's integers."""
    x = (((x ^ (x >> 16)) * 0x7FEB352D) + t) % 2**32
    x = ((x ^ (x >> 15)) * 0x846CA68B) % 2**32
    return x ^ (x >> 16)


@pytest.mark.parametrize("words", [(0, 0), (3678724076, 3329964858), (2**32 - 1, 1)])
def test_bits_are_those_of_the_equation(words):
    s, t = words
    expected = [mixed(i ^ s, t) for i in range(5)]
    found = _random.bits(jnp.array(words, jnp.uint32), 5)
    assert found.dtype == jnp.uint32
    assert found.tolist() == expected
    u = _random.uniform(jnp.array(words, jnp.uint32), 5)
    assert u.dtype == jnp.float32
    assert u.tolist() == [(h >> 8) / 2**24 for h in expected]


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (0, [3678724076, 3329964858]),
        (np.int64(7), [3521991375, 3262179268]),
        (-1, [3125724805, 2635424435]),
        (2**32 - 1, [3125724805, 2635424435]),
        (jnp.int32(7), [3521991375, 3262179268]),
        (np.array([0, 3], np.uint32), [1070779597, 2612910483]),
    ],
)
def test_a_seed_gives_the_words_that_it_always_gave(seed, words):
    """So that a run that is resumed later draws what it would have drawn."""
    found = _random.key_words(seed)
    assert found.dtype == jnp.uint32
    assert found.tolist() == words


def test_a_number_folds_into_other_words():
    golden, (s, t) = 0x9E3779B9, (3678724076, 3329964858)
    first = mixed((5 * golden % 2**32) ^ s, t)
    expected = [first, mixed(first ^ t, (s + golden) % 2**32)]
    words = jnp.array([s, t], jnp.uint32)
    for five in (5, np.uint32(5), jnp.int32(5), jnp.float32(5)):
        assert _random.fold(words, five).tolist() == expected


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


@pytest.mark.long
def test_normals_of_many_shapes_are_one_draw():
    """Each element is drawn once, in order; a program has one generator, in a loop."""
    shapes = [(2, 3), (), (0, 4), (4,)]
    key = jax.random.key(3)
    found = _random.normals(key, shapes)
    assert [x.shape for x in found] == shapes
    flat = np.concatenate([np.ravel(x) for x in found])
    halves = [jax.random.normal(k, (6,)) for k in jax.random.split(key, 2)]
    np.testing.assert_array_equal(flat, np.concatenate(halves)[:11])
    assert _random.normals(key, []) == []
    compiled = jax.jit(lambda: _random.normals(key, [(4, 2)] * 9)).lower().compile()
    text = compiled.as_text() or ""
    assert " while(" in text
    assert text.count("log-plus-one(") <= 2
