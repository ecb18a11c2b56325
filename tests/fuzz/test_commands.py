"""Command lines that nobody meant: a message and status 2, or they are accepted.

The work behind the checks is left out: nothing is trained, ranked or launched.
`pytest -m slow tests/fuzz/test_commands.py` tries 10 000.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from relaxjax import compare, hosts
from relaxjax.cli import _app, _check, _training
from relaxjax.plan import _rank
from tests.fuzz.arguments import FILES, line

ROOT = Path(__file__).parents[2]
FEW, MANY = 150, 10_000
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
CAPTURED: Any = {"capture_output": True, "text": True}
ENDED = SimpleNamespace(status=0, first=None)


class Written:
    """Results of a study that was not run."""

    def write(self) -> None:
        """No report."""


@pytest.fixture
def checks_only(monkeypatch, tmp_path):
    """Commands as far as their work."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    every = _rank.candidates
    monkeypatch.setattr(_rank, "candidates", lambda net: list(every(net))[:3])
    monkeypatch.setattr(_training, "run", lambda job: None)
    monkeypatch.setattr(compare.Study, "run", lambda *args, **how: Written())
    monkeypatch.setattr(hosts, "launch", lambda *args, **how: ENDED)
    monkeypatch.setattr(_check, "_report", lambda *args, **how: {"holds": True})
    monkeypatch.setattr(_check, "_save", lambda *args: None)
    monkeypatch.setattr(_check, "_print", lambda *args: None)


@pytest.mark.long
@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_line_is_accepted_or_refused_in_words(count, checks_only):
    rng, runner = random.Random(0), CliRunner()
    accepted = 0
    for _ in range(count):
        arguments, wrong = line(rng)
        result = runner.invoke(_app.app, arguments)
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
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    rng, lines = random.Random(1), list[list[str]]()
    while len(lines) < 50:
        arguments, wrong = line(rng)
        if wrong is not None and not any("\0" in part for part in arguments):
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
