"""Numbers that stand in the words of a command line.

Cost: O(1).
"""


def number_of(word: str) -> int | float | None:
    """The number that a word spells, an int if it is whole; None for other words."""
    try:
        number = float(word)
    except ValueError:
        return None
    if number != number:
        return None
    return int(number) if number.is_integer() else number
