"""A mark of truth values that hold in all steps but few, as that gradients are finite.

Whoever follows the counters of a traced update takes them for true. Else nothing were
known of a counter that stays where it is in such a step, nor of what depends on it.
"""

from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

_USUAL = "relaxjax-usual"


def usually() -> AbstractContextManager[Any]:
    """In it, a comparison is traced that is true in a usual step."""
    return jax.named_scope(_USUAL)


def usual(eqn: Any) -> list[np.bool_] | None:
    """The result of an equation of such a comparison; None of any other."""
    truth = eqn.outvars[0].aval.dtype == bool
    return [np.True_] if truth and _USUAL in str(eqn.source_info.name_stack) else None
