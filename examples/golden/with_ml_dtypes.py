"""ml_dtypes, the narrow floats of NumPy and JAX, beside the golden vectors.

python -m relaxjax.golden --implementation examples.golden.with_ml_dtypes:implementation
"""

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}


def implementation(name: str, config: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """Arrays of a rule, by name."""
    x = inputs.get("x")
    if name == "cast":
        with np.errstate(over="ignore"):
            return {"decoded": x.astype(DTYPES[config["dtype"]]).astype(np.float32)}
    if name == "scaled_float8":
        rows = x.reshape(-1, config["block_size"])
        most = np.abs(rows).max(axis=1, keepdims=True)
        codes = (rows / most * 448).astype(ml_dtypes.float8_e4m3fn)
        return {"decoded": (codes.astype(np.float32) * most / 448).ravel()}
    raise NotImplementedError(name)
