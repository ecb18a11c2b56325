"""All commands alike: help, names completed and guessed, JSON, exit codes, colors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import relaxjax
from relaxjax._names import RELAXATIONS, parse
from relaxjax.checkpoint import Checkpoints, _lock
from relaxjax.cli import _app, app
from relaxjax.cli._app import COMMANDS, load
from relaxjax.cli.common._errors import EXIT_CODES
from relaxjax.cli.common._known import relaxations
from relaxjax.cli.training import _prepare
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS

ROOT = Path(__file__).parent.parent.parent
PLAIN = {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
COLOR = re.compile(r"\x1b\[(\d+;)*[349][0-8][;m]")


def invoke(*arguments: str, **env: str):
    return CliRunner().invoke(
        app, list(arguments), env=PLAIN | env, prog_name="relaxjax"
    )


def test_help_says_how_to_begin_and_how_it_ends():
    result = invoke("--help")
    assert result.exit_code == 0
    shown = " ".join(result.output.split())
    assert "relaxjax train --relaxation all_reduce --workers 8 --task digits" in shown
    for code, what in EXIT_CODES.items():
        assert f"{code} {what}" in shown


def test_the_table_has_the_first_line_of_each_commands_help():
    for name, summary in COMMANDS.items():
        assert load(name).help.splitlines()[0] == summary
        assert summary in " ".join(invoke(name, "--help").output.split())


@pytest.mark.parametrize(("told", "known"), [("0", None), ("72", "72"), (None, None)])
def test_a_terminal_of_no_columns_has_the_usual_number(told, known, monkeypatch):
    """Rich would print nothing at all."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if told is not None:
        monkeypatch.setenv("COLUMNS", told)
    seen = []
    monkeypatch.setattr(
        _app, "app", lambda prog_name: seen.append(os.environ.get("COLUMNS"))
    )
    _app.main()
    assert seen == [known]


LISTING = """
import sys
from relaxjax.cli import main
sys.argv = ["relaxjax", "--help"]
try:
    main()
finally:
    heavy = {"jax", "relaxjax.gradients._rows", "relaxjax.cli._train"}
    print(*heavy & set(sys.modules), file=sys.stderr)
"""


def test_help_imports_no_command_and_lists_all():
    shown = subprocess.run(
        [sys.executable, "-c", LISTING],
        env=os.environ | PLAIN | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert shown.returncode == 0
    assert shown.stderr.split() == []
    for name, summary in COMMANDS.items():
        assert re.search(rf"\b{name} +{re.escape(summary)}", shown.stdout)


def test_where_the_benchmarks_went_is_one_line():
    result = invoke("bench", "codecs")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_the_page_lists_the_exit_codes():
    page = (ROOT / "docs" / "command_line.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, flags=re.MULTILINE)
    assert {int(code): what for code, what in rows} == EXIT_CODES


def test_the_version_is_printed():
    result = invoke("--version")
    assert result.exit_code == 0
    assert re.fullmatch(r"relaxjax [\d.]+, jax [\d.]+\n", result.output)


@pytest.mark.parametrize(
    ("typed", "some"),
    [
        ("all", {"all_reduce"}),
        ("gossip@r", {"gossip@ring"}),
        ("all_reduce+quantize", {f"all_reduce+quantize{b}" for b in (2, 4, 8)}),
        ("all_reduce+sign+ef", {"all_reduce+sign+ef14", "all_reduce+sign+ef21"}),
        ("all_reduce+sign@two", {"all_reduce+sign@two_shot"}),
        ("nothing", set()),
    ],
)
def test_names_are_completed(typed, some):
    names = {name for name, _ in relaxations(typed)}
    assert some <= names
    assert bool(some) == bool(names)
    assert all(name.startswith(typed) for name in names)
    for name in names:
        assert parse(name)


def test_all_names_are_completed():
    assert {name for name, _ in relaxations("")} == set(RELAXATIONS)
    assert len(relaxations("all_reduce+")) == len(COMPRESSORS)
    assert len(relaxations("all_reduce+sign+")) == len(FEEDBACKS)


def test_a_shell_completes_them():
    line = "relaxjax train --relaxation pow"
    asked = {"_RELAXJAX_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    result = invoke(COMP_WORDS=line, **asked)
    assert result.output.split() == ["power_sgd"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("allreduce", "all_reduce"),
        ("power-sgd", "power_sgd"),
        ("all_reduce+quantiz8", "quantize8"),
        ("all_reduce+sign+ef4", "ef14"),
        ("all_reduce@rings", "ring"),
    ],
)
def test_what_was_meant_is_guessed(name, meant):
    result = invoke("train", "--relaxation", name)
    assert result.exit_code == 2
    assert re.search(rf"Did you mean .*\b{meant}\b.*\?", result.output)
    assert "Did you mean" not in invoke("train", "--relaxation", "zzz").output


MISTAKES = [
    ("tarin", "No such command 'tarin'"),
    ("train --set rank", "--set rank"),
    ("train --steps 1 --relaxation gossip --set every=many", "--set every=many"),
    ("order", "Missing argument"),
    ("order here.py", "expected FILE.py:FUNCTION"),
    ("order nowhere.py:loss", "no such file: nowhere.py"),
    ("run nowhere.py", "nowhere.py is not a file"),
    ("run -n 0 train", "-n 0: it must be 1 or more"),
    ("run --rate fast train", "--rate fast"),
    ("bench", "`python -m benchmarks NAME`"),
    ("bench --json codecs --size-mb 0", "`python -m benchmarks NAME`"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_mistakes_are_messages(line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*line.split())
    assert result.exit_code == 2
    assert message in result.output
    assert isinstance(result.exception, SystemExit)  # and no traceback
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_has_its_code(monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_prepare, "prepare", interrupted)
    result = invoke("train")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


@pytest.mark.long
def test_training_as_json(tmp_path):
    line = "train --json --workers 2 --steps 2 --checkpoint-every 1 --out"
    result = invoke(*line.split(), str(tmp_path))
    assert result.exit_code == 0, result.output
    many, one = json.loads(result.stdout)
    assert many == json.loads((tmp_path / "run.json").read_text())
    assert one == json.loads((tmp_path / "one_worker.json").read_text())
    assert "bytes per step" in result.stderr
    again = invoke(*line.split(), str(tmp_path), "--resume", "--workers", "1")
    assert (
        json.loads(again.stdout)[0]["workers"] == 1
    )  # the report on them is on stderr


def test_the_folder_of_a_live_run_is_a_mistake_and_no_bug(tmp_path, monkeypatch):
    """`--resume` in a second terminal: one line, and the code of a mistake."""
    with Checkpoints(tmp_path / "checkpoints", relaxjax.emulate(2)):
        monkeypatch.setattr(_lock, "_HELD", {})  # as in another process
        line = "train --workers 2 --steps 2 --checkpoint-every 1 --resume --out"
        result = invoke(*line.split(), str(tmp_path))
    assert result.exit_code == 2
    assert "writes checkpoints into" in result.stderr
    assert "Traceback" not in result.stderr


ON_TERMINAL = """
import os, pty, sys
plan = "plan --params=1e6 --compute-ms=9 --workers=2 --bandwidth-gbps=9".split()
sys.exit(pty.spawn([sys.executable, "-m", "relaxjax", *plan]) >> 8)
"""


@pytest.mark.slow
@pytest.mark.parametrize("no_color", [False, True])
def test_colors_are_for_terminals_that_want_them(no_color):
    env = os.environ | {"JAX_PLATFORMS": "cpu", "TERM": "xterm-256color"}
    env |= {"PYTHONPATH": str(ROOT)}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "GITHUB_ACTIONS"):
        env.pop(name, None)
    env |= {"NO_COLOR": "1"} if no_color else {}
    shown = subprocess.run(
        [sys.executable, "-c", ON_TERMINAL],
        env=env,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
    )
    assert shown.returncode == 0, shown.stderr
    assert "* all_reduce" in shown.stdout
    assert bool(COLOR.search(shown.stdout)) != no_color
