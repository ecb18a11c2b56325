"""The named reducers before an optimizer, and the optimizers that compress."""

import functools
from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Exchange, Relaxation, Training
from relaxjax.gradients._acp_sgd import acp_sgd
from relaxjax.gradients._arc_top_k import arc_top_k
from relaxjax.gradients._bounded_staleness import bounded_staleness, random_delays
from relaxjax.gradients._choices import CHOICES
from relaxjax.gradients._deep_gradient_compression import deep_gradient_compression
from relaxjax.gradients._delay import delay
from relaxjax.gradients._demo import demo
from relaxjax.gradients._dion import dion
from relaxjax.gradients._dion2 import dion2
from relaxjax.gradients._exact_mean import ALGORITHMS
from relaxjax.gradients._matrices_only import label_leaves, reducer
from relaxjax.gradients._one_bit_adam import one_bit_adam
from relaxjax.gradients._one_bit_lamb import one_bit_lamb
from relaxjax.gradients._power_sgd import power_sgd
from relaxjax.gradients._zero_one_adam import zero_one_adam


def _build_all_reduce(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(reducer(axis_name, **parts), training.optimizer)


def _build_power_sgd(
    axis_name: AxisName, training: Training, rank: int = 4, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(power_sgd(axis_name, rank=rank, **parts), training.optimizer)


def _build_acp_sgd(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(acp_sgd(axis_name, **parts), training.optimizer)


def _build_arc_top_k(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(arc_top_k(axis_name, **parts), training.optimizer)


def _build_delay(
    axis_name: AxisName, training: Training, steps: int = 1, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(delay(steps), reducer(axis_name, **parts), training.optimizer)


def _build_bounded_staleness(
    axis_name: AxisName, training: Training, most: int = 3, seed: int = 0, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Each gradient is up to `most` steps late, at random."""
    delays = random_delays(training.workers, most, seed=seed)
    late = bounded_staleness(axis_name, delays)
    return optax.chain(late, reducer(axis_name, **parts), training.optimizer)


def _build_deep_gradient_compression(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """With the parent's momentum inside, so that the optimizer behind has none."""
    reducer = deep_gradient_compression(axis_name, **parts)
    return optax.chain(reducer, optax.sgd(training.learning_rate))


def _build_demo(
    axis_name: AxisName, training: Training, rate: float = 0.1, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """`rate` is that of signs, over the optimizer's own."""
    last = optax.scale_by_learning_rate(training.learning_rate)
    return optax.chain(demo(axis_name, **parts), optax.scale(rate), last)


def _matrices_by(method: Callable[..., Any]) -> Callable[..., Any]:
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


def _optimizer(method: Callable[..., Any]) -> Callable[..., Any]:
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


_waits = functools.partial(Relaxation, algorithms=CHOICES, compressors=True)
ROWS = [
    Relaxation(
        name="all_reduce",
        summary="synchronous: every step takes the mean of all gradients",
        build=_build_all_reduce,
        algorithms=CHOICES,
        compressors=True,
        options=frozenset({"bucket_bytes", "plain"}),
        sends=Exchange(
            kind="gradients",
            line="optax.chain(relaxjax.all_reduce({args}), optimizer)",
            why="everything, every step, by the backend's own all-reduce",
            variants=True,
        ),
    ),
    Relaxation(
        name="deep_gradient_compression",
        summary="of a momentum that waits, the largest are sent (DGC)",
        build=_build_deep_gradient_compression,
        options=frozenset({"density", "momentum", "warmup_steps"}),
        parent="momentum",
        period=None,
    ),
    Relaxation(
        name="power_sgd",
        summary="the mean gradient in low rank, with error feedback",
        build=_build_power_sgd,
        algorithms=("auto", "psum", *ALGORITHMS),
        options=frozenset(
            {"bits", "rank", "start_after", "iterations", "min_compression"}
        ),
        period=None,
        sends=Exchange(
            kind="low_rank",
            line="optax.chain(relaxjax.power_sgd({args}), optimizer)",
        ),
    ),
    Relaxation(
        name="acp_sgd",
        summary="the factors of low rank by turns, one message a step",
        build=_build_acp_sgd,
        algorithms=("auto", "psum", *ALGORITHMS),
        options=frozenset({"bits", "rank", "start_after", "min_compression"}),
        period=None,
        sends=Exchange(
            kind="low_rank_by_turns",
            line="optax.chain(relaxjax.acp_sgd({args}), optimizer)",
        ),
    ),
    Relaxation(
        name="arc_top_k",
        summary="the rows that a common sketch finds largest, in a plain sum",
        build=_build_arc_top_k,
        algorithms=("auto", "psum", *ALGORITHMS),
        options=frozenset({"bits", "density", "eta", "rank"}),
    ),
    Relaxation(
        name="demo",
        summary="signs of the frequencies that momenta have in common",
        build=_build_demo,
        options=frozenset({"chunk", "decay", "k", "rate"}),
    ),
    Relaxation(
        name="dion",
        summary="Muon in low rank; two factors of a momentum are sent",
        build=_matrices_by(dion),
        algorithms=("auto", "psum", *ALGORITHMS),
        options=frozenset({"bits", "decay", "fraction", "matrix_rate"}),
    ),
    Relaxation(
        name="dion2",
        summary="Muon of the largest rows of a momentum, which alone are sent",
        build=_matrices_by(dion2),
        algorithms=("auto", "psum", *ALGORITHMS),
        options=frozenset({"bits", "decay", "fraction", "matrix_rate", "neuron_decay"}),
    ),
    Relaxation(
        name="one_bit_adam",
        summary="AdamW; later its momentum travels in one bit",
        build=_optimizer(one_bit_adam),
        compressors=True,
        options=frozenset({"freeze_step", "weight_decay"}),
        period=None,
    ),
    Relaxation(
        name="one_bit_lamb",
        summary="LAMB; later its momentum travels in one bit",
        build=_optimizer(one_bit_lamb),
        compressors=True,
        options=frozenset({"freeze_step", "weight_decay"}),
        parent="lamb",
        period=None,
    ),
    Relaxation(
        name="zero_one_adam",
        summary="AdamW in one bit, then with local steps as well",
        build=_optimizer(zero_one_adam),
        compressors=True,
        options=frozenset(
            {
                "freeze_step",
                "local_doubling",
                "most_local_steps",
                "variance_doubling",
                "weight_decay",
            }
        ),
        period=None,
        apart=True,
    ),
    _waits(
        name="delay",
        summary="all_reduce of gradients that have waited some steps",
        build=_build_delay,
        options=frozenset({"bucket_bytes", "steps"}),
        sends=Exchange(
            kind="gradients",
            line="optax.chain(relaxjax.delay(1), "
            "relaxjax.all_reduce({args}), optimizer)",
            why="gradients of the step before travel behind a whole step",
            early=True,
        ),
    ),
    _waits(
        name="bounded_staleness",
        summary="all_reduce of gradients that arrive late, as drawn",
        build=_build_bounded_staleness,
        options=frozenset({"bucket_bytes", "most", "seed"}),
    ),
]
