#!/bin/sh
# What: the state of `optax.monitor` has no place for its measurements before the first
#     update, which adds them. So `jax.lax.scan` over training steps raises, `jax.jit`
#     compiles the step twice, and a checkpoint of step 0 is another tree than that of
#     step 1. `optax.snapshot` has a place from the start.
# Hurt: whoever adds a monitor to a loop that scans, or that restores into `tx.init`.
# Guess: `init` and `update` return states of one structure, as those of optax do.
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
watched = {
    "monitor": optax.monitor({"norm": optax.tree.norm}),
    "snapshot": optax.snapshot("norm", optax.tree.norm),
}
params = {"w": jnp.ones(3)}
seen = {}
for name, watch in watched.items():
    tx = optax.chain(watch, optax.sgd(0.1))

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(params, state, params)
        return (optax.apply_updates(params, updates), state), None

    first = params, tx.init(params)
    try:
        jax.lax.scan(step, first, length=3)
        scanned = "runs"
    except TypeError as error:
        scanned = type(error).__name__
    compiled, carry = jax.jit(step), first
    for _ in range(3):
        carry, _ = compiled(carry, None)
    leaves = len(jax.tree.leaves(first[1])), len(jax.tree.leaves(carry[1]))
    seen[name] = scanned, compiled._cache_size(), leaves
    print(f"{name}: scan {scanned}; {seen[name][1]} compilations; leaves {leaves}")
expected = {"monitor": ("TypeError", 2, (0, 1)), "snapshot": ("runs", 1, (1, 1))}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
