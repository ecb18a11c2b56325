#!/bin/sh
# What: on CPU, a program that cuts a vector at 200 constant positions and does the same
#     arithmetic to each piece takes several times as long to compile as the same program
#     whose positions come out of `lax.optimization_barrier`. XLA compiles computations
#     once that differ in their operands alone; a constant position is a part of the
#     computation, and so each slice is compiled for itself, with all that is fused to it.
# Hurt: whoever keeps a model's parameters or gradients in one flat vector, or packs many
#     arrays into one message: most of the time before a first step is spent there.
# Guess: constant positions are the easy case for a compiler, and values that it cannot see
#     can only cost more.
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
import os
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

print({name: version(name) for name in ("jax", "jaxlib", "numpy")})
PIECES, SIZE = 200, 64
starts = tuple(np.int32(SIZE * i) for i in range(PIECES))


def arithmetic(pieces):
    return [jnp.tanh(x) * jnp.sqrt(1 + x * x) for x in pieces]


def seen(flat):
    return arithmetic([jax.lax.dynamic_slice(flat, (i,), (SIZE,)) for i in starts])


def hidden(flat):
    places = jax.lax.optimization_barrier(starts)
    return arithmetic([jax.lax.dynamic_slice(flat, (i,), (SIZE,)) for i in places])


def seconds(function, flat):
    lowered = jax.jit(function).lower(flat)
    before = os.times()
    compiled = lowered.compile()
    after = os.times()
    spent = after.user + after.system - before.user - before.system
    return spent, compiled


flat = jnp.arange(PIECES * SIZE, dtype=jnp.float32) / (PIECES * SIZE)
seconds(lambda x: x + 1, flat)
(by_constants, one), (by_values, other) = seconds(seen, flat), seconds(hidden, flat)
same = all(bool((a == b).all()) for a, b in zip(one(flat), other(flat), strict=True))
print("results equal to the bit:", same)
print("at least twice the processor time by constants:", by_constants > 2 * by_values)
print(f"processor seconds here: constants {by_constants:.2f}, values {by_values:.2f}")
if not same or by_constants <= 2 * by_values:
    sys.exit("changed: expected equal results, and twice the time or more by constants")
print("holds")
END
