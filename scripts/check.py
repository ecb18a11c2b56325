"""Sets up an environment and passes the tests: lint, types, tests.

python3 scripts/check.py            on this Python
python3 scripts/check.py --ci       with all cases, coverage and the documentation;
                                    on the newest Python found, with the newest JAX
python3 scripts/check.py --oldest   a quick subset, on the oldest Python and JAX
python3 scripts/check.py --programs what GPUs and TPUs would run, on both
python3 scripts/check.py --peers    beside PyTorch, on the same numbers; not in CI

`--programs` compiles with JAX's CUDA plugin, of some 480 MB, and with libtpu, of 140
MB; it needs neither GPU nor TPU. They have environments of their own: without a driver
the plugin warns whenever JAX looks for devices.

Needs nothing but Python 3.11 or newer. Exits non-zero at the first failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEV = ("-e", ".[dev]")
PEERS = ("-e", ".[dev,bench]")
PROGRAMS = ("-e", ".[cli,gpu-compile,tpu-compile]", "pytest>=8.3", "pytest-xdist>=3.6")
NEWEST = ("python3.14", "python3.13", "python3.12")
OLDEST = "python3.11", "jax>=0.10,<0.11"
TESTS = ["-m", "pytest", "-q", "-m", "not slow", "-n", "2", "--durations=10"]
TESTS += ["--dist", "worksteal"]  # keeps a file's tests, which share programs
QUICK = [
    "relaxjax/gradients",
    "relaxjax/workers",
    "tests/collectives/test_hierarchical.py",
    "tests/core/test_buckets.py",
    "tests/gradients/test_all_reduce.py",
    "tests/workers/test_data_parallel.py",
    "tests/workers/test_init.py",
    "tests/workers/test_scan_layers.py",
    "tests/programs/test_wire_bytes.py",
]


def run(*command: str | Path, **variables: str) -> None:
    """Runs a command from the root, or exits with its status."""
    print("+", *command, flush=True)
    # As a user's shell would, but deaf to a PYTHONPATH meant for something else.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    result = subprocess.run([str(part) for part in command], cwd=ROOT, env=env)
    if result.returncode:
        sys.exit(result.returncode)


def environment(python: str, folder: str, *packages: str) -> Path:
    """Python of a virtual environment with these packages."""
    made = ROOT / folder / "bin" / "python"
    if not made.exists():
        run(python, "-m", "venv", ROOT / folder)
    # What is imported is compiled then; most of what is installed never is.
    run(made, "-m", "pip", "install", "-q", "--no-compile", *packages)
    return made


@contextmanager
def linted(python: str | Path) -> Iterator[None]:
    """Lints, then checks types beside what runs inside, and fails after it."""
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "ruff", "format", "--check", ".")
    command = [str(python), "-m", "pyright", "--pythonpath", str(python)]
    heap = f"{os.environ.get('NODE_OPTIONS', '')} --max-old-space-size=1700"  # MiB
    pyright = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "NODE_OPTIONS": heap.strip()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield
    finally:
        said, _ = pyright.communicate()
        print("+", *command, said, sep="\n", flush=True)
    if pyright.returncode:
        sys.exit(pyright.returncode)


def check_all() -> None:
    """Lint, types, and tests of every law."""
    python = environment(sys.executable, ".venv", *DEV)
    with linted(python):
        run(python, *TESTS, "--brief")


def check_ci() -> None:
    """Lint, types, tests of all cases with coverage, and the documentation."""
    newest = found_python(*NEWEST)
    # To count lines costs 3.11 half of the tests' time, and later ones nothing.
    core = "sysmon" if newest else "ctrace"
    python = environment(newest or sys.executable, ".venv-newest", *DEV)
    say_versions(python)
    with linted(python):
        coverage = ["--cov", "--cov-report=term", "--cov-fail-under=95"]
        run(python, *TESTS, *coverage, COVERAGE_CORE=core)
    docs = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    run(python, *docs, "docs", "docs/_build/html")


def found_python(*names: str) -> str | None:
    """The first Python that answers, on the path or among pyenv's versions."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for name in names:
        on_path = shutil.which(name)
        found = [*([on_path] if on_path else []), *pyenv.glob(f"versions/*/bin/{name}")]
        for candidate in map(str, found):  # a launcher may have no version behind it
            if not subprocess.run(
                [candidate, "-c", ""], capture_output=True
            ).returncode:
                return candidate
    return None


def check_oldest() -> None:
    """The oldest Python and JAX that are supported."""
    name, jax = OLDEST
    found = found_python(name)
    if found is None:
        print(f"skipped: {name} is not installed")
        return
    python = environment(found, ".venv-oldest", *DEV, jax)
    say_versions(python)
    with linted(python):
        run(python, "-m", "pytest", "-q", "-m", "not slow", "-n", "2", *QUICK)


def say_versions(python: Path) -> None:
    """Prints Python's and JAX's."""
    run(python, "-c", "import jax, sys; print(sys.version, 'jax', jax.__version__)")


def check_programs() -> None:
    """Nothing is run on a GPU or TPU. Skipping here would be a failure.

    The newest JAX compiles in twice the oldest one's time, and gets fewer cases.
    """
    if not sys.platform.startswith("linux"):
        print("skipped: JAX's CUDA plugin and libtpu exist for Linux only")
        return
    found = found_python(*NEWEST)
    for interpreter, folder, cases in (
        (sys.executable, ".venv-programs", ()),
        (found, ".venv-programs-new", ("--brief",)),
    ):
        if interpreter is None:
            print(f"skipped: none of {', '.join(NEWEST)} is installed")
            continue
        python = environment(interpreter, folder, *PROGRAMS)
        for kind in ("gpu", "tpu"):
            module = f"benchmarks.programs.{kind}_program"
            run(python, "-c", f"from {module} import missing; exit(missing())")
        tests = ["-m", "pytest", "-q", "-m", "not slow", "-n", "2"]
        run(python, *tests, *cases, "tests/gpu", "tests/tpu")


def check_peers() -> None:
    """Installs PyTorch; nothing may be skipped for want of it."""
    python = environment(sys.executable, ".venv-peers", *PEERS)
    run(python, "-c", "import torch; print('torch', torch.__version__)")
    run(python, "-m", "pytest", "-q", "tests/peers", "tests/golden")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ci", action="store_true", help="with coverage and docs")
    parser.add_argument("--oldest", action="store_true", help="oldest Python, subset")
    parser.add_argument("--programs", action="store_true", help="for GPUs and TPUs")
    parser.add_argument("--peers", action="store_true", help="beside PyTorch")
    wishes = parser.parse_args()
    if wishes.oldest:
        check_oldest()
    elif wishes.programs:
        check_programs()
    elif wishes.peers:
        check_peers()
    elif wishes.ci:
        check_ci()
    else:
        check_all()
