#!/bin/sh
# What: `equinox.tree_serialise_leaves` writes JAX arrays of float8 and int4 and NumPy arrays
#     of bfloat16, and `tree_deserialise_leaves` into the very same tree raises. A JAX
#     array of bfloat16 comes back. The file holds them as raw bytes without their type.
# Hurt: whoever saves a quantized model, or keeps bfloat16 weights on the host. Saving is
#     silent, and the file is found unreadable when it is needed.
# Guess: if bfloat16 goes both ways then so do the other small types, or saving raises.
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
    equinox==0.13.8 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5 ml_dtypes==0.6.0

"$folder/venv/bin/python" - "$folder" <<'END'
import io
import sys
from importlib.metadata import version

import equinox as eqx
import jax.numpy as jnp
import ml_dtypes
import numpy as np

print({name: version(name) for name in ("equinox", "jax", "numpy", "ml_dtypes")})
seen = {}
for array in (
    jnp.ones(4, jnp.float32),
    jnp.ones(4, jnp.bfloat16),
    jnp.ones(4, jnp.float8_e4m3fn),
    jnp.ones(4, jnp.int4),
    np.ones(4, ml_dtypes.bfloat16),
):
    file, library = io.BytesIO(), "numpy" if isinstance(array, np.ndarray) else "jax"
    eqx.tree_serialise_leaves(file, {"w": array})
    file.seek(0)
    try:
        result = eqx.tree_deserialise_leaves(file, {"w": array})["w"].dtype.name
    except RuntimeError as error:
        result = "RuntimeError"
    seen[f"{library} {array.dtype}"] = result
    print(f"{library} {array.dtype}, written and read: {result}")
expected = {
    "jax float32": "float32",
    "jax bfloat16": "bfloat16",
    "jax float8_e4m3fn": "RuntimeError",
    "jax int4": "RuntimeError",
    "numpy bfloat16": "RuntimeError",
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
