#!/bin/sh
# What: Orbax saves a leaf that is a NumPy scalar (float32, int32, bool) and then refuses to
#     restore it with the same state as the target: "Unsupported type". float64 comes
#     back, since it is a Python float as well. Without a target each is a 0-d array.
# Hurt: whoever has a step, a best loss or a flag from NumPy in the state. Saving works for
#     days, and the resume after the failure does not.
# Guess: the state that was saved is a valid target, or `save` raises.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>&1 && break
done >"$folder/log"
"$python" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 JAX_PLATFORMS=cpu
"$folder/venv/bin/pip" install -qq \
    orbax-checkpoint==0.12.8 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5

"$folder/venv/bin/python" - "$folder" <<'END'
import logging
import sys
from importlib.metadata import version

import numpy as np
import orbax.checkpoint as ocp

logging.disable(logging.WARNING)
print({name: version(name) for name in ("orbax-checkpoint", "jax", "numpy")})
checkpointer, seen = ocp.StandardCheckpointer(), {}
for value in (np.float32(2.5), np.int32(3), np.bool_(True), np.float64(2.5)):
    state, name = {"w": np.ones(2), "x": value}, type(value).__name__
    path = f"{sys.argv[1]}/{name}"
    checkpointer.save(path, state)
    checkpointer.wait_until_finished()
    free = checkpointer.restore(path)["x"]
    try:
        result = type(checkpointer.restore(path, state)["x"]).__name__
    except ValueError as error:
        result = str(error)[:50]
    seen[name] = type(free).__name__, result.split(":")[0]
    print(f"{value!r}: without a target {free!r}, with itself as target: {result}")
refused = "ndarray", "Unsupported type"
expected = {"float32": refused, "int32": refused, "bool": refused}
expected["float64"] = "ndarray", "float64"
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
