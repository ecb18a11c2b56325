"""Defects that were here once: put back into a copy, any training finds each of them.

Each is a piece of the code as it is, and what it was or amounted to. The copy must be
found wrong by `tests.faults.test_any_training`, and the code as it is must not be.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = 60
RUN = """
import pathlib, sys
sys.path.insert(0, ".")
import conftest, relaxjax
assert pathlib.Path(relaxjax.__file__).is_relative_to(pathlib.Path.cwd())
from tests.faults.test_any_training import one_chain, run
run(one_chain(sys.argv[1]), int(sys.argv[2]), shrink=False)
"""


class Defect(NamedTuple):
    """A file of the package, what is replaced in it, and a chain that shows it."""

    file: str
    line: str
    becomes: str
    chain: str


DEFECTS = {
    "a direction that is null stays so": Defect(
        "gradients/low_rank/_low_rank.py",
        "b = with_lost_directions(b,",
        "_ = with_lost_directions(b,",
        "power_sgd",
    ),
    "a counter past a smaller period never gets there": Defect(
        "_core/traced/_silence.py",
        "return since >= every - 1",
        "return since == every - 1",
        "diloco",
    ),
    "a residual keeps what is not finite": Defect(
        "compression/feedback/_fed_back.py",
        "jnp.where(sound, new, old) if of_elements(new) else new",
        "new",
        "all_reduce+sign+ef14@two_shot",
    ),
    "a factor keeps what is not finite": Defect(
        "gradients/low_rank/_low_rank.py",
        "keep = absent | ~(sound & jnp.isfinite(lost))",
        "keep = absent",
        "power_sgd",
    ),
    "an absent worker's NaN enters its momentum between two rounds": Defect(
        "gradients/adaptive/_zero_one_adam.py",
        "g = unless_absent(weight, g, m)",
        "pass",
        "zero_one_adam",
    ),
    "momentum ends where nobody has an example": Defect(
        "gradients/adaptive/_one_bit_adam.py",
        "m = unless_nobody(weight, axis_name, m, alone)",
        "del alone",
        "one_bit_adam",
    ),
}


def found_in(folder: Path, chain: str) -> str:
    """What the machine of a chain says of the package in a folder; "" is nothing."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, chain, str(EXAMPLES)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for name in ("relaxjax", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_each_is_a_piece_of_the_code(defect):
    text = (ROOT / "relaxjax" / defect.file).read_text()
    assert text.count(defect.line) == 1


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_any_training_finds_it_when_it_is_put_back(copy, defect):
    file = copy / "relaxjax" / defect.file
    sound = file.read_text()
    file.write_text(sound.replace(defect.line, defect.becomes))
    try:
        said = found_in(copy, defect.chain)
    finally:
        file.write_text(sound)
    assert "AssertionError" in said, said or "nothing was found"
    assert "state = OneChain()" in said  # a training, step by step


@pytest.mark.slow
@pytest.mark.parametrize("chain", sorted({x.chain for x in DEFECTS.values()}))
def test_without_a_defect_nothing_is_found(copy, chain):
    assert not found_in(copy, chain)
