"""From an axis and a training to a named method of local steps or outer optimizers."""

import functools
from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import SYNC_EVERY, Training
from relaxjax.gradients import label_leaves, power_sgd


def local(method: Callable[..., Any]) -> Callable[..., Any]:
    """Builds a method that comes after the optimizer."""

    def build(
        axis_name: AxisName,
        training: Training,
        *,
        compressor: Any = None,
        rank: int | None = None,
        bits: int = 32,
        sync_every: int = SYNC_EVERY,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        """With a compressor, biases and norms travel as they are.

        With a rank, PowerSGD averages the models.
        """
        made = functools.partial(method, axis_name, sync_every=sync_every)
        if rank is not None:
            algorithm = parts.pop("algorithm", "auto")
            own = power_sgd(axis_name, rank=rank, bits=bits, algorithm=algorithm)
            after = made(reducer=own, compressor=compressor, **parts)
        elif bits != 32:
            raise ValueError(
                f"bits={bits} is of PowerSGD, by which models are averaged if there is "
                "a rank: give a rank, or a compressor, as in local_sgd+quantize8"
            )
        elif compressor is None:
            after = made(**parts)
        else:
            coded = made(compressor=compressor, **parts)
            vectors = made(**parts)
            after = optax.partition({"matrix": coded, "vector": vectors}, label_leaves)
        return optax.chain(training.optimizer, after)

    return build


def around(method: Callable[..., Any]) -> Callable[..., Any]:
    """Builds a method that takes the optimizer."""

    def build(axis_name: AxisName, training: Training, **parts: Any) -> Any:
        parts = {"sync_every": SYNC_EVERY, **parts}
        return method(training.optimizer, axis_name, **parts)

    return build


def nesterov(method: Callable[..., Any]) -> Callable[..., Any]:
    """Gives DiLoCo or its kin two numbers in place of its outer optimizer."""

    def build(
        *arguments: Any,
        outer_learning_rate: float = 0.7,
        outer_momentum: float = 0.9,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        outer = optax.sgd(outer_learning_rate, outer_momentum, nesterov=True)
        return method(*arguments, outer=outer, **parts)

    return build


def outer_half(method: Callable[..., Any]) -> Callable[..., Any]:
    """Builds the outer half of DiLoCo or its kin, which comes after the optimizer."""
    return local(functools.partial(nesterov(method), optax.identity()))
