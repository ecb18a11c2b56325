#!/bin/sh
# What: `optax.sm3` does not take a model with a parameter of rank 0, such as a learned
#     temperature: `update` ends in an IndexError of its own lists. `init` accepts it.
# Hurt: whoever exchanges the optimizer of a model that has a scalar.
# Guess: an optimizer of optax takes any tree of arrays, as adam, adafactor and lamb do.
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
import optax

print({name: version(name) for name in ("optax", "jax")})
seen = {}
for name in ("adam", "adafactor", "lamb", "sm3"):
    for shape in ((), (1,)):
        params = {"w": jnp.ones((2, 3)), "temperature": jnp.ones(shape)}
        tx = getattr(optax, name)(0.1)
        state = tx.init(params)
        try:
            tx.update(params, state, params)
            seen[name, shape] = "runs"
        except IndexError as error:
            seen[name, shape] = f"IndexError: {error}"
for case, outcome in seen.items():
    print(*case, outcome)
failed = {case for case, outcome in seen.items() if outcome != "runs"}
if failed != {("sm3", ())}:
    sys.exit("changed: expected that sm3 alone refuses a scalar")
print("holds")
END
