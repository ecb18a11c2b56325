"""From an axis and a training to a named reducer, or optimizer that compresses."""

from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Training
from relaxjax.gradients.late._bounded_staleness import bounded_staleness, random_delays
from relaxjax.gradients.late._delay import delay
from relaxjax.gradients.low_rank._power_sgd import power_sgd
from relaxjax.gradients.mean._matrices_only import label_leaves, reducer
from relaxjax.gradients.momenta._deep_gradient_compression import (
    deep_gradient_compression,
)
from relaxjax.gradients.momenta._demo import demo


def before(method: Callable[..., Any]) -> Callable[..., Any]:
    """The builder of a reducer that comes before the optimizer."""

    def build(
        axis_name: AxisName, training: Training, **parts: Any
    ) -> optax.GradientTransformationExtraArgs:
        return optax.chain(method(axis_name, **parts), training.optimizer)

    return build


def build_power_sgd(
    axis_name: AxisName, training: Training, rank: int = 4, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(power_sgd(axis_name, rank=rank, **parts), training.optimizer)


def build_delay(
    axis_name: AxisName, training: Training, steps: int = 1, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(delay(steps), reducer(axis_name, **parts), training.optimizer)


def build_bounded_staleness(
    axis_name: AxisName, training: Training, most: int = 3, seed: int = 0, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Each gradient is up to `most` steps late, at random."""
    delays = random_delays(training.workers, most, seed=seed)
    late = bounded_staleness(axis_name, delays)
    return optax.chain(late, reducer(axis_name, **parts), training.optimizer)


def build_deep_gradient_compression(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """With the parent's momentum inside, so that the optimizer behind has none."""
    reducer = deep_gradient_compression(axis_name, **parts)
    return optax.chain(reducer, optax.sgd(training.learning_rate))


def build_demo(
    axis_name: AxisName, training: Training, rate: float = 0.1, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """`rate` is that of signs, over the optimizer's own."""
    last = optax.scale_by_learning_rate(training.learning_rate)
    return optax.chain(demo(axis_name, **parts), optax.scale(rate), last)


def matrices_by(method: Callable[..., Any]) -> Callable[..., Any]:
    """The builder of a momentum for matrices; the others go to the optimizer."""

    def build(
        axis_name: AxisName, training: Training, matrix_rate: float = 2.0, **parts: Any
    ) -> optax.GradientTransformationExtraArgs:
        """`matrix_rate` is that of matrices over the optimizer's own, as for Muon."""
        matrix = optax.chain(
            method(axis_name, **parts),
            optax.scale(matrix_rate),
            optax.scale_by_learning_rate(training.learning_rate),
        )
        vector = optax.chain(reducer(axis_name), training.optimizer)
        return optax.partition({"matrix": matrix, "vector": vector}, label_leaves)

    return build


def optimizer(method: Callable[..., Any]) -> Callable[..., Any]:
    """The builder of an optimizer that freezes its variance."""

    def build(
        axis_name: AxisName,
        training: Training,
        freeze_step: int | None = None,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        step = _freeze_step(training, freeze_step)
        return method(axis_name, training.learning_rate, freeze_step=step, **parts)

    return build


def _freeze_step(training: Training, freeze_step: int | None) -> int:
    """`freeze_step`, which must leave some steps; by default a quarter of training."""
    if freeze_step is None:
        return max(1, training.steps // 4)
    if freeze_step >= training.steps:
        raise ValueError(
            f"freeze_step={freeze_step} is not before the end of training, after "
            f"{training.steps} steps: nothing would ever be compressed; 15 to 25 % of "
            "the steps are usual"
        )
    return freeze_step
