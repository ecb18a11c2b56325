#!/bin/sh
# What: under `jax_numpy_dtype_promotion="strict"` every optimizer of optax with a bias
#     correction (adam, adamw, lamb, nadam) ends in a TypePromotionError of its counter:
#     a Python float to the power of an int32. sgd, rmsprop and adagrad run.
# Hurt: whoever trains a model under strict promotion, which is JAX's own advice for
#     finding unwanted casts: the model is clean, and the optimizer is not.
# Guess: optax, of JAX's own family, is written for JAX's strictest mode.
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

print({name: version(name) for name in ("optax", "jax")})
seen = {}
with jax.numpy_dtype_promotion("strict"):
    for name in ("sgd", "rmsprop", "adagrad", "adam", "adamw", "lamb", "nadam"):
        params = {"w": jnp.ones((2, 3), jnp.float32)}
        tx = getattr(optax, name)(jnp.float32(0.1))
        try:
            tx.update(params, tx.init(params), params)
            seen[name] = "runs"
        except ValueError as error:
            seen[name] = type(error).__name__
print(seen)
refused = {name for name, outcome in seen.items() if outcome == "TypePromotionError"}
if refused != {"adam", "adamw", "lamb", "nadam"}:
    sys.exit("changed: expected that those with a bias correction are refused")
print("holds")
END
