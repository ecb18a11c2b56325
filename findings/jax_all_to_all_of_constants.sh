#!/bin/sh
# What: under `jax.vmap(axis_name=...)`, `jax.lax.all_to_all` of a value that is not mapped,
#     such as a constant or an argument with `in_axes=None`, returns an array of twice the
#     dimensions: [2, 3] becomes [2, 3, 2, 3]. `all_gather`, `psum_scatter`, `ppermute` and
#     `psum` of the same value have the shapes that they have for mapped values.
# Hurt: whoever runs a program for several devices under `vmap` to test it, and exchanges
#     a mask, positions or the first tokens, which are the same for all. It ends in an
#     error about shapes far behind the exchange, or broadcasts.
# Guess: the shape is that of the same values when they are mapped, as for the others.
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
from jax import lax

print({name: version(name) for name in ("jax", "numpy")})
same = jnp.arange(6.0).reshape(2, 3)
collectives = {
    "all_to_all": lambda x: lax.all_to_all(x, "w", 0, 0),
    "all_to_all, tiled": lambda x: lax.all_to_all(x, "w", 0, 0, tiled=True),
    "all_gather": lambda x: lax.all_gather(x, "w"),
    "psum_scatter": lambda x: lax.psum_scatter(x, "w"),
    "ppermute": lambda x: lax.ppermute(x, "w", [(0, 1), (1, 0)]),
    "psum": lambda x: lax.psum(x, "w"),
}
seen = {}
for name, collective in collectives.items():
    mapped = jax.vmap(collective, axis_name="w")(jnp.stack([same, same])).shape
    run = jax.vmap(lambda _, x: collective(x), in_axes=(0, None), axis_name="w")
    seen[name] = {"mapped": mapped[1:], "not mapped": run(jnp.zeros(2), same).shape[1:]}
    print(name, seen[name])
wrong = {name for name, row in seen.items() if row["mapped"] != row["not mapped"]}
expected = {"mapped": (2, 3), "not mapped": (2, 3, 2, 3)}
if wrong != {"all_to_all", "all_to_all, tiled"}:
    sys.exit(f"changed: {wrong}")
if seen["all_to_all"] != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
