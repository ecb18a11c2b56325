#!/bin/sh
# What: `flax.nnx.Optimizer` makes `nnx.State` of the lists in an optimizer's state in its
#     first update. optax's `sm3` keeps lists, so that the state after a step is another
#     tree than before, and `jax.lax.scan` over steps raises.
# Hurt: whoever scans over steps, or compares the trees of two checkpoints, and swaps
#     adam for sm3 in one line.
# Guess: an update keeps the structure of the optimizer, as it does for adam, whose state
#     has tuples and dicts.
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
    flax==0.12.12 optax==0.2.8 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import optax
from flax import nnx

print({name: version(name) for name in ("flax", "optax", "jax", "numpy")})


def step(carry, _):
    model, optimizer = carry
    grads = nnx.grad(lambda model: model(jnp.ones((1, 3))).sum())(model)
    optimizer.update(model, grads)
    return (model, optimizer), None


def fresh(tx):
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    return model, nnx.Optimizer(model, tx, wrt=nnx.Param)


seen = {}
for name, tx in {"sm3": optax.sm3(0.1), "adam": optax.adam(0.1)}.items():
    try:
        jax.lax.scan(step, fresh(tx), length=3)
        scanned = "runs"
    except TypeError as error:
        scanned = type(error).__name__
    compiled, carry = jax.jit(step), fresh(tx)
    before = jax.tree.structure(carry)
    for _ in range(3):
        carry, _ = compiled(carry, None)
    seen[name] = scanned, before == jax.tree.structure(carry)
    print(f"{name}: scan {scanned}; the same tree: {seen[name][1]}")
expected = {"sm3": ("TypeError", False), "adam": ("runs", True)}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
