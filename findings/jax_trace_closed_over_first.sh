#!/bin/sh
# What: `jax.jit(f).trace(...)` inside another trace lists the arrays of that trace which
#     f is closed over as its first inputs: a function of two arguments has a jaxpr of
#     three. `jax.make_jaxpr` of the same function has them as constants, and so has the
#     trace outside of any other.
# Hurt: whoever pairs the inputs of the jaxpr with the arguments, as for an analysis or a
#     rewrite: all of them are one off as soon as a user jits the caller.
# Guess: what a function is closed over is a constant of its jaxpr, in a trace too.
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

print({name: version(name) for name in ("jax", "numpy")})
counts = {}


def around(rate):
    def step(weights, batch):
        return weights - rate * batch.sum(0)

    given = jnp.ones(3), jnp.ones((4, 3))
    traced = jax.jit(step).trace(*given).jaxpr.jaxpr
    made = jax.make_jaxpr(step)(*given).jaxpr
    for name, jaxpr in (("jit.trace", traced), ("make_jaxpr", made)):
        shapes = [var.aval.shape for var in jaxpr.invars]
        counts[name] = len(shapes), len(jaxpr.constvars)
        print(f"  {name}: inputs {shapes}, {len(jaxpr.constvars)} constants")
    return rate


print("closed over a number of a trace around it:")
jax.jit(around)(0.1)
inside = dict(counts)
print("closed over an array of no trace:")
around(jnp.float32(0.1))
if inside != {"jit.trace": (3, 0), "make_jaxpr": (2, 1)}:
    sys.exit("changed: a trace inside of another has the arguments alone as inputs")
if counts["jit.trace"][0] != 2:
    sys.exit("changed: a trace outside of any other has more inputs than arguments")
print("holds")
END
