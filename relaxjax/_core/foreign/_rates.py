"""Rates of links as `tc` spells them, such as 200mbit."""

UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
NUMBER = r"(\d+\.?\d*|\.\d+)"
RATE = rf"{NUMBER}({'|'.join(UNITS)})"
"""A pattern of two groups, the arguments of `bytes_per_second`."""


def bytes_per_second(number: str, unit: str) -> float:
    """The rate in bytes; the unit is one of bits."""
    return float(number) * UNITS[unit] / 8
