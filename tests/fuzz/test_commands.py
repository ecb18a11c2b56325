"""Command lines that nobody meant: a message and status 2, or they are accepted.

The work behind the checks is left out: nothing is trained, ranked or launched.
`pytest -m slow tests/fuzz/test_commands.py` tries 10 000.
"""

import json
import random
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from relaxjax import compare, hosts
from relaxjax.cli import _app, _check, _training
from relaxjax.plan import _rank
from tests.fuzz.arguments import FILES, line

FEW, MANY = 150, 10_000
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
