"""What an axis says of itself under each mapping, at trace time."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, PartitionSpec

from relaxjax._core import _axis
from relaxjax._core._axis import axes_of, axis_size

X = jax.ShapeDtypeStruct((4, 2), jnp.float32)
NAMES = ("host", "device")


def mesh_of(*types: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((4, 2), NAMES, axis_types=types or (AxisType.Auto,) * 2)


def under_shard_map(fn, *, check: bool, axes=NAMES):
    """What `fn` returns while it is traced; it gets x, which varies over the axes."""
    seen = []

    def body(x):
        seen.append(fn(x))
        return x

    spec = PartitionSpec(*axes)
    mapped = jax.shard_map(
        body,
        mesh=mesh_of(),
        in_specs=spec,
        out_specs=spec,
        check_vma=check,
        axis_names=set(axes),
    )
    jax.eval_shape(jax.jit(mapped), X)
    return seen[-1]


def under_vmap(fn):
    seen = []
    mapped = jax.vmap(
        jax.vmap(lambda x: seen.append(fn(x)), axis_name="device"), axis_name="host"
    )
    jax.eval_shape(mapped, X)
    return seen[-1]


def test_names_of_axes():
    assert axes_of("data") == ("data",)
    assert axes_of(NAMES) == NAMES
    assert axes_of(("data",)) == ("data",)
    wrongs: list[Any] = [(), ("a", 1), None, ["a"]]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="an axis name is a string, or a tuple of"):
            axes_of(wrong)
    with pytest.raises(ValueError, match="names an axis twice"):
        axes_of(("a", "b", "a"))


def test_the_size_of_several_axes_is_their_product():
    sizes = under_vmap(lambda x: [axis_size(n, "f") for n in (*NAMES, NAMES)])
    assert sizes == [4, 2, 8]
    with pytest.raises(NameError, match=r"^f: no axis named 'rows' here\. relaxjax"):
        under_vmap(lambda x: axis_size(("host", "rows"), "f"))
    names = r"here, only 'host', 'device': give f such a name\. relaxjax"
    with pytest.raises(NameError, match=names):
        under_shard_map(lambda x: axis_size("rows", "f"), check=False)


def test_which_mappings_track_what_varies():
    def asked(x):
        return _axis.varying(x), _axis.tracks_vma("host"), _axis.on_devices("host")

    assert under_shard_map(asked, check=True) == (frozenset(NAMES), True, True)
    assert under_shard_map(asked, check=False) == (frozenset(), False, True)
    assert under_vmap(asked) == (frozenset(), False, False)


def test_local_values_vary_over_what_is_asked_for():
    def asked(x):
        tree = {"w": jnp.ones(3), "x": x}
        one, two = (_axis.to_local(tree, name) for name in ("host", NAMES))
        again = _axis.to_local(one, NAMES)
        return [
            sorted(_axis.varying(leaf))
            for leaf in (one["w"], one["x"], two["w"], again["w"])
        ]

    both = ["device", "host"]
    assert under_shard_map(asked, check=True) == [["host"], both, both, both]
    assert under_shard_map(asked, check=False) == [[], [], [], []]
    assert under_vmap(asked) == [[], [], [], []]
    with pytest.raises(NameError, match="to_local: no axis named 'rows'"):
        under_vmap(lambda x: _axis.to_local(x, "rows"))


def test_values_vary_like_an_example():
    def asked(x):
        one = _axis.to_local(jnp.ones(3), "host")
        tree = {"a": jnp.ones(3), "b": one, "c": x}
        types = {"a": jax.typeof(x), "b": jax.typeof(x), "c": jax.typeof(one)}
        liked = _axis.like_varying(tree, types)
        same = _axis.like_varying({"a": jnp.ones(2)}, {"a": jax.typeof(jnp.ones(2))})
        return [sorted(_axis.varying(x)) for x in (*liked.values(), same["a"])]

    both = ["device", "host"]
    assert under_shard_map(asked, check=True) == [both, both, both, []]
    assert under_shard_map(asked, check=False) == [[]] * 4


def test_axes_left_to_the_compiler():
    def asked(x):
        return _axis.compiler_axes()

    assert under_shard_map(asked, check=True) == ()
    assert under_shard_map(asked, check=True, axes=("host",)) == ("device",)
    assert under_vmap(asked) == ()
    with jax.set_mesh(jax.make_mesh((2, 1), NAMES, axis_types=(AxisType.Auto,) * 2)):
        assert jax.jit(lambda: len(_axis.compiler_axes()))() == 1
