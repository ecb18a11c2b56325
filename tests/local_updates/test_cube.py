"""BAGUA's cube: central or not, all bits or few, now or later; eight cells, one list.

Gan et al. 2021 classify relaxations by these three questions; here each answer is a
part of a chain, and all eight chains equal one short list of workers.
"""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, topology
from tests.decentralized.test_methods import assert_same_ways
from tests.helpers import mesh_of, pulled, targets_of

N, RATE, GAMMA, STEPS = 4, 0.1, 0.4, 20
LOW = compression.quantize(8)

cells = pytest.mark.parametrize(
    ("central", "low", "late"),
    [
        pytest.param(
            *cell,
            id=" ".join(
                (
                    "centralized" if cell[0] else "decentralized",
                    "low" if cell[1] else "full",
                    "delayed" if cell[2] else "synchronous",
                )
            ),
        )
        for cell in itertools.product([True, False], repeat=3)
    ],
)


def cell_of(central: bool, low: bool, late: bool) -> Any:
    codec = LOW if low else None
    sgd = optax.sgd(RATE)
    if central:
        mean = relaxjax.all_reduce("data", algorithm="one_shot", compressor=codec)
        parts = [mean, sgd]
    elif low:
        parts = [
            sgd,
            relaxjax.gossip(
                "data",
                topology.ring(N),
                compressor=codec,
                consensus_step_size=GAMMA,
            ),
        ]
    else:
        parts = [sgd, relaxjax.gossip("data", topology.ring(N))]
    return optax.chain(*([relaxjax.delay(1)] if late else []), *parts)


def coded(x: np.ndarray) -> np.ndarray:
    """What a receiver reads."""
    return np.asarray(compression.roundtrip(LOW, jnp.float32(x)), np.float64)


def exactly(x: np.ndarray) -> np.ndarray:
    return x


def reference(targets: np.ndarray, central: bool, low: bool, late: bool) -> Any:
    """Models of all workers after each step; `known` is what others know of them."""
    w = topology.ring(N).matrix()
    code = coded if low else exactly
    xs, known, waiting = [np.zeros_like(targets) for _ in range(3)]
    seen = []
    for _ in range(STEPS):
        g, waiting = (waiting, xs - targets) if late else (xs - targets, waiting)
        if central:
            xs = xs - RATE * np.mean([code(own) for own in g], axis=0)
        elif low:
            xs = xs - RATE * g
            known = known + np.stack([code(own) for own in xs - known])
            xs = xs + GAMMA * (w @ known - known)
        else:
            xs = w @ (xs - RATE * g)
        seen.append(xs)
    return seen


@pytest.mark.few(2)
@cells
@pytest.mark.parametrize("where", [emulate, mesh_of])
def test_a_cell_equals_a_list_of_workers(where, central, low, late):
    targets = targets_of(N)
    expected = reference(targets, central, low, late)
    found = pulled(cell_of(central, low, late), targets, where(N), STEPS)
    assert_same_ways(found, expected, 2e-5)
    assert (relaxjax.spread(found[-1][0]) == 0) == central


def test_no_two_cells_are_the_same():
    targets = targets_of(N)
    ends = [
        reference(targets, *cell)[-1]
        for cell in itertools.product([True, False], repeat=3)
    ]
    for one, other in itertools.combinations(ends, 2):
        assert np.abs(one - other).max() > 1e-4


def sent(central: bool, low: bool, late: bool) -> int:
    params = {"w": jnp.zeros((64, 64))}
    return relaxjax.wire_bytes(cell_of(central, low, late), params, emulate(N))


@pytest.mark.few(4)
@cells
def test_lateness_costs_no_bytes_and_few_bits_save_two_thirds(central, low, late):
    assert sent(central, low, late) == sent(central, low, not late)
    assert 0 < 3 * sent(central, True, late) < sent(central, False, late)
