"""Each check of an argument: the values at its edges, and the words of its error."""

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax._core import _checks
from relaxjax._core.foreign._ranges import WORKERS

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


@pytest.mark.parametrize("bad", [[1, 2], [[[1]]], np.ones((0, 2)), [[0.5]], [["1"]]])
def test_a_table_has_two_axes_and_numbers_of_its_kinds(bad):
    check = partial(_checks.require_table, "f", "k", kinds="iu", rule="such as [[0]]")
    np.testing.assert_array_equal(check(value=[[1, 2]]), [[1, 2]])
    assert check(value=np.ones((3, 2), np.uint8)).shape == (3, 2)
    assert check(value=jnp.ones((3, 2), jnp.int32)).shape == (3, 2)
    with pytest.raises(ValueError, match=r"f: k of shape .* must be such as \[\[0\]\]"):
        check(value=bad)
    with pytest.raises(ValueError, match="f: k is a JAX array"):
        call(_checks.require_table, "f", "k", TRACED, kinds="f", rule="such as [[0]]")


def test_a_least_whole_number_and_a_remedy():
    _checks.require_whole("f", "k", 0, 0)
    with pytest.raises(ValueError, match="f: k=1 must be a whole number, 2 or more"):
        _checks.require_whole("f", "k", 1, 2)
    with pytest.raises(ValueError, match=r"f: k=2 must be in \(0, 1\]; halve it$"):
        _checks.require_fraction("f", "k", 2, "; halve it")
    with pytest.raises(ValueError, match=r"f: k=2 must be in \(0, 1\]$"):
        _checks.require_fraction("f", "k", 2)
    assert not _checks.is_traced(1.0)


def test_types():
    _checks.check_type("n", 1, int, "give one")
    with pytest.raises(TypeError, match=r"^n must be of type int, got 'x': give one"):
        _checks.check_type("n", "x", int, "give one")


def test_params_that_are_needed():
    _checks.require_params({}, "f", "for weight decay")
    with pytest.raises(ValueError, match="f: update needs params, for weight decay"):
        _checks.require_params(None, "f", "for weight decay")


def test_a_whole_number_of_a_range():
    for good in (1, 8, np.int16(3)):
        _checks.require_whole("f", "k", good, broken=WORKERS.broken)
    message = r"^f: k=\d+ must be a whole number, "
    with pytest.raises(ValueError, match=message):
        _checks.require_whole("f", "k", 10**9, broken=WORKERS.broken)


def test_a_tree_of_which_something_is_traced():
    def traced(x):
        assert _checks.is_any_traced({"a": 1.0, "b": x})
        return x

    jax.eval_shape(traced, jnp.float32(2))
    assert _checks.is_any_traced({"a": 1.0, "b": jnp.ones(2)}) is False


def test_transformations_and_what_is_taken_for_one():
    _checks.require_transformation("f", "inner", optax.sgd(1.0))
    half = SimpleNamespace(init=optax.sgd(1.0).init)
    other = SimpleNamespace(update=optax.sgd(1.0).update)
    for wrong in (half, other, "data", None):
        with pytest.raises(TypeError, match=r"^f: inner=.*\(\.\.\.\)\. Are two arg"):
            _checks.require_transformation("f", "inner", wrong)
    with pytest.raises(TypeError, match=r"\(\.\.\.\): call it, as in optax.adam"):
        _checks.require_transformation("f", "inner", optax.adam)


def test_what_is_off_is_known_to_be_zero():
    assert _checks.is_off(0)
    assert _checks.is_off(0.0)
    assert _checks.is_off(jnp.zeros(()))
    assert not _checks.is_off(0.5)
    assert not _checks.is_off(-1)
    seen: list[bool] = []
    jax.eval_shape(lambda x: seen.append(_checks.is_off(x)), 0.0)
    assert seen == [False]
