"""A user's file is run as it stands, whatever bytecode would say."""

import os
import sys
from pathlib import Path

import pytest

from relaxjax import tasks
from relaxjax.cli.common._function import import_file

TASK = """from relaxjax import tasks
def task(seed):
    return tasks.digits(seed)
RATE = 0.1
"""


def rate_of_task(path: Path) -> float:
    tasks.load(str(path))
    return vars(sys.modules[f"_task_{path.stem}"])["RATE"]


def rate_of_function(path: Path) -> float:
    return import_file(path).RATE


@pytest.mark.parametrize("read", [rate_of_task, rate_of_function])
def test_an_edit_within_a_second_counts(tmp_path, monkeypatch, read):
    """Same size and same time, which is all that Python's bytecode goes by."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "edited_at_once.py"
    for text, rate in ((TASK, 0.1), (TASK.replace("0.1", "0.2"), 0.2)):
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
        assert read(path) == rate
    assert not (tmp_path / "__pycache__").exists()
