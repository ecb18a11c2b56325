#!/bin/sh
# What: on CPU, `jnp.sum(x * 0)`, which is NaN if anything in x is not finite, reads x and
#     nothing else. In a program that also scatters into `jnp.zeros(n)`, it reads that
#     array of zeros as well, from memory: XLA takes the 0 of the product and the zeros of
#     the scatter for one value, and the reduction gets the array. The scatter may then no
#     longer write in place, and copies it. With `jnp.sum(x - x)` neither happens.
# Hurt: whoever checks gradients for NaN beside a sparse or masked update: two passes over
#     memory more, for an array of which all elements are known.
# Guess: a product with the scalar 0 costs what it costs alone, whatever else the program
#     does.
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

print({name: version(name) for name in ("jax", "jaxlib", "numpy")})
SIZE, SOME = 1 << 20, 1000
x = jnp.ones(SIZE)
places, values = jnp.arange(SOME) * 7, jnp.ones(SOME)


def scattered(places, values):
    return jnp.zeros(SIZE).at[places].set(values)


def arrays_read(nothing, *, beside):
    """How many times 4 SIZE bytes the program touches, and how often it copies."""

    def program(x, places, values):
        check = jnp.sum(nothing(x))
        return (check, scattered(places, values)) if beside else check

    compiled = jax.jit(program).lower(x, places, values).compile()
    entry = compiled.as_text().partition("\nENTRY")[2]
    touched = compiled.cost_analysis()["bytes accessed"] / (4 * SIZE)
    return round(touched), entry.count(" copy(")


forms = {"x * 0": lambda x: x * 0, "x - x": lambda x: x - x}
seen = {
    (name, beside): arrays_read(form, beside=beside)
    for name, form in forms.items()
    for beside in (False, True)
}
for (name, beside), (touched, copies) in seen.items():
    where = "beside a scatter" if beside else "alone"
    print(f"sum({name}) {where}: {touched} arrays touched, {copies} copies")
alone = seen["x * 0", False] == seen["x - x", False]
more = seen["x * 0", True][0] - seen["x - x", True][0]
copied = seen["x * 0", True][1], seen["x - x", True][1]
if not alone or more < 2 or copied != (1, 0):
    sys.exit("changed: expected the same alone, and beside a scatter a copy and more")
print("holds")
END
