#!/bin/sh
# What: `powersgd` 0.0.2 on PyPI, the code of PowerSGD's authors by its summary, holds no
#     module. It installs without a warning, and `import powersgd` fails. Its setup looks
#     for packages in a folder `src` that the repository does not have.
# Hurt: whoever compares with the authors' code in an environment made from a list of
#     requirements; the error looks like a wrong environment.
# Guess: a release whose metadata has the name, a description and requirements has code.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_DEPS=1
# Without its requirements: it asks for torch 1.10, which today's Pythons do not have.
"$folder/venv/bin/pip" install -qq powersgd==0.0.2

"$folder/venv/bin/python" - <<'END'
import sys
from importlib.metadata import distribution
from importlib.util import find_spec

found = distribution("powersgd")
files = sorted(file.name for file in found.files or [])
modules = [name for name in files if name.endswith((".py", ".so"))]
print(found.metadata["Name"], found.version, "-", found.metadata["Summary"])
print("requires:", found.requires)
print("files:", files)
print("modules:", modules, "importable:", find_spec("powersgd") is not None)
if modules or find_spec("powersgd") is not None:
    sys.exit("changed: it has modules")
print("holds")
END
