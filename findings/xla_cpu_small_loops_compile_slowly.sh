#!/bin/sh
# What: XLA for CPUs, as in jax 0.12, takes several times as long to compile a
#     `while_loop` over 200 arrays of 8 x 8 as one over 200 arrays of 64 x 64, of the same
#     instructions. A loop of few bytes becomes a single function of LLVM (a call marked
#     `xla_cpu_small_call`), whose compilation grows faster than its length. Without the
#     pass `small-while-loop-hoisting`, both take as long. jax 0.10 has no such call.
# Hurt: whoever tries a model small first: tests, examples, and emulations on one device.
# Guess: arrays of a 64th of the size compile as fast, or faster.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in "${PYTHON:-python3}" python3.13 python3.12 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>&1 && break
done >"$folder/log"
"$python" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 JAX_PLATFORMS=cpu
unset XLA_FLAGS JAX_COMPILATION_CACHE_DIR
"$folder/venv/bin/pip" install -qq jax==0.12.0.1 jaxlib==0.12.0.1 numpy==2.5.5

"$folder/venv/bin/python" - <<'END'
import sys
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp

print({name: version(name) for name in ("jax", "jaxlib")})


def loop(due, arrays):
    def turn(carry):
        _, now = carry
        return False, [jnp.tanh(x) * x.mean() + x / (1 + x * x) for x in now]

    return jax.lax.while_loop(lambda carry: carry[0], turn, (due, arrays))


def compiled(width, **options):
    arrays = [jax.ShapeDtypeStruct((width, width), jnp.float32)] * 200
    lowered = jax.jit(loop).lower(jax.ShapeDtypeStruct((), bool), arrays)
    start = time.process_time()
    text = lowered.compile(compiler_options=options).as_text()
    return time.process_time() - start, "xla_cpu_small_call" in text


whole = {"xla_disable_hlo_passes": "small-while-loop-hoisting"}
seen = {
    "200 of 8 x 8": compiled(8),
    "200 of 64 x 64": compiled(64),
    "200 of 8 x 8 without the pass": compiled(8, **whole),
}
for name, (seconds, is_call) in seen.items():
    print(f"{name}: {seconds:.2f} s of processor time, a single function: {is_call}")
small, large, without = seen.values()
same = [is_call for _, is_call in seen.values()] == [True, False, False]
if not same or small[0] <= 3 * max(large[0], without[0]):
    sys.exit("changed: expected a function of the small loop, and thrice the time or more")
print("holds")
END
