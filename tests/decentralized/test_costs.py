"""What decentralized methods keep and send, as their docstrings say; many workers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relaxjax
from relaxjax import compression, emulate, topology
from tests.decentralized import references
from tests.decentralized.test_methods import (
    METHODS,
    RATE,
    REFERENCES,
    assert_same_ways,
    bare,
    graph_of,
    matrices,
)
from tests.decentralized.test_relay_sum import relayed
from tests.helpers import mesh_of, pulled, targets_of

# Copies of the params in the state, on a ring, and on a chain.
KEPT: dict[str, int] = {
    "gossip": 0,
    "combine_then_adapt": 0,
    "exact_diffusion": 1,
    "gradient_tracking": 2,
    "atc_tracking": 2,
    "push_sum": 0,
    "quasi_global_momentum": 1,
    "relay_sum": 2,
    "choco": 3,
    "dcd_psgd": 3,
    "deep_squeeze": 1,
    "moniqua": 0,
}
# What is sent to two neighbors, in models.
SENT: dict[str, float] = {
    **{name: 2 for name in KEPT},
    "choco": 2 / 32,
    "dcd_psgd": 2 / 32,
    "deep_squeeze": 2 / 32,
    "moniqua": 2 / 4,
}


def made(name: str) -> Any:
    if name == "choco":
        return relaxjax.gossip(
            "data", topology.ring(8), compressor=compression.sign(block_size=None)
        )
    if name == "push_sum":
        return relaxjax.push_sum("data", topology.ring(8))
    return bare(name, 8)


@pytest.mark.parametrize("name", KEPT)
def test_state_is_as_large_as_stated(name):
    params = {"w": jnp.zeros((32, 32), jnp.bfloat16), "b": jnp.zeros(32, jnp.bfloat16)}
    floats = [
        x
        for x in jax.tree.leaves(jax.eval_shape(made(name).init, params))
        if x.dtype == jnp.float32 and x.ndim
    ]
    assert sum(x.size for x in floats) == KEPT[name] * 33 * 32


@pytest.mark.parametrize("name", SENT)
def test_bytes_are_as_stated(name):
    params = {"w": jnp.zeros((32, 32))}
    sent = relaxjax.wire_bytes(made(name), params, emulate(8))
    beside = 16 if SENT[name] < 1 or name == "push_sum" else 0  # scales, or the mass
    assert 0 <= sent - SENT[name] * 4096 <= beside


def test_sixteen_devices():
    targets = targets_of(16)
    for name, graph in (
        ("gossip", topology.one_peer_exponential(16)),
        ("exact_diffusion", graph_of("exact_diffusion", 16)),
    ):
        expected = REFERENCES[name](targets, matrices(graph, 1, 8), RATE)
        found = pulled(METHODS[name](graph), targets, mesh_of(16), steps=8)
        assert_same_ways(found, expected)
    tree = topology.binary_tree(16)
    expected = references.relay_sum(targets, matrices(tree, 1, 12), RATE)
    found = pulled(relayed(tree), targets, mesh_of(16), steps=12)
    assert_same_ways(found, expected)
    assert np.ptp(found[-1][0], axis=0).max() > 0
