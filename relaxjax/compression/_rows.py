"""The names of compressors and feedbacks, as relaxations are spelled.

A row makes one available to `relaxjax train`, plans, checks, help and the docs. It is
the function, or a `functools.partial` of it, so that plans can print the expression
that makes it.
"""

from collections.abc import Callable, Mapping
from functools import partial

import jax.numpy as jnp

from relaxjax import compression
from relaxjax.compression import Compressor

COMPRESSORS: Mapping[str, Callable[[], Compressor]] = {
    "identity": compression.identity,
    "bf16": partial(compression.cast, jnp.bfloat16),
    "fp16": partial(compression.cast, jnp.float16),
    "fp8": partial(compression.cast, jnp.float8_e4m3fn),
    "mx_e4m3": partial(compression.mx, "e4m3"),
    "mx_e5m2": partial(compression.mx, "e5m2"),
    "mx_e3m2": partial(compression.mx, "e3m2"),
    "mx_e2m3": partial(compression.mx, "e2m3"),
    "mx_e2m1": partial(compression.mx, "e2m1"),
    "mx_int8": partial(compression.mx, "int8"),
    "nvfp4": compression.nvfp4,
    "quantize8": partial(compression.quantize, 8),
    "quantize4": partial(compression.quantize, 4),
    "quantize2": partial(compression.quantize, 2),
    "stochastic8": partial(compression.quantize, 8, stochastic_rounding=True),
    "stochastic4": partial(compression.quantize, 4, stochastic_rounding=True),
    "stochastic2": partial(compression.quantize, 2, stochastic_rounding=True),
    "min_max_uint8": compression.min_max_uint8,
    "codebook8": partial(compression.codebook, 8),
    "codebook4": partial(compression.codebook, 4),
    "codebook2": partial(compression.codebook, 2),
    "qsgd": partial(compression.qsgd, 7),
    "tern_grad": compression.tern_grad,
    "natural": compression.natural,
    "dithering": partial(compression.dithering, 7),
    "sign": compression.sign,
    "drive": compression.drive,
    "rotated_sign": compression.rotated_sign,
    "top_k": partial(compression.top_k, 0.01),
    "random_k": partial(compression.random_k, 0.01),
    "random_block": partial(compression.random_block, 0.01),
    "threshold": partial(compression.threshold, 1e-3, capacity=1024),
}
FEEDBACKS: Mapping[str, Callable[[Compressor], Compressor]] = {
    "ef14": compression.error_feedback,
    "ef21": compression.ef21,
    "ef21_sgdm": compression.ef21_sgdm,
    "econtrol": compression.econtrol,
    "dgc": compression.momentum_correction,
    "loco": compression.loco,
    "intersection": compression.intersection_feedback,
}


def expression(name: str, feedback: str = "") -> str:
    """The expression that makes a compressor, as one would write it.

    Args:
      name: a key of `COMPRESSORS`.
      feedback: a key of `FEEDBACKS`, or "".

    Example:
      >>> from relaxjax.compression._rows import expression
      >>> expression("sign", "ef14")
      'relaxjax.compression.error_feedback(relaxjax.compression.sign())'
    """
    make = COMPRESSORS[name]
    if isinstance(make, partial):
        text = [_literal(value) for value in make.args]
        text += [f"{key}={_literal(value)}" for key, value in make.keywords.items()]
        call = f"{make.func.__name__}({', '.join(text)})"
    else:
        call = f"{make.__name__}()"
    call = f"relaxjax.compression.{call}"
    if feedback:
        call = f"relaxjax.compression.{FEEDBACKS[feedback].__name__}({call})"
    return call


def _literal(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    return repr(value) if dtype is None else f"jnp.{dtype.name}"
