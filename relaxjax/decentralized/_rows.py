"""The names of the decentralized methods; what comes after @ is their topology."""

import functools
from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import SYNC_EVERY, Relaxation, Sends, Training
from relaxjax.compression import quantize
from relaxjax.decentralized._atc_tracking import atc_tracking
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


def _over(default: str, method: Callable[..., Any], **defaults: Any) -> Any:
    """Builds a method that comes after the optimizer, by default over this graph."""

    def build(
        axis_name: AxisName, training: Training, algorithm: str = default, **parts: Any
    ) -> optax.GradientTransformationExtraArgs:
        graph = TOPOLOGIES[algorithm](training.workers)
        after = method(axis_name, graph, **(defaults | parts))
        return optax.chain(training.optimizer, after)

    return build


def _gossip(axis_name: AxisName, training: Training, **parts: Any) -> Any:
    """A compressor needs a static graph."""
    default = "ring" if "compressor" in parts else "one_peer_exponential"
    return _over(default, gossip)(axis_name, training, **parts)


def _lazy_diffusion(axis_name: AxisName, graph: Topology, **parts: Any) -> Any:
    """Takes (W + I) / 2, which is stable on all of these graphs."""
    return exact_diffusion(axis_name, lazy(graph), **parts)


def _tracking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Puts a method before the optimizer, and gossip on the same graph after it."""

    def build(
        axis_name: AxisName,
        training: Training,
        algorithm: str = "one_peer_exponential",
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        graph = TOPOLOGIES[algorithm](training.workers)
        return optax.chain(
            method(axis_name, graph, **parts),
            training.optimizer,
            gossip(axis_name, graph, **parts),
        )

    return build


def _quasi_global_momentum(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Its momentum takes the place of the parent's."""
    plain = training._replace(optimizer=optax.sgd(training.learning_rate))
    build = _over("one_peer_exponential", quasi_global_momentum)
    return build(axis_name, plain, **parts)


_row = functools.partial(
    Relaxation,
    algorithms=tuple(TOPOLOGIES),
    options=frozenset({"bucket_bytes", "every"}),
    period=None,
    apart=True,
)
_NOLOCO = functools.partial(noloco, optax.identity())  # after the optimizer
_STATIC = (*SYMMETRIC, "exponential")
_coded = functools.partial(_row, algorithms=_STATIC, compressors=True)
ROWS = (
    _row(
        name="gossip",
        summary="models are averaged with neighbors, after each step",
        build=_gossip,
        compressors=True,
        options=frozenset({"bucket_bytes", "consensus_step_size", "every"}),
        sends=Sends(
            kind="neighbors",
            line="optax.chain(optimizer, relaxjax.gossip({args}))",
            why="models to {neighbors}, no sum over all",
            algorithm="one_peer_exponential",
            variants=True,
        ),
    ),
    _row(
        name="combine_then_adapt",
        summary="as gossip, while the gradient is computed",
        build=_over("one_peer_exponential", combine_then_adapt),
        sends=Sends(
            kind="neighbors",
            line="optax.chain(optimizer, relaxjax.combine_then_adapt({args}))",
            why="models to {neighbors} while the gradient is computed",
            algorithm="one_peer_exponential",
            early=True,
        ),
    ),
    _row(
        name="push_sum",
        summary="gossip over directed graphs (SGP)",
        build=_over("one_peer_exponential", push_sum),
    ),
    _row(
        name="lossy_push_sum",
        summary="push_sum whose messages get lost, by chance",
        build=_over("ring", lossy_push_sum, loss=0.1),
        algorithms=_STATIC,
        options=frozenset({"bucket_bytes", "every", "loss", "resolution", "seed"}),
    ),
    _row(
        name="gradient_tracking",
        summary="gossip that follows the mean gradient of all",
        build=_tracking(gradient_tracking),
    ),
    _row(
        name="atc_tracking",
        summary="as gradient_tracking, while the gradient is computed",
        build=_tracking(atc_tracking),
    ),
    _row(
        name="exact_diffusion",
        summary="gossip without the bias of unlike data (D^2)",
        build=_over("ring", _lazy_diffusion),
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
        summary="local steps, then an outer one with neighbors (NoLoCo)",
        build=_over("random_matching", _NOLOCO, sync_every=SYNC_EVERY),
        options=frozenset(
            {"bucket_bytes", "momentum", "outer_learning_rate", "pull", "sync_every"}
        ),
    ),
    _row(
        name="relay_sum",
        summary="the mean of all models, passed on along a tree",
        build=_over("binary_tree", relay_sum),
        algorithms=tuple(TREES),
    ),
    _coded(
        name="dcd_psgd",
        summary="gossip in codes of what a model moves by",
        build=_over("ring", dcd_psgd, compressor=quantize(8)),
    ),
    _coded(
        name="deep_squeeze",
        summary="gossip in codes of the models, with error feedback",
        build=_over("ring", deep_squeeze, compressor=quantize(8)),
        options=frozenset({"bucket_bytes", "consensus_step_size", "every"}),
    ),
    _row(
        name="moniqua",
        summary="gossip of remainders in a few bits, without state",
        build=_over("ring", moniqua, theta=0.1),  # models differ by less in training
        algorithms=_STATIC,
        options=frozenset({"bits", "bucket_bytes", "every", "theta"}),
    ),
)
