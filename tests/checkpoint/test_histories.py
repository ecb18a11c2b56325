"""Whatever a run has been through, a resume is the branch that its history implies."""

import sys
from pathlib import Path

import pytest

from relaxjax import emulate, hosts
from tests.checkpoint import histories

ROOT = Path(histories.__file__).parents[2]


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(200))
def test_a_resume_is_what_the_history_implies(seed, tmp_path):
    histories.Run(tmp_path, emulate(2), seed).lives()


@pytest.mark.long
def test_processes_live_a_history_together(tmp_path):
    said = []
    ended = hosts.launch(
        [sys.executable, "-m", "tests.checkpoint.histories", str(tmp_path), "12"],
        2,
        environment={
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "NPROC": "8",
            "PYTHONPATH": str(ROOT),
        },
        say=lambda *line: said.append(line),
    )
    assert ended.status == 0, "\n".join(line[-1] for line in said)
