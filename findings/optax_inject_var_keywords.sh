#!/bin/sh
# What: `optax.inject_hyperparams` around a factory with `**keywords` calls it with one
#     argument of that name, a dict, in place of the keywords: `init` ends in a TypeError
#     of the optimizer inside, also where no further keyword was given.
# Hurt: whoever wraps an optimizer, as in `def mine(learning_rate, **rest)`, and injects
#     its rate.
# Guess: keywords arrive as keywords, as through functools.partial.
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
from functools import partial
from importlib.metadata import version

import jax.numpy as jnp
import optax

print({name: version(name) for name in ("optax", "jax")})


def mine(learning_rate, **rest):
    return optax.sgd(learning_rate, **rest)


def plain(learning_rate, momentum=None):
    return optax.sgd(learning_rate, momentum)


seen = {}
for factory in (mine, plain):
    for keywords in ({}, {"momentum": 0.9}):
        partial(factory, 0.1, **keywords)()  # as a call it is valid
        made = optax.inject_hyperparams(factory)(learning_rate=0.1, **keywords)
        try:
            made.init(jnp.ones(2))
            seen[factory.__name__, *keywords] = "runs"
        except TypeError as error:
            seen[factory.__name__, *keywords] = f"TypeError: {error}"
for case, outcome in seen.items():
    print(*case, "->", outcome)
failed = {case for case, outcome in seen.items() if "'rest'" in outcome}
if failed != {("mine",), ("mine", "momentum")}:
    sys.exit("changed: expected that factories with **rest alone fail")
print("holds")
END
