"""Programs for eight TPUs, compiled without one; skipped where that is impossible."""

import pytest

from benchmarks.programs import tpu_program as _tpu_program
from tests.compiled_text import as_users_compile

__all__ = ["as_users_compile", "mesh"]


@pytest.fixture(scope="session")
def mesh():
    reason = _tpu_program.missing()
    if reason:
        pytest.skip(reason)
    return _tpu_program.tpu_mesh()
