"""The exchange on two levels: other numbers of hosts, other sizes, and its law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax._core._random import Keys, fold, key_words
from relaxjax.collectives import (
    compressed_hierarchical_wire_bytes,
    compressed_two_level,
    compressed_two_level_wire_bytes,
    compressed_two_shot_wire_bytes,
)
from relaxjax.compression import Compressor
from relaxjax.gradients.mean._codec import as_codec
from tests.compression import references

SIGN = compression.sign(block_size=8)
RANDOM = compression.quantize(2, stochastic_rounding=True)


def codec_for(compressor: Compressor, worker: jax.Array | int):
    noise = Keys(key_words(0), fold(key_words(1), worker))
    return as_codec(compressor, (noise,) if compressor.random else (), jnp.uint32(0))


def ours(compressor: Compressor, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and losses [workers, d] of x[hosts, devices, d]."""

    def exchange(x):
        a, j = jax.lax.axis_index("host"), jax.lax.axis_index("device")
        codec = codec_for(compressor, a * jax.lax.axis_size("device") + j)
        return tuple(compressed_two_level(x, ("host", "device"), codec))

    run = jax.vmap(jax.vmap(exchange, axis_name="device"), axis_name="host")
    mean, lost = (np.asarray(y) for y in jax.jit(run)(x))
    n = x.shape[0] * x.shape[1]
    return mean.reshape(n, -1), lost.reshape(n, -1)


def theirs(compressor: Compressor, x: np.ndarray):
    @jax.jit
    def arrives(x, worker, place):
        codec = codec_for(compressor, worker)
        payload = jax.lax.optimization_barrier(codec.encode(x, place))
        return codec.decode(payload, x.size, place)

    def coded(worker, x, place):
        return np.asarray(arrives(np.float32(x), np.uint32(worker), np.uint32(place)))

    hosts, devices, size = x.shape
    xs = list(x.reshape(hosts * devices, size))
    return references.two_level(xs, coded, hosts)


def draw(hosts: int, devices: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    return rng.normal(size=(hosts, devices, size)).astype(np.float32)


@pytest.mark.few(2)
@pytest.mark.parametrize("compressor", [SIGN, RANDOM], ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("hosts", "devices", "size"),
    [(3, 2, 61), (2, 3, 5), (4, 1, 61), (1, 3, 5), (2, 2, 1)],
)
def test_equals_the_reference_and_conserves_the_mean(compressor, hosts, devices, size):
    x = draw(hosts, devices, size)
    mean, lost = ours(compressor, x)
    expected, gone = theirs(compressor, x)
    np.testing.assert_allclose(mean[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lost, gone, rtol=1e-4, atol=1e-5)
    for other in mean:  # also where each worker rounds by its own dice
        np.testing.assert_array_equal(other, mean[0])
    np.testing.assert_allclose(
        mean[0] + lost.mean(axis=0), x.mean(axis=(0, 1)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("hosts", "devices"), [(1, 1), (2, 3)])
def test_nothing_is_lost_of_nothing_or_alone(hosts, devices):
    mean, lost = ours(SIGN, draw(hosts, devices, 0))
    assert mean.shape == lost.shape == (hosts * devices, 0)
    x = draw(1, 1, 7)
    mean, lost = ours(SIGN, x)
    np.testing.assert_array_equal(mean, x[0])
    assert not lost.any()


def test_each_loses_what_it_has_sent_and_as_a_server_of_all_it_keeps():
    keep_nothing = compression.threshold(1e9, capacity=1)
    x = draw(2, 2, 8)
    mean, lost = ours(keep_nothing, x)
    np.testing.assert_array_equal(mean, np.zeros_like(mean))
    total = x.reshape(4, 8).sum(axis=0)
    np.testing.assert_allclose(lost.sum(axis=0), total, rtol=1e-5, atol=1e-6)
    # At another device's chunk, just what was sent.
    np.testing.assert_array_equal(lost[0, 4:], x[0, 0, 4:])
    # At its own: half of the chunk for the other host, half as the server.
    np.testing.assert_allclose(lost[0, 2:4], x[0, 0, 2:4], rtol=1e-6)


def test_bytes_inside_and_between():
    codec = codec_for(compression.quantize(4, block_size=8), 0)
    # Chunks of 32: 16 bytes of codes and 4 scales; pieces of 16: 8 bytes and 2 scales.
    assert compressed_two_level_wire_bytes(64, (2, 2), codec) == 32 + 2 * 16 + 2 * 16
    assert compressed_two_level_wire_bytes(64, (1, 1), codec) == 0
    for hosts, devices in ((1, 4), (4, 1)):
        flat = compressed_two_shot_wire_bytes(64, 4, codec)
        assert compressed_two_level_wire_bytes(64, (hosts, devices), codec) == flat
    exact_inside = compressed_hierarchical_wire_bytes(64, (2, 4), codec)
    assert compressed_two_level_wire_bytes(64, (2, 4), codec) < exact_inside / 2
