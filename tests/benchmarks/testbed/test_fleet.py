"""Processes train and infer as one process does, in any order."""

import multiprocessing
import os
import random
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from benchmarks import testbed as host
from tests.benchmarks.testbed.models import ADAM, batches, output, towers, trained

STEPS = 3


def shuffled(model: host.LayerModel, seed: int) -> list[str]:
    names = list(model.leaves)
    random.Random(seed).shuffle(names)
    return names


def gone(pids: Sequence[int | None]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("workers", "servers"),
    [
        (1, 1),
        (2, 2),
        pytest.param(1, 2, marks=pytest.mark.slow),
        pytest.param(2, 1, marks=pytest.mark.slow),
        pytest.param(3, 1, marks=pytest.mark.slow),
        pytest.param(4, 1, marks=pytest.mark.slow),
        pytest.param(4, 2, marks=pytest.mark.slow),
    ],
)
def test_trains_as_one_process_does(workers, servers):
    model = towers()
    rows = 24 if workers == 3 else 8
    losses, params = trained(model, STEPS, rows)
    with host.Fleet(
        model, optimizer=ADAM, workers=workers, servers=servers, wait=30
    ) as fleet:
        for seed, (inputs, targets) in enumerate(batches(STEPS, rows)):
            before = output(fleet.params(), inputs)
            orders = [shuffled(model, 10 * seed + i) for i in range(workers)]
            inferred = fleet.infer(inputs, order=orders)
            np.testing.assert_allclose(inferred.result, before, atol=1e-6)
            step = fleet.train(inputs, targets, order=orders)
            assert abs(step.result - losses[seed]) < 1e-6
            check_orders(fleet, step, orders)
        check_trees(fleet.params(), params)
        pulled = fleet.pull().result
        check_trees(model.unflatten(pulled), params)
        pids = [child.pid for child in multiprocessing.active_children()]
        assert len(pids) == workers + servers
    assert gone(pids)
    with pytest.raises(ValueError, match="the fleet is closed"):
        fleet.pull()


def check_trees(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def check_orders(fleet, step, orders):
    """Each server's leaves arrive in the order that was asked for."""
    for arrived, order in zip(step.orders, orders, strict=True):
        assert sorted(arrived) == sorted(order)
        for server in set(fleet.owner.values()):
            own = [name for name in order if fleet.owner[name] == server]
            assert [n for n in arrived if fleet.owner[n] == server] == own
