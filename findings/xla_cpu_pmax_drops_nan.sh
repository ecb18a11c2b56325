#!/bin/sh
# What: on CPU devices, `jax.lax.pmax` and `pmin` inside `shard_map` drop a NaN that one
#     device holds, already for one element, whichever device it is. `psum` keeps it, and so
#     does `pmax` of the same function under `jax.vmap(axis_name=...)`. So does `jnp.max` of
#     four elements on one device, and not that of the same four over four devices.
# Hurt: whoever stops a run by the largest norm or loss over all workers, and tests this
#     on emulated CPU devices. One worker diverges, and the maximum looks healthy.
# Guess: a maximum with a NaN is NaN, as in `jnp.max` and NumPy, under every mapping.
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

export XLA_FLAGS=--xla_force_host_platform_device_count=4
"$folder/venv/bin/python" - "$folder" <<'END'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

print({name: version(name) for name in ("jax", "numpy")})
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
seen = {}
for op in (jax.lax.pmax, jax.lax.pmin, jax.lax.psum):
    over = jax.shard_map(lambda x: op(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    rows = jnp.ones((4, 4)).at[jnp.arange(4), jnp.arange(4)].set(jnp.nan)
    devices = [bool(jnp.isnan(jax.jit(over)(row)[0])) for row in rows]
    mapped = jax.vmap(lambda x: op(x, "d"), axis_name="d")
    emulated = [bool(jnp.isnan(mapped(row)[0])) for row in rows]
    seen[op.__name__] = {"mesh keeps NaN": devices, "vmap": emulated}
x = jnp.arange(4.0).at[1].set(jnp.nan)
sharded = jax.device_put(x, NamedSharding(mesh, P("d")))
seen["jnp.max"] = {"one device": str(jnp.max(x)), "four": str(jnp.max(sharded))}
for name, row in seen.items():
    print(name, row)
kept, lost = [True] * 4, [False] * 4
expected = {
    "pmax": {"mesh keeps NaN": lost, "vmap": kept},
    "pmin": {"mesh keeps NaN": lost, "vmap": kept},
    "psum": {"mesh keeps NaN": kept, "vmap": kept},
    "jnp.max": {"one device": "nan", "four": "3.0"},
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
