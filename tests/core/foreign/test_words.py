"""Numbers in the words of a command line."""

import math

import pytest

from relaxjax._core.foreign._words import number_of


@pytest.mark.parametrize(
    ("word", "number"),
    [("3", 3), ("-2", -2), ("4.0", 4), ("1e3", 1000), ("0.5", 0.5), ("inf", math.inf)],
)
def test_a_whole_number_is_an_int(word, number):
    found = number_of(word)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize("word", ["", "x", "nan", "-nan", "1,5", "0x10"])
def test_other_words_are_no_numbers(word):
    assert number_of(word) is None
