"""Merges of outer gradients alone, against a list of workers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import all_reduce
from relaxjax.local_updates.common._outer_merge import (
    _of_length,
    merge_rule,
    radial_directional,
)

N = 3
WEIGHTS = {
    "none": None,
    "equal": [2.0, 2.0, 2.0],
    "not exact in float16": [3001.0, 70_003.0, 5.0],
    "one absent": [1.0, 3.0, 0.0],
    "nobody": [0.0, 0.0, 0.0],
}


def rda(gradients: Any, weight: Any = None) -> Any:
    """What every worker gets."""
    tx: Any = radial_directional(all_reduce("data"), "data")

    def update(d, w):
        return tx.update(d, tx.init(d), weight=w)[0]

    w = None if weight is None else jnp.asarray(weight)
    return jax.jit(jax.vmap(update, axis_name="data"))(gradients, w)


def reference(d: np.ndarray, weight: Any) -> np.ndarray:
    """Of one leaf [workers, ...]."""
    w = np.ones(len(d)) if weight is None else np.asarray(weight)
    if not w.any():
        return np.zeros(d.shape[1:])
    share = w / w.sum()
    lengths = [np.sqrt((x.astype(float) ** 2).sum()) for x in d]
    way: Any = sum(s * x / r for s, x, r in zip(share, d, lengths, strict=True) if s)
    length: Any = sum(s * r for s, r in zip(share, lengths, strict=True) if s)
    return length * way / np.sqrt((way**2).sum())


def gradients(scale: float = 1.0) -> dict[str, np.ndarray]:
    """Worker 1 went farther than the others, and more so in one leaf."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(N, 2, 3)), rng.normal(size=(N, 4)) + 1
    a[1], b[1] = 10 * a[1], 3 * b[1]
    return {k: (scale * x).astype(np.float32) for k, x in (("a", a), ("b", b))}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_equals_a_list_of_workers(weight):
    d = gradients()
    expected = {k: reference(x, weight) for k, x in d.items()}
    if weight is not None and weight[2] == 0:  # whatever an absent worker holds
        d["b"][2] = np.nan
    found = rda(d, weight)
    for k, x in expected.items():
        assert found[k].dtype == np.float32
        np.testing.assert_allclose(found[k], [x] * N, rtol=3e-6)


@pytest.mark.parametrize("scale", [2.0**50, 2.0**-50])
def test_a_multiple_merges_to_the_multiple(scale):
    once, scaled = rda(gradients()), rda(gradients(scale))
    for k, x in once.items():
        np.testing.assert_allclose(scaled[k], scale * np.float64(x), rtol=1e-5)


def test_lengths_out_of_range_stay_to_be_seen():
    """A sum of squares is infinite, where no element is."""
    for x in rda(gradients(2.0**100)).values():
        assert np.isnan(x).all()


def test_who_stays_lends_no_direction():
    """Its length of 0 counts, and so does the zero of its direction."""
    d = {"a": np.zeros((N, 2), np.float32)}
    np.testing.assert_array_equal(rda(d)["a"], d["a"])
    d["a"][0] = [3, 4]
    np.testing.assert_allclose(rda(d)["a"], [[1, 4 / 3]] * N, rtol=1e-6)


def test_directions_that_cancel_but_for_rounding_have_no_length():
    d = np.random.default_rng(1).normal(size=(20, 1, 7)) * [[1], [3], [-2]]
    found = rda(dict(enumerate(d.astype(np.float32))), [9.0, 16.0, 25.0])
    for x in found.values():
        np.testing.assert_array_equal(x, np.zeros((N, 7)))
    least = np.array([1e-6, 0], np.float32)  # that counts as a direction
    np.testing.assert_allclose(_of_length(jnp.asarray(least), jnp.float32(3)), [3, 0])


def test_sixteen_bits_stay_sixteen_bits():
    d = {k: x.astype(jnp.bfloat16) for k, x in gradients().items()}
    found = rda(d)
    for k, x in d.items():
        assert found[k].dtype == jnp.bfloat16
        expected = reference(x.astype(np.float64), None)
        np.testing.assert_allclose(np.float64(found[k][1]), expected, atol=0.1)


def test_a_tree_without_leaves_stays():
    state = optax.EmptyState()
    tx: Any = radial_directional(optax.with_extra_args_support(optax.identity()), "x")
    assert tx.update({}, state) == ({}, state)


def test_rules_are_known_by_name():
    tx: Any = all_reduce("data")
    assert merge_rule("caller", "mean")(tx, "data") is tx
    assert merge_rule("caller", "rda") is radial_directional
    with pytest.raises(ValueError, match="caller: merge='median' must be one of mean,"):
        merge_rule("caller", "median")
