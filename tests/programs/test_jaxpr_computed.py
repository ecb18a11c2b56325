"""What NumPy computes of counters is what JAX would, to the bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal

from relaxjax.programs._jaxpr_computed import _BY_NUMPY, computed

EDGES = [0, 1, -1, 2, -7, 12, 2**31 - 1, -(2**31), 5]
TWO = ("add", "sub", "mul", "rem", "max", "min", "and", "or")
ASKED = ("eq", "ne", "lt", "le", "gt", "ge")


def both(name, fn, *args):
    """The primitive of that name alone, by JAX and by the walk."""
    closed = jax.make_jaxpr(fn)(*args)
    (eqn,) = (e for e in closed.jaxpr.eqns if e.primitive.name == name)
    places: dict[Any, Any] = dict(zip(closed.jaxpr.invars, args, strict=True))
    inputs = [v.val if isinstance(v, Literal) else places[v] for v in eqn.invars]
    found = computed(eqn, inputs)
    assert found is not None
    assert isinstance(found[0], np.ndarray)  # not a program of JAX's
    wanted = eqn.primitive.bind(*map(jnp.asarray, inputs), **eqn.params)
    return np.asarray(wanted), found[0]


def of_two(name, dtype):
    x, y = (jnp.asarray(a.ravel(), dtype) for a in np.meshgrid(EDGES, EDGES))
    if name == "rem":
        y = jnp.where(y == 0, 3, y)
    return both(name, lambda a, b: getattr(jax.lax, _lax(name))(a, b), x, y)


def _lax(name):
    return f"bitwise_{name}" if name in ("and", "or") else name


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint32])
@pytest.mark.parametrize("name", [*TWO, *ASKED])
def test_two_operands(name, dtype):
    wanted, found = of_two(name, dtype)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("name", "fn", "args"),
    [
        ("not", lambda x: ~x, [jnp.array(EDGES)]),
        ("not", lambda x: ~x, [jnp.array([True, False])]),
        ("select_n", jax.lax.select_n, [jnp.array(True), *jnp.array([3, 4])]),
        ("select_n", jax.lax.select_n, [jnp.array(2), *jnp.array([3, 4, 5])]),
        ("convert_element_type", lambda x: x.astype(jnp.int8), [jnp.array(EDGES)]),
        ("convert_element_type", lambda x: x.astype(jnp.bool_), [jnp.array(EDGES)]),
        ("convert_element_type", lambda x: x.astype(jnp.uint32), [jnp.array(EDGES)]),
        ("squeeze", lambda x: jax.lax.squeeze(x, [0]), [jnp.array([7])]),
        ("broadcast_in_dim", lambda x: jnp.broadcast_to(x, (2, 3)), [jnp.array(7)]),
        ("broadcast_in_dim", lambda x: x[:, None], [jnp.array(EDGES)]),
    ],
)
def test_one_operand_or_three(name, fn, args):
    wanted, found = both(name, fn, *args)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_every_primitive_of_the_table_is_tried_here():
    tried = {*TWO, *ASKED, "not", "select_n", "convert_element_type", "squeeze"}
    assert tried | {"broadcast_in_dim"} == set(_BY_NUMPY)


def test_a_remainder_by_zero_is_left_to_jax():
    closed = jax.make_jaxpr(jax.lax.rem)(5, 0)
    (found,) = computed(closed.eqns[0], [np.int32(5), np.int32(0)]) or [None]
    assert found == jax.lax.rem(jnp.int32(5), jnp.int32(0))


@pytest.mark.parametrize(
    ("name", "fn", "args"),
    [
        ("convert_element_type", lambda x: x.astype(jnp.int32), [jnp.float32(3e9)]),
        ("convert_element_type", lambda x: x.astype(jnp.float32), [jnp.int32(7)]),
        ("add", jax.lax.add, [jnp.float32(1), jnp.float32(2)]),
        ("rem", jax.lax.rem, [jnp.array([5, 7]), jnp.array([0, 3])]),
        (
            "broadcast_in_dim",
            lambda x: jax.lax.broadcast_in_dim(x, (2, 3), (0,)),
            [jnp.array([1, 2])],
        ),
    ],
)
def test_what_numpy_may_see_otherwise_is_left_to_jax(name, fn, args):
    (eqn,) = jax.make_jaxpr(fn)(*args).jaxpr.eqns
    assert eqn.primitive.name == name
    (found,) = computed(eqn, [np.asarray(x) for x in args]) or [None]
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, fn(*args))


def test_a_counter_at_its_end_wraps_around_without_a_word():
    (eqn,) = jax.make_jaxpr(jax.lax.add)(2**31 - 1, 1).jaxpr.eqns
    assert computed(eqn, [np.int32(2**31 - 1), np.int32(1)]) == [-(2**31)]


def test_large_arrays_are_not_known():
    for size, known in ((4096, True), (4097, False)):
        (eqn,) = jax.make_jaxpr(lambda n=size: jax.lax.iota(jnp.int32, n))().jaxpr.eqns
        assert (computed(eqn, []) is not None) == known
