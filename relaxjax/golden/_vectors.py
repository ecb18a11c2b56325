"""Golden vectors as data: small inputs, and what each rule makes of them.

They are in `vectors.json` beside this file, computed in float64 by slow NumPy that a
person can check (`tests/golden/references.py`):

    {"format": 1, "vectors": [{"name", "function", "config", "inputs", "outputs",
                               "rtol", "atol", "source"}, ...]}

Inputs are float32 numbers, spelled exactly; arrays are nested lists. A vector whose
meaning changes gets a new name; a change of the layout, another `format`.
"""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relaxjax._core.foreign._folders import local_path
from relaxjax._core.foreign._json import LARGE, read_json
from relaxjax._core.foreign._types import Each, wrong

FORMAT = 1
_VECTORS = Path(__file__).parent / "vectors.json"


class Vector(NamedTuple):
    """One golden vector.

    Attributes:
      name: its own name.
      function: the name of the rule.
      config: the rule's parameters.
      inputs: float32 arrays by name.
      outputs: float64 arrays by name.
      rtol: allowed error of an output, relative to its own magnitude.
      atol: allowed absolute error, added to that.
      source: the source of the rule, and of the numbers if they are published.
    """

    name: str
    function: str
    config: dict[str, Any]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    rtol: float
    atol: float
    source: str


_ROW = dict.fromkeys(("name", "function", "source"), str)
_ROW |= dict.fromkeys(("config", "inputs", "outputs"), Each(object))
_ROW |= dict.fromkeys(("rtol", "atol"), float)
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def load(path: str | PathLike[str] | None = None) -> list[Vector]:
    """Reads golden vectors.

    Args:
      path: a JSON file; None means the vectors of this package.

    Raises:
      ValueError: the file is not JSON, or has another format.
      OSError: it cannot be read.

    Example:
      >>> from relaxjax import golden
      >>> (vector,) = [v for v in golden.load() if v.name == "sign, a zero"]
      >>> vector.inputs["x"].tolist(), vector.outputs["decoded"].tolist()
      ([1.0, 0.0, -5.0], [2.0, 2.0, -2.0])
    """
    path = local_path("golden.load", "path", path or _VECTORS)
    try:
        file = read_json(path, LARGE)
    except ValueError as error:
        raise ValueError(
            f"golden: {path} is not JSON that can be read: {error}"
        ) from error
    version = file.get("format") if isinstance(file, dict) else None
    if version != FORMAT:
        raise ValueError(
            f"golden: {path} has format {version!r}, and this runner reads {FORMAT}; "
            "take the runner of the release that wrote it"
        )
    rows = file.get("vectors")
    if not isinstance(rows, list):
        raise ValueError(f"golden: {path} has no list of 'vectors'")
    found = []
    for number, row in enumerate(rows):
        try:
            if says := wrong(_ROW, row):
                raise ValueError(says)
            with np.errstate(over="raise"):
                found.append(_vector(row))
        except _UNREADABLE as error:
            raise ValueError(
                f"golden: {path}: vector {number} cannot be read ({error!r}); each has "
                f"{', '.join(Vector._fields)}"
            ) from error
    return found


def _vector(row: dict[str, Any]) -> Vector:
    inputs = {name: np.asarray(x, np.float32) for name, x in row["inputs"].items()}
    outputs = {name: np.asarray(x, np.float64) for name, x in row["outputs"].items()}
    return Vector(**(row | {"inputs": inputs, "outputs": outputs}))


Arrays = Mapping[str, Any]
Implementation = Callable[[str, dict[str, Any], dict[str, np.ndarray]], Arrays]


class Outcome(NamedTuple):
    """The result of an implementation on a vector.

    Attributes:
      name: the vector's name.
      status: "pass", "differs", "not covered", or "error".
      error: the largest absolute difference over all outputs; NaN if nothing could be
        compared.
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
      vectors: golden vectors, see `load`.

    Example:
      >>> from relaxjax import golden
      >>> some = [v for v in golden.load() if v.name.startswith("sign")]
      >>> rows = golden.compare(golden.implementation, some)
      >>> {row.status for row in rows}
      {'pass'}
    """
    return [_outcome(implementation, vector) for vector in vectors]


def _outcome(implementation: Implementation, vector: Vector) -> Outcome:
    inputs = {name: x.copy() for name, x in vector.inputs.items()}
    try:
        outputs = implementation(vector.function, dict(vector.config), inputs)
        known = [name for name in vector.outputs if name in outputs]
        if not known:
            raise KeyError(f"it returned none of {', '.join(vector.outputs)}")
        arrays = {name: _real(name, outputs[name]) for name in known}
    except NotImplementedError:
        return Outcome(vector.name, "not covered", np.nan, "")
    except (Exception, SystemExit) as error:  # whatever others raise
        detail = f"{type(error).__name__}: {error}"
        return Outcome(vector.name, "error", np.nan, detail)
    return _judged(vector, arrays)


def _real(name: str, output: Any) -> np.ndarray:
    if np.iscomplexobj(output):
        raise TypeError(f"{name} is complex, and all golden vectors are real")
    return np.asarray(output, np.float64)


def _judged(vector: Vector, arrays: dict[str, np.ndarray]) -> Outcome:
    worst, wrong = [0.0], []
    for name, x in arrays.items():
        expected = vector.outputs[name]
        if x.shape != expected.shape:
            detail = f"{name} has shape {x.shape}, not {expected.shape}"
            return Outcome(vector.name, "differs", np.nan, detail)
        off = np.abs(x - expected)
        worst.append(np.max(off, initial=0.0))  # a NaN stays one
        allowed = vector.atol + vector.rtol * np.abs(expected)
        bad = np.argwhere(~(off <= allowed))
        if len(bad):
            at = tuple(bad[0].tolist())
            wrong.append(f"{name}{list(at)} is {x[at]:.7g}, not {expected[at]:.7g}")
    status = "differs" if wrong else "pass"
    return Outcome(vector.name, status, float(np.max(worst)), "; ".join(wrong))
