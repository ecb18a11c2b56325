#!/bin/sh
# What: `safetensors.flax.save` turns bfloat16 arrays into bytes that
#     `safetensors.flax.load` cannot read: KeyError 'BF16'. `load_file` reads the same bytes
#     from a file. float16 and float32 go both ways.
# Hurt: whoever sends weights as bytes, by a socket, an object store or a key-value store.
#     Tests in float32 pass, and the first bfloat16 model does not come back.
# Guess: `load` reads all that `save` of the same module writes, as `load_file` does.
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
    safetensors==0.8.0 jax==0.12.0.1 jaxlib==0.12.0.1 \
    numpy==2.5.5 ml_dtypes==0.6.0

"$folder/venv/bin/python" - "$folder" <<'END'
import sys
from importlib.metadata import version

import jax.numpy as jnp
import safetensors.flax as st

print({name: version(name) for name in ("safetensors", "jax", "numpy", "ml_dtypes")})
seen = {}
for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
    tree, path = {"w": jnp.ones(4, dtype)}, f"{sys.argv[1]}/weights"
    try:
        loaded = st.load(st.save(tree))["w"].dtype.name
    except KeyError as error:
        loaded = f"KeyError {error}"
    st.save_file(tree, path)
    seen[dtype.__name__] = loaded, st.load_file(path)["w"].dtype.name
    print(f"{dtype.__name__}: load(save(x)), load_file = {seen[dtype.__name__]}")
expected = {
    "float32": ("float32", "float32"),
    "float16": ("float16", "float16"),
    "bfloat16": ("KeyError 'BF16'", "bfloat16"),
}
if seen != expected:
    sys.exit(f"changed: expected {expected}")
print("holds")
END
