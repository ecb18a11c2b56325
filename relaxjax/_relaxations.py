"""The table of relaxations: the one place where a name becomes a transformation.

A name follows the grammar `NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]`, as in
`all_reduce@ring`. Adding a relaxation adds one row to `RELAXATIONS`, or one entry to
`COMPRESSORS` or `FEEDBACKS`; commands, their help and the tests read them from here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax import _all_reduce, _deep_gradient_compression, compression
from relaxjax._all_reduce_checks import CHOICES
from relaxjax._axis import AxisName
from relaxjax.compression import Compressor

GRAMMAR = "NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]"

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


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A row of the table.

    Attributes:
      name: as it is spelled on the command line.
      summary: one line for people.
      build: `build(axis_name, optimizer, **parts)` puts its own transformation before,
        after or around the optimizer.
      algorithms: valid values of its part `algorithm`; none means it takes no such
        part.
      compressors: whether it takes the part `compressor`.
      options: names of further parts, numbers such as `bucket_bytes`.
      period: number of steps after which its communication repeats.
    """

    name: str
    summary: str
    build: Callable[..., optax.GradientTransformationExtraArgs]
    algorithms: tuple[str, ...] = ()
    compressors: bool = False
    options: frozenset[str] = frozenset()
    period: int = 1


@dataclass(frozen=True)
class Choice:
    """A relaxation's name, taken apart.

    Attributes:
      row: the row of the table.
      parts: what the name says beyond the row: algorithm, compressor.
    """

    row: Relaxation
    parts: Mapping[str, Any]

    def build(
        self,
        axis_name: AxisName,
        optimizer: optax.GradientTransformation,
        **options: Any,
    ) -> optax.GradientTransformationExtraArgs:
        """The whole transformation: the relaxation and the optimizer.

        Args:
          axis_name: the data-parallel axes.
          optimizer: what turns gradients into updates.
          **options: parts that the name does not spell; those that are None are left
            at the row's own default.

        Raises:
          ValueError: an option that this relaxation does not have.
        """
        given = {key: value for key, value in options.items() if value is not None}
        for option in given:
            if option not in self.row.options:
                raise ValueError(
                    f"relaxation {self.row.name!r} has no option {option!r}; it has "
                    f"{_listed(self.row.options)}. Leave {option} out"
                )
        return self.row.build(axis_name, optimizer, **self.parts, **given)


def parse(name: str) -> Choice:
    """Takes a relaxation's name apart and checks each part.

    Args:
      name: spelled as `NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]`.

    Returns:
      The row and the parts.

    Raises:
      ValueError: an unknown part, with the list of valid ones.

    Example:
      >>> from relaxjax._relaxations import parse
      >>> choice = parse("all_reduce@ring")
      >>> choice.row.name, choice.parts
      ('all_reduce', {'algorithm': 'ring'})
    """
    head, at, algorithm = name.partition("@")
    base, *codec = head.split("+")
    if base not in RELAXATIONS:
        raise _unknown(name, "relaxation", base, RELAXATIONS)
    row = RELAXATIONS[base]
    parts: dict[str, Any] = {}
    if codec:
        parts["compressor"] = _compressor(name, row, codec)
    if at:
        if algorithm not in row.algorithms:
            raise _unknown(name, f"algorithm of {base}", algorithm, row.algorithms)
        parts["algorithm"] = algorithm
    return Choice(row, parts)


def _compressor(name: str, row: Relaxation, codec: list[str]) -> Any:
    compressor, *feedback = codec
    valid = COMPRESSORS if row.compressors else ()
    if compressor not in valid:
        raise _unknown(name, f"compressor of {row.name}", compressor, valid)
    if len(feedback) > 1:
        raise ValueError(
            f"relaxation {name!r} names {len(feedback)} error feedbacks "
            f"({_listed(feedback)}); name one at most: {GRAMMAR}"
        )
    made = COMPRESSORS[compressor]()
    for wrapper in feedback:
        if wrapper not in FEEDBACKS:
            raise _unknown(name, "error feedback", wrapper, FEEDBACKS)
        made = FEEDBACKS[wrapper](made)
    return made


def _unknown(name: str, kind: str, value: str, valid: Iterable[str]) -> ValueError:
    return ValueError(
        f"relaxation {name!r}: there is no {kind} {value!r}; there is "
        f"{_listed(valid)}. A name is spelled {GRAMMAR}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _build_all_reduce(
    axis_name: AxisName,
    optimizer: optax.GradientTransformation,
    compressor: Compressor | None = None,
    **parts: Any,
) -> optax.GradientTransformationExtraArgs:
    """With a compressor, biases and norms (fewer than two axes) stay as they are."""
    reducer = _all_reduce.all_reduce(axis_name, compressor=compressor, **parts)
    if compressor is not None:
        plain = _all_reduce.all_reduce(axis_name)
        reducer = optax.partition({"matrix": reducer, "vector": plain}, _by_rank)
    return optax.chain(reducer, optimizer)


def _build_deep_gradient_compression(
    axis_name: AxisName, optimizer: optax.GradientTransformation, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    reducer = _deep_gradient_compression.deep_gradient_compression(axis_name, **parts)
    return optax.chain(reducer, optimizer)


def _by_rank(params: Any) -> Any:
    return jax.tree.map(lambda p: "matrix" if p.ndim > 1 else "vector", params)


_ROWS = [
    Relaxation(
        name="all_reduce",
        summary="synchronous: every step takes the mean of all gradients",
        build=_build_all_reduce,
        algorithms=CHOICES,
        compressors=True,
        options=frozenset({"bucket_bytes"}),
    ),
    Relaxation(
        name="deep_gradient_compression",
        summary="of a momentum that waits, the largest are sent (DGC)",
        build=_build_deep_gradient_compression,
        options=frozenset({"density", "momentum", "warmup_steps"}),
    ),
]

RELAXATIONS: Mapping[str, Relaxation] = {row.name: row for row in _ROWS}
