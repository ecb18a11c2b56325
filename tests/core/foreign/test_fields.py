"""Each check of a field of plain data, at its edges, and the words of its error."""

import math
from typing import Any

import numpy as np
import pytest

from relaxjax._core.foreign import _fields
from relaxjax._core.foreign._ranges import PREDICTED, PROCESSES


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
        getattr(_fields, f"check_{check}")("n", value)


def test_fields_of_plain_data_that_pass():
    count = _fields.check_count("n", np.int64(1))
    assert (count, type(count)) == (1, int)
    assert _fields.check_count("n", 0, least=0) == 0
    seconds = _fields.check_seconds("n", 0)
    assert (seconds, type(seconds)) == (0.0, float)
    assert _fields.check_seconds("n", 0.5) == 0.5
    _fields.check_bytes("n", 0)
    _fields.check_bytes("n", 0.5)
    _fields.check_bytes("n", 2, least=2)
    with pytest.raises(ValueError, match="at least 2 and finite"):
        _fields.check_bytes("n", 1, least=2)
    with pytest.raises(ValueError, match=r"^n must be at least 2, got 1: give more$"):
        _fields.check_count("n", 1, least=2, remedy="give more")
    with pytest.raises(TypeError, match=r"got 'x': give more$"):
        _fields.check_count("n", "x", remedy="give more")


def test_rates_are_positive_numbers():
    _fields.check_rate("n", "bytes/s", 0.5)
    _fields.check_rate("n", "bytes/s", math.inf)
    for bad in (0, -1, math.nan):
        with pytest.raises(ValueError, match=r"^n must be > 0 bytes/s"):
            _fields.check_rate("n", "bytes/s", bad)
    with pytest.raises(ValueError, match=r"^n must be a number of .* 2\*\*1024"):
        _fields.check_rate("n", "bytes/s", 10**400)
    wrong: Any = "1"
    with pytest.raises(TypeError, match=r"^n must be a number of bytes/s, got '1'"):
        _fields.check_rate("n", "bytes/s", wrong)


def test_fields_of_a_range():
    assert _fields.check_count("n", 1024, among=PROCESSES) == 1024
    with pytest.raises(ValueError, match=r"^n must be .*1024.*, got 1025: start fewer"):
        _fields.check_count("n", 1025, remedy="start fewer", among=PROCESSES)
    with pytest.raises(ValueError, match=r"^n must be .* seconds, got 2000000000.0"):
        _fields.check_seconds("n", 2e9)
    assert _fields.check_seconds("n", 2e9, PREDICTED) == 2e9
    with pytest.raises(ValueError, match=r"^n must be .* bytes/s, got 1e-10"):
        _fields.check_rate("n", "bytes/s", 1e-10)
    with pytest.raises(ValueError, match=r"^n must be .*, got 2e\+24$"):
        _fields.check_bytes("n", 2e24)
