"""Plans are plain data; each element of each leaf is sent exactly once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax.schedule import plan_buckets, plan_groups


def test_default_order_is_reversed_and_natural():
    params = {f"layer{i}": jnp.zeros(1) for i in range(12)}
    (bucket,) = plan_buckets(params)
    names = [s.name for s in bucket.segments]
    assert names == [f"layer{i}" for i in reversed(range(12))]


def test_large_leaf_is_split_and_whole_in_groups():
    params = {"big": jnp.zeros(10), "small": jnp.zeros(2)}
    order = ["big", "small"]
    buckets = plan_buckets(params, bucket_bytes=16, order=order)
    assert [[(s.start, s.stop) for s in b.segments] for b in buckets] == [
        [(0, 4)],
        [(4, 8)],
        [(8, 10), (0, 2)],
    ]
    groups = plan_groups(params, bucket_bytes=16, order=order)
    assert [[s.name for s in g.segments] for g in groups] == [["big"], ["small"]]


def test_one_dtype_per_bucket_and_any_in_a_group():
    params = {
        "a": jnp.zeros(2),
        "b": jnp.zeros(2, jnp.bfloat16),
        "c": jnp.zeros(2),
    }
    buckets = plan_buckets(params)
    assert {b.dtype: [s.name for s in b.segments] for b in buckets} == {
        "float32": ["c", "a"],
        "bfloat16": ["b"],
    }
    (group,) = plan_groups(params)
    assert (group.dtype, group.nbytes) == ("mixed", 20)


def test_a_group_is_closed_before_it_overflows():
    tree = {name: jnp.zeros(4, jnp.float32) for name in "abc"}  # 16 bytes each
    groups = plan_groups(tree, bucket_bytes=40)
    assert [[s.name for s in group.segments] for group in groups] == [["c", "b"], ["a"]]


@pytest.mark.parametrize("plan", [plan_buckets, plan_groups])
def test_leaves_of_two_layouts_share_nothing(plan):
    """Each fills up to its own end, in order, as if the others were not there."""
    tree = {name: jnp.zeros(4, jnp.float32) for name in "abcdef"}  # 16 bytes each
    layouts = [frozenset("m"), frozenset(), frozenset("m")] * 2
    found = plan(tree, bucket_bytes=40, layouts=layouts)
    names = [[s.name for s in bucket.segments] for bucket in found]
    assert names == [["f", "d"], ["e", "b"], ["c", "a"]]
    assert plan(tree, bucket_bytes=40, layouts=["x"] * 6) == plan(tree, bucket_bytes=40)
    with pytest.raises(ValueError, match=r"layouts has 2 entries, and the tree 6"):
        plan(tree, layouts=[0, 1])


def test_empty_leaves_travel_in_no_bucket():
    assert plan_buckets({"a": jnp.zeros((0, 3))}) == ()
    assert plan_groups({"a": jnp.zeros((0, 3))}) == ()


def test_a_bucket_smaller_than_an_element_holds_one():
    buckets = plan_buckets({"a": jnp.zeros(3)}, bucket_bytes=1)
    assert [b.nbytes for b in buckets] == [4, 4, 4]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    leaves=st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(["float32", "float16"])),
        max_size=8,
    ),
    bucket_bytes=st.integers(1, 100),
    seed=st.integers(0, 100),
)
def test_every_element_once_and_in_order(leaves, bucket_bytes, seed):
    tree = [jax.ShapeDtypeStruct((size,), dtype) for size, dtype in leaves]
    order = [str(i) for i in np.random.default_rng(seed).permutation(len(leaves))]
    for plan in (plan_buckets, plan_groups):
        buckets = plan(tree, bucket_bytes=bucket_bytes, order=order)
        sent = [s for b in buckets for s in b.segments]
        for i, (size, _) in enumerate(leaves):
            mine = sorted((s.start, s.stop) for s in sent if s.leaf == i)
            assert [a for s in mine for a in range(*s)] == list(range(size))
    for bucket in plan_buckets(tree, bucket_bytes=bucket_bytes, order=order):
        itemsizes = {np.dtype(leaves[s.leaf][1]).itemsize for s in bucket.segments}
        assert len(itemsizes) == 1
        assert bucket.nbytes == sum(s.size for s in bucket.segments) * max(itemsizes)
        assert bucket.nbytes <= max(bucket_bytes, *itemsizes)


@pytest.mark.parametrize("plan", [plan_buckets, plan_groups])
@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_bucket_bytes_must_be_positive(plan, value):
    with pytest.raises(ValueError, match=rf"bucket_bytes={value} must be a positive"):
        plan({"a": jnp.zeros(3)}, bucket_bytes=value)


def test_an_order_may_be_read_once():
    tree = {"a": np.zeros(3, np.int8), "b": np.zeros(3, np.int8)}
    (bucket,) = plan_buckets(tree, order=iter(["a", "b"]))
    assert [segment.name for segment in bucket.segments] == ["a", "b"]


def test_bucket_bytes_must_be_known():
    size: Any = jnp.int32(8)
    with pytest.raises(ValueError, match=r"^buckets: bucket_bytes is a JAX array"):
        plan_buckets({"a": jnp.zeros(3)}, bucket_bytes=size)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["a"], r"order misses leaf \['b'\].*each of the 2 leaves once"),
        (["a", "b", "a"], r"order repeats leaf \['a'\]"),
        (["a", "b", "c"], r"order has unknown leaf \['c'\]"),
        ([], r"order misses leaves \['a', 'b'\]"),
        ([*"baedc"] * 2, r"order repeats leaves \['a', 'b', 'c', 'd', 'e'\]"),
    ],
)
def test_order_must_be_a_permutation_of_the_leaves(order, message):
    names = "abcde" if len(order) > 3 else "ab"
    with pytest.raises(ValueError, match=message):
        plan_buckets({name: jnp.zeros(3) for name in names}, order=order)


def test_a_plan_can_be_printed():
    (bucket,) = plan_buckets({"w": jnp.zeros(3)})
    assert str(bucket) == "12 bytes float32: w[0:3]"


def test_leaves_of_one_name_are_named():
    tree = {"a/b": {"w": jnp.zeros(3)}, "a": {"b/w": jnp.zeros(3)}}
    with pytest.raises(ValueError, match=r"called \['a/b/w'\], as a key has a '/'"):
        plan_buckets(tree, order=["a/b/w", "a/b/w"])


@pytest.mark.parametrize("plan", [plan_buckets, plan_groups])
def test_a_message_holds_8_mib_unless_told_otherwise(plan):
    half = jax.ShapeDtypeStruct((2**20,), "float32")
    tree = {"a": half, "b": half, "c": jax.ShapeDtypeStruct((1,), "float32")}
    found = plan(tree, order=["a", "b", "c"])
    assert [bucket.nbytes for bucket in found] == [2**23, 4]


def test_a_group_may_be_full_to_the_byte():
    tree = {name: np.zeros(2, np.float32) for name in "abcd"}
    found = plan_groups(tree, bucket_bytes=16)
    assert [bucket.nbytes for bucket in found] == [16, 16]
