"""An implementation beside the golden vectors.

An implementation is one function,

    function(name, config, inputs) -> outputs

of the rule's name, its parameters and NumPy arrays by name, that returns arrays by
name. It raises NotImplementedError for what it does not do; outputs that it leaves out
are not compared, but one at least must be there.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from relaxjax.golden._vectors import Vector

Arrays = Mapping[str, Any]
Implementation = Callable[[str, dict[str, Any], dict[str, np.ndarray]], Arrays]


class Outcome(NamedTuple):
    """What an implementation made of a vector.

    Attributes:
      name: of the vector.
      status: "pass", "differs", "not covered", or "error".
      error: the largest absolute difference over all outputs; NaN where there is none.
      detail: what differs, or what was raised; empty for a pass.
    """

    name: str
    status: str
    error: float
    detail: str


def compare(implementation: Implementation, vectors: Iterable[Vector]) -> list[Outcome]:
    """Tries an implementation on golden vectors.

    Args:
      implementation: `function(name, config, inputs) -> outputs`.
      vectors: as of `load`.

    Example:
      >>> from relaxjax import golden
      >>> rows = golden.compare(golden.implementation, golden.load())
      >>> sorted({row.status for row in rows})
      ['not covered', 'pass']
    """
    return [_outcome(implementation, vector) for vector in vectors]


def _outcome(implementation: Implementation, vector: Vector) -> Outcome:
    inputs = {name: x.copy() for name, x in vector.inputs.items()}
    try:
        found = implementation(vector.function, dict(vector.config), inputs)
        known = [name for name in vector.outputs if name in found]
        if not known:
            raise KeyError(f"it returned none of {', '.join(vector.outputs)}")
        given = {name: np.asarray(found[name], np.float64) for name in known}
    except NotImplementedError:
        return Outcome(vector.name, "not covered", np.nan, "")
    except Exception as error:  # whatever somebody's implementation raises
        said = f"{type(error).__name__}: {error}"
        return Outcome(vector.name, "error", np.nan, said)
    return _judged(vector, given)


def _judged(vector: Vector, given: dict[str, np.ndarray]) -> Outcome:
    worst, wrong = [0.0], []
    for name, found in given.items():
        expected = vector.outputs[name]
        if found.shape != expected.shape:
            said = f"{name} has shape {found.shape}, not {expected.shape}"
            return Outcome(vector.name, "differs", np.nan, said)
        off = np.abs(found - expected)
        worst.append(np.max(off, initial=0.0))  # a NaN stays one
        allowed = vector.atol + vector.rtol * np.abs(expected)
        bad = np.argwhere(~(off <= allowed))
        if len(bad):
            at = tuple(bad[0].tolist())
            wrong.append(f"{name}{list(at)} is {found[at]:.7g}, not {expected[at]:.7g}")
    status = "differs" if wrong else "pass"
    return Outcome(vector.name, status, float(np.max(worst)), "; ".join(wrong))
