#!/bin/sh
# What: on a mesh as `jax.make_mesh` makes it, whose axes are typed (Explicit),
#     `jax.vmap(f, axis_name=...)` with a `psum`, `pmean` or `pmax` inside returns the right
#     values, and the same function under `jax.jit` raises a ValueError about the length of
#     a sharding's spec. The array may lie whole on every device. `all_gather` runs in both
#     ways, and all of them do on a mesh of Auto axes.
# Hurt: whoever maps over an ensemble, a batch norm's axis or emulated workers, and places
#     the array by `NamedSharding(jax.make_mesh(...), P())`. The program runs until it is
#     jitted, and the error names neither `vmap` nor the mesh's type.
# Guess: `jit` compiles what runs without it.
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

jax.config.update("jax_num_cpu_devices", 4)
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

print({name: version(name) for name in ("jax", "numpy")})
print("axes of jax.make_mesh:", jax.make_mesh((4,), ("d",)).axis_types)
collectives = {
    "psum": lambda x: lax.psum(x, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "no collective": lambda x: 2 * x,
}
rows = jnp.arange(8.0).reshape(4, 2)
failed = set()
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,))
    placed = jax.device_put(rows, NamedSharding(mesh, P()))
    for name, collective in collectives.items():
        mapped = jax.vmap(collective, axis_name="i")
        right = np.asarray(mapped(rows))
        for how, run in {"as it is": mapped, "jitted": jax.jit(mapped)}.items():
            try:
                same = (np.asarray(run(placed)) == right).all()
                print(kind.name, name, how, "right" if same else "wrong")
            except ValueError as error:
                failed.add((kind.name, name, how))
                print(kind.name, name, how, type(error).__name__, str(error)[:70])
expected = {("Explicit", name, "jitted") for name in ("psum", "pmean", "pmax")}
if failed != expected:
    sys.exit(f"changed: {failed}")
print("holds")
END
