"""scripts/mutants.py finds what tests miss, in a small package of its own."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutations import mutants_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''"""Sums."""

LIMIT = 10


def clipped(x: int | None, more: int = 0) -> int:
    """x + more, at most LIMIT; 0 is not 1."""
    if x is None:
        raise ValueError(f"x is {None}, and must be at least {1 + 2}")
    return min(x + more, LIMIT)


def halved(x: float) -> float:
    return x / 2
'''
WEAK = """from small.sums import clipped


def test_clipped():
    assert clipped(3) == 3
"""
STRONG = """import pytest

from small.sums import clipped, halved


def test_clipped():
    assert (clipped(3), clipped(3, 4), clipped(9, 4)) == (3, 7, 10)
    with pytest.raises(ValueError, match="must be"):
        clipped(None)


def test_halved():
    assert halved(3) == 1.5
"""


def survey(folder: Path, tests: str, table: str = "", *more: str):
    """Runs the script in a folder that holds it, a package and tests."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("scripts/mutants.py", "scripts/mutations.py", "scripts/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "small").mkdir()
    (folder / "small" / "__init__.py").write_text("")
    (folder / "small" / "sums.py").write_text(SOURCE)
    (folder / "test_sums.py").write_text(tests)
    (folder / "scripts" / "mutants.toml").write_text(table)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: long\n")
    command = [sys.executable, "-m", "scripts.mutants", "small/sums.py", *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def counts(output: str) -> dict[str, int]:
    words = output.splitlines()[-1].partition(": ")[2].partition(";")[0].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


@pytest.mark.slow
def test_what_no_test_runs_survives(tmp_path):
    run = survey(tmp_path, WEAK, "", "--tests", "test_sums.py")
    assert run.returncode == 1, run.stderr
    for missed in ("halved: x / 2 -> x * 2", "clipped: raise ValueError", "module: 10"):
        assert f" {missed}" in run.stdout
    assert "clipped: x + more -> x - more" in run.stdout  # more is 0 in its only test
    made = len(mutants_of(SOURCE))
    assert sum(counts(run.stdout).values()) == made
    assert 0 < counts(run.stdout)["killed"] < made


@pytest.mark.slow
def test_what_tests_see_is_killed_and_the_table_says_what_nobody_can_see(tmp_path):
    row = '["small/sums.py"]\ntests = ["test_sums.py"]\n'
    run = survey(tmp_path, STRONG, row)
    assert run.returncode == 0, run.stdout + run.stderr
    assert counts(run.stdout)["killed"] == len(mutants_of(SOURCE))
    row += '["small/sums.py".same]\n"halved: x / 2 -> x * 2" = "as an example"\n'
    run = survey(tmp_path, STRONG, row)
    assert counts(run.stdout)["equivalent"] == 1
    run = survey(tmp_path, STRONG, row.replace("x * 2", "x * 3"))
    assert run.returncode == 1
    assert "no such mutants: ['halved: x / 2 -> x * 3']" in run.stderr


@pytest.mark.long
def test_tests_that_fail_without_a_mutant_say_nothing(tmp_path):
    wrong = STRONG.replace("1.5", "1.6")
    run = survey(tmp_path, wrong, "", "--tests", "test_sums.py")
    assert run.returncode == 1
    assert "fail without any mutant" in run.stderr
    assert "killed" not in run.stdout


@pytest.mark.slow
def test_a_mutant_that_never_ends_is_killed(tmp_path):
    """After 20 seconds: a loop that counts down goes up."""
    source = "\n\ndef down(x):\n    while x > 0:\n        x -= 1\n    return x\n"
    tests = "from small.sums import down\n\n\ndef test():\n    assert down(3) == 0\n"
    table = '["small/sums.py"]\ntests = ["test_sums.py"]\n'
    (tmp_path / "a").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "SOURCE", source)
        run = survey(tmp_path / "a", tests, table, "--sample", "99")
    assert counts(run.stdout)["timed_out"] >= 1, run.stdout + run.stderr


def test_mutants_leave_alone_what_nobody_observes():
    names = [mutant.name for mutant in mutants_of(SOURCE)]
    assert len(set(names)) == len(names)
    expected = {
        "module: 10 -> 11",
        "clipped: 0 -> 1",
        "clipped: x is None -> x is not None",
        "clipped: return min(x + more, LIMIT) -> return None",
        "clipped: min -> max",
        "clipped: x + more -> x - more",
        "halved: return x / 2 -> return None",
        "halved: x / 2 -> x * 2",
        "halved: 2 -> 3",
    }
    raised = [name for name in names if name.endswith(" -> pass")]
    assert set(names) == expected | set(raised)
    assert len(raised) == 1


@pytest.mark.parametrize("file", ["_core/_phases.py", "schedule/orders/_makespan.py"])
def test_mutants_keep_the_lines_and_are_python(file):
    source = (ROOT / "relaxjax" / file).read_text()
    lines = source.splitlines()
    for mutant in mutants_of(source):
        ast.parse(mutant.source)
        changed = mutant.source.splitlines()
        assert len(changed) == len(lines), mutant.name
        assert changed[: mutant.line - 1] == lines[: mutant.line - 1], mutant.name
        assert mutant.source != source, mutant.name
