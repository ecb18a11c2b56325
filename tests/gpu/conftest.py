"""Programs for eight H100s, compiled without one; skipped where that is impossible."""

import pytest

from benchmarks.programs import gpu_program as _gpu_program
from tests.compiled_text import as_users_compile

__all__ = ["as_users_compile", "mesh"]


@pytest.fixture(scope="session")
def mesh():
    reason = _gpu_program.missing()
    if reason:
        pytest.skip(reason)
    return _gpu_program.gpu_mesh()
