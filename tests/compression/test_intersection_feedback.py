"""Ok-Topk's feedback in two shots: against lists of workers, and who keeps what."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import all_reduce, compression
from tests.golden import references

CODE = compression.top_k(0.4, block_size=None)


def walked(
    gs: np.ndarray, wrap: Any, algorithm: str = "two_shot", weights: Any = None
) -> Any:
    """What comes out, [steps, d], and residuals [steps, workers, d]."""
    tx: Any = all_reduce("data", algorithm=algorithm, compressor=wrap(CODE))

    def worker(gs: jax.Array, ws: jax.Array) -> Any:
        def step(state: Any, now: Any) -> Any:
            weight = {} if weights is None else {"weight": now[1]}
            out, state = tx.update(now[0], state, **weight)
            return state, (out, state.compressed.feedback.residual)

        return jax.lax.scan(step, tx.init(gs[0]), (gs, ws))[1]

    ws = np.ones(gs.shape[:2], "f4") if weights is None else weights
    mapped = jax.jit(jax.vmap(worker, axis_name="data"))
    out, e = mapped(jnp.asarray(gs.swapaxes(0, 1), jnp.float32), ws.swapaxes(0, 1))
    for other in out:
        np.testing.assert_array_equal(other, out[0])
    return np.asarray(out[0]), np.asarray(e).swapaxes(0, 1)


def drawn(steps: int, workers: int, chunk: int = 5) -> np.ndarray:
    rng = np.random.default_rng(workers)
    return rng.normal(size=(steps, workers, workers * chunk)).astype("f4")


@pytest.mark.few(2)
@pytest.mark.parametrize("workers", [2, 3, 5, 9])
def test_equals_a_list_of_workers_over_24_steps(workers):
    gs = drawn(24, workers)
    out, e = walked(gs, compression.intersection_feedback)
    expected: Any = references.intersection_feedback({"k": 2}, gs)
    np.testing.assert_allclose(out, expected["sent"], atol=1e-5)
    np.testing.assert_allclose(e, expected["residual"], atol=1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["two_shot", "ring", "one_shot"])
@pytest.mark.parametrize("size", [15, 17])
def test_what_came_out_and_what_is_kept_are_all_there_was(algorithm, size):
    """In every element, also with an absent worker and a padded last chunk."""
    gs = np.random.default_rng(0).normal(size=(40, 3, size)).astype("f4")
    weights = np.ones((40, 3), "f4")
    weights[::5, 1] = 0
    out, e = walked(gs, compression.intersection_feedback, algorithm, weights)
    share = 3 * weights / weights.sum(1, keepdims=True)
    total = (gs * share[:, :, None]).mean(1).cumsum(0)
    np.testing.assert_allclose(out.cumsum(0) + e.mean(1), total, atol=1e-4)
    assert np.abs(e).max() > 1
    if algorithm == "one_shot":
        same = walked(gs, compression.error_feedback, algorithm, weights)
        np.testing.assert_array_equal(out, same[0])
        np.testing.assert_array_equal(e, same[1])


@pytest.mark.long
def test_a_worker_without_gradients_owes_nothing():
    """Nor while it is absent; by `error_feedback` it keeps what it added up."""
    gs = drawn(12, 3)
    gs[:, 1] = 0
    assert not walked(gs, compression.intersection_feedback)[1][:, 1].any()
    assert walked(gs, compression.error_feedback)[1][:, 1].any()
    weights = np.ones((12, 3), "f4")
    weights[3:9, 1] = 0
    gs = drawn(12, 3)
    gs[3:9, 1] = np.nan
    _, e = walked(gs, compression.intersection_feedback, weights=weights)
    np.testing.assert_array_equal(e[3:9, 1], e[2:8, 1])
    assert np.isfinite(e).all()


def test_shares_that_cancel_stay_where_they_are():
    gs = np.zeros((1, 2, 4), "f4")
    gs[0, 0, 0], gs[0, 1, 0] = 7, -7
    out, e = walked(gs, compression.intersection_feedback)
    assert not out.any()
    np.testing.assert_array_equal(e[0], gs[0])


def test_residuals_stay_bounded():
    gs = drawn(400, 3) + drawn(1, 3)
    _, e = walked(gs, compression.intersection_feedback)
    norms = np.linalg.norm(e.mean(1), axis=1)
    assert norms[200:].max() < 1.5 * norms[50:200].max()


def test_what_is_not_finite_is_seen_once():
    gs = drawn(6, 3)
    gs[2, 0, 7] = np.nan
    out, e = walked(gs, compression.intersection_feedback)
    assert np.isnan(out[2]).any()
    assert np.isfinite(out[3:]).all()
    assert np.isfinite(e).all()
