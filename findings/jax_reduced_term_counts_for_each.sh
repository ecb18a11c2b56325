#!/bin/sh
# What: under `jax.jit`, the gradient by params of type `P(reduced={"data"})` is as many
#     times too large as there are devices, in all of its parts, where the loss takes a
#     logarithm of the part with examples and adds a term of the params alone. Without
#     `jax.jit`, or without that term, it is right.
# Hurt: whoever reduces gradients by hand in a program with explicit shardings, and has
#     a weight decay in the loss: no error, and Adam hides most of it.
# Guess: `jax.jit` changes no number.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>&1 && break
done >"$folder/log"
"$python" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=4
"$folder/venv/bin/pip" install -qq \
    jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

print({name: version(name) for name in ("jax", "jaxlib")})
mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,))
rng = np.random.default_rng(0)
weights = rng.normal(size=(6, 3)).astype(np.float32)
examples = rng.normal(size=(8, 6)).astype(np.float32)


def error(w, x):
    return jnp.log(1 + jnp.mean((x @ w - 1) ** 2))


def error_and_decay(w, x):
    return error(w, x) + 0.01 * jnp.sum(w * w)


def gradient(loss):
    """Of the whole batch: the parts of the devices, added up."""

    def of(w, x):
        parts = jax.grad(loss)(jax.reshard(w, P(reduced={"data"})), x)
        return jax.reshard(parts, P())

    return of


found = {}
with jax.set_mesh(mesh):
    w, x = jax.device_put(weights, P()), jax.device_put(examples, P("data"))
    for loss in (error, error_and_decay):
        right = np.asarray(jax.grad(loss)(weights, examples))
        for how, made in (("plain", gradient(loss)), ("jit", jax.jit(gradient(loss)))):
            ratio = np.asarray(made(w, x)) / right
            found[loss.__name__, how] = ratio.min(), ratio.max()
for case, ratios in found.items():
    print(*case, "over one device: {:.4f} to {:.4f}".format(*ratios))
for case, ratios in found.items():
    expected = 4 if case == ("error_and_decay", "jit") else 1
    if not np.allclose(ratios, expected, rtol=1e-3):
        sys.exit(f"changed: expected {expected} times that of one device")
print("holds")
END
