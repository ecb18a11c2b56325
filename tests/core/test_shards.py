"""Shards of leaves, by the mesh and the specs alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import compiler_axes
from relaxjax._core._extremes import whole_max
from relaxjax._core.layouts._sharding import (
    alike,
    as_on_devices,
    as_typed,
    fitting,
    on_own_shards,
    parts_over,
    shard_shapes,
    sharded_over,
    unmasked,
    used_axes,
    whole_sum,
)
from tests.sharded import mesh_of

TREE = {"w": jax.ShapeDtypeStruct((4, 6), jnp.float16), "b": np.ones(4, np.float32)}
SPECS: Any = {"w": P(None, ("model", "stage")), "b": P("model")}
SIZES = {"data": 4, "model": 2, "stage": 3, "lone": 1}


def test_the_axes_of_a_spec():
    assert used_axes(P()) == used_axes(P(None)) == ()
    assert used_axes(P("a", None, ("b", "c"))) == ("a", "b", "c")


def test_a_mesh_is_taken_for_one_of_devices():
    with as_on_devices(SIZES, ["data"]):
        mesh = jax.sharding.get_abstract_mesh()
        assert dict(mesh.shape) == SIZES
        assert mesh.manual_axes == ("data",)
        assert compiler_axes() == ("model", "stage")
    assert compiler_axes() == ()


def test_shapes_of_shards():
    def shape(*dims, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(dims, dtype)

    whole = {"w": shape(4, 6, dtype=jnp.float16), "b": shape(4)}
    with as_on_devices(SIZES, ["data"]):
        expected = {"w": shape(4, 1, dtype=jnp.float16), "b": shape(2)}
        assert shard_shapes(TREE, SPECS, "f") == expected
        plain = {"w": P("stage"), "b": P()}
        assert shard_shapes({"w": np.ones((3, 2)), "b": np.ones(1)}, plain, "f") == {
            "w": shape(1, 2, dtype=np.float64),
            "b": shape(1, dtype=np.float64),
        }
        assert shard_shapes(TREE, None, "f") == whole
        assert fitting(SPECS, TREE, "f") is SPECS
        assert fitting(None, TREE, "f") is None
    with as_on_devices(SIZES, list(SIZES)):
        assert shard_shapes(TREE, SPECS, "f") == whole
        assert fitting(SPECS, TREE, "f") is None


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (dict.fromkeys("wfgdec", P()), r"^f: .*at \['b', 'c', 'd', 'e', 'f', 'g'\]"),
        ([P(), P()], r"^f: specs= does not match"),
        ((P(), P()), r"^f: specs= does not match"),
        ({"w": P(None, None, None), "b": P()}, "leaf 'w' is .* at most 2 entries"),
        ({"w": P(), "b": "m"}, "leaf 'b' is m, and must be a PartitionSpec"),
        ({"w": P("data"), "b": P()}, r"leaf 'w' names the axis 'data'.*'stage'\)"),
        ({"w": P(), "b": P(("model", "lone"))}, "leaf 'b' names the axis 'lone'"),
    ],
)
def test_specs_that_do_not_fit(specs, message):
    with as_on_devices(SIZES, ["data"]):
        with pytest.raises(ValueError, match=message):
            fitting(specs, TREE, "f")
        with pytest.raises(ValueError, match=message):
            on_own_shards(lambda tree: tree, TREE, specs, "f")


def test_containers_that_differ_though_their_names_do_not():
    with (
        as_on_devices(SIZES, ["data"]),
        pytest.raises(ValueError, match="differs at the kind of containers"),
    ):
        fitting([P()], (np.ones(2),), "f")


@pytest.mark.parametrize("results", [None, 2])
def test_a_function_gets_the_devices_own_shard(results):
    """It takes the largest element of each shard from it, and scales all as one."""
    mesh, specs = mesh_of(2, 2), {"w": P(None, "model"), "b": P()}
    tree = {"w": np.arange(8.0).reshape(1, 8), "b": np.array([3.0, 5.0])}

    def less_most(shards, factor):
        less = jax.tree.map(lambda x: x - jnp.max(x), shards)
        flat, unpack = ravel_pytree(less)
        out = unpack(flat * factor)
        return out if results is None else (out, shards)

    def local(tree, factor):
        return on_own_shards(less_most, tree, specs, "f", factor, results=results)

    run = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(P(), P()),
        out_specs=P(),
        axis_names={"data"},
        check_vma=False,
    )
    out = jax.jit(run)(tree, 10.0)
    if results:
        out, same = out
        assert jax.tree.map(lambda x: x.tolist(), same) == {
            "w": tree["w"].tolist(),
            "b": [3, 5],
        }
    assert out["w"].tolist() == [[-30, -20, -10, 0] * 2]
    assert out["b"].tolist() == [-20, 0]


def test_a_function_gets_all_where_no_axis_is_the_compilers():
    def swap(tree, other):
        return other, tree

    assert on_own_shards(swap, 1, "no specs", "f", 2) == (2, 1)


LAYOUTS: dict[str, tuple[Any, list[set[str]]]] = {
    "no specs": (None, [set(), set()]),
    "both": (SPECS, [{"model"}, {"model", "stage"}]),
    "one of them": ({"w": P("data"), "b": P()}, [set(), {"data"}]),
    "one device, or no axis": ({"w": P("lone"), "b": P("nowhere")}, [set(), set()]),
    "no spec": ({"w": P("stage"), "b": "model"}, [set(), {"stage"}]),
}


@pytest.mark.parametrize(("specs", "layouts"), LAYOUTS.values(), ids=LAYOUTS)
def test_axes_that_cut_leaves(specs, layouts):
    with as_on_devices(SIZES, ["data"]):
        assert list(sharded_over(TREE, specs)) == layouts


def test_specs_of_leaves_that_are_not_masked():
    assert unmasked(SPECS, TREE) is SPECS
    hidden = optax.MaskedNode()
    tree, left = {**TREE, "w": hidden}, {**SPECS, "w": hidden}
    assert unmasked(SPECS, tree) == left
    with as_on_devices(SIZES, ["data"]):
        assert sharded_over(tree, SPECS) == ({"model"},)


def test_types_say_it_of_leaves_by_their_names():
    with as_on_devices(SIZES, ["data"]):
        with as_typed(SPECS):
            assert sharded_over(TREE) == ({"model"}, {"model", "stage"})
            assert sharded_over({"w": TREE["w"]}) == ({"model", "stage"},)
        assert sharded_over(TREE) == (frozenset(), frozenset())


def test_parts_are_added_up_along_axes_that_are_not_the_compilers():
    assert parts_over(TREE, SPECS) == ((), ())
    with as_on_devices(SIZES, ["data", "model"]):
        assert parts_over(TREE, SPECS) == (("model",), ("model",))
    with as_on_devices(SIZES, list(SIZES)):
        assert parts_over(TREE, SPECS) == (("model",), ("model", "stage"))
    for whole, expected in ((whole_sum, [5, 5]), (whole_max, [3, 3])):
        for axes, found in ((("a",), expected), ((), [2, 3])):
            of = jax.vmap(lambda x, axes=axes, f=whole: f(x, axes), axis_name="a")
            assert of(jnp.array([2.0, 3.0])).tolist() == found


def test_places_of_each_layout():
    assert alike(["b", "a", "b", "c", "a"]) == [[0, 2], [1, 4], [3]]
