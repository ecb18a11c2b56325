"""Which small wrong changes of a file do its tests let pass?

python scripts/mutants.py FILE ...            every mutant of the files
python scripts/mutants.py FILE --sample 20    twenty of each, drawn by --seed
python scripts/mutants.py FILE --tests T ...  with these tests instead of the table's

Each mutant (scripts/mutations.py) is written into a copy of the repository, and the
tests that run its line are run on it until one fails; if none does, those that run any
line of the file's functions. Coverage of the unchanged file says which these are. A
mutant for which they take far longer than on the unchanged file is killed too.

scripts/mutants.toml names each file's tests, and says of mutants that nothing can
observe why. Survivors that it does not name are printed, and make the exit status 1.

Every run of the tests is a fork of this process, which has imported JAX and nothing
that starts its backend. Needs the environment of scripts/check.py, on Linux or macOS.
"""

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

from scripts.mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts" / "mutants.toml"
LEFT = (".git", ".venv*", ".pytest_cache", ".ruff_cache", "_build", "__pycache__")
FLAGS = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
PATIENCE, TIMES = 20.0, 5.0
"""A mutant's seconds, and times what its tests take on the unchanged file."""


class Baseline(NamedTuple):
    """Each test's seconds, by its id, and the ids of those that run a line."""

    seconds: dict[str, float]
    by_line: dict[int, set[str]]


class Result(NamedTuple):
    """What came of the mutants of a file, by their names."""

    killed: list[str]
    timed_out: list[str]
    equivalent: list[str]
    survived: list[str]


class _Recorder:
    """Which test runs which lines, and for how long."""

    def __init__(self, path: Path) -> None:
        self.path, self.seconds = path, {}
        self.cover = coverage.Coverage(data_file=None, include=[str(path)])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.cover.switch_context(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        self.cover.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.skipped:
            self.seconds.pop(name)

    def lines(self) -> dict[int, list[str]]:
        contexts = self.cover.get_data().contexts_by_lineno(str(self.path))
        return {line: [name for name in c if name] for line, c in contexts.items()}


class _Chosen:
    """Runs these tests alone, in this order; Hypothesis does not shrink."""

    def __init__(self, names: list[str]) -> None:
        self.place = {name: i for i, name in enumerate(names)}

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.place]
        items.sort(key=lambda item: self.place[item.nodeid])


def forked(work: Path, body: Callable[[], int], seconds: float) -> int | None:
    """Exit status of a fork that runs `body` in a folder; None if it took too long."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.chdir(work)
        sys.path[0] = str(work)
        for name in [name for name in sys.modules if name.startswith("scripts")]:
            del sys.modules[name]  # the folder has its own
        log = os.open(work / "mutants.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 70  # of a body that raises
        try:
            status = int(body())
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def baseline(work: Path, file: str, tests: list[str]) -> Baseline:
    """Runs the tests on the unchanged file, which they must pass."""

    def body() -> int:
        sys.dont_write_bytecode = False
        recorder = _Recorder(work / file)
        recorder.cover.start()
        status = pytest.main([*FLAGS, *tests], plugins=[recorder])
        recorder.cover.stop()
        found = {"seconds": recorder.seconds, "lines": recorder.lines()}
        (work / "mutants.json").write_text(json.dumps(found))
        return status

    status = forked(work, body, 3600.0)
    if status != 0:
        text = (work / "mutants.log").read_text()[-3000:]
        sys.exit(f"{text}\n{file}: the tests {tests} fail without any mutant")
    found = json.loads((work / "mutants.json").read_text())
    kept = set(found["seconds"])
    lines = {int(n): kept & set(names) for n, names in found["lines"].items()}
    return Baseline(found["seconds"], lines)


def in_order(names: set[str], seconds: dict[str, float]) -> list[str]:
    """The fastest first, but file by file."""
    by_home: dict[str, list[str]] = {}
    for name in sorted(names, key=seconds.__getitem__):
        by_home.setdefault(name.partition("::")[0], []).append(name)
    return [name for home in by_home.values() for name in home]


def passes(work: Path, names: set[str], base: Baseline) -> bool | None:
    """Whether all these tests pass on what lies in the folder; None: not in time."""
    if not names:
        return True
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))

    def body() -> int:
        sys.dont_write_bytecode = True
        chosen = _Chosen(in_order(names, base.seconds))
        return pytest.main([*FLAGS, "-x", *files], plugins=[chosen])

    most = PATIENCE + TIMES * sum(base.seconds[name] for name in names)
    status = forked(work, body, most)
    return None if status is None else status in (0, 5)


def outcome(work: Path, file: str, mutant: Mutant, base: Baseline) -> bool | None:
    """Whether a mutant passes its tests; None: not in time."""
    path = work / file
    path.write_text(mutant.source)
    for old in path.parent.glob(f"__pycache__/{path.stem}.*"):
        old.unlink()
    wide = set().union(*base.by_line.values()) if mutant.in_body else set(base.seconds)
    near = base.by_line.get(mutant.line, set()) if mutant.in_body else wide
    passed = passes(work, near, base)
    return passes(work, wide - near, base) if passed else passed


def survey(
    file: str, tests: list[str], same: dict[str, str], sample: int | None, seed: int
) -> Result:
    """Runs the tests on mutants of a file; `same` are those known to be equivalent."""
    source = (ROOT / file).read_text()
    mutants = mutants_of(source)
    if unknown := set(same) - {mutant.name for mutant in mutants}:
        sys.exit(f"{TABLE.name}, {file}: no such mutants: {sorted(unknown)}")
    if sample is not None:
        random.Random(f"{seed} {file}").shuffle(mutants)  # a larger sample holds this
    result = Result([], [], [], [])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder).resolve() / "copy"
        shutil.copytree(ROOT, work, ignore=shutil.ignore_patterns(*LEFT))
        base = baseline(work, file, [file, *tests])
        for mutant in mutants[:sample]:
            if mutant.name in same:
                result.equivalent.append(mutant.name)
                continue
            passed = outcome(work, file, mutant, base)
            kind = {None: result.timed_out, True: result.survived, False: result.killed}
            kind[passed].append(mutant.name)
            if passed:
                print(f"survived  {file}:{mutant.line} {mutant.name}", flush=True)
    return result


def main(argv: list[str] | None = None) -> int:
    """1 if a mutant survived that the table does not name."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", help="of relaxjax, from the root")
    parser.add_argument("--sample", type=int, help="mutants of each file; default all")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample")
    parser.add_argument("--tests", nargs="+", help="files or folders of tests")
    given = parser.parse_args(argv)
    for name in (
        "jax",
        "numpy",
        "optax",
    ):  # once, for all forks
        importlib.import_module(name)
    table: dict[str, Any] = tomllib.loads(TABLE.read_text())
    survivors = 0
    for file in given.files:
        row = table.get(file, {})
        tests = given.tests or row.get("tests")
        if tests is None:
            parser.error(f"{file} is not in {TABLE.name}: give --tests")
        start = time.monotonic()
        result = survey(file, tests, row.get("same", {}), given.sample, given.seed)
        counts = " ".join(f"{k} {len(v)}" for k, v in result._asdict().items())
        print(f"{file}: {counts}; {time.monotonic() - start:.0f} s", flush=True)
        survivors += len(result.survived)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
