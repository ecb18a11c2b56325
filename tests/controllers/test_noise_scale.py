"""The noise of gradients, and what codes lose, as readings that all workers share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, controllers, emulate

GRADIENTS = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [1.0, 0.0]], np.float32)


def read(gradients: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    def one(g: Any) -> Any:
        mean = jax.lax.pmean(g, "data")
        return controllers.noise_scale(g, mean, "data", rows)

    signal, noise = jax.vmap(one, axis_name="data")(gradients)
    return np.asarray(signal), np.asarray(noise)


def test_by_hand():
    """Eight rows on each of four workers."""
    signal, noise = read(jnp.asarray(GRADIENTS), 8)
    np.testing.assert_allclose(signal, np.full(4, 5 / 6), rtol=1e-6)
    np.testing.assert_allclose(noise, np.full(4, 16 / 3), rtol=1e-6)
    assert noise[0] / signal[0] == pytest.approx(6.4, rel=1e-6)


@pytest.mark.parametrize(("workers", "rows"), [(2, 1), (4, 8), (8, 3)])
def test_both_are_without_bias(workers, rows):
    """Means over many steps are |G|^2 and the trace of the covariance of one row."""
    rng = np.random.default_rng(0)
    true, scale = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    draws = rng.normal(true, scale, size=(20_000, workers, rows, 3)).mean(2)
    each = jax.vmap(lambda g: jnp.stack(_scale(g, rows)))(jnp.asarray(draws))
    means, spread = np.mean(each, 0), np.std(each, 0) / len(draws) ** 0.5
    for mean, error, right in zip(
        means, spread, (np.sum(true**2), np.sum(scale**2)), strict=True
    ):
        assert abs(mean - right) < 4 * error


def _scale(gradients: Any, rows: int) -> Any:
    def one(g: Any) -> Any:
        return controllers.noise_scale(g, jax.lax.pmean(g, "data"), "data", rows)

    signal, noise = jax.vmap(one, axis_name="data")(gradients)
    return signal[0], noise[0]


def test_a_nan_is_seen_by_all():
    broken = GRADIENTS.copy()
    broken[2, 1] = np.nan
    assert np.isnan(np.stack(read(jnp.asarray(broken), 8))).all()


def test_what_cannot_be():
    with pytest.raises(ValueError, match="one worker, whose gradient is the mean"):
        read(jnp.ones((1, 3)), 8)
    with pytest.raises(ValueError, match="rows=0"):
        read(jnp.asarray(GRADIENTS), 0)


@pytest.mark.parametrize(("keep", "expected"), [(2, 0.10145), (4, 0.0), (0, 1.0)])
def test_the_error_of_the_largest_elements(keep, expected):
    x = np.array([3.0, 4.0, 0.5, 0.1], np.float32)
    lost = np.where(np.argsort(np.argsort(-x)) < keep, 0, x)

    def one(lost: Any, whole: Any) -> Any:
        return controllers.code_error({"w": lost}, {"w": whole}, "data")

    found = jax.vmap(one, axis_name="data")(np.stack([lost] * 3), np.stack([x] * 3))
    np.testing.assert_allclose(found, np.full(3, expected), atol=1e-5)


@pytest.mark.long
def test_the_error_of_a_residual():
    """Of four bits it is less than of two, on all workers alike."""

    def error(bits: int) -> np.ndarray:
        code = compression.error_feedback(compression.quantize(bits))
        tx = relaxjax.all_reduce("data", compressor=code)

        def one(g: Any, state: Any) -> Any:
            _, state = tx.update(g, state)
            residual = optax.tree.get(state, "residual")
            return controllers.code_error(residual, g, "data")

        g = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(4, 64)))}
        _, state = relaxjax.init(tx, {"w": jnp.zeros(64)}, emulate(4))
        return np.asarray(jax.vmap(one, axis_name="data")(g, state))

    four, two = error(4), error(2)
    assert (four == four[0]).all()
    assert 0 < four[0] < two[0] < 1
