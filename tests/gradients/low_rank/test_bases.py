"""Orthonormal bases: numpy's QR, of any scale, and where columns are lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax.gradients.low_rank._bases import WRITTEN_OUT, bases, together

SHAPES = [(1, 5, 1), (2, 8, 3), (1, 8, 3), (1, 4, 4), (3, 90, WRITTEN_OUT), (1, 60, 20)]
RNG = np.random.default_rng(0)


ways = pytest.mark.parametrize("bases", [bases, together])  # here, and on a GPU


def is_orthonormal(q: jax.Array) -> bool:
    return bool(jnp.allclose(q.mT @ q, jnp.eye(q.shape[2]), atol=1e-5))


def is_basis(q: jax.Array, x: np.ndarray) -> bool:
    """Whether its columns are orthonormal, and nothing of x is outside their span."""
    unit = x / max(np.abs(x).max(), 1e-45)
    return is_orthonormal(q) and np.allclose(q @ (q.mT @ unit), unit, atol=1e-5)


@ways
def test_of_many_shapes_each_is_what_numpy_says(bases):
    matrices = [RNG.normal(size=shape).astype(np.float32) for shape in SHAPES]
    for q, x in zip(jax.jit(bases)(matrices), matrices, strict=True):
        assert q.shape == x.shape
        assert np.allclose(q, np.linalg.qr(x)[0], atol=1e-5)


@ways
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
@pytest.mark.parametrize("columns", [1, 3, 20])
def test_of_any_scale(bases, scale, columns):
    x = (scale * RNG.uniform(-1, 1, size=(2, 40, columns))).astype(np.float32)
    (q,) = bases([jnp.asarray(x)])
    assert is_basis(q, x)


@pytest.mark.parametrize("scale", [1e-30, 3e38])
def test_written_out_they_need_no_squares_in_range(scale):
    x = (scale * RNG.uniform(-1, 1, size=(2, 40, 3))).astype(np.float32)
    (q,) = together([jnp.asarray(x)])
    assert is_basis(q, x)


@ways
@pytest.mark.parametrize("columns", [3, 20])
def test_lost_columns_are_filled_up(bases, columns):
    x = RNG.normal(size=(4, 30, columns)).astype(np.float32)
    x[0, :, 1] = 0
    x[1, :, 1] = 2 * x[1, :, 0]
    x[2] = 0
    x[3] = 1
    (q,) = bases([jnp.asarray(x)])
    assert is_basis(q, x)


@pytest.mark.few(4)
@ways
@pytest.mark.parametrize("columns", [3, 20])
def test_what_is_not_finite_has_no_basis_and_spoils_no_other(bases, columns):
    x = RNG.normal(size=(3, 30, columns)).astype(np.float32)
    x[1, 4, 1], x[2, 0, 0] = np.nan, np.inf
    good, bad = bases([jnp.asarray(x[:1]), jnp.asarray(x[1:])])
    assert is_orthonormal(good)
    assert jnp.isnan(bad).any((1, 2)).all()


@ways
def test_without_matrices(bases):
    assert bases([]) == []
