"""Whatever a run has been through, a resume is the branch that its history implies."""

import random
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.checkpoint import Checkpoints

MESH, EVERY = emulate(2), 3


def state_of(log: list[int]) -> dict[str, Any]:
    """A state that tells which runs have taken its steps, in arrays and beside them."""
    bits = np.random.default_rng(log).integers(0, 2**32, 5, np.uint32)
    params = relaxjax.to_workers(jnp.asarray(bits.view(np.int32)), MESH)
    return {"params": params, "log": np.asarray(log, np.int64)}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[key], other[key]) for key in ("params", "log"))


class Model:
    """What is on disk, and in the run's memory, as a person would keep books."""

    def __init__(self, keep: int | None):
        self.keep, self.run = keep, 0
        self.disk: dict[int, list[int]] = {}
        self.forgotten: list[dict[int, list[int]]] = []
        self.at: int | None = None
        self.log: list[int] = []

    def saves(self, step: int, *, now: bool) -> bool | None:
        """Whether a save is made; None: it is refused."""
        if step == self.at or (step % EVERY and not now):
            return False
        if any(other >= step for other in self.disk):
            return None
        self.disk[step], self.at = [*self.log], step
        for old in sorted(self.disk)[: -self.keep] if self.keep else ():
            del self.disk[old]
        return True

    def restores(self, step: int, *, forget: bool) -> None:
        newer = {s: log for s, log in self.disk.items() if s > step}
        if forget and newer:
            self.forgotten.append(newer)
            self.disk = {s: log for s, log in self.disk.items() if s <= step}
        self.log, self.at = [*self.disk[step]], step


def begins(model: Model, saves: Checkpoints, draw: random.Random) -> None:
    """Resumes, goes back in one of two ways, or starts afresh in the same folder."""
    model.run, model.at, model.log = model.run + 1, None, []
    like = state_of([])
    if not model.disk:
        assert saves.restore(like) == (0, like)
        return
    how = draw.choice(["newest", "newest", "back", "look", "afresh"])
    if how == "afresh":
        return
    asked = None if how == "newest" else draw.choice(sorted(model.disk))
    step = max(model.disk) if asked is None else asked
    model.restores(step, forget=how == "back")
    got, state = saves.restore(like, step=asked, forget_newer=how == "back")
    assert got == step
    assert same(state, state_of(model.log))


def goes_on(model: Model, saves: Checkpoints, draw: random.Random) -> None:
    """Trains for some steps, and saves as it is due, or at once."""
    for _ in range(draw.randrange(8)):
        model.log.append(model.run)
        step, now = len(model.log), draw.random() < 0.1
        expected = model.saves(step, now=now)
        kind = draw.choice([int, np.int64, np.int32, jnp.int32])
        if expected is None:
            with pytest.raises(ValueError, match=r"not newer .*forget_newer=True"):
                saves.save(kind(step), state_of(model.log), now=now)
            return
        assert saves.save(kind(step), state_of(model.log), now=now) is expected
        assert bool(saves.why_not) is not expected


def history(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    model = Model(draw.choice([None, 2]))
    for _ in range(6):
        with Checkpoints(folder, MESH, every=EVERY, keep=model.keep) as saves:
            begins(model, saves, draw)
            goes_on(model, saves, draw)
            if draw.random() < 0.3 and model.disk:  # a rollback while it runs
                step = draw.choice(sorted(model.disk))
                saves.wait()
                model.restores(step, forget=True)
                saves.restore(state_of([]), step=step, forget_newer=True)
                goes_on(model, saves, draw)
            assert saves.steps == sorted(model.disk)
    with Checkpoints(folder, MESH) as saves:
        for step, log in model.disk.items():
            assert same(saves.restore(state_of([]), step=step)[1], state_of(log))
    for number, branch in enumerate(model.forgotten, 1):
        aside = folder / "forgotten" / str(number)
        assert sorted(int(x.name) for x in aside.iterdir()) == sorted(branch)
        with Checkpoints(aside, MESH, keep=None) as saves:
            for step, log in branch.items():
                assert same(saves.restore(state_of([]), step=step)[1], state_of(log))


@pytest.mark.few(12)
@pytest.mark.parametrize("seed", range(200))
def test_a_resume_is_what_the_history_implies(seed, tmp_path):
    history(tmp_path, seed)
