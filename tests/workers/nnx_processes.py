"""`flax.nnx.Optimizer` with each relaxation in several processes; run by a test."""

import json
import sys
import traceback
from pathlib import Path

import jax
import numpy as np

import relaxjax
from relaxjax import hosts
from tests import helpers
from tests.workers import test_nnx


def main(folder: Path, names: list[str]) -> None:
    here, out = hosts.join(), {}
    mesh = helpers.mesh_of(test_nnx.WORKERS)
    rows = slice(here.process_id, None, len(here.members))
    batches = [np.split(x, len(here.members))[rows][0] for x in test_nnx.data()]
    for name in names:
        try:
            params = test_nnx.by_optimizer(test_nnx.built(name), mesh, batches)
            leaves = jax.tree.leaves(relaxjax.consensus(params))
            out[name] = [np.asarray(x).tolist() for x in leaves]
        except Exception:  # the test says of which
            out[name] = traceback.format_exc()
    (folder / f"{here.process_id}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
