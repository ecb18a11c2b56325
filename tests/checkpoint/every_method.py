"""Every relaxation in several processes, stopped in the middle; run by a test."""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np

import relaxjax
from relaxjax import hosts
from relaxjax.checkpoint import Checkpoints
from tests import helpers
from tests.checkpoint import processes, training

WORKERS = 4


def parts_of(tree: Any) -> list[bytes]:
    """The bytes of this process's parts."""
    leaves = map(training.data_of, jax.tree.leaves(tree))
    shards = (x.addressable_shards for x in leaves)
    return [np.asarray(part.data).tobytes() for each in shards for part in each]


def stopped(name: str, folder: Path, mesh: Any, batches: list[Any]) -> list[Any]:
    """The mean model, its spread, and how many parts a resumed run has otherwise."""
    tx = training.relaxed(name, WORKERS)
    begin = processes.tree_of(training.fresh(tx, mesh), 0)
    with Checkpoints(folder, mesh, keep=1) as saves:
        state = begin["params"], begin["opt_state"]
        for step in (1, 2, 3):
            state = training.trained(tx, state, mesh, batches[step - 1 : step])
            saves.save(step, processes.tree_of(state, step))
        whole = training.trained(tx, state, mesh, batches[3:])
        at, tree = saves.restore(begin)
        assert at == tree["batches"] == 3
    state = tree["params"], tree["opt_state"]
    again = training.trained(tx, state, mesh, batches[3:])
    same = [a == b for a, b in zip(parts_of(whole), parts_of(again), strict=True)]
    model = jax.tree.leaves(relaxjax.consensus(again[0]))
    leaves = [np.asarray(x).tolist() for x in model]
    return [leaves, relaxjax.spread(again[0]), same.count(False)]


def main(folder: Path, names: list[str]) -> None:
    here = hosts.join()
    mesh, out = helpers.mesh_of(WORKERS), {}
    batches = processes.data(here.process_id, len(here.members))
    for name in names:
        try:
            out[name] = stopped(name, folder / name, mesh, batches)
        except Exception:  # the test says of which
            out[name] = traceback.format_exc()
    (folder / f"{here.process_id}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
