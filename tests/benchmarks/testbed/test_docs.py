"""The page's code runs."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testbed.md"


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    training, orders = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(training + textwrap.indent(orders, "    "))
    environment = {"PYTHONPATH": str(PAGE.parents[1]), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    events = json.loads((tmp_path / "both.json").read_text())
    assert "push" not in str(events)  # inference only
    assert "first/w" in str(events)
