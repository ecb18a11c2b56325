"""What is read of traced equations."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._jaxprs import (
    CLOSED,
    axis_names_of,
    loop_parts,
    programs_of,
    scan_parts,
    walked,
)


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


def test_what_is_known_goes_from_arguments_to_results():
    constant = np.ones(3, np.float32)

    def fn(a, b):
        with jax.named_scope("inside"):
            sine = jnp.sin(a)
        return sine * 2.0, constant * b, b, sine + b, 3.0

    program, seen = jax.make_jaxpr(fn)(np.float32(1), np.float32(1)), []

    def visit(eqn: Any, ins: list[str], scope: str) -> list[str]:
        seen.append((eqn.primitive.name, scope))
        return [f"{eqn.primitive.name}({','.join(ins)})"] * len(eqn.outvars)

    found = walked(program.jaxpr, ["a", "b"], "-", visit, "from")
    assert found == ["mul(sin(a),-)", "mul(-,b)", "b", "add(sin(a),b)", "-"]
    assert dict(seen) == {"sin": "from/inside", "mul": "from/", "add": "from/"}
    with pytest.raises(ValueError, match="zip"):
        walked(program.jaxpr, ["a"], "-", visit)


def test_parts_of_loops():
    def turns(x, c, rows):
        def turn(carry, row):
            i, x = carry
            return (i + 1, x * c + row), (x, i)

        return lax.scan(turn, (0, x), rows)

    (scan,) = jax.make_jaxpr(turns)(1.0, 2.0, jnp.ones(3)).eqns
    body, consts, carried = scan_parts(scan)
    assert (consts, carried) == (1, 2)
    assert [len(body.jaxpr.invars), len(body.jaxpr.outvars)] == [4, 4]

    def while_less(x, c, most):
        return lax.while_loop(lambda x: x < most, lambda x: jnp.sin(x) + c * c + c, x)

    (loop,) = jax.make_jaxpr(while_less)(1.0, 2.0, 3.0).eqns
    condition, body, *own = loop_parts(loop)
    assert own == [1, 1]
    assert [eqn.primitive.name for eqn in condition.jaxpr.eqns] == ["lt"]
    assert body.jaxpr.eqns[0].primitive.name == "sin"
