"""What a run has been through, and the books that a person would keep of it.

A history saves, resumes, goes back, looks, begins afresh, and finds that a process
cannot write. It is drawn from a seed, so that several processes live the same one.
"""

import errno
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relaxjax
from relaxjax import hosts
from relaxjax.checkpoint import Checkpoints, _manager
from tests import helpers

EVERY = 3


class Model:
    """What is on disk, and in the run's memory."""

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
        return True

    def written(self) -> None:
        """The last save has come to the disk."""
        for old in sorted(self.disk)[: -self.keep] if self.keep else ():
            del self.disk[old]

    def failed(self, at: int | None) -> None:
        """The last save has not; the run is where it was before."""
        assert self.at is not None
        del self.disk[self.at]
        self.at = at

    def restores(self, step: int, *, forget: bool) -> None:
        newer = {s: log for s, log in self.disk.items() if s > step}
        if forget and newer:
            self.forgotten.append(newer)
            self.disk = {s: log for s, log in self.disk.items() if s <= step}
        self.log, self.at = [*self.disk[step]], step


class Run:
    """A process that lives a history, perhaps with others that live the same one."""

    def __init__(self, folder: Path, mesh: Any, seed: int):
        self.folder, self.mesh, self.draw = folder, mesh, random.Random(seed)
        self.model = Model(self.draw.choice([None, 2]))

    def state_of(self, log: list[int]) -> dict[str, Any]:
        """It tells which lives have taken its steps, in arrays and beside them."""
        bits = np.random.default_rng(log).integers(0, 2**32, 5, np.uint32)
        rows = relaxjax.to_workers(jnp.asarray(bits.view(np.int32)), self.mesh)
        return {"params": rows, "log": np.asarray(log, np.int64)}

    def require(self, saves: Checkpoints, log: list[int], **how: Any) -> int:
        """What is restored is of these steps."""
        step, state = saves.restore(self.state_of([]), **how)
        wanted = self.state_of(log)
        assert np.array_equal(state["log"], wanted["log"])
        both = (x["params"].addressable_shards for x in (state, wanted))
        for part, other in zip(*both, strict=True):
            assert np.array_equal(part.data, other.data)
        return step

    def opened(self, folder: Path | None = None, **how: Any) -> Checkpoints:
        return Checkpoints(folder or self.folder, self.mesh, every=EVERY, **how)

    def lives(self) -> None:
        """Six lives in one folder; after them all is as the books say."""
        model = self.model
        for _ in range(6):
            with self.opened(keep=model.keep) as saves:
                self.begins(saves)
                self.goes_on(saves)
                if self.draw.random() < 0.3 and model.disk:
                    self.goes_back(saves)
                    self.goes_on(saves)
                assert saves.steps == sorted(model.disk)
        for number, branch in enumerate([model.disk, *model.forgotten]):
            aside = self.folder / "forgotten" / str(number) if number else self.folder
            with self.opened(aside, keep=None) as saves:
                assert saves.steps == sorted(branch)
                for step, log in branch.items():
                    assert self.require(saves, log, step=step) == step

    def begins(self, saves: Checkpoints) -> None:
        """Resumes, goes back in one of two ways, or starts afresh where others are."""
        model = self.model
        model.run, model.at, model.log = model.run + 1, None, []
        if not model.disk:
            assert self.require(saves, []) == 0
            return
        how = self.draw.choice(["newest", "newest", "back", "look", "afresh"])
        if how == "afresh":
            return
        asked = None if how == "newest" else self.draw.choice(sorted(model.disk))
        step = max(model.disk) if asked is None else asked
        model.restores(step, forget=how == "back")
        how_to = {"step": asked, "forget_newer": how == "back"}
        assert self.require(saves, model.log, **how_to) == step

    def goes_back(self, saves: Checkpoints) -> None:
        """A rollback while it runs."""
        step = self.draw.choice(sorted(self.model.disk))
        saves.wait()
        self.model.restores(step, forget=True)
        self.require(saves, self.model.log, step=step, forget_newer=True)

    def goes_on(self, saves: Checkpoints) -> None:
        """Trains for some steps, and saves as it is due, or at once."""
        model, draw = self.model, self.draw
        for _ in range(draw.randrange(8)):
            model.log.append(model.run)
            step, now = len(model.log), draw.random() < 0.1
            kind = draw.choice([int, np.int64, np.int32, jnp.int32])
            broken, at = draw.random() < 0.2, model.at
            if broken:
                saves.wait()
            with fails(draw) if broken else nullcontext():
                expected = model.saves(step, now=now)
                state = self.state_of(model.log)
                if expected is None:
                    with pytest.raises(ValueError, match=r"not newer .*forget_newer="):
                        saves.save(kind(step), state, now=now)
                    return
                assert saves.save(kind(step), state, now=now) is expected
                assert bool(saves.why_not) is not expected
                if expected and broken:
                    with pytest.raises(OSError, match="could not be written"):
                        saves.wait()
            if expected and broken:
                model.failed(at)
                if draw.random() < 0.5:
                    continue
                assert model.saves(step, now=now)
                assert saves.save(step, state, now=now)
            if expected:
                model.written()
            if draw.random() < 0.2 and len(model.disk) > 1:
                self.looks()

    def looks(self) -> None:
        """A reader beside the run sees the newest that is whole, or the one before."""
        with self.opened(read_only=True) as reader:
            step, state = reader.restore(self.state_of([]))
        assert len(state["log"]) == step
        assert state["log"].tolist() == self.model.disk.get(step, state["log"].tolist())


@contextmanager
def fails(draw: random.Random) -> Iterator[None]:
    """One process cannot write its files, or the first cannot say that all is there."""
    process, at = draw.randrange(jax.process_count()), draw.choice(["write", "rename"])

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    what: dict[str, tuple[int, Any, Callable[..., Any]]] = {
        "write": (process, _manager, full),
        "rename": (0, _manager.Store, full),
    }
    who, where, act = what[at]
    name = {"write": "write", "rename": "_rename"}[at]
    patched = mock.patch.object(where, name, act)
    with patched if who == jax.process_index() else nullcontext():
        yield


def main(folder: Path, seeds: int) -> None:
    """Many histories, by all processes of a job together."""
    hosts.join()
    for seed in range(seeds):
        Run(folder / str(seed), helpers.mesh_of(2), seed).lives()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
