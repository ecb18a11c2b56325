"""A task of ours needs libraries of the extra `cli`, and says so."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["digits", "chars"])
def test_what_is_missing_is_named_with_its_remedy(name):
    program = (
        "import sys; sys.modules['flax'] = None; from relaxjax import tasks; "
        f"tasks.{name}"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last == (
        f'ImportError: the task {name} needs flax: pip install "relaxjax[cli]"'
    )
