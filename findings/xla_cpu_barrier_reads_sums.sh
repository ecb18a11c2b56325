#!/bin/sh
# What: on CPU, a compiled program gives wrong numbers where a sum is reshaped, goes
#     through `lax.optimization_barrier`, is read from other rows, and is added to that:
#     rows are read after they have been overwritten. Without `jax.jit`, without the
#     reshape, or without the barrier it is right, and so it is with jax 0.10.2.
#     `jax.checkpoint` puts such a barrier where nobody has written one.
# Hurt: whoever orders work by barriers, as libraries of collectives do, and tests it by
#     `vmap` on a CPU, or takes gradients through `jax.checkpoint` there: the numbers are
#     finite and of the right size.
# Guess: a barrier changes no number.
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
    jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

print({name: version(name) for name in ("jax", "jaxlib", "numpy")})
before = jnp.array([3, 0, 1, 2])


def with_the_row_before(x, y, barrier, reshaped):
    total = x + y
    rows = total.reshape(4, -1) if reshaped else total
    if barrier:
        rows = lax.optimization_barrier(rows)
    return total + rows[before].reshape(total.shape)


x = jnp.arange(24.0).reshape(4, 2, 3)
y = jnp.ones((4, 2, 3))
right = np.asarray(x + y) + np.roll(np.asarray(x + y), 1, axis=0)
jitted = jax.jit(with_the_row_before, static_argnums=(2, 3))
off = {}
for barrier in (True, False):
    for reshaped in (True, False):
        for name, run in {"jit": jitted, "eager": with_the_row_before}.items():
            found = np.asarray(run(x, y, barrier, reshaped))
            off[name, barrier, reshaped] = float(np.abs(found - right).max())
            print(f"{name}, barrier={barrier}, reshaped={reshaped}: off by", end=" ")
            print(off[name, barrier, reshaped])
wrong = {how for how, by in off.items() if by}
if wrong != {("jit", True, True)}:
    sys.exit(f"changed: wrong where {wrong}")


def with_a_gradient(x, y, checkpointed):
    def product(rows):
        return jnp.sum(rows * jnp.roll(lax.stop_gradient(rows), 7, axis=0))

    total, loss = x + y, jax.checkpoint(product) if checkpointed else product
    return total + jax.grad(lambda x: loss(x.reshape(-1, 16)))(total)


x = jnp.arange(4.0 * 24 * 16).reshape(4, 24, 16)
y = jnp.ones((4, 24, 16))
rows = np.asarray(x + y).reshape(-1, 16)
right = (rows + np.roll(rows, 7, axis=0)).reshape(x.shape)
off = {}
for checkpointed in (True, False):
    found = np.asarray(jax.jit(with_a_gradient, static_argnums=2)(x, y, checkpointed))
    off[checkpointed] = float(np.abs(found - right).max())
    print(f"jit, jax.checkpoint={checkpointed}: off by {off[checkpointed]}")
if not off[True] or off[False]:
    sys.exit(f"changed: off by {off}")
print("holds")
END
