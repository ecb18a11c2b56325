"""Golden vectors as data: small inputs, and what each rule makes of them.

They are in `vectors.json` beside this file, computed in float64 by slow NumPy that a
person can check (`tests/golden/references.py`):

    {"format": 1, "vectors": [{"name", "function", "config", "inputs", "outputs",
                               "rtol", "atol", "source"}, ...]}

Inputs are float32 numbers, spelled exactly; arrays are nested lists. A change of what a
vector says gets a new name; a change of the layout, another `format`.
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1
_OWN = Path(__file__).parent / "vectors.json"


class Vector(NamedTuple):
    """One golden vector.

    Attributes:
      name: of the vector.
      function: the rule that it is of.
      config: the rule's parameters.
      inputs: float32 arrays by name.
      outputs: float64 arrays by name.
      rtol: how far an output may be off, relative to its own magnitude.
      atol: and besides, absolute.
      source: of the rule, and of the numbers where they are published.
    """

    name: str
    function: str
    config: dict[str, Any]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    rtol: float
    atol: float
    source: str


def load(path: str | PathLike[str] | None = None) -> list[Vector]:
    """Reads golden vectors.

    Args:
      path: of a JSON file; None means those of this package.

    Raises:
      ValueError: the file is not JSON, or has another format.
      OSError: it cannot be read.

    Example:
      >>> from relaxjax import golden
      >>> (found,) = [v for v in golden.load() if v.name == "sign, a zero"]
      >>> found.inputs["x"].tolist(), found.outputs["decoded"].tolist()
      ([1.0, 0.0, -5.0], [2.0, 2.0, -2.0])
    """
    path = Path(path or _OWN)
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"golden: {path} is not JSON: {error}") from error
    version = found.get("format") if isinstance(found, dict) else None
    if version != FORMAT:
        raise ValueError(
            f"golden: {path} has format {version!r}, and this runner reads {FORMAT}; "
            "take the runner of the release that wrote it"
        )
    return [_vector(row) for row in found["vectors"]]


def _vector(row: dict[str, Any]) -> Vector:
    inputs = {name: np.asarray(x, np.float32) for name, x in row["inputs"].items()}
    outputs = {name: np.asarray(x, np.float64) for name, x in row["outputs"].items()}
    return Vector(**(row | {"inputs": inputs, "outputs": outputs}))
