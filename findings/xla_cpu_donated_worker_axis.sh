#!/bin/sh
# What: state with an axis for the devices, sharded along it, is `x[0]` inside
#     `jax.shard_map` and `x[None]` on the way out. XLA for CPU moves these reshapes into
#     the kernels of the step. A kernel with a reshape cannot write over what it reads, so
#     the program copies every donated moment of Adam, and computes new moments twice.
# Hurt: whoever keeps state that differs between devices (local steps, gossip, error
#     feedback) and tests or trains on CPU: the same step without the axis has no copy.
# Guess: dropping and adding an axis of size 1 costs nothing, and `donate_argnums` has
#     arrays updated in place. `optimization_barrier` between reshapes and step does it.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>&1 && break
done >"$folder/log"
"$python" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=2
"$folder/venv/bin/pip" install -qq \
    jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5 optax==0.2.8

"$folder/venv/bin/python" - <<'END'
import re
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

adam = optax.adam(1e-3)
mesh = jax.make_mesh((2,), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))
print({name: version(name) for name in ("jax", "jaxlib", "optax")})


def copies(axis: bool, barrier: bool) -> int:
    """Matrices that the compiled, donated step of Adam copies on each device."""
    apart = jax.lax.optimization_barrier if barrier else lambda tree: tree

    def step(w, state, x):
        if axis:
            w, state = apart(jax.tree.map(lambda a: a[0], (w, state)))
        grad = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        updates, state = adam.update(jax.lax.pmean(grad, "data"), state)
        w = optax.apply_updates(w, updates)
        if axis:
            w, state = jax.tree.map(lambda a: a[None], apart((w, state)))
        return w, state

    w = jnp.ones((256, 256))
    spec = PartitionSpec("data") if axis else PartitionSpec()
    state = w, adam.init(w)
    if axis:
        state = jax.tree.map(lambda a: jnp.stack([a, a]), state)
    state = jax.device_put(state, NamedSharding(mesh, spec))
    ins = (spec, spec, PartitionSpec("data"))
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=ins, out_specs=(spec, spec), check_vma=False
    )
    x = jax.device_put(jnp.ones((16, 256)), rows)
    run = jax.jit(mapped, donate_argnums=(0, 1))
    text = run.lower(*state, x).compile().as_text()
    return len(re.findall(r"f32\[(?:1,)?256,256\]\S* copy\(", text))


found = {
    "without the axis": copies(axis=False, barrier=False),
    "with the axis": copies(axis=True, barrier=False),
    "with the axis, behind barriers": copies(axis=True, barrier=True),
}
print("copies of donated matrices:", found)
if not (found["with the axis"] >= 2 and sum(found.values()) == found["with the axis"]):
    sys.exit("changed")
print("holds")
END
