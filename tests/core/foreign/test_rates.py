"""Rates of links: the same spellings wherever one is given."""

import re

import pytest

from relaxjax._core.foreign._rates import RATE, bytes_per_second
from relaxjax.cli._run import bytes_of
from relaxjax.compare.study._seconds import link_of

SPELLED = {
    "8bit": 1.0,
    "200mbit": 25e6,
    "1.5gbit": 187.5e6,
    ".5kbit": 62.5,
    "1.gbit": 125e6,
}


@pytest.mark.parametrize(("text", "rate"), SPELLED.items())
def test_a_rate_is_read_in_bytes(text, rate):
    match = re.fullmatch(RATE, text)
    assert match
    assert bytes_per_second(*match.groups()) == rate
    assert link_of(f"{text},10ms").bandwidth == rate


@pytest.mark.parametrize(
    "text", ["", "5", "mbit", "1.2.3mbit", ".mbit", "-1mbit", "1 mbit", "1mb", "infbit"]
)
def test_other_spellings_are_none(text):
    assert re.fullmatch(RATE, text) is None
    with pytest.raises(ValueError, match="as in 1gbit,10ms"):
        link_of(f"{text},10ms")
    with pytest.raises(ValueError, match="as in 200mbit"):
        bytes_of(text)
