"""The table of relaxations: the one place where a name becomes a transformation.

A name follows the grammar `NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]`, as in
`all_reduce@ring`. Adding a relaxation adds one row to `RELAXATIONS`, or one entry to
`COMPRESSORS` or `FEEDBACKS`; commands, their help and the tests read them from here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import optax

from relaxjax import _all_reduce
from relaxjax._axis import AxisName

GRAMMAR = "NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]"

# What a name's second and third part stand for: functions that make a compressor, and
# that wrap one. None is built yet.
COMPRESSORS: Mapping[str, Callable[[], Any]] = {}
FEEDBACKS: Mapping[str, Callable[[Any], Any]] = {}


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
    axis_name: AxisName, optimizer: optax.GradientTransformation, **parts: Any
) -> optax.GradientTransformationExtraArgs:
    return optax.chain(_all_reduce.all_reduce(axis_name, **parts), optimizer)


_ROWS = [
    Relaxation(
        name="all_reduce",
        summary="synchronous: every step takes the mean of all gradients",
        build=_build_all_reduce,
        algorithms=("auto", "psum", *_all_reduce.ALGORITHMS),
        options=frozenset({"bucket_bytes"}),
    ),
]

RELAXATIONS: Mapping[str, Relaxation] = {row.name: row for row in _ROWS}
