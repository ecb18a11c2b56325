"""What is read of traced equations."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from relaxjax._core._jaxprs import CLOSED, axis_names_of, programs_of, shapes_of


def test_programs_inside_an_equation():
    closed = jax.make_jaxpr(lambda x: x + 1)(1.0)
    other = jax.make_jaxpr(lambda x: x * 2)(1.0)
    params = {"n": 1, "jaxpr": closed.jaxpr, "branches": (other, closed, "text")}
    found = list(programs_of(params))
    assert [part.jaxpr for part in found] == [closed.jaxpr, other.jaxpr, closed.jaxpr]
    assert all(isinstance(part, CLOSED) for part in found)
    assert list(found[0].consts) == []
    assert [p.jaxpr for p in programs_of({"calls": [other]})] == [other.jaxpr]
    assert list(programs_of({"n": 3})) == []


def test_axes_of_an_equation():
    def collectives(x):
        y = lax.psum(x, ("host", "data"))
        z = lax.all_gather(x, "data")
        return y, z, lax.psum(x[None], 0)

    program = jax.make_jaxpr(collectives, axis_env=[("host", 2), ("data", 2)])(1.0)
    found = [axis_names_of(eqn) for eqn in program.eqns]
    assert [names for names in found if names] == [["host", "data"], ["data"]]
    other: Any = SimpleNamespace(params={"axes": (0, "data"), "axis_name": "host"})
    assert axis_names_of(other) == ["data"]
    other = SimpleNamespace(params={"axis_name": "host"})
    assert axis_names_of(other) == ["host"]
    other = SimpleNamespace(params={})
    assert axis_names_of(other) == []


def test_shapes_to_trace_with():
    tree = {"a": np.ones((2, 3), np.float16), "b": jnp.ones(4, jnp.int32)}
    assert shapes_of(tree) == {
        "a": jax.ShapeDtypeStruct((2, 3), jnp.float16),
        "b": jax.ShapeDtypeStruct((4,), jnp.int32),
    }
    with pytest.raises(TypeError, match="params: leaf 'a' is the function tanh"):
        shapes_of({"a": jnp.tanh})
