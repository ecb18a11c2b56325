#!/bin/sh
# What: an `nnx.Module` is a pytree, so JAX's own functions take it, and they part layers
#     that share weights. `jax.jit` gives a tied model back untied, `jax.grad` gives each use
#     its part of the gradient, and one step by `jax.tree.map` makes two matrices of one.
#     nnx.jit, nnx.grad, nnx.clone and nnx.state keep the tie.
# Hurt: whoever ties embedding and head, and writes `jax.grad` for `nnx.grad` since it runs.
#     The model grows by a matrix and the two drift apart.
# Guess: an error, or the tie kept, as by nnx.jit and nnx.grad.
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
    flax==0.12.12 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5

"$folder/venv/bin/python" - "$folder" <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
from flax import nnx

print({name: version(name) for name in ("flax", "jax", "numpy")})


class Tied(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 2, use_bias=False, rngs=rngs)
        self.second = self.first

    def __call__(self, x):
        return self.second(self.first(x))


def loss(model):
    return model(jnp.arange(2.0)).sum()


def tied(model):
    return model.first.kernel is model.second.kernel


model = Tied(nnx.Rngs(0))
grads = jax.grad(loss)(model)
stepped = jax.tree.map(lambda p, g: p - 0.1 * g, model, grads)
same = bool(jnp.all(stepped.first.kernel[...] == stepped.second.kernel[...]))
seen = {
    "nnx.jit keeps the tie": tied(nnx.jit(lambda m: m)(model)),
    "jax.jit keeps the tie": tied(jax.jit(lambda m: m)(model)),
    "arrays in nnx.grad": len(jax.tree.leaves(nnx.grad(loss)(model))),
    "arrays in jax.grad": len(jax.tree.leaves(grads)),
    "equal after a step by jax.grad and jax.tree.map": same,
}
for name, value in seen.items():
    print(f"{name}: {value}")
expected = dict(zip(seen, (True, False, 1, 2, False), strict=True))
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
