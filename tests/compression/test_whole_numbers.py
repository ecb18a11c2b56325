"""Whole numbers of compressors: one of another type is named where it is given."""

import inspect
from typing import Any

import jax.numpy as jnp
import pytest

from relaxjax import compression


def whole_numbers() -> dict[str, tuple[Any, str, int]]:
    """Each public function's arguments that are whole numbers, and a right value."""
    found = {}
    for name in compression.__all__:
        function = getattr(compression, name)
        if not inspect.isfunction(function):
            continue
        for parameter in inspect.signature(function).parameters.values():
            if parameter.annotation in (int, int | None):
                given = RIGHT.get(parameter.name, parameter.default)
                found[f"{name}: {parameter.name}"] = function, parameter.name, given
    return found


RIGHT = {
    "bits": 4,
    "levels": 7,
    "capacity": 16,
    "block_size": 128,
    "value": 0.1,
    "density": 0.5,
    "dtype": jnp.bfloat16,
    "compressor": compression.quantize(8),
}
WHOLE = whole_numbers()


def test_whole_numbers_were_found():
    assert {"quantize: bits", "qsgd: levels", "top_k: block_size"} <= {*WHOLE}
    assert len(WHOLE) > 12


@pytest.mark.parametrize("kind", [float, str])
@pytest.mark.parametrize("label", WHOLE)
def test_a_number_of_another_type_is_named(label, kind):
    """8.0 made codes that were no integers, and "8" was no argument's fault."""
    function, name, value = WHOLE[label]
    needed = {
        p.name: RIGHT[p.name]
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty
    }
    with pytest.raises(ValueError, match=f"{name}={kind(value)!r}.* must be "):
        function(**{**needed, name: kind(value)})
    function(**{**needed, name: value})
