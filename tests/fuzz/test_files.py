"""Damaged checkpoints: refused by name, or restored as what was saved.

`pytest -m slow tests/fuzz/test_files.py` tries 2 000.
"""

import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import checkpoint, emulate
from tests.fuzz.bounds import bounded
from tests.fuzz.mutate import damaged

FEW, MANY = 60, 2_000


def resumed(folder: Path, mesh: Any, like: Any) -> jax.Array:
    with checkpoint.Checkpoints(folder, mesh) as again:
        return again.restore(like, step=1)[1]["w"]


def evaluated(folder: Path, mesh: Any, like: Any) -> jax.Array:
    with checkpoint.Checkpoints(folder, mesh, read_only=True) as reader:
        return reader.restore(like, step=1)[1]["w"]


def exported(folder: Path, mesh: Any, like: Any) -> np.ndarray:
    return checkpoint.restore_params(folder, part="w")[None]


RESTORES = (resumed, evaluated, exported)


@pytest.mark.parametrize(
    "count",
    [
        FEW,
        pytest.param(MANY // 10, marks=pytest.mark.slow),
        pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.every]),
    ],
    ids=["few", "more", "many"],
)
def test_checkpoints(count, tmp_path):
    """Whatever is changed, nothing else than what was saved is restored."""
    rng = random.Random(3)
    state = {"w": jnp.arange(6.0)[None], "n": jnp.zeros(1, jnp.int32)}
    where = tmp_path / "c", emulate(1)
    with checkpoint.Checkpoints(*where) as saved:
        saved.save(1, state, now=True)
    files = [p for p in (tmp_path / "c").rglob("*") if p.is_file()]
    whole = {path: path.read_bytes() for path in files}
    for _ in range(count):
        path = rng.choice(files)
        what = damaged(whole[path], rng)
        path.write_bytes(what)
        for restore in RESTORES:
            found, said = state["w"], "checkpoint"
            try:
                with bounded():
                    found = restore(*where, state)
            except ValueError as error:
                said = str(error)
            assert "checkpoint" in said
            np.testing.assert_array_equal(found, state["w"])
        path.write_bytes(whole[path])
