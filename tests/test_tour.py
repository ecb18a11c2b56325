"""The tour is run as a reader would: each block in its turn, each output compared."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.train import FIRST
from tests.shown import require_same

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tour.md"
FENCE = re.compile(r"^```(\S.*?)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
ACTIVATE = "source .venv/bin/activate"


def blocks() -> list[tuple[str, str]]:
    """Kind and text of each fenced block: console, a file's name, or change."""
    found = []
    for head, text in FENCE.findall(PAGE.read_text()):
        named = re.match(r"# (\S+\.py)\n\n", text)
        kind = named[1] if named else {"console": "console", "python": "change"}[head]
        found.append((kind, text))
    return found


def changed(program: str, change: str) -> str:
    """A program with an assignment in the place of its own, or with a line more."""
    (new,) = ast.parse(change).body
    if not isinstance(new, ast.Assign):
        return program + change
    for old in ast.parse(program).body:
        if isinstance(old, ast.Assign) and ast.dump(old.targets[0]) == ast.dump(
            new.targets[0]
        ):
            lines = program.splitlines(keepends=True)
            assert old.end_lineno
            lines[old.lineno - 1 : old.end_lineno] = [change]
            return "".join(lines)
    raise AssertionError(f"nothing to change: {change}")


def run(command: str, folder: Path) -> str:
    """What a command prints on stdout, as of a shell in the reader's folder."""
    if command == "python3 scripts/train.py":  # in an environment that there is
        command = shlex.join(["relaxjax", "train", *FIRST])
    name, *arguments = shlex.split(command)
    start = {"relaxjax": ["-m", "relaxjax"], "python": []}[Path(name).name]
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    for ours in ("NPROC", "XLA_FLAGS", "COLUMNS"):
        env.pop(ours, None)
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_tour_is_what_happens(tmp_path):
    program = ""
    for kind, text in blocks():
        if kind == "console":
            command, _, shown = text.removeprefix("$ ").partition("\n")
            if not command.startswith(ACTIVATE):
                require_same(shown, run(command.rpartition("&& ")[2], tmp_path))
            continue
        program = changed(program, text) if kind == "change" else text
        (tmp_path / "tour.py").write_text(program)


def test_the_tour_begins_with_the_first_command_of_the_readme():
    (first, *_) = [text for kind, text in blocks() if kind == "console"]
    assert first.removeprefix("$ ").splitlines()[0] in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a 0.964", "a 0.961"),
        ("│ bytes │ 1,024 │", "│ bytes  │ 1,024 │"),
        ("step 20, loss 0.5, 10.1 steps/s", "step 20, loss 0.5, 99.9 steps/s"),
        ("│ steps per second │ 3.2 │ 4.5 │", "│ steps per second │ 30.2 │ 4.9 │"),
        ("...\nb 1", "a\nb 2\nb 1"),
        ("b 1\n...", "b 1\nc"),
    ],
)
def test_what_counts_as_the_same(shown, printed):
    require_same(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a 0.964", "a 0.861"),
        ("bytes 1,024", "bytes 1,025"),
        ("step 20, 10.1 steps/s", "step 21, 10.1 steps/s"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("...\nc 1", "a\nb"),
    ],
)
def test_what_does_not(shown, printed):
    with pytest.raises(AssertionError):
        require_same(shown, printed)


def test_a_change_takes_the_place_of_an_assignment():
    program = "a = 1\ntx = f(\n    2,\n)\nb = tx\n"
    assert changed(program, "tx = 3\n") == "a = 1\ntx = 3\nb = tx\n"
    assert changed(program, "print(a)\n") == program + "print(a)\n"
