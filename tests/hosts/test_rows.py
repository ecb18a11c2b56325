"""Several processes over TCP train as one process does, relaxation by relaxation."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import relaxjax
from relaxjax import hosts
from tests.helpers import mesh_of
from tests.hosts import rows

ROOT = Path(rows.__file__).parents[2]
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "NPROC": "8", "PYTHONPATH": str(ROOT)}
# Where XLA chooses the order of a sum, gloo's is another; and where only the mean over
# different models is looked at, that is such a sum.
OTHER_ORDER = {"psum", "gossip", "diloco"}


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (4, 1)])
def test_processes_train_as_emulated_workers_do(tmp_path, processes, devices):
    said = []
    ended = hosts.launch(
        [sys.executable, "-m", "tests.hosts.rows", str(tmp_path)],
        processes,
        environment={**ENVIRONMENT, "JAX_NUM_CPU_DEVICES": str(devices)},
        say=lambda *line: said.append(line),
    )
    assert ended.status == 0, said
    results = [
        json.loads((tmp_path / f"{i}.json").read_text()) for i in range(processes)
    ]
    assert all(other == results[0] for other in results)
    assert results[0]["skipping"] == []
    assert "workers no longer hold the same params" in results[0]["broken"]
    assert f"worker {devices * (processes - 1)}" in results[0]["broken"]
    n = processes * devices
    for name, tx in rows.transformations(n).items():
        emulated = rows.trained(tx, relaxjax.emulate(n), 0, 1)
        on_mesh = rows.trained(tx, mesh_of(n), 0, 1)
        real = results[0][name]
        if name not in OTHER_ORDER:
            assert real["model"] == on_mesh["model"], name
        for key, value in emulated["model"].items():
            close = {"rtol": 2e-5, "atol": 1e-6, "err_msg": name}
            np.testing.assert_allclose(real["model"][key], value, **close)
        np.testing.assert_allclose(real["losses"], emulated["losses"], rtol=1e-5)
        assert abs(real["spread"] - emulated["spread"]) < 1e-6
