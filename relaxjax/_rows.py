"""The tables of relaxations, compressors and feedbacks, by the names they have.

Adding one adds a row; commands, their help and the tests read them from here.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import optax

from relaxjax import compression
from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Relaxation, Training
from relaxjax.compression import Compressor
from relaxjax.decentralized._rows import GOSSIP_ROWS
from relaxjax.gradients._choices import CHOICES
from relaxjax.gradients._deep_gradient_compression import deep_gradient_compression
from relaxjax.gradients._exact_mean import ALGORITHMS
from relaxjax.gradients._matrices_only import kinds_of, reducer_of
from relaxjax.gradients._one_bit_adam import one_bit_adam
from relaxjax.gradients._one_bit_lamb import one_bit_lamb
from relaxjax.gradients._power_sgd import power_sgd
from relaxjax.gradients._zero_one_adam import zero_one_adam
from relaxjax.local_updates._rows import LATER_ROWS
from relaxjax.ps._parameter_server import parameter_server

# What a name's second and third part stand for: functions that make a compressor, and
# that wrap one.
COMPRESSORS: Mapping[str, Callable[[], Compressor]] = {
    "identity": compression.identity,
    "bf16": lambda: compression.cast(jnp.bfloat16),
    "fp16": lambda: compression.cast(jnp.float16),
    "fp8": lambda: compression.cast(jnp.float8_e4m3fn),
    "quantize8": lambda: compression.quantize(8),
    "quantize4": lambda: compression.quantize(4),
    "quantize2": lambda: compression.quantize(2),
    "stochastic8": lambda: compression.quantize(8, stochastic_rounding=True),
    "stochastic4": lambda: compression.quantize(4, stochastic_rounding=True),
    "stochastic2": lambda: compression.quantize(2, stochastic_rounding=True),
    "min_max_uint8": compression.min_max_uint8,
    "codebook8": lambda: compression.codebook(8),
    "codebook4": lambda: compression.codebook(4),
    "codebook2": lambda: compression.codebook(2),
    "qsgd": lambda: compression.qsgd(7),
    "tern_grad": compression.tern_grad,
    "natural": compression.natural,
    "dithering": lambda: compression.dithering(7),
    "sign": compression.sign,
    "drive": compression.drive,
    "rotated_sign": compression.rotated_sign,
    "top_k": lambda: compression.top_k(0.01),
    "random_k": lambda: compression.random_k(0.01),
    "random_block": lambda: compression.random_block(0.01),
    "threshold": lambda: compression.threshold(1e-3, capacity=1024),
}
FEEDBACKS: Mapping[str, Callable[[Compressor], Compressor]] = {
    "ef14": compression.error_feedback,
    "ef21": compression.ef21,
    "ef21_sgdm": compression.ef21_sgdm,
    "econtrol": compression.econtrol,
    "dgc": compression.momentum_correction,
    "loco": compression.loco,
}


def _build_all_reduce(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(reducer_of(axis_name, **parts), training.optimizer)


def _build_power_sgd(
    axis_name: AxisName, training: Training, rank: int = 4, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(power_sgd(axis_name, rank=rank, **parts), training.optimizer)


def _build_deep_gradient_compression(
    axis_name: AxisName, training: Training, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    """Its momentum is that of the parent, so that what follows has none."""
    reducer = deep_gradient_compression(axis_name, **parts)
    return optax.chain(reducer, optax.sgd(training.learning_rate))


def _build_parameter_server(
    axis_name: AxisName,
    training: Training,
    compressor: Compressor | None = None,
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    """With an order, every leaf travels by itself, unless told, and in codes if any.

    Without, biases and norms travel as they are.
    """
    servers = functools.partial(parameter_server, training.optimizer, axis_name)
    if training.order is not None:
        parts = {"order": training.order, "bucket_bytes": 1, **parts}
        return servers(compressor=compressor, **parts)
    if compressor is None:
        return servers(**parts)
    matrix, vector = servers(compressor=compressor, **parts), servers(**parts)
    return optax.partition({"matrix": matrix, "vector": vector}, kinds_of)


def _optimizer(method: Callable[..., Any]) -> Callable[..., Any]:
    """The builder of a method that is an optimizer itself, and is frozen in part."""

    def build(
        axis_name: AxisName,
        training: Training,
        freeze_step: int | None = None,
        **parts: Any,
    ) -> optax.GradientTransformationExtraArgs:
        freeze_step = _freeze_step(training, freeze_step)
        rate = training.learning_rate
        return method(axis_name, rate, freeze_step=freeze_step, **parts)

    return build


def _freeze_step(training: Training, given: int | None) -> int:
    """A quarter of training, or what is given if there is something left after it."""
    if given is None:
        return max(1, training.steps // 4)
    if given >= training.steps:
        raise ValueError(
            f"freeze_step={given} is not before the end of training, after "
            f"{training.steps} steps: nothing would ever be compressed; 15 to 25 % of "
            "the steps are usual"
        )
    return given


_ROWS = [
    Relaxation(
        name="all_reduce",
        summary="synchronous: every step takes the mean of all gradients",
        build=_build_all_reduce,
        algorithms=CHOICES,
        compressors=True,
        options=frozenset({"bucket_bytes", "plain"}),
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
        name="parameter_server",
        summary="the optimizer runs at servers, each with a slice of all",
        build=_build_parameter_server,
        compressors=True,
        options=frozenset(
            {"bucket_bytes", "compensation", "seed", "servers", "staleness"}
        ),
        ordered=True,
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
]

RELAXATIONS: Mapping[str, Relaxation] = {
    row.name: row for row in (*_ROWS, *LATER_ROWS, *GOSSIP_ROWS)
}
