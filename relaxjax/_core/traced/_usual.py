"""A mark of a truth value that holds in all but a few steps, such as finite gradients.

Whoever follows the counters of a traced update takes it for true. Otherwise nothing
would be known of a counter that stays where it is in such a step.
"""

from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

_USUAL = "relaxjax-usual"


def usually() -> AbstractContextManager[Any]:
    """In it, one comparison is traced, which is true in a usual step."""
    return jax.named_scope(_USUAL)


def usual(eqn: Any) -> list[np.bool_] | None:
    """The result of an equation that compares so; None of any other."""
    if _USUAL not in str(eqn.source_info.name_stack).rpartition("/")[2]:
        return None
    return [np.True_] if eqn.outvars[0].aval.dtype == bool else None
