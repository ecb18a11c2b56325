"""The rows of what sends later: local steps, outer optimizers, delays."""

import functools
from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import SYNC_EVERY, Relaxation, Training
from relaxjax.compression import Compressor
from relaxjax.gradients import (
    CHOICES,
    bounded_staleness,
    delay,
    label_leaves,
    random_delays,
    reducer,
)
from relaxjax.local_updates._asynchronous_average import asynchronous_average
from relaxjax.local_updates._diloco import diloco
from relaxjax.local_updates._eager_diloco import eager_diloco
from relaxjax.local_updates._local_sgd import local_sgd
from relaxjax.local_updates._post_local_sgd import post_local_sgd
from relaxjax.local_updates._slow_momentum import slow_momentum
from relaxjax.local_updates._sparse_loco import sparse_loco
from relaxjax.local_updates._streaming_diloco import streaming_diloco

_SYNCS = frozenset({"bucket_bytes", "sync_every"})
_OUTER = _SYNCS | {"outer_learning_rate", "outer_momentum"}


def _local(method: Callable[..., Any]) -> Callable[..., Any]:
    """The builder of a method that comes after the optimizer."""

    def build(
        axis_name: AxisName,
        training: Training,
        sync_every: int = SYNC_EVERY,
        compressor: Compressor | None = None,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        """With a compressor, biases and norms travel as they are."""
        after = method(axis_name, sync_every, compressor=compressor, **parts)
        if compressor is not None:
            vectors = method(axis_name, sync_every, **parts)
            after = optax.partition({"matrix": after, "vector": vectors}, label_leaves)
        return optax.chain(training.optimizer, after)

    return build


def _around(method: Callable[..., Any]) -> Callable[..., Any]:
    """The builder of a method that takes the optimizer."""

    def build(
        axis_name: AxisName,
        training: Training,
        sync_every: int = SYNC_EVERY,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        return method(training.optimizer, axis_name, sync_every, **parts)

    return build


def _nesterov(method: Callable[..., Any]) -> Callable[..., Any]:
    """DiLoCo or its kin, with two numbers for its outer optimizer."""

    def told(
        *given: Any,
        outer_learning_rate: float = 0.7,
        outer_momentum: float = 0.9,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        outer = optax.sgd(outer_learning_rate, outer_momentum, nesterov=True)
        return method(*given, outer=outer, **parts)

    return told


def _outer_half(method: Callable[..., Any]) -> Callable[..., Any]:
    """Of DiLoCo or its kin, as the optimizer stands before it."""
    return functools.partial(_nesterov(method), optax.identity())


def _post_local_sgd(
    axis_name: AxisName,
    training: Training,
    sync_every: int = SYNC_EVERY,
    start_step: int | None = None,
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    """From half of training on, unless told."""
    start = training.steps // 2 if start_step is None else start_step
    return post_local_sgd(training.optimizer, axis_name, sync_every, start, **parts)


def _delay(
    axis_name: AxisName, training: Training, steps: int = 1, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(delay(steps), reducer(axis_name, **parts), training.optimizer)


def _bounded_staleness(
    axis_name: AxisName, training: Training, most: int = 3, seed: int = 0, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Each gradient is up to `most` steps late, as drawn."""
    late = bounded_staleness(
        axis_name, random_delays(training.workers, most, seed=seed)
    )
    return optax.chain(late, reducer(axis_name, **parts), training.optimizer)


_syncs = functools.partial(
    Relaxation,
    algorithms=CHOICES,
    compressors=True,
    options=_SYNCS,
    period=SYNC_EVERY,
    apart=True,
)
_waits = functools.partial(Relaxation, algorithms=CHOICES, compressors=True)
ROWS = (
    _syncs(
        name="local_sgd",
        summary="models are averaged every few steps",
        build=_local(local_sgd),
    ),
    _syncs(
        name="diloco",
        summary="local steps, then one of an outer optimizer",
        build=_local(_outer_half(diloco)),
        options=_OUTER,
    ),
    _syncs(
        name="muloco",
        summary="DiLoCo around Muon",
        build=_local(_outer_half(diloco)),
        options=_OUTER,
        parent="muon",
    ),
    _syncs(
        name="eager_diloco",
        summary="DiLoCo that does not wait for the others' part",
        build=_local(_outer_half(eager_diloco)),
        options=_OUTER,
    ),
    Relaxation(
        name="post_local_sgd",
        summary="all_reduce at first, then local_sgd",
        build=_post_local_sgd,
        algorithms=CHOICES,
        options=_SYNCS | {"start_step"},
        period=None,
        apart=True,
    ),
    Relaxation(
        name="sparse_loco",
        summary="local steps; a few values of each chunk in two bits",
        build=_around(sparse_loco),
        options=_SYNCS
        | {"bits", "chunk_size", "decay", "density", "outer_learning_rate"},
        period=SYNC_EVERY,
        apart=True,
    ),
    _syncs(
        name="streaming_diloco",
        summary="DiLoCo that synchronises in fragments, by turns",
        build=_around(_nesterov(streaming_diloco)),
        options=_OUTER | {"fragments", "mixing", "overlap"},
    ),
    _syncs(
        name="slow_momentum",
        summary="local steps, with momentum over their rounds (SlowMo)",
        build=_local(slow_momentum),
        options=_SYNCS | {"momentum"},
    ),
    _syncs(
        name="asynchronous_average",
        summary="models are averaged as they were some steps ago",
        build=_local(asynchronous_average),
        options=_SYNCS | {"delay"},
    ),
    _waits(
        name="delay",
        summary="all_reduce of gradients that have waited some steps",
        build=_delay,
        options=frozenset({"bucket_bytes", "steps"}),
    ),
    _waits(
        name="bounded_staleness",
        summary="all_reduce of gradients that arrive late, as drawn",
        build=_bounded_staleness,
        options=frozenset({"bucket_bytes", "most", "seed"}),
    ),
)
