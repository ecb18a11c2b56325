#!/bin/sh
# What: the maximum of an array of `float8_e8m0fnu`, the dtype of the block scales of MX
#     formats, is NaN in JAX, and so is the minimum, whatever is in the array. `argmax`
#     says 0, and `jnp.zeros` is full of NaN. NumPy finds the maximum, the minimum and the
#     place in the same array, and its zeros are 2^-127. Sorting is right in both.
# Hurt: whoever brings scales of blocks together, such as a coarser scale from finer ones,
#     a maximum over devices, or the place of the largest block.
# Guess: the dtype has 255 ordered numbers, so that the maximum of three of them is one of
#     the three. (It has no infinity and no zero, from which a reduction could start.)
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
    jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5 ml_dtypes==0.6.0

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

print({name: version(name) for name in ("jax", "numpy", "ml_dtypes")})
scales = np.array([0.5, 1.0, 4.0], np.float32).astype(ml_dtypes.float8_e8m0fnu)
seen = {}
for library in (np, jnp):
    x = library.asarray(scales)
    seen[library.__name__] = {
        "max": str(library.max(x).astype(np.float32)),
        "min": str(library.min(x).astype(np.float32)),
        "argmax": int(library.argmax(x)),
        "sort": np.asarray(library.sort(x)).astype(np.float32).tolist(),
        "zeros": str(library.zeros(2, x.dtype).astype(np.float32)[0]),
    }
jitted = jax.jit(lambda x: jnp.max(x))(jnp.asarray(scales))
seen["jitted"] = {"max": str(jitted.astype(np.float32))}
for name, row in seen.items():
    print(name, row)
sorted_ = [0.5, 1.0, 4.0]
expected = {
    "numpy": {"max": "4.0", "min": "0.5", "argmax": 2, "sort": sorted_}
    | {"zeros": "5.877472e-39"},
    "jax.numpy": {"max": "nan", "min": "nan", "argmax": 0, "sort": sorted_}
    | {"zeros": "nan"},
    "jitted": {"max": "nan"},
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
