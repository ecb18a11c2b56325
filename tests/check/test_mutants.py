"""Every seeded mistake is caught with its counterexample; its twin passes."""

import types

import pytest

from relaxjax import emulate
from relaxjax.check._report import Effort, report_of
from relaxjax.check._subjects import subjects_of
from tests.check.mutants import MUTANTS, TWINS
from tests.helpers import mesh_of

SLOW = ("less variance than there is", "a seed beside the noise")
QUICK = Effort(draws=200, sizes=(64,), codec_mb=0.01, rounds=2, steps=0)


def laws_of(source: str, mesh):
    """What is found of the one thing that a file defines."""
    module = types.ModuleType("my_file")
    exec(compile(source, "my_file.py", "exec"), vars(module))
    report = report_of("my_file.py", subjects_of(module), mesh, QUICK)
    (subject,) = report["subjects"]
    held = all(law["holds"] is not False for law in subject["laws"])
    assert report["holds"] == held
    return subject["laws"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_twins_pass(name):
    laws = laws_of(TWINS[name], mesh_of(4))
    assert [law for law in laws if law["holds"] is False] == []
    assert sum(law["holds"] is True for law in laws) >= 5


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in MUTANTS
    ],
)
def test_mutants_are_caught_with_a_counterexample(name):
    mutant = MUTANTS[name]
    laws = laws_of(mutant.mutated, mesh_of(2) if "bytes" in mutant.law else emulate(4))
    failed = {law["law"]: law for law in laws if law["holds"] is False}
    caught = [law for key, law in failed.items() if key.startswith(mutant.law)]
    assert caught, failed
    case = caught[0]["counterexample"]
    assert case["where"]
    assert case["expected"] != case["seen"]
