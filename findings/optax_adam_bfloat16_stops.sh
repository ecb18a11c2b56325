#!/bin/sh
# What: Adam of optax keeps its second moment in the dtype of the params. In bfloat16 it
#     stops half-way: of a gradient that is 1 in each step it stays 0.5, while the
#     correction of its bias goes to 1. The step grows to 1.35 times its size.
# Hurt: whoever trains in bfloat16 throughout: `mu_dtype` exists for the first moment,
#     and nothing exists for the second. Rates that were tuned in a short run are too
#     large in a long one.
# Guess: the step of a constant gradient is the learning rate, in any dtype.
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

import jax
import jax.numpy as jnp
import optax

print({name: version(name) for name in ("optax", "jax", "numpy")})


def steps(dtype, count=3000):
    """The size of a step of Adam with rate 1, by the number of steps."""
    tx = optax.scale_by_adam()
    gradient = jnp.ones((), dtype)
    state, update, seen = tx.init(gradient), jax.jit(tx.update), {}
    for i in range(1, count + 1):
        step, state = update(gradient, state)
        if i in (1, 100, 1000, count):
            seen[i] = round(float(step), 3)
    return seen, float(state.nu)


(narrow, nu), (wide, right) = steps("bfloat16"), steps("float32")
print("bfloat16: step by its number", narrow, "second moment", nu)
print("float32:  step by its number", wide, "second moment", round(right, 3))
if not (nu == 0.5 and narrow[3000] > 1.3 and abs(wide[3000] - 1) < 1e-3):
    sys.exit("changed: the second moment of bfloat16 params goes on")
print("holds")
END
