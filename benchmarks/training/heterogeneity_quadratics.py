"""Quadratics whose minima differ: where each method comes to rest, and where it must.

Worker i's loss is |x - t_i|^2 / 2, the sum's minimum the mean of the t_i. With weights
W and the rate lr, models at rest obey

    gossip               x = W (x - lr (x - t)):  x = (I - (1 - lr) W)^-1 lr W t
    combine_then_adapt   x = W x - lr (x - t):    x = ((1 + lr) I - W)^-1 lr t
    quasi-global momentum, push-sum with a doubly stochastic W: as gossip
    corrected methods    x = mean(t)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from benchmarks.training.heterogeneity_methods import AXIS
from relaxjax import topology
from relaxjax.decentralized._exact_diffusion import exact_diffusion
from relaxjax.decentralized._gossip import combine_then_adapt, gossip
from relaxjax.decentralized._gradient_tracking import gradient_tracking
from relaxjax.decentralized._push_sum import push_sum
from relaxjax.decentralized._quasi_global_momentum import quasi_global_momentum
from relaxjax.decentralized._relay_sum import relay_sum
from relaxjax.topology import Topology

RATE, ELEMENTS, STEPS = 0.1, 32, 4000
Rest = Callable[[np.ndarray, np.ndarray], np.ndarray]


def quadratics(workers: int) -> list[dict[str, Any]]:
    """A row for each method: how far its models rest from the minimum, and theory.

    Distances are the root of the mean square over workers and elements.
    """
    targets = np.random.default_rng(0).normal(size=(workers, ELEMENTS))
    rows = []
    for name, (graph, tx, rest) in _methods(workers).items():
        mean = targets.mean(axis=0)
        found = _at_rest(tx, targets) - mean
        expected = rest(graph.matrix(), targets) - mean
        rows.append(
            {
                "method": name,
                "found": float(np.sqrt(np.mean(found**2))),
                "theory": float(np.sqrt(np.mean(expected**2))),
                "apart": float(np.abs(found - expected).max()),
            }
        )
    return rows


def _at_rest(tx: Any, targets: np.ndarray) -> np.ndarray:
    """The models after training: [workers, elements]."""

    def worker(target: jax.Array) -> jax.Array:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            x, state = carry
            updates, state = tx.update(x - target, state, x)
            return (x + updates, state), None

        x = jnp.zeros(ELEMENTS)
        return lax.scan(step, (x, tx.init(x)), length=STEPS)[0][0]

    found = jax.jit(jax.vmap(worker, axis_name=AXIS))(targets.astype(np.float32))
    return np.asarray(found, np.float64)


def _methods(n: int) -> dict[str, tuple[Topology, Any, Rest]]:
    ring, sgd = topology.ring(n), optax.sgd(RATE)
    lazy, chain = topology.lazy(ring), topology.chain(n)

    def after(method: Any, graph: Topology, rest: Rest, **knobs: Any) -> Any:
        return graph, optax.chain(sgd, method(AXIS, graph, **knobs)), rest

    tracked = optax.chain(gradient_tracking(AXIS, ring), sgd, gossip(AXIS, ring))
    graphs = (ring, topology.exponential(n), topology.star(n))
    return {
        **{f"gossip, {g.name}": after(gossip, g, _adapted) for g in graphs},
        "combine_then_adapt, ring": after(combine_then_adapt, ring, _combined),
        "quasi_global_momentum, ring": after(
            quasi_global_momentum, ring, _adapted, momentum=0.9
        ),
        "push_sum, ring": after(push_sum, ring, _adapted),
        "exact_diffusion, lazy ring": after(exact_diffusion, lazy, _mean),
        "gradient_tracking, ring": (ring, tracked, _mean),
        "relay_sum, chain": after(relay_sum, chain, _mean),
    }


def _adapted(w: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.linalg.solve(np.eye(len(w)) - (1 - RATE) * w, RATE * w @ targets)


def _combined(w: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.linalg.solve((1 + RATE) * np.eye(len(w)) - w, RATE * targets)


def _mean(w: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.broadcast_to(targets.mean(axis=0), (len(w), targets.shape[1]))
