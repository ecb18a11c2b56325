"""A few mutants of each file that scripts/mutants.toml has figures of are seen."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.mutations import mutants_of

ROOT = Path(__file__).resolve().parents[1]
TABLE = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("file", [f for f, row in TABLE.items() if "killed" in row])
def test_a_sample_of_mutants_is_killed(file):
    command = [sys.executable, "-m", "scripts.mutants", file]
    command += ["--sample", "6"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("file", TABLE)
def test_the_table_names_mutants_and_tests_that_there_are(file):
    row = TABLE[file]
    names = [mutant.name for mutant in mutants_of((ROOT / file).read_text())]
    assert set(row.get("same", {})) <= set(names)
    assert all((ROOT / path).is_file() for path in row["tests"])
    if "killed" in row:
        looked_at = row["killed"] + row["equivalent"] + row["survived"]
        assert looked_at <= row["made"]
        assert row["survived"] <= 0.05 * looked_at
