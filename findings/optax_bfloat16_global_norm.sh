#!/bin/sh
# What: `optax.global_norm` adds up the leaves in their own dtype. A thousand leaves of
#     bfloat16 with a one in each have the norm 16 instead of 31.6, since 256 + 1 is 256
#     there, and `optax.clip_by_global_norm(20)` does not clip them.
# Hurt: whoever clips bfloat16 gradients of a model with many arrays: large gradients
#     pass, and the more leaves a model has, the more of them.
# Guess: the sum is taken in float32, as `jnp.sum` takes it within a leaf.
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
    optax==0.2.8 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax.numpy as jnp
import numpy as np
import optax

print({name: version(name) for name in ("optax", "jax", "numpy")})


def measured(leaves, dtype):
    """The norm of so many leaves with a one in each, and that after a clip at 20."""
    gradients = {str(i): jnp.ones((), dtype) for i in range(leaves)}
    clip = optax.clip_by_global_norm(20.0)
    clipped, _ = clip.update(gradients, clip.init(gradients))
    exact = np.sqrt(sum(float(x) ** 2 for x in clipped.values()))
    return float(optax.global_norm(gradients)), float(exact)


for leaves in (100, 400, 1000):
    by_dtype = {x: measured(leaves, x) for x in ("bfloat16", "float32")}
    print(f"{leaves} leaves: norm, and norm after a clip at 20:", by_dtype)
said, left = by_dtype["bfloat16"]
right, clipped = by_dtype["float32"]
if not (said == 16 and left > 31 and right > 31 and abs(clipped - 20) < 1e-3):
    sys.exit("changed: the norm of bfloat16 leaves is that of float32")
print("holds")
END
