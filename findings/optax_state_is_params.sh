#!/bin/sh
# What: `init` of several optimizers puts the parameters themselves into the state: dog,
#     dowg, prodigy, cocob, madgrad, mechanize. A step that donates its state by
#     `donate_argnums` raises on its first call. `jax.jit(tx.init)` or a copy of the fresh
#     state helps.
# Hurt: whoever donates to save memory, and swaps adam for one of these in one
#     line. The error counts flattened arguments and names no optimizer.
# Guess: a state owns its arrays. The states of schedule_free and adam do.
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

"$folder/venv/bin/python" - "$folder" <<'END'
import os
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import optax
from optax import contrib

print({name: version(name) for name in ("optax", "jax", "numpy")})
optimizers = {
    "dog": contrib.dog(),
    "dowg": contrib.dowg(),
    "prodigy": contrib.prodigy(),
    "cocob": contrib.cocob(),
    "madgrad": contrib.madgrad(1e-2),
    "mechanize": contrib.mechanize(optax.sgd(1e-2)),
    "schedule_free": contrib.schedule_free_sgd(1e-2),
    "adam": optax.adam(1e-2),
}
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the runtime logs each refusal there


def first_step(tx, init, own=lambda state: state):
    params = {"w": jnp.ones((4, 4))}
    step = jax.jit(lambda p, s: tx.update(p, s, p), donate_argnums=1)
    try:
        step(params, own(init(params)))
    except jax.errors.JaxRuntimeError as error:
        return str(error).split(":")[0]
    return "runs"


seen = {}
for name, tx in optimizers.items():
    copied = first_step(tx, tx.init, lambda state: jax.tree.map(jnp.copy, state))
    seen[name] = first_step(tx, tx.init), first_step(tx, jax.jit(tx.init)), copied
    print(f"{name}: init, jit of init, copied state: {seen[name]}")
refused = "INVALID_ARGUMENT", "runs", "runs"
expected = dict.fromkeys(optimizers, refused)
expected["schedule_free"] = expected["adam"] = "runs", "runs", "runs"
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
