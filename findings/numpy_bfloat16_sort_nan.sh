#!/bin/sh
# What: `np.sort` of a bfloat16 array with a NaN does not sort it. The NaN stays about where
#     it was and the numbers around it stay out of order. `np.unique` inherits that, and
#     `np.median` is a number or NaN, depending on where the NaN was. float16 and
#     float32 put NaN last, and a median with one is NaN.
# Hurt: whoever takes quantiles, medians or thresholds of bfloat16 gradients on the host, as
#     for clipping, and meets one NaN.
# Guess: NaN sorts last, as NumPy documents for floating point numbers.
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
    numpy==2.5.5 ml_dtypes==0.6.0

"$folder/venv/bin/python" - "$folder" <<'END'
import sys
from importlib.metadata import version

import ml_dtypes
import numpy as np

print({name: version(name) for name in ("numpy", "ml_dtypes")})
seen = {}
for dtype in (np.float16, ml_dtypes.bfloat16):
    for values in ([2, np.nan, 1, 0], [np.nan, 1, 3, 2]):
        x = np.array(values, dtype)
        median = str(float(np.median(x)))
        row = str(np.sort(x).astype(float).tolist()), median
        seen[x.dtype.name, str(values)] = row
        print(f"{x.dtype} {values}: sorted, median = {row}")
expected = {
    ("float16", "[2, nan, 1, 0]"): ("[0.0, 1.0, 2.0, nan]", "nan"),
    ("float16", "[nan, 1, 3, 2]"): ("[1.0, 2.0, 3.0, nan]", "nan"),
    ("bfloat16", "[2, nan, 1, 0]"): ("[2.0, nan, 0.0, 1.0]", "nan"),
    ("bfloat16", "[nan, 1, 3, 2]"): ("[nan, 1.0, 2.0, 3.0]", "1.5"),
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
