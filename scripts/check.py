"""Sets up an environment and passes the tests: lint, types, tests.

python3 scripts/check.py            on this Python
python3 scripts/check.py --ci       with types of the tests, coverage and the
                                    documentation; on the newest Python found, with the
                                    newest JAX; with long tests too if nothing runs
                                    `--oldest`
python3 scripts/check.py --oldest   long tests, and a quick subset of the others, on the
                                    oldest Python and JAX; --oldest-half has one half of
                                    the long tests, which the commit's hash chooses
python3 scripts/check.py --programs what GPUs and TPUs would run, by the newest JAX;
                                    --old-programs on this Python; not in CI
python3 scripts/check.py --peers    beside other packages, on the same numbers: writes
                                    docs/results/peers.json; --newest-peers takes their
                                    newest versions and says what changed; not in CI
python3 scripts/check.py --prepare  makes the environments of the first three of these
python3 scripts/check.py --file relaxjax/plan/_predict.py   lint and tests of a file

`--programs` compiles with JAX's CUDA plugin, of some 480 MB, and with libtpu, of 140
MB; it needs neither GPU nor TPU. They have environments of their own: without a driver
the plugin warns whenever JAX looks for devices.

Needs nothing but Python 3.11 or newer. Exits non-zero at the first failure.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEV = ("-e", ".[dev]")
PEERS = {
    "HolisticTraceAnalysis": "0.5.0",
    "bitsandbytes": "0.50.2",
    "decent-bench": "0.3.0",
    "hivemind": "1.1.12",
    "mlc-chakra": "1.0.0",
    "torch": "2.14.1",
    "torchao": "0.18.0",
}
CLONED = {  # PyPI has no modules of the one, and nothing of the other
    "epfml/powersgd": "f07be92",
    "microsoft/microxcaling": "7bc4195",
}
FOUND = ROOT / "docs" / "results" / "peers.json"
PROGRAMS = ("-e", ".[cli,gpu-compile,tpu-compile]", "pytest>=8.3", "pytest-xdist>=3.6")
NEWEST = ("python3.14", "python3.13", "python3.12")
OLDEST = "python3.11", "jax>=0.10,<0.11"
TESTS = ["-m", "pytest", "-q", "-m", "not slow", "-n", "2", "--durations=10"]
TESTS += ["--dist", "worksteal"]  # keeps a file's tests, which share programs
QUICK = [
    "tests/collectives/test_hierarchical.py",
    "tests/core/test_buckets.py",
    "tests/gradients/mean/test_all_reduce.py",
    "tests/workers/test_data_parallel.py",
    "tests/workers/test_init.py",
    "tests/workers/test_scan_layers.py",
    "tests/programs/test_wire_bytes.py",
]


def run(*command: str | Path, **variables: str) -> None:
    """Runs a command from the root, or exits with its status."""
    print("+", *command, flush=True)
    # As a user's shell would, but deaf to a PYTHONPATH meant for something else. Tests
    # start hundreds of processes: bytecode is kept, or each compiles JAX's sources.
    deaf = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    env = {k: v for k, v in os.environ.items() if k not in deaf} | variables
    result = subprocess.run([str(part) for part in command], cwd=ROOT, env=env)
    if result.returncode:
        sys.exit(result.returncode)


def environment(python: str, folder: str, *packages: str) -> Path:
    """Python of a virtual environment with these packages."""
    made = ROOT / folder / "bin" / "python"
    holds = ROOT / folder / "holds.txt"
    wanted = "\n".join([*packages, (ROOT / "pyproject.toml").read_text()])
    if made.exists() and holds.exists() and holds.read_text() == wanted:
        return made
    if not made.exists():
        run(python, "-m", "venv", ROOT / folder)
    # What is imported is compiled then; most of what is installed never is.
    run(made, "-m", "pip", "install", "-q", "--no-compile", *packages)
    holds.write_text(wanted)
    return made


def newest() -> Path:
    """The environment of the newest Python, with the newest JAX."""
    return environment(found_python(*NEWEST) or sys.executable, ".venv-newest", *DEV)


def oldest() -> Path | None:
    """That of the oldest ones that are supported, if the machine has the former."""
    name, jax = OLDEST
    found = found_python(name)
    return environment(found, ".venv-oldest", *DEV, jax) if found else None


def compilers(*, new: bool) -> Path | None:
    """That with compilers for GPUs and TPUs, of the newest Python or of this one."""
    if not sys.platform.startswith("linux"):
        return None  # JAX's CUDA plugin and libtpu exist for Linux only
    found = found_python(*NEWEST) if new else None
    folder = ".venv-programs-new" if new else ".venv-programs"
    return environment(found or sys.executable, folder, *PROGRAMS)


def prepare() -> None:
    """Two at a time, as one process installs and compiles nothing beside it."""
    with ThreadPoolExecutor(2) as pool:
        makers = oldest, newest, partial(compilers, new=True)
        for made in [pool.submit(maker) for maker in makers]:
            made.result()


def lint(python: str | Path) -> None:
    """Rules and format."""
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "ruff", "format", "--check", ".")


@contextmanager
def typed(python: str | Path, *paths: str) -> Iterator[None]:
    """Checks types beside what runs inside, and fails after it."""
    command = [str(python), "-m", "pyright", "--pythonpath", str(python), *paths]
    # MiB at most: the whole tree takes 2600.
    heap = f"{os.environ.get('NODE_OPTIONS', '')} --max-old-space-size=4096"
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
    """Lint, the package's types, and tests of every law."""
    python = environment(sys.executable, ".venv", *DEV)
    lint(python)
    with typed(python, "relaxjax", "examples"):  # those of the tests take twice as long
        run(python, *TESTS, "--brief")


def tests_of(file: str) -> list[str]:
    """The tests of a file: those of the table of mutants, or those that mirror it."""
    table = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text())
    if file in table:
        return [file, *table[file]["tests"]]
    room = Path(file).parent.relative_to("relaxjax")
    folder = ROOT / "tests" / str(room).replace("_core", "core")
    while not folder.exists():  # tests of a small inner room lie in its room's
        folder = folder.parent
    mirror = folder / f"test{Path(file).stem}.py"
    found = mirror if mirror.exists() else folder
    return [file, str(found.relative_to(ROOT))]


def check_file(file: str) -> None:
    """Lint of one file of the package, and its tests."""
    if not (ROOT / file).is_file() or not file.startswith("relaxjax/"):
        sys.exit(f"--file: {file} is no file of relaxjax/, as seen from the root")
    python = environment(sys.executable, ".venv", *DEV)
    run(python, "-m", "ruff", "check", file)
    run(python, "-m", "pytest", "-q", "-m", "not slow", *tests_of(file))


def check_ci() -> None:
    """Lint, types, tests of every law with coverage, and the documentation."""
    python = newest()
    # To count lines costs 3.11 half of the tests' time, and later ones nothing.
    core = "sysmon" if found_python(*NEWEST) else "ctrace"
    say_versions(python)
    lint(python)
    coverage = ["--cov", "--cov-report=term", "--cov-fail-under=95"]
    cases = "--brief" if found_python(OLDEST[0]) else "--quarter"
    run(python, *TESTS, cases, *coverage, COVERAGE_CORE=core)
    docs = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    with typed(python):  # each of the two takes one core, and tests take two
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


def check_oldest(shard: str = "1/1") -> None:
    """The oldest Python and JAX that are supported.

    JAX 0.10 compiles for CPUs in two thirds of the time, so long tests run on it.
    """
    python = oldest()
    if python is None:
        print(f"skipped: {OLDEST[0]} is not installed")
        return
    say_versions(python)
    run(python, "-m", "pytest", "-q", "-m", "not slow", "-n", "2", *QUICK)
    run(python, *TESTS, "-m", "long and not slow", "--quarter", "--shard", shard)


def check_oldest_half() -> None:
    """With half of the long tests: a commit's hash tells, in a shallow clone too."""
    told = ""
    if shutil.which("git"):  # and what is no clone has no commits
        head = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        told = subprocess.run(head, capture_output=True, text=True).stdout.strip()
    check_oldest(f"{1 + int(told[-1:] or '0', 16) % 2}/2")


def say_versions(python: Path) -> None:
    """Prints Python's and JAX's."""
    run(python, "-c", "import jax, sys; print(sys.version, 'jax', jax.__version__)")


def check_programs(*, new: bool = True) -> None:
    """Nothing is run on a GPU or TPU. Skipping here would be a failure."""
    python = compilers(new=new)
    if python is None:
        print("skipped: JAX's CUDA plugin and libtpu exist for Linux only")
        return
    for kind in ("gpu", "tpu"):
        module = f"benchmarks.programs.{kind}_program"
        run(python, "-c", f"from {module} import missing; exit(missing())")
    tests = ["-m", "pytest", "-q", "-m", "not slow", "-n", "2", "--quarter"]
    run(python, *tests, "tests/gpu", "tests/tpu")


def check_peers(*, newest: bool = False) -> None:
    """Installs all of them, and fails where a test is skipped for want of one."""
    folder = ".venv-peers-newest" if newest else ".venv-peers"
    pinned = [x if newest else f"{x}=={version}" for x, version in PEERS.items()]
    python = environment(sys.executable, folder, "-e", ".[dev,bench]", *pinned)
    clones = [cloned(name, commit, ROOT / folder) for name, commit in CLONED.items()]
    found = ROOT / folder / "found.json" if newest else FOUND
    tests = ["tests/peers", "tests/golden", "--all-peers", "--found", found]
    path = os.pathsep.join(map(str, clones))
    try:
        run(python, "-m", "pytest", "-q", "-p", "no:xdist", *tests, PYTHONPATH=path)
    finally:
        if newest and found.exists():
            say_what_changed(*(json.loads(x.read_text()) for x in (FOUND, found)))


def cloned(name: str, commit: str, folder: Path) -> Path:
    """A repository of GitHub at a commit."""
    code = folder / name.split("/")[1]
    if not code.exists():
        run("git", "clone", "-q", f"https://github.com/{name}", code)
        run("git", "-C", code, "checkout", "-q", commit)
    return code


def say_what_changed(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Prints each package with its versions, and the tests that passed beside it."""
    known = {peer["test"]: peer for peer in before["peers"]}
    for peer in now["peers"]:
        old = known.get(peer["test"], {"packages": {}, "passed": 0})
        for package, version in peer["packages"].items():
            was = old["packages"].get(package, "absent")
            print(f"{package}: {was} -> {version}; {peer['test']}: ", end="")
            print(f"{old['passed']} -> {peer['passed']} passed")


WISHES = {
    "ci": (check_ci, "with long tests, coverage and docs"),
    "oldest": (check_oldest, "a subset, on the oldest Python and JAX"),
    "oldest-half": (check_oldest_half, "the same with half of the long tests"),
    "programs": (check_programs, "for GPUs and TPUs, by the newest JAX"),
    "old-programs": (partial(check_programs, new=False), "for them, on this Python"),
    "peers": (check_peers, "beside other packages"),
    "newest-peers": (partial(check_peers, newest=True), "beside their newest versions"),
    "prepare": (prepare, "environments alone"),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, (check, words) in WISHES.items():
        parser.add_argument(
            f"--{name}", dest="check", action="store_const", const=check, help=words
        )
    parser.add_argument("--file", help="lint and tests of one file of the package")
    parser.set_defaults(check=check_all)
    given = parser.parse_args()
    if given.file:
        check_file(given.file)
    else:
        given.check()
