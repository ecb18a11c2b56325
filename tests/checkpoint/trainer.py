"""A run that trains, goes back, finds its disk full and is killed; started by a test.

It keeps a journal, a line before and after whatever it does to the folder, from which
the test knows what may be on disk. Its arithmetic is exact and chaotic: params tell who
took each step.
"""

import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import relaxjax
from relaxjax import emulate, hosts
from relaxjax.checkpoint import Checkpoints
from tests import helpers

WORKERS, SIZE, EVERY, KEEP = 2, 20_000, 2, 3
TOUCHES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}


def stepped(params: np.ndarray, life: int) -> np.ndarray:
    """Params after one step of a life, of uint32."""
    return params * np.uint32(1_664_525) + np.uint32(1_013_904_223 + life)


def params_after(log: list[int]) -> np.ndarray:
    """What training without a stop gives, a life for each step."""
    params = np.arange(SIZE, dtype=np.uint32)
    for life in log:
        params = stepped(params, life)
    return params


def tree_of(params: np.ndarray, log: list[int], mesh: Any = None) -> dict[str, Any]:
    workers = mesh or emulate(WORKERS)
    rows = relaxjax.to_workers(params.view(np.int32), workers)
    return {"params": rows, "log": np.asarray(log, np.int64)}


def read(step: int, tree: dict[str, Any]) -> tuple[np.ndarray, list[int]]:
    """Params and log of a checkpoint, which must be of each other, to the bit."""
    log = tree["log"].tolist()
    parts = [np.asarray(x.data) for x in tree["params"].addressable_shards]
    rows = np.concatenate(parts).view(np.uint32)
    assert len(log) == step
    assert all(np.array_equal(row, params_after(log)) for row in rows)
    return rows[0].copy(), log


def kill_at(touch: int, folder: Path) -> None:
    """Kills this process before it touches the folder for the n-th time from now."""
    seen = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in TOUCHES and str(folder) in str(args[0]):
            seen.append(event)
            if len(seen) == touch:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def room(most: int) -> None:
    """From now on files of this process have at most these bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def live(
    folder: Path, journal: Path, seed: int, life: int, touch: int, mesh: Any = None
) -> None:
    """A life of the run: resumes, and trains for some steps; `touch` 0 spares it.

    Of several processes, all live it; the disk of one is full at a time.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails instead
    draw = random.Random(1000 * seed + life)
    with journal.open("a", buffering=1) as file:

        def note(what: str, *about: Any) -> None:
            file.write(json.dumps([what, *about]) + "\n")

        like = tree_of(params_after([]), [], mesh)
        if touch:
            kill_at(touch, folder)
        workers = mesh or emulate(WORKERS)
        with Checkpoints(folder, workers, every=EVERY, keep=KEEP) as saves:
            note("listed", saves.steps)
            params, log = read(*saves.restore(like))
            note("restored", log)
            for _ in range(draw.randrange(8, 30)):
                if draw.random() < 0.07 and (
                    there := caught(note, lambda: saves.steps)
                ):
                    note("waited")
                    back = draw.choice(there)
                    note("goes back", back)
                    at = saves.restore(like, step=back, forget_newer=True)
                    params, log = read(*at)
                    note("restored", log)
                params, log = stepped(params, life), [*log, life]
                if full := draw.random() < 0.15:
                    caught(note, saves.wait)
                    note("waited")
                    most = SIZE * draw.randrange(1, 4)
                    if draw.randrange(jax.process_count()) == jax.process_index():
                        room(most)
                if saves.is_due(len(log)):
                    note("saves", log)
                    tree = tree_of(params, log, mesh)
                    caught(note, lambda tree=tree: saves.save(len(tree["log"]), tree))
                    note("began")
                if full or draw.random() < 0.2:
                    caught(note, saves.wait)
                    note("waited")
                    room(resource.RLIM_INFINITY)
            caught(note, saves.wait)
        note("waited")


def caught(note: Callable[..., None], call: Callable[[], Any]) -> Any:
    """The call's value, after a write that failed is in the journal."""
    try:
        return call()
    except OSError as error:
        note("failed", int(str(error).split("step ")[1].split()[0]))
        return call()


def main(folder: Path, seed: int, life: int, touch: int, who: int) -> None:
    """A life of a run of several processes, of which one is killed."""
    here = hosts.join().process_id
    journal = folder / f"life-{life}-of-{here}"
    mesh = helpers.mesh_of(WORKERS)
    live(folder / "run", journal, seed, life, touch if here == who else 0, mesh)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
