#!/bin/sh
# What: `jax_debug_key_reuse` refuses a correct program: `jax.random.split` whose keys are
#     drawn from one by one in `lax.map` or `lax.scan`, each once, is a KeyReuseError
#     under `jax.vmap`. Without vmap it passes, and so does the loop written out.
# Hurt: whoever turns the checker on in a test suite, and maps a function over keys.
# Guess: what is right for one key is right for a batch of them.
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
    jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp

print({name: version(name) for name in ("jax", "numpy")})


def looped(key):
    return jax.lax.map(jax.random.normal, jax.random.split(key, 2))


def written_out(key):
    return jnp.stack([jax.random.normal(one) for one in jax.random.split(key, 2)])


def outcome(draw, keys):
    try:
        return jax.jit(draw)(keys).shape
    except jax.errors.KeyReuseError as error:
        print(error)
        return "KeyReuseError"


seen = {}
with jax.debug_key_reuse(True):
    for draw in (looped, written_out):
        for number, mapped in (("one", draw), ("four", jax.vmap(draw))):
            key = jax.random.key(len(seen))
            keys = key if number == "one" else jax.random.split(key, 4)
            seen[draw.__name__, number] = outcome(mapped, keys)
print(seen)
expected = {
    ("looped", "one"): (2,),
    ("looped", "four"): "KeyReuseError",
    ("written_out", "one"): (2,),
    ("written_out", "four"): (4, 2),
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
