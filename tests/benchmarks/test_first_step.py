"""The benchmark of first steps: each of its programs runs, and its time is printed."""

import pytest

from benchmarks.micro import first_step


@pytest.mark.parametrize("place", first_step.PLACES)
@pytest.mark.parametrize("name", [first_step.BASELINE, *first_step.TARGETS])
@pytest.mark.few(4)
def test_each_program_runs_and_says_its_seconds(name, place, capsys):
    first_step.child(name, place, 1)
    assert float(capsys.readouterr().out) > 0


def test_rows_are_those_with_a_target():
    assert set(first_step.transformations()) == set(first_step.TARGETS)
