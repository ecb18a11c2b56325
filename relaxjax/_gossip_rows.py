"""The rows of the decentralised methods; what comes after @ is their topology."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import optax

from relaxjax import topology
from relaxjax._axis import AxisName
from relaxjax._exact_diffusion import exact_diffusion
from relaxjax._gossip import combine_then_adapt, gossip
from relaxjax._gradient_tracking import gradient_tracking
from relaxjax._push_sum import push_sum
from relaxjax._quasi_global_momentum import quasi_global_momentum
from relaxjax._relaxation import Relaxation, Training
from relaxjax.topology import Topology


def _squarest_torus(n: int) -> Topology:
    side = next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)
    return topology.torus((side, n // side))


_STEADY: Mapping[str, Callable[[int], Topology]] = {
    "ring": topology.ring,
    "torus": _squarest_torus,
    "hypercube": topology.hypercube,
    "star": topology.star,
    "complete": topology.complete,
}
TOPOLOGIES: Mapping[str, Callable[[int], Topology]] = {
    **_STEADY,
    "exponential": topology.exponential,
    "one_peer_exponential": topology.one_peer_exponential,
    "one_peer_hypercube": topology.one_peer_hypercube,
    "random_matching": topology.random_matching,
    "shift_one": topology.shift_one,
    "base_graph": topology.base_graph,
}


def _after(
    method: Callable[..., Any],
    axis_name: AxisName,
    training: Training,
    algorithm: str = "one_peer_exponential",
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    graph = TOPOLOGIES[algorithm](training.workers)
    return optax.chain(training.optimizer, method(axis_name, graph, **parts))


def _exact_diffusion(
    axis_name: AxisName, training: Training, algorithm: str = "ring", **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """With (W + I) / 2, which is stable on all of these graphs."""
    graph = topology.lazy(TOPOLOGIES[algorithm](training.workers))
    diffusion = exact_diffusion(axis_name, graph, **parts)
    return optax.chain(training.optimizer, diffusion)


def _gradient_tracking(
    axis_name: AxisName,
    training: Training,
    algorithm: str = "one_peer_exponential",
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    graph = TOPOLOGIES[algorithm](training.workers)
    return optax.chain(
        gradient_tracking(axis_name, graph, **parts),
        training.optimizer,
        gossip(axis_name, graph, **parts),
    )


def _quasi_global_momentum(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Its momentum takes the place of the parent's."""
    plain = training._replace(optimizer=optax.sgd(training.learning_rate))
    return _after(quasi_global_momentum, axis_name, plain, **parts)


_row = functools.partial(
    Relaxation,
    algorithms=tuple(TOPOLOGIES),
    options=frozenset({"bucket_bytes", "every"}),
    period=None,
)
GOSSIP_ROWS = (
    _row(
        name="gossip",
        summary="models are averaged with neighbours, after each step",
        build=functools.partial(_after, gossip),
    ),
    _row(
        name="combine_then_adapt",
        summary="as gossip, while the gradient is computed",
        build=functools.partial(_after, combine_then_adapt),
    ),
    _row(
        name="push_sum",
        summary="gossip over directed graphs (SGP)",
        build=functools.partial(_after, push_sum),
    ),
    _row(
        name="gradient_tracking",
        summary="gossip that follows the mean gradient of all",
        build=_gradient_tracking,
    ),
    _row(
        name="exact_diffusion",
        summary="gossip without the bias of unlike data (D^2)",
        build=_exact_diffusion,
        algorithms=tuple(_STEADY),
    ),
    _row(
        name="quasi_global_momentum",
        summary="gossip whose momentum is that of the models",
        build=_quasi_global_momentum,
        options=frozenset({"bucket_bytes", "every", "momentum"}),
        parent="momentum",
    ),
)
