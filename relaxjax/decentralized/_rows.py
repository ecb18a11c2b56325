"""The rows of the decentralised methods; what comes after @ is their topology."""

import functools
from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import SYNC_EVERY, Relaxation, Training
from relaxjax.compression import Compressor, quantize
from relaxjax.decentralized._dcd_psgd import dcd_psgd
from relaxjax.decentralized._deep_squeeze import deep_squeeze
from relaxjax.decentralized._exact_diffusion import exact_diffusion
from relaxjax.decentralized._gossip import combine_then_adapt, gossip
from relaxjax.decentralized._gradient_tracking import gradient_tracking
from relaxjax.decentralized._lossy_push_sum import lossy_push_sum
from relaxjax.decentralized._moniqua import moniqua
from relaxjax.decentralized._noloco import noloco
from relaxjax.decentralized._push_sum import push_sum
from relaxjax.decentralized._quasi_global_momentum import quasi_global_momentum
from relaxjax.decentralized._relay_sum import relay_sum
from relaxjax.topology import SYMMETRIC, TOPOLOGIES, TREES, Topology, lazy

_THETA = 0.1  # of Moniqua: more than models differ by in training


def _after(
    method: Callable[..., Any],
    default: str,
    axis_name: AxisName,
    training: Training,
    *,
    algorithm: str | None = None,
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    """The optimizer, then the method over a graph."""
    graph = TOPOLOGIES[algorithm or default](training.workers)
    return optax.chain(training.optimizer, method(axis_name, graph, **parts))


def _gossip(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """In codes it wants a graph that stays."""
    default = "ring" if "compressor" in parts else "one_peer_exponential"
    return _after(gossip, default, axis_name, training, **parts)


def _in_codes(
    method: Callable[..., Any], compressor: Compressor
) -> Callable[..., optax.GradientTransformationExtraArgs]:
    """On a ring, in 8 bits, if the name says nothing else."""

    def build(axis_name: AxisName, training: Training, **parts: Any) -> Any:
        parts = {"compressor": compressor, **parts}
        return _after(method, "ring", axis_name, training, **parts)

    return build


def _exact_diffusion(
    axis_name: AxisName, training: Training, algorithm: str = "ring", **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """With (W + I) / 2, which is stable on all of these graphs."""
    graph = lazy(TOPOLOGIES[algorithm](training.workers))
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
    return _after(
        quasi_global_momentum, "one_peer_exponential", axis_name, plain, **parts
    )


def _moniqua(
    axis_name: AxisName, training: Training, theta: float = _THETA, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return _after(moniqua, "ring", axis_name, training, theta=theta, **parts)


def _lossy_push_sum(
    axis_name: AxisName, graph: Topology, loss: float = 0.1, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """A tenth of all messages is lost, unless told."""
    return lossy_push_sum(axis_name, graph, loss, **parts)


def _noloco(
    axis_name: AxisName, graph: Topology, sync_every: int = SYNC_EVERY, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Its outer half, as the optimizer stands before it."""
    return noloco(optax.identity(), axis_name, graph, sync_every, **parts)


_row = functools.partial(
    Relaxation,
    algorithms=tuple(TOPOLOGIES),
    options=frozenset({"bucket_bytes", "every"}),
    period=None,
    apart=True,
)
_STAYING = (*SYMMETRIC, "exponential")
ROWS = (
    _row(
        name="gossip",
        summary="models are averaged with neighbours, after each step",
        build=_gossip,
        compressors=True,
        options=frozenset({"bucket_bytes", "consensus_step_size", "every"}),
    ),
    _row(
        name="combine_then_adapt",
        summary="as gossip, while the gradient is computed",
        build=functools.partial(_after, combine_then_adapt, "one_peer_exponential"),
    ),
    _row(
        name="push_sum",
        summary="gossip over directed graphs (SGP)",
        build=functools.partial(_after, push_sum, "one_peer_exponential"),
    ),
    _row(
        name="lossy_push_sum",
        summary="push_sum whose messages get lost, by chance",
        build=functools.partial(_after, _lossy_push_sum, "ring"),
        algorithms=_STAYING,
        options=frozenset({"bucket_bytes", "every", "loss", "resolution", "seed"}),
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
        algorithms=tuple(SYMMETRIC),
    ),
    _row(
        name="quasi_global_momentum",
        summary="gossip whose momentum is that of the models",
        build=_quasi_global_momentum,
        options=frozenset({"bucket_bytes", "every", "momentum"}),
        parent="momentum",
    ),
    _row(
        name="noloco",
        summary="local steps, then an outer one with neighbours (NoLoCo)",
        build=functools.partial(_after, _noloco, "random_matching"),
        options=frozenset(
            {"bucket_bytes", "momentum", "outer_learning_rate", "pull", "sync_every"}
        ),
    ),
    _row(
        name="relay_sum",
        summary="the mean of all models, passed on along a tree",
        build=functools.partial(_after, relay_sum, "binary_tree"),
        algorithms=tuple(TREES),
    ),
    _row(
        name="dcd_psgd",
        summary="gossip in codes of what a model moves by",
        build=_in_codes(dcd_psgd, quantize(8)),
        algorithms=_STAYING,
        compressors=True,
    ),
    _row(
        name="deep_squeeze",
        summary="gossip in codes of the models, with error feedback",
        build=_in_codes(deep_squeeze, quantize(8)),
        algorithms=_STAYING,
        compressors=True,
        options=frozenset({"bucket_bytes", "consensus_step_size", "every"}),
    ),
    _row(
        name="moniqua",
        summary="gossip of remainders in a few bits, without state",
        build=_moniqua,
        algorithms=_STAYING,
        options=frozenset({"bits", "bucket_bytes", "every", "theta"}),
    ),
)
