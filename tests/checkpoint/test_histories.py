"""Whatever a run has been through, a resume is the branch that its history implies."""

import pytest

from relaxjax import emulate
from tests.checkpoint import histories
from tests.hosts.launched import require_run


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(200))
def test_a_resume_is_what_the_history_implies(seed, tmp_path):
    histories.Run(tmp_path, emulate(2), seed).lives()


@pytest.mark.long
def test_processes_live_a_history_together(tmp_path):
    require_run("tests.checkpoint.histories", tmp_path, "8")
