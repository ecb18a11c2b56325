"""How many of so many elements a density keeps."""

import math


def check_density(density: float, caller: str) -> None:
    """Raises ValueError unless in (0, 1]."""
    if not 0 < density <= 1:
        raise ValueError(
            f"{caller}: density={density} must be in (0, 1], the share of the elements "
            "that is sent: 0.01 sends one in a hundred"
        )


def count_of(density: float, size: int) -> int:
    """The product, rounded up, at least 1 (of no elements, none)."""
    exact = density * size * (1 - 1e-12)  # 0.07 * 100 is a little more than 7
    return min(size, max(1, math.ceil(exact)))
