"""Each check of a tree of arrays, and the words of its error."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse
from jax.sharding import PartitionSpec as P

from relaxjax._core import _arrays
from relaxjax._core._tree import layout_of
from relaxjax._core.layouts._sharding import as_on_devices
from tests.helpers import mesh_of


class ForeignArray:
    def __array__(self, *args, **how):
        return np.zeros(2)


def test_a_tree_of_arrays():
    _arrays.require_arrays({"a": np.ones(2), "b": 1.0, "c": ForeignArray()}, "f")
    message = r"^f: leaf 'b/0' is the function tanh, and not an array"
    with pytest.raises(TypeError, match=message):
        _arrays.require_arrays({"a": ForeignArray(), "b": [jnp.tanh]}, "f")
    with pytest.raises(TypeError, match=r"^f: leaf 'params' is of type str, and"):
        _arrays.require_arrays("text", "f")
    with pytest.raises(TypeError, match=r"^f: leaf 'a' is the function <.*Nameless"):
        _arrays.require_arrays({"a": Nameless()}, "f")


class Nameless:
    """May be called, and has no name."""

    def __call__(self):
        return None


def test_dtypes_that_have_a_mean():
    _arrays.require_dtypes({"a": np.ones(2), "c": np.ones(1, np.complex64)}, "f", None)
    _arrays.require_dtypes({"a": np.ones(2, np.float16)}, "f", "sign")
    message = r"^f: leaf 'n/0' is int32, which has no mean: .*relaxjax.f with it: "
    with pytest.raises(ValueError, match=message):
        _arrays.require_dtypes({"a": np.ones(2), "n": [np.ones(2, "int32")]}, "f", None)
    for dtype in ("complex64", "int32"):
        message = f"leaf 'c' is {dtype}, and sign compresses real floating"
        with pytest.raises(ValueError, match=message):
            _arrays.require_dtypes({"c": np.ones(2, dtype)}, "f", "sign")
    with pytest.raises(TypeError, match="leaf 'a' is the function tanh"):
        _arrays.require_dtypes({"a": jnp.tanh}, "f", None)


def test_axes_that_are_the_compilers():
    _arrays.require_no_compiler_axes("f", "algorithm='ring'")
    with as_on_devices({"data": 2, "model": 2}, ["data", "model"]):
        _arrays.require_no_compiler_axes("f", "algorithm='ring'")
    with (
        as_on_devices({"data": 2, "model": 2}, ["data"]),
        pytest.raises(ValueError, match=r"f: algorithm='ring' packs.*\('model',\)"),
    ):
        _arrays.require_no_compiler_axes("f", "algorithm='ring'")


def test_parts_of_leaves_are_packed_by_their_specs():
    def look(specs: Any) -> None:
        def worker(x):
            _arrays.require_own_parts({"a": x}, "rows", specs, "f")
            return x

        jax.eval_shape(jax.vmap(worker, axis_name="rows"), jnp.ones((2, 2)))

    look(None)
    with as_on_devices({"data": 2, "model": 2}, ["data"]):
        look({"a": P("model")})
        with pytest.raises(ValueError, match=r"f: it packs .*\('model',\)"):
            look(None)


def test_values_that_all_workers_share_already():
    def reduced(tracked: bool, leaf: Any) -> None:
        def row(x, shared):  # nothing is tracked over this axis
            tree = {"a": x, "b": [leaf(x, shared)]}
            _arrays.require_local(tree, ("row", "data"), "f")
            return x

        def body(x, shared):
            _arrays.require_local({"a": x, "b": [x]}, "data", "f")
            return jax.vmap(row, axis_name="row")(x, shared)

        mapped = jax.shard_map(
            body,
            mesh=mesh_of(2),
            in_specs=(P("data"), P()),
            out_specs=P("data"),
            check_vma=tracked,
        )
        jax.eval_shape(mapped, jnp.ones(2), jnp.ones(1))

    reduced(True, lambda x, shared: x)
    reduced(False, lambda x, shared: shared)
    message = (
        "f: the update of leaf 'b/0' is already the same on every worker of 'data'"
    )
    with pytest.raises(ValueError, match=message):
        reduced(True, lambda x, shared: shared)


def test_layouts_that_differ():
    def differ(old: Any, new: Any, *, dtypes: bool = True) -> str | None:
        return _arrays.difference(layout_of(old), layout_of(new), dtypes=dtypes)

    a, b = np.ones((2, 3), np.float32), np.ones(4, np.float32)
    narrow = a.astype(np.float16)
    assert differ({"a": a, "b": b}, {"a": a, "b": b}) is None
    assert differ({"a": a}, {"a": narrow}, dtypes=False) is None
    found = differ({"b": b, "a": a}, {"b": b, "a": narrow})
    assert found == "leaf 'a' was float32[2,3] and is now float16[2,3]"
    found = differ({"a": a}, {"a": a.T}, dtypes=False)
    assert found == "leaf 'a' was float32[2,3] and is now float32[3,2]"
    found = differ({"a": a, "b": b}, {"a": a}, dtypes=False)
    assert found == "leaf 'b' was float32[4] and is now absent"
    found = differ({"a": a}, {"a": a, "b": b}, dtypes=False)
    assert found == "leaf 'b' was absent and is now float32[4]"
    assert differ({"w": {"value": a}}, {"w": a}) is None
    assert differ({"w": a}, {"w": {"value": a}}) is None
    found = differ({"w": {"value": a}}, {"w": b})
    assert found == "leaf 'w' was float32[2,3] and is now float32[4]"


def test_updates_of_the_shapes_that_init_saw():
    before = layout_of({"a": np.ones(2)})
    _arrays.require_same(before, {"a": np.ones(2, np.float16)}, "f")
    message = r"f: the tree changed since init: leaf 'a' was .*\[2\] and is now .*\[3\]"
    with pytest.raises(ValueError, match=message):
        _arrays.require_same(before, {"a": np.ones(3)}, "f")


def test_updates_that_are_each_workers_own():
    """Each rule in its turn, with the words that only it has."""
    tree = {"a": jnp.ones(2)}
    layout = layout_of(tree)

    def check(updates: Any, axis: str = "data", model: int = 1) -> None:
        def body(x):
            _arrays.require_own("f", axis, layout, updates(x))
            return x

        auto = (jax.sharding.AxisType.Auto,) * 2
        mesh = jax.make_mesh((2, model), ("data", "model"), axis_types=auto)
        run = jax.shard_map(
            body,
            mesh=mesh,
            in_specs=P("data"),
            out_specs=P("data"),
            axis_names={"data"},
        )
        with jax.set_mesh(mesh):
            jax.eval_shape(jax.jit(run), jnp.ones(4))

    check(lambda x: {"a": x})
    with pytest.raises(NameError, match="f: no axis named 'nowhere'"):
        check(lambda x: {"a": x}, "nowhere")
    with pytest.raises(ValueError, match=r"f: the tree changed .*leaf 'b' was absent"):
        check(lambda x: {"a": x, "b": x})
    with pytest.raises(ValueError, match="it compresses real floating leaves only"):
        check(lambda x: {"a": x.astype(jnp.int32)})
    with pytest.raises(ValueError, match="f: the update of leaf 'a' is already the"):
        check(lambda _: tree)
    with pytest.raises(ValueError, match=r"f: it packs.*\('model',\)"):
        check(lambda x: {"a": x}, model=2)


def test_a_sparse_array_is_no_leaf_of_workers():
    matrix = sparse.BCOO.fromdense(jnp.eye(2))
    message = r"^f: leaf 'm' is a sparse array \(BCOO\), which has no leading axis"
    with pytest.raises(TypeError, match=message):
        _arrays.require_arrays({"a": np.ones(2), "m": matrix}, "f")


def test_a_code_of_a_complex_leaf_says_how_to_split_it():
    split = r"complex64, .*optax.contrib.split_real_and_imaginary\(tx\). Or keep it out"
    with pytest.raises(ValueError, match=split):
        _arrays.require_dtypes({"a": jnp.ones(2, complex)}, "f", "sign")
    with pytest.raises(ValueError, match=r"leaves only\. Keep it out of the params"):
        _arrays.require_dtypes({"a": jnp.ones(2, int)}, "f", "sign")


def test_shapes_to_trace_with():
    shapes = _arrays.shapes_of({"a": np.ones((2, 3), np.float16), "b": [jnp.ones(())]})
    assert shapes["a"] == jax.ShapeDtypeStruct((2, 3), np.float16)
    assert shapes["b"] == [jax.ShapeDtypeStruct((), np.float32)]
    with pytest.raises(TypeError, match=r"^params: leaf 'b' is the function tanh"):
        _arrays.shapes_of({"b": jnp.tanh})
