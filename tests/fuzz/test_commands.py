"""Command lines that nobody meant: a message and status 2, or they are accepted.

The work behind the checks is left out: nothing is trained, ranked or launched.
`pytest -m slow tests/fuzz/test_commands.py` tries 2 000 in one process, under a limit
of its memory, and 50 in processes of their own. A line takes five seconds at most, and
no file is made outside of the folder that it names.
"""

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from relaxjax import compare, hosts
from relaxjax.cli import _app, _check
from relaxjax.cli.training import _training
from relaxjax.islands.started import _supervise
from relaxjax.plan import _rank, _sharded
from tests.fuzz.arguments import COMMANDS, FILES, line
from tests.fuzz.bounds import bounded

ROOT = Path(__file__).parents[2]
FEW, MANY = 150, 2_000
MEMORY = 16 << 30  # of addresses, of which XLA reserves much
NEW = {"new", "islands", "runs"}  # folders of right lines, or by default
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
CAPTURED: Any = {"capture_output": True, "text": True}
ENDED = hosts.Ended(0, "")


def lay_out(folder: Path) -> None:
    """The files of `FILES`, and a pipe."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    os.mkfifo(folder / "pipe.json")


def made_in(folder: Path) -> set[str]:
    """What is there beside the files of `FILES`."""
    there = {name.partition("/")[0] for name in FILES} | {"pipe.json"}
    return set(os.listdir(folder)) - there


@pytest.fixture
def little_memory():
    """A limit of addresses, so that an array of a wrong size is an error at once."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


class NoPlace:
    """An island that is done before it begins."""

    is_open = unread = False
    process = None

    def __init__(self, *args: Any):
        """No process."""

    def send(self, number: int) -> None:
        """To nobody."""

    def dismiss(self) -> None:
        """Nobody."""


class Written:
    """Results of a study that was not run."""

    folder = Path()

    def write(self) -> None:
        """No report."""

    def table(self) -> str:
        """No rows."""
        return ""

    def conclusion(self) -> list[str]:
        """No verdicts."""
        return []


@pytest.fixture
def checks_only(monkeypatch, tmp_path):
    """Commands as far as their work."""
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    every, ways = _rank.candidates, _sharded._possible
    monkeypatch.setattr(_rank, "candidates", lambda net: list(every(net))[:3])
    monkeypatch.setattr(_sharded, "_possible", lambda net: list(ways(net))[:3])
    monkeypatch.setattr(_training, "run", lambda job: None)
    monkeypatch.setattr(compare.Study, "run", lambda *args, **how: Written())
    monkeypatch.setattr(hosts, "launch", lambda *args, **how: ENDED)
    monkeypatch.setattr(_supervise, "Place", NoPlace)
    monkeypatch.setattr(_check, "_report", lambda *args, **how: {"holds": True})
    monkeypatch.setattr(_check, "_save", lambda *args: None)
    monkeypatch.setattr(_check, "_print", lambda *args: None)


@pytest.mark.parametrize("command", _app.COMMANDS)
def test_every_option_is_tried(command):
    for param in _app.load(command).params:
        names = {name for name in param.opts if name.startswith("-")} or {""}
        assert names & {*COMMANDS[command], "--help"}, param.name


@pytest.mark.long
@pytest.mark.parametrize(
    "count",
    [
        FEW,
        pytest.param(MANY // 10, marks=pytest.mark.slow),
        pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.every]),
    ],
    ids=["few", "more", "many"],
)
def test_a_line_is_accepted_or_refused_in_words(
    count, checks_only, little_memory, tmp_path
):
    rng, runner = random.Random(0), CliRunner()
    for name in ("explain all_reduce", "order loss.py:loss", "train", "plan"):
        runner.invoke(_app.app, name.split())  # imports
    accepted = 0
    for _ in range(count):
        arguments, wrong = line(rng)
        with bounded(arguments):
            result = runner.invoke(_app.app, arguments)
        assert made_in(tmp_path) <= NEW, arguments
        shown = json.dumps(arguments)[:500], result.exception
        assert isinstance(result.exception, SystemExit | None), shown
        assert result.exit_code in (0, 2), shown
        assert wrong is None or result.exit_code == 2, (*shown, wrong)
        assert result.exit_code == 0 or len(result.stderr.strip()) > 10, shown
        accepted += result.exit_code == 0
    assert 0.2 < accepted / count < 0.8


@pytest.mark.slow
def test_fifty_lines_in_processes_of_their_own(tmp_path):
    """Lines that are wrong, as a shell hands them over: no traceback, and no hang."""
    lay_out(tmp_path)
    rng, lines = random.Random(1), list[list[str]]()
    while len(lines) < 50:
        arguments, wrong = line(rng)
        started = arguments[0] in ("train", "compare", "run")
        null = any("\0" in part for part in arguments)
        if wrong is not None and not started and not null:
            lines.append(arguments)
    for arguments in lines:
        command = [sys.executable, "-m", "relaxjax", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, **CAPTURED, timeout=120
        )
        shown = arguments, done.stderr[-2000:]
        assert done.returncode == 2, shown
        assert len(done.stderr.strip()) > 10, shown
        assert "Traceback" not in done.stderr, shown
        assert made_in(tmp_path) == set(), shown
