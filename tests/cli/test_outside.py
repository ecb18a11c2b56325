"""What a command is given from outside: names too long, files that end it."""

import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relaxjax import golden, plan, tasks
from relaxjax.cli import _plan, app

LONG = "a" * 300
FIGURES = ["plan", "--params=1e6", "--compute-ms=9", "--bandwidth-gbps=9"]
NAMES = {
    "train --task": ["train", "--task", f"{LONG}.py"],
    "train --out": ["train", "--steps=1", "--workers=1", "--out", LONG],
    "run": ["run", f"{LONG}.py"],
    "islands": ["islands", f"{LONG}.py"],
    "islands status": ["islands", "status", LONG],
    "islands --carrier": ["islands", "--carrier", f"folder:{LONG}", "script.py"],
    "order": ["order", f"{LONG}.py:loss"],
    "check": ["check", f"{LONG}.py"],
    "check --skeleton": ["check", "--skeleton", "compressor", f"{LONG}.py"],
    "compare": ["compare", LONG],
    "compare --skeleton": ["compare", "--skeleton", f"{LONG}.py"],
    "compare --out": ["compare", "digits", "--steps=1", "--out", LONG],
    "plan --network": [*FIGURES[:3], "--network", LONG],
    "plan --chart": [*FIGURES, "--workers=2", "--bucket-mb=4", "--chart", LONG],
    "missing folder": ["compare", "--skeleton", "nowhere/task.py"],
    "missing, check": ["check", "--skeleton", "compressor", "nowhere/task.py"],
    "a null": ["compare", "--skeleton", "a\0b.py"],
}
ENDS = {
    "at once": "raise SystemExit(0)\n",
    "when called": "import sys\ndef {name}({args}):\n    sys.exit(0)\n",
}


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_file_can_have(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "rank", lambda *_, **__: None)
    monkeypatch.setattr(plan, "winners", lambda path, *_, **__: path.write_text("."))
    monkeypatch.setattr(_plan, "show", lambda *_: None)
    Path("script.py").touch()
    said = refused(*NAMES[name])
    assert len(said) > 20
    assert os.listdir() == ["script.py"]


@pytest.mark.parametrize("first", [["compare"], ["check"]])
def test_a_command_that_is_shown_can_be_pasted(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = ["--skeleton", "compressor"] if first == ["check"] else ["--skeleton"]
    result = CliRunner().invoke(app, [*first, *kind, "my file.py"])
    assert result.exit_code == 0
    words = shlex.split(result.output.partition("relaxjax ")[2])
    assert words[:2] == [*first, "my file.py"]


@pytest.mark.parametrize("when", ENDS)
@pytest.mark.parametrize(
    ("line", "name", "args"),
    [
        ("order mine.py:loss", "loss", "x=1.0"),
        ("check mine.py", "code() -> 'Compressor'", ""),
        ("train --task mine.py", "task", "seed"),
        ("compare mine.py", "task", "seed"),
    ],
)
def test_a_file_that_ends_the_command_is_named(
    line, name, args, when, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = ENDS[when].format(name=name, args=args).replace("'():", "':")
    Path("mine.py").write_text(text.replace("'Compressor'()", "'Compressor'"))
    said = refused(*line.split())
    assert "SystemExit" in said
    assert "mine" in said or "code: it raised" in said


def test_example_arguments_that_end_the_command_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "def loss(x):\n    return x\ndef loss_args():\n    raise SystemExit(0)\n"
    Path("mine.py").write_text(text)
    assert "loss_args() failed: SystemExit" in refused("order", "mine.py:loss")


def test_batches_and_implementations_that_end_are_named(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import dataclasses\nfrom relaxjax.tasks import digits\n"
        "def task(seed):\n"
        "    def ends(params, batch):\n"
        "        raise SystemExit(0)\n"
        "    return dataclasses.replace(digits(seed), loss=ends)\n"
    )
    with pytest.raises(ValueError, match=r"mine\.py:5 raised SystemExit"):
        tasks.load(str(path))[0](0)

    def ends(*_):
        raise SystemExit(0)

    (row,) = golden.compare(ends, golden.load()[:1])
    assert (row.status, row.detail) == ("error", "SystemExit: 0")
