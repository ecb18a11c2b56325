"""Help, Tab and a mistyped name come from data, and import no JAX."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaxjax.cli._app import COMMANDS
from relaxjax.cli.common._known import known
from scripts import names

ROOT = Path(__file__).parents[2]
LINE = """
import sys
from relaxjax.cli import main
sys.argv = ["relaxjax", *sys.argv[1:]]
try:
    main()
finally:
    print("loaded:", *{"jax", "sklearn", "flax"} & set(sys.modules), file=sys.stderr)
"""
TAB = {"_RELAXJAX_COMPLETE": "complete_bash", "COMP_CWORD": "3"}


def shown(*words: str, **environment: str) -> list[str]:
    """What a command line prints, on both streams."""
    run = subprocess.run(
        [sys.executable, "-c", LINE, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stderr.splitlines()[-1] == "loaded:", run.stderr
    return [*run.stdout.splitlines(), *run.stderr.splitlines()]


def test_the_names_are_those_of_the_tables():
    assert json.loads(names.PATH.read_text()) == names.names()
    assert known().relaxations["all_reduce"].compressors


@pytest.mark.long
@pytest.mark.few(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_no_jax(command):
    assert any("--help" in line for line in shown(command, "--help"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train", "--relaxation", "al_reduce"], "all_reduce"),
        (["explain", "all_reduce+quantise8"], "quantize8"),
        (["train", "--relaxation", "all_reduce+sign+ef114"], "ef14"),
    ],
)
def test_a_mistyped_name_is_answered_before_jax_is_imported(words, meant):
    said = " ".join(shown(*words))
    assert said.startswith("relaxjax: relaxation")
    assert f". Did you mean {meant}" in said.partition(" There is ")[0]


@pytest.mark.long
def test_a_tab_imports_no_jax():
    line = "relaxjax train --relaxation gos"
    found = shown(**TAB, COMP_WORDS=line)
    assert "gossip" in found
