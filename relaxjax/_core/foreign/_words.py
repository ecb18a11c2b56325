"""Numbers as words: those of a command line, and those of tables.

Cost: O(1).
"""


def fixed(value: float, places: int) -> str:
    """So many decimals; two digits of a number of which that would leave zeros.

    Example:
      >>> from relaxjax._core.foreign._words import fixed
      >>> fixed(1.25, 1), fixed(0.000438, 3), fixed(0.0, 3)
      ('1.2', '0.00044', '0.000')
    """
    text = f"{value:.{places}f}"
    if value == 0 or float(text) or abs(value) < 1e-12:
        return text
    figures = f"{value:.1e}"
    return f"{float(figures):.{1 - int(figures.partition('e')[2])}f}"


def number_of(word: str) -> int | float | None:
    """The number that a word spells, an int if it is whole; None for other words."""
    try:
        number = float(word)
    except ValueError:
        return None
    if number != number:
        return None
    return int(number) if number.is_integer() else number
