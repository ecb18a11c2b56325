#!/bin/sh
# What: Orbax refuses to save a tree with one array without elements, of JAX or of NumPy:
#     "Cannot save arrays with zero size", for the whole tree. jax.numpy makes such
#     arrays, and optimizers keep them for leaves without elements. As the process ends,
#     Orbax also prints an error of its closed event loop.
# Hurt: whoever saves a model with an empty leaf (a padding of size 0, an unused head of
#     width 0), or the state of an optimizer beside it: the first save of the run fails.
# Guess: an empty array is an array; NumPy's own formats and safetensors keep it.
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
    orbax-checkpoint==0.12.8 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5 \
    safetensors==0.8.0

"$folder/venv/bin/python" - "$folder" <<'END'
import logging
import sys
from importlib.metadata import version

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from safetensors import numpy as safetensors

logging.disable(logging.CRITICAL)
print({name: version(name) for name in ("orbax-checkpoint", "jax", "safetensors")})
seen = {}
for name, empty in {"jax": jnp.zeros((0, 3)), "numpy": np.zeros((0, 3))}.items():
    checkpointer = ocp.PyTreeCheckpointer()
    try:
        checkpointer.save(f"{sys.argv[1]}/{name}", {"w": jnp.ones(2), "empty": empty})
        seen[name] = "saved"
    except ValueError as error:
        seen[name] = str(error).partition(":")[0][:60]
    print(f"an array of {name}, of shape (0, 3): {seen[name]}")
kept = safetensors.load(safetensors.save({"empty": np.zeros((0, 3))}))["empty"].shape
print("safetensors keeps the shape", kept)
if not all("zero size" in text for text in seen.values()) or kept != (0, 3):
    sys.exit("changed: expected a refusal")
print("holds")
END
