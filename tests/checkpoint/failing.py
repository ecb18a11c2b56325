"""One process of two cannot write, and both say so; run by a test."""

import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxjax
from relaxjax import hosts
from relaxjax.checkpoint import Checkpoints
from tests import helpers


def room(most: int) -> None:
    """From now on files of this process have at most these bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def main(folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails instead
    here = hosts.join().process_id
    mesh = helpers.mesh_of(2)
    zeros = relaxjax.to_workers(np.zeros(5000, np.float32), mesh)
    add = relaxjax.data_parallel(lambda a, b: (a + b[0], 0.0), mesh)
    params = add(zeros, np.full(1, here, np.float32))[0]

    def state(step: int) -> dict[str, Any]:
        return {"params": params, "step": step}

    with Checkpoints(folder, mesh, every=10, keep=None) as saves:
        assert saves.save(10, state(10))
        for step, full in ((20, 0), (30, 1)):  # the process whose disk is full
            for call in (saves.wait, lambda: saves.save(99, state(99), now=True)):
                saves.wait()
                room(9000 if here == full else resource.RLIM_INFINITY)
                assert saves.save(step, state(step))
                said = rf"step {step} .*\(process {full}: File too large\)"
                with pytest.raises(OSError, match=said):
                    call()
                room(resource.RLIM_INFINITY)
                saves.wait()  # it is said once
            assert saves.save(step, state(step))  # a retry writes
            assert saves.save(step + 5, state(step + 5), now=True)
        assert saves.steps == [10, 20, 25, 30, 35]
        room(9000 if here == 1 else resource.RLIM_INFINITY)
        assert saves.save(40, state(40))
        with pytest.raises(OSError, match="process 1: File too large"):
            saves.restore(state(0))
        room(resource.RLIM_INFINITY)
        assert saves.restore(state(0))[0] == 35
        assert saves.save(50, state(50))
        until(folder / "50")  # nobody calls, and it is whole
    with suppress(KeyError), Checkpoints(folder, mesh, keep=None) as saves:
        assert saves.save(60, state(60))
        if here == 0:
            until(folder / "left")
        raise KeyError  # process 1 leaves by itself, and waits for nobody
    if here == 1:
        (folder / "left").touch()


def until(path: Path) -> None:
    """Waits until there is such a path."""
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
