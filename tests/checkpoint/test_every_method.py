"""Every relaxation in two processes: as in one, and it goes on to the bit."""

import json

import jax
import numpy as np
import pytest

import relaxjax
from relaxjax import emulate
from tests.checkpoint import every_method, training
from tests.hosts.launched import require_run

PARTS = 13
"""Launches: each takes every thirteenth of them."""


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_processes_train_and_resume_as_one_does(part, tmp_path):
    names = training.NAMES[part::PARTS]
    require_run("tests.checkpoint.every_method", tmp_path, *names, devices=2)
    here, other = (json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2))
    mesh = emulate(every_method.WORKERS)
    for name in names:
        assert not isinstance(here[name], str), here[name]
        assert other[name] == here[name], name
        model, spread, unlike = here[name]
        assert unlike == 0, name
        tx = training.relaxed(name, every_method.WORKERS)
        batches = every_method.processes.data(0, 1)
        whole, _ = training.trained(tx, training.fresh(tx, mesh), mesh, batches)
        np.testing.assert_allclose(spread, relaxjax.spread(whole), atol=1e-4)
        for leaf, own in zip(
            model, jax.tree.leaves(relaxjax.consensus(whole)), strict=True
        ):
            np.testing.assert_allclose(leaf, own, 1e-4, 1e-5, err_msg=name)
