#!/bin/sh
# What: a `CheckpointManager` with `best_fn` and `max_to_keep` takes a NaN metric for the
#     best one. It deletes the checkpoint with the real best metric, and `best_step()` is the
#     step of the NaN, for `best_mode="max"` and `"min"` alike.
# Hurt: whoever keeps the best by validation loss in a run that diverges at its end, which
#     is the run that needs the older checkpoint. All that is left is broken.
# Guess: NaN is the worst of all metrics, or an error.
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
    orbax-checkpoint==0.12.8 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5

"$folder/venv/bin/python" - "$folder" <<'END'
import logging
import sys
from importlib.metadata import version

import jax.numpy as jnp
import orbax.checkpoint as ocp

logging.disable(logging.WARNING)
print({name: version(name) for name in ("orbax-checkpoint", "jax", "numpy")})
nan, seen = float("nan"), {}
for mode, metrics in {"max": [0.5, 0.9, 0.7, nan, nan], "min": [3, 1, 2, nan, nan]}.items():
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, best_fn=lambda metrics: metrics["value"], best_mode=mode
    )
    with ocp.CheckpointManager(f"{sys.argv[1]}/{mode}", options=options) as manager:
        for step, value in enumerate(metrics):
            state = ocp.args.StandardSave({"w": jnp.full(2, step)})
            manager.save(step, args=state, metrics={"value": value})
        manager.wait_until_finished()
        seen[mode] = {"best": manager.best_step(), "kept": list(manager.all_steps())}
    print(f"best_mode={mode!r} of {metrics}, the best is step 1: {seen[mode]}")
expected = {mode: {"best": 4, "kept": [3, 4]} for mode in ("max", "min")}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
