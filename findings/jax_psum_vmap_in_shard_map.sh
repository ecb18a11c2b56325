#!/bin/sh
# What: `lax.psum` and `lax.pmean` over the axis of a `jax.vmap`, inside `jax.shard_map`
#     over another axis, end in an AssertionError without a word, with `check_vma=True`,
#     the default. With `check_vma=False` they are right.
# Hurt: whoever trains a population over devices, with workers emulated by `vmap` in each
#     member: nothing in the error names an axis, a function or the remedy.
# Guess: a collective over a vmapped axis has nothing to do with the mesh around it.
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
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 2)
print({name: version(name) for name in ("jax", "numpy")})
mesh = jax.make_mesh((2,), ("member",), axis_types=(AxisType.Auto,))
rows = jnp.arange(8.0).reshape(2, 4)


def tried(mean, check):
    """The result as a list, or the name and the text of an error."""

    def member(x):
        return jax.vmap(mean, axis_name="worker")(x[0])[None]

    mapped = jax.shard_map(
        member, mesh=mesh, in_specs=P("member"), out_specs=P("member"),
        check_vma=check,
    )
    try:
        return jax.jit(mapped)(rows)[:, 0].tolist()
    except Exception as error:
        return type(error).__name__, str(error)


MEANS = {
    "pmean": lambda x: jax.lax.pmean(x, "worker"),
    "psum / 4": lambda x: jax.lax.psum(x, "worker") / 4,
}
found = {(n, c): tried(f, c) for n, f in MEANS.items() for c in (True, False)}
for (name, check), result in found.items():
    print(f"{name}, check_vma={check}: {result}")
right = [1.5, 5.5]
for name in MEANS:
    if found[name, True] != ("AssertionError", "") or found[name, False] != right:
        sys.exit(f"changed: {name} over a vmapped axis works, or says why it does not")
print("holds")
END
