#!/bin/sh
# What: `np.mean` of a thousand ones in bfloat16 is 0.256. NumPy adds the types of ml_dtypes
#     one after the other in their own precision. The sum stays at 256, and the mean divides
#     it by 1000. It adds its own float16 in float32, as `jnp.mean` does for bfloat16.
# Hurt: whoever averages losses, weights or gradients on the host after `np.asarray`. The
#     figure is plausible and too small, the more so the longer the array.
# Guess: as for float16, or as JAX does; at least pairwise sums.
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
    numpy==2.5.5 ml_dtypes==0.6.0 jax==0.12.0.1 \
    jaxlib==0.12.0.1

"$folder/venv/bin/python" - "$folder" <<'END'
import sys
from importlib.metadata import version

import jax.numpy as jnp
import ml_dtypes
import numpy as np

print({name: version(name) for name in ("numpy", "ml_dtypes", "jax")})
seen = {}
for dtype in (np.float16, ml_dtypes.bfloat16):
    ones = np.ones(1000, dtype)
    seen[ones.dtype.name] = float(np.mean(ones)), float(jnp.mean(jnp.asarray(ones)))
    print(f"mean of 1000 ones, {ones.dtype}: np, jnp = {seen[ones.dtype.name]}")
expected = {"float16": (1.0, 1.0), "bfloat16": (0.255859375, 1.0)}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
