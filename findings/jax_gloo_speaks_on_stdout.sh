#!/bin/sh
# What: processes of JAX that meet on CPUs have a line of gloo on standard output, from
#     C++, at the first collective between them: `sys.stdout` in Python cannot catch it.
#     JAX's own notes, and those of its coordinator, go to standard error.
# Hurt: whoever prints JSON or CSV from such a program and reads it in a pipe.
# Guess: standard output has what the program prints, as with one process.
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

cat >"$folder/one.py" <<'END'
import contextlib
import io
import json
import sys

import jax
from jax.experimental import multihost_utils

number, count, port = map(int, sys.argv[1:])
if count > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", count, number)
with contextlib.redirect_stdout(io.StringIO()):
    total = multihost_utils.process_allgather(number + 1).sum()
print(json.dumps({"process": number, "sum": int(total)}), flush=True)
END

"$folder/venv/bin/python" - "$folder/one.py" <<'END'
import json
import socket
import subprocess
import sys
from importlib.metadata import version

print({name: version(name) for name in ("jax", "jaxlib")})


def ran(count):
    """Standard output of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    each = [
        subprocess.Popen(
            [sys.executable, sys.argv[1], str(i), str(count), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for i in range(count)
    ]
    return [process.communicate(timeout=120)[0] for process in each]


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


alone, (first, second) = ran(1), ran(2)
for text in (*alone, first, second):
    print("a process printed:", *text.splitlines(), sep="\n    ")
if not is_json(alone[0]):
    sys.exit("changed: expected JSON alone from one process")
for text in (first, second):
    if is_json(text) or "Gloo" not in text or not is_json(text.splitlines()[-1]):
        sys.exit("changed: expected a line of gloo before the JSON of each of two")
print("holds")
END
