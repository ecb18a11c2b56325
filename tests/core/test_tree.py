"""Names, layouts and dtypes of leaves."""

import jax
import jax.numpy as jnp
import pytest

from relaxjax._core import _tree
from relaxjax._core._tree import Layout, layout_of, leaf_name, leaf_names, natural_key


def test_names_sort_as_a_person_expects():
    names = ["b1", "a10", "a2b10", "a2b9", "a", "a02", "2", "10", "", "²"]
    expected = ["", "2", "10", "a", "a02", "a2b9", "a2b10", "a10", "b1", "²"]
    assert sorted(names, key=natural_key) == expected
    assert sorted(expected[::-1], key=natural_key) == expected


def test_names_of_leaves():
    tree = {"a": [jnp.ones(1), {"b": jnp.ones(2)}]}
    assert leaf_names(tree) == ["a/0", "a/1/b"]
    assert leaf_names(jnp.ones(1)) == [""]
    paths = [path for path, _ in jax.tree.leaves_with_path(tree)]
    assert [leaf_name(path) for path in paths] == ["a/0", "a/1/b"]
    assert leaf_name(()) == "params"


def test_a_layout_names_each_leaf_and_is_static():
    tree = {"my w": jnp.ones((3, 4)), "n": jax.ShapeDtypeStruct((), "int8")}
    layout = layout_of(tree)
    assert list(layout.lines) == ["my w float32[3,4]", "n int8[]"]
    assert layout.leaves == {"my w": "float32[3,4]", "n": "int8[]"}
    assert jax.tree.leaves(layout) == []
    other = layout_of({"my w": jnp.ones((4, 3))})
    assert jax.tree.structure(layout) != jax.tree.structure(other)


def test_the_empty_layout_equals_any_other():
    some, other, empty = Layout({"a": None}), Layout({"b": None}), Layout({})
    assert (
        some == Layout({"a": None}),
        some == other,
        some == empty,
        empty == some,
    ) == (
        True,
        False,
        True,
        True,
    )
    assert (some != Layout({"a": None}), some != other, some != empty) == (
        False,
        True,
        False,
    )
    assert (some == ("a",), some != ("a",)) == (False, True)
    assert len({some, Layout({"a": None})}) == 1
    assert hash(some) == hash(other) == hash(empty)  # as both equal the empty one


@pytest.mark.parametrize(
    ("dtype", "narrow", "wide"),
    [
        ("float32", False, "float32"),
        ("bfloat16", True, "float32"),
        ("float16", True, "float32"),
        ("float8_e4m3fn", True, "float32"),
        ("float64", False, "float64"),
        ("complex64", False, "complex64"),
        ("int8", False, "float32"),
        ("int64", False, "float32"),
        ("bool", False, "float32"),
    ],
)
def test_sums_are_taken_in_float32_or_wider(dtype, narrow, wide):
    assert _tree.is_narrow(jnp.dtype(dtype)) is narrow
    assert _tree.wide(jnp.dtype(dtype)) == jnp.dtype(wide)


def test_a_wide_copy_outlives_its_original():
    tree = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2)}
    copy = _tree.wide_copy(tree)
    tree["b"].delete()
    assert [x.dtype.name for x in jax.tree.leaves(copy)] == ["float32"] * 2
    assert copy["b"].tolist() == [1, 1]
    out = _tree.widened({"a": jnp.full(2, 3, jnp.bfloat16), "n": jnp.ones(1)})
    assert out["a"].tolist() == [3, 3]
    assert out["a"].dtype == out["n"].dtype == jnp.float32


def test_keys_are_typed():
    assert _tree.is_key(jax.random.key(0)) is True
    assert _tree.is_key(jax.random.PRNGKey(0)) is False
