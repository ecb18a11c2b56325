#!/bin/sh
# What: jmp.DynamicLossScale forgets its `min_loss_scale` wherever JAX takes it apart:
#     in jax.jit, in a scan, in jax.tree.map. The floor is neither a leaf nor kept beside
#     them, and the default of 1 comes back. Eagerly, it holds.
# Hurt: whoever trains in float16 with a floor, always in a jitted step: after some
#     overflows the scale is far below the floor, and small gradients become zero.
# Guess: a dataclass that is registered as a pytree keeps all of its fields.
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
    jmp==0.0.4 jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import jmp

print({name: version(name) for name in ("jmp", "jax")})
floor = jnp.float32(8)
given = jmp.DynamicLossScale(jnp.float32(16), jnp.int32(0), min_loss_scale=floor)


def overflowed(scale):
    return scale.adjust(jnp.bool_(False))


eager = jitted = given
for _ in range(4):
    eager, jitted = overflowed(eager), jax.jit(overflowed)(jitted)
seen = float(eager.loss_scale), float(jitted.loss_scale)
print(f"a scale of 16 with a floor of 8, after four overflows: eager {seen[0]:g}, "
      f"under jax.jit {seen[1]:g}")
copied = jax.tree.map(lambda x: x, given)
print(f"the floor after jax.tree.map: {float(copied.min_loss_scale):g}")
if seen != (8, 1) or float(copied.min_loss_scale) != 1:
    sys.exit("changed: expected 8, 1 and 1")
print("holds")
END
