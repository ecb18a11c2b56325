"""Each check of an argument: the values at its edges, and the words of its error."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from relaxjax._core import _checks
from relaxjax._core._tree import layout_of
from relaxjax._core.layouts._sharding import as_on_devices
from tests.helpers import mesh_of

TRACED = "a traced number"  # stands for one, which only a trace can make


def call(check: Any, *args: Any, **more: Any) -> Any:
    """Calls a check, inside a trace if one of its arguments must be traced."""
    if all(arg is not TRACED for arg in args):
        return check(*args, **more)

    def traced(x):
        check(*(x if arg is TRACED else arg for arg in args), **more)
        return x

    return jax.eval_shape(traced, jnp.float32(2))


@pytest.mark.parametrize(
    ("check", "args", "good", "bad", "message"),
    [
        ("whole", ("f", "k"), [1, np.int8(3)], [0, 1.0, "1", None], "f: k=.* whole"),
        ("whole", ("f", "k"), [], [jnp.int32(1), TRACED], "f: k is a JAX array"),
        ("fraction", ("f", "k"), [0.1, 1, TRACED], [0, -1, 1.1, math.nan], r"f: k=.*"),
        ("momentum", ("f",), [0, 0.9, TRACED], [-0.1, 1, math.nan], "f: momentum=.*"),
        ("known", ("f", "k"), [1, np.ones(2)], [TRACED, jnp.ones(2)], "f: k is a JAX"),
    ],
)
def test_arguments_of_methods(check, args, good, bad, message):
    check = getattr(_checks, f"require_{check}")
    for value in good:
        call(check, *args, value)
    for value in bad:
        with pytest.raises(ValueError, match=message):
            call(check, *args, value)


def test_a_least_whole_number_and_a_remedy():
    _checks.require_whole("f", "k", 0, 0)
    with pytest.raises(ValueError, match="f: k=1 must be a whole number, 2 or more"):
        _checks.require_whole("f", "k", 1, 2)
    with pytest.raises(ValueError, match=r"f: k=2 must be in \(0, 1\]; halve it$"):
        _checks.require_fraction("f", "k", 2, "; halve it")
    with pytest.raises(ValueError, match=r"f: k=2 must be in \(0, 1\]$"):
        _checks.require_fraction("f", "k", 2)
    assert not _checks.is_traced(1.0)


@pytest.mark.parametrize(
    ("check", "value", "kind", "message"),
    [
        ("count", 0, ValueError, "^n must be at least 1, got 0$"),
        ("count", True, TypeError, "^n must be a whole number, got True$"),
        ("count", 1.0, TypeError, "^n must be a whole number, got 1.0$"),
        ("seconds", None, ValueError, "^n has no time"),
        ("seconds", "1", TypeError, "^n must be a number of seconds, got '1'"),
        ("seconds", True, TypeError, "^n must be a number of seconds, got True"),
        ("seconds", -1e-9, ValueError, "^n must be finite and >= 0 seconds"),
        ("seconds", math.inf, ValueError, "^n must be finite and >= 0 seconds"),
        ("seconds", math.nan, ValueError, "^n must be finite and >= 0 seconds"),
        ("bytes", -1, ValueError, "^n must be at least 0 and finite, got -1"),
        ("bytes", math.inf, ValueError, "^n must be at least 0 and finite"),
        ("bytes", math.nan, ValueError, "^n must be at least 0 and finite"),
        ("bytes", None, TypeError, "^n must be a number, got None"),
    ],
)
def test_fields_of_plain_data(check, value, kind, message):
    with pytest.raises(kind, match=message):
        getattr(_checks, f"check_{check}")("n", value)


def test_fields_of_plain_data_that_pass():
    count = _checks.check_count("n", np.int64(1))
    assert (count, type(count)) == (1, int)
    assert _checks.check_count("n", 0, least=0) == 0
    seconds = _checks.check_seconds("n", 0)
    assert (seconds, type(seconds)) == (0.0, float)
    assert _checks.check_seconds("n", 0.5) == 0.5
    _checks.check_bytes("n", 0)
    _checks.check_bytes("n", 0.5)
    _checks.check_bytes("n", 2, least=2)
    with pytest.raises(ValueError, match="at least 2 and finite"):
        _checks.check_bytes("n", 1, least=2)
    with pytest.raises(ValueError, match=r"^n must be at least 2, got 1: give more$"):
        _checks.check_count("n", 1, least=2, remedy="give more")
    with pytest.raises(TypeError, match=r"got 'x': give more$"):
        _checks.check_count("n", "x", remedy="give more")


def test_rates_are_positive_numbers():
    _checks.check_rate("n", "bytes/s", 0.5)
    _checks.check_rate("n", "bytes/s", math.inf)
    for bad in (0, -1, math.nan):
        with pytest.raises(ValueError, match=r"^n must be > 0 bytes/s"):
            _checks.check_rate("n", "bytes/s", bad)
    with pytest.raises(ValueError, match=r"^n must be a number of .* 2\*\*1024"):
        _checks.check_rate("n", "bytes/s", 10**400)
    wrong: Any = "1"
    with pytest.raises(TypeError, match=r"^n must be a number of bytes/s, got '1'"):
        _checks.check_rate("n", "bytes/s", wrong)


def test_types():
    _checks.check_type("n", 1, int, "give one")
    with pytest.raises(TypeError, match=r"^n must be of type int, got 'x': give one"):
        _checks.check_type("n", "x", int, "give one")


class ForeignArray:
    def __array__(self, *args, **how):
        return np.zeros(2)


def test_a_tree_of_arrays():
    _checks.require_arrays({"a": np.ones(2), "b": 1.0, "c": ForeignArray()}, "f")
    message = r"^f: leaf 'b/0' is the function tanh, and not an array"
    with pytest.raises(TypeError, match=message):
        _checks.require_arrays({"a": ForeignArray(), "b": [jnp.tanh]}, "f")
    with pytest.raises(TypeError, match=r"^f: leaf 'params' is of type str, and"):
        _checks.require_arrays("text", "f")
    with pytest.raises(TypeError, match=r"^f: leaf 'a' is the function <.*Nameless"):
        _checks.require_arrays({"a": Nameless()}, "f")


class Nameless:
    """May be called, and has no name."""

    def __call__(self):
        return None


def test_dtypes_that_have_a_mean():
    _checks.require_dtypes({"a": np.ones(2), "c": np.ones(1, np.complex64)}, "f", None)
    _checks.require_dtypes({"a": np.ones(2, np.float16)}, "f", "sign")
    message = r"^f: leaf 'n/0' is int32, which has no mean: .*relaxjax.f with it: "
    with pytest.raises(ValueError, match=message):
        _checks.require_dtypes({"a": np.ones(2), "n": [np.ones(2, "int32")]}, "f", None)
    for dtype in ("complex64", "int32"):
        message = f"leaf 'c' is {dtype}, and sign compresses real floating"
        with pytest.raises(ValueError, match=message):
            _checks.require_dtypes({"c": np.ones(2, dtype)}, "f", "sign")
    with pytest.raises(TypeError, match="leaf 'a' is the function tanh"):
        _checks.require_dtypes({"a": jnp.tanh}, "f", None)


def test_axes_that_are_the_compilers():
    _checks.require_no_compiler_axes("f", "algorithm='ring'")
    with as_on_devices({"data": 2, "model": 2}, ["data", "model"]):
        _checks.require_no_compiler_axes("f", "algorithm='ring'")
    with (
        as_on_devices({"data": 2, "model": 2}, ["data"]),
        pytest.raises(ValueError, match=r"f: algorithm='ring' packs.*\('model',\)"),
    ):
        _checks.require_no_compiler_axes("f", "algorithm='ring'")


def test_values_that_all_workers_share_already():
    def reduced(tracked: bool, leaf: Any) -> None:
        def row(x, shared):  # nothing is tracked over this axis
            tree = {"a": x, "b": [leaf(x, shared)]}
            _checks.require_local(tree, ("row", "data"), "f")
            return x

        def body(x, shared):
            _checks.require_local({"a": x, "b": [x]}, "data", "f")
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
        return _checks.difference(layout_of(old), layout_of(new), dtypes=dtypes)

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
    _checks.require_same(before, {"a": np.ones(2, np.float16)}, "f")
    message = r"f: the tree changed since init: leaf 'a' was .*\[2\] and is now .*\[3\]"
    with pytest.raises(ValueError, match=message):
        _checks.require_same(before, {"a": np.ones(3)}, "f")


def test_params_that_are_needed():
    _checks.require_params({}, "f", "for weight decay")
    with pytest.raises(ValueError, match="f: update needs params, for weight decay"):
        _checks.require_params(None, "f", "for weight decay")


def test_updates_that_are_each_workers_own():
    """Each rule in its turn, with the words that only it has."""
    tree = {"a": jnp.ones(2)}
    layout = layout_of(tree)

    def check(updates: Any, axis: str = "data", model: int = 1) -> None:
        def body(x):
            _checks.require_own("f", axis, layout, updates(x))
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
