#!/bin/sh
# What: `optax.MultiSteps` clears what it has added up by a product with 0. After one
#     mini-batch with a NaN it stays NaN, so that `optax.apply_if_finite` inside of it
#     leaves out every later step, and gives up in the end: the params become NaN.
# Hurt: whoever accumulates gradients and trusts `apply_if_finite` with a rare NaN.
# Guess: the step with the NaN is left out, and training goes on.
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
every, patience = 2, 3
batches = [1.0, 1.0, float("nan"), *[1.0] * 13]


def trained(tx, batches):
    params = jnp.zeros(())
    state, seen = tx.init(params), []
    for gradient in batches:
        updates, state = tx.update(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        seen.append(float(params))
    return seen


inside = optax.apply_if_finite(optax.sgd(1.0), patience)
accumulated = trained(optax.MultiSteps(inside, every), batches)
# The same sums, made by hand: one step of the inner optimizer for every two batches.
sums = np.mean(np.reshape(batches, (-1, every)), axis=1)
expected = trained(inside, sums)
print("params after each step, accumulated by optax:", accumulated[every - 1 :: every])
print("params after each step, accumulated by hand: ", expected)
found = accumulated[every - 1 :: every]
stuck = found[: 1 + patience] == [-1.0] * (1 + patience)
if not (stuck and np.isnan(found[-1]) and expected[-1] == -7.0):
    sys.exit("changed: the accumulator begins anew after a NaN")
print("holds")
END
