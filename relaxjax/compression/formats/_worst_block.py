"""The largest share of a block's squared norm that rounding to given values loses."""

import numpy as np


def worst_ratio(
    values: np.ndarray, low: float, high: float, width: int, *, floor: float = 0.0
) -> float:
    """max (e(M)^2 + n e(a)^2) / (M^2 + n a^2), n = width - 1, low <= M <= high, a <= M.

    Args:
      values: float64[k], magnitudes that a code can say, in order.
      low: the least that the largest element may be, in units of the scale.
      high: the most, which saturates if it is larger than all values.
      width: number of elements of the block.
      floor: other elements that are smaller than this count as zero.

    Example:
      >>> import numpy as np
      >>> from relaxjax.compression.formats._worst_block import worst_ratio
      >>> round(worst_ratio(np.array([0.0, 1.0, 2.0]), 2.0, 2.0, 2), 4)
      0.0588
    """
    middles = (values[1:] + values[:-1]) / 2
    errors = (values[1:] - values[:-1]) / 2
    inside = (middles >= low) & (middles <= high)
    ends = np.array([low, high])
    to_value = np.abs(ends[:, None] - values).min(axis=1)
    tops = np.concatenate([middles[inside], ends])
    lost = np.concatenate([errors[inside], to_value])
    others = np.concatenate([middles, [high]])
    missed = np.concatenate([errors, to_value[1:]])
    n = width - 1
    above = lost[:, None] ** 2 + n * missed**2
    below = tops[:, None] ** 2 + n * others**2
    allowed = (others <= tops[:, None]) & (others >= floor)
    alone = (lost / tops) ** 2
    return float(max(np.where(allowed, above / below, 0).max(), alone.max()))
