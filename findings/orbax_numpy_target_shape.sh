#!/bin/sh
# What: `StandardCheckpointer.restore(path, target)` ignores the shape of a NumPy target. An
#     array of 6 comes back for targets of 8, of (2, 3) and of 0 elements. The same target
#     as a JAX array raises a ValueError about the shape.
# Hurt: whoever restores on the host, as for evaluation or conversion, into the state of a
#     model of another width. It goes on with arrays of the old shape, and NumPy broadcasts.
# Guess: shapes are checked whatever library made the target, since its dtype is honored.
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

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

logging.disable(logging.WARNING)
print({name: version(name) for name in ("orbax-checkpoint", "jax", "numpy")})
checkpointer, path = ocp.StandardCheckpointer(), f"{sys.argv[1]}/six"
checkpointer.save(path, {"w": np.arange(6, dtype=np.float32)})
checkpointer.wait_until_finished()
seen = {}
for shape in ((8,), (2, 3), (0,)):
    for library in (np, jnp):
        try:
            target = {"w": library.zeros(shape, np.float16)}
            restored = checkpointer.restore(path, target)["w"]
            result = f"{restored.dtype}{restored.shape}"
        except ValueError as error:
            result = "ValueError"
        seen[library.__name__, shape] = result
        print(f"target {library.__name__}.zeros({shape}, float16): {result}")
expected = {
    (name, shape): "float16(6,)" if name == "numpy" else "ValueError"
    for name, shape in seen
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
