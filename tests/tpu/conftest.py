"""Programs for eight TPUs, compiled without one; skipped where that is impossible."""

import jax
import pytest

from relaxjax.bench import _tpu_program


@pytest.fixture(scope="session")
def mesh():
    reason = _tpu_program.missing()
    if reason:
        pytest.skip(reason)
    return _tpu_program.tpu_mesh()


@pytest.fixture(autouse=True)
def as_users_compile():
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
