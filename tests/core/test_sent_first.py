"""sent_first: the leaves that travel before a share of all elements has gone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxjax.schedule import sent_first

PARAMS = {f"layer{i}": jnp.zeros(size) for i, size in enumerate((8, 1, 0, 3))}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.floats(0, 1))
def test_they_are_a_prefix_that_fits_and_the_next_does_not(sizes, share):
    tree = {f"w{i}": jax.ShapeDtypeStruct((s,), "float32") for i, s in enumerate(sizes)}
    first = [sent_first(tree, share)[f"w{i}"] for i in range(len(sizes))][::-1]
    sizes = sizes[::-1]  # the last one leaves first
    count = sum(first)
    assert first == [True] * count + [False] * (len(sizes) - count)
    assert sum(sizes[:count]) <= share * sum(sizes)
    if count < len(sizes):
        assert sum(sizes[: count + 1]) > share * sum(sizes)


def test_all_and_none():
    assert all(jax.tree.leaves(sent_first(PARAMS, 1)))
    assert not any(sent_first({"w": np.zeros(3)}, 0).values())
    assert sent_first({}, 0.5) == {}


def test_in_the_order_given():
    order = ["layer1", "layer0", "layer2", "layer3"]
    found = sent_first(PARAMS, 0.75, order=order)
    assert found == {"layer0": True, "layer1": True, "layer2": True, "layer3": False}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_none_and_all(share):
    with pytest.raises(ValueError, match=r"share=.* must be between 0 .* and 1"):
        sent_first(PARAMS, share)


def test_orders_are_checked():
    with pytest.raises(ValueError, match="order misses leaves"):
        sent_first(PARAMS, 0.5, order=["layer0", "layer1"])
