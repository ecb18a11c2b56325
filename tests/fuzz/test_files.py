"""Damaged files: each is refused by name, or reads as what it still is.

`pytest -m slow tests/fuzz/test_files.py` tries 2 000 of each. A file takes five seconds
at most.
"""

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import checkpoint, compare, emulate, golden, plan
from tests.compare import studies
from tests.fuzz.bounds import bounded
from tests.fuzz.mutate import damaged

FEW, MANY = 60, 2_000


def small_golden() -> bytes:
    path = Path(golden.__file__).with_name("vectors.json")
    whole = json.loads(path.read_text())
    return json.dumps(whole | {"vectors": whole["vectors"][:3]}).encode()


def network(tmp_path: Path) -> bytes:
    path = tmp_path / "network.json"
    plan.Network(workers=8, per_host=4, codec={"": 1e9, "sign": 2e9}).save(path)
    return path.read_bytes()


def read_study(folder: Path) -> None:
    results = compare.Results(folder)
    results.records()
    results.table()


def tried(read: Callable[[], Any], named: Path, what: bytes) -> bool:
    """Whether it was read; a ValueError must name the file."""
    try:
        with bounded(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a torn last line
            read()
        return True
    except ValueError as error:
        said = str(error)
    assert named.name in said, (said, what[-300:])
    return False


@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)
class TestDamaged:
    """Each kind of file."""

    def test_golden_vectors(self, count, tmp_path):
        rng, path, whole = random.Random(0), tmp_path / "vectors.json", small_golden()
        path.write_bytes(whole)
        assert tried(lambda: golden.load(path), path, whole)
        for _ in range(count):
            what = damaged(whole, rng)
            path.write_bytes(what)
            tried(lambda: golden.load(path), path, what)

    def test_networks(self, count, tmp_path):
        rng, path, whole = random.Random(1), tmp_path / "n.json", network(tmp_path)
        path.write_bytes(whole)
        assert tried(lambda: plan.Network.load(path), path, whole)
        for _ in range(count):
            what = damaged(whole, rng)
            path.write_bytes(what)
            tried(lambda: plan.Network.load(path), path, what)

    @pytest.mark.parametrize("name", ["study.json", "results.jsonl"])
    def test_studies(self, count, name, tmp_path):
        rng, study = random.Random(2), studies.study()
        lines = [json.dumps(r) + "\n" for r in studies.records(study)]
        files = {
            "study.json": json.dumps(study).encode(),
            "results.jsonl": "".join(lines).encode(),
        }
        for file, whole in files.items():
            (tmp_path / file).write_bytes(whole)
        assert tried(lambda: read_study(tmp_path), tmp_path / name, b"")
        for _ in range(count):
            what = damaged(files[name], rng)
            (tmp_path / name).write_bytes(what)
            tried(lambda: read_study(tmp_path), tmp_path / name, what)

    def test_checkpoints(self, count, tmp_path):
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
            try:
                with checkpoint.Checkpoints(*where) as again:
                    _, found = again.restore(state, step=1)
                said = "checkpoint"
            except ValueError as error:
                said, found = str(error), state
            assert "checkpoint" in said
            np.testing.assert_array_equal(found["w"], state["w"])
            path.write_bytes(whole[path])
