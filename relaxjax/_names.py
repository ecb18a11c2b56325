"""From a relaxation's name to its transformation.

A name follows the grammar `NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]`, as in
`all_reduce@ring`. The `_rows` of the rooms list the valid parts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Relaxation, Training
from relaxjax.compression import COMPRESSORS, FEEDBACKS
from relaxjax.decentralized import _rows as decentralized
from relaxjax.gradients import _rows as gradients
from relaxjax.local_updates import _rows as local_updates
from relaxjax.merges import spelled as spelled_rule
from relaxjax.periods import spelled
from relaxjax.ps import _rows as ps

_TIMED = frozenset({"every", "periods", "sync_every"})  # a row has one at most
GRAMMAR = "NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]"
_ROOMS = (gradients, ps, local_updates, decentralized)
RELAXATIONS: Mapping[str, Relaxation] = {
    row.name: row for room in _ROOMS for row in room.ROWS
}


@dataclass(frozen=True)
class Choice:
    """A relaxation's name, taken apart.

    Attributes:
      row: its row of the table.
      parts: the algorithm and the compressor, if the name has them.
    """

    row: Relaxation
    parts: Mapping[str, Any]

    def build(
        self,
        axis_name: AxisName,
        training: Training,
        **options: Any,
    ) -> optax.GradientTransformationExtraArgs:
        """The whole transformation: the relaxation and the optimizer.

        Args:
          axis_name: the data-parallel axes.
          training: the optimizer, and the run that it is for.
          **options: options of the row; None stands for the row's own default.
            `periods` is a schedule as text, see `relaxjax.periods`, for the option that
            says when workers meet; `merge` is a rule as text, such as "trimmed:b=1".

        Raises:
          ValueError: the relaxation does not have this option.
        """
        options = {key: value for key, value in options.items() if value is not None}
        if text := options.pop("periods", None):
            option = self.timed_by(text)
            if option in options:
                raise ValueError(
                    f"relaxation {self.row.name!r}: periods={text} and {option}="
                    f"{options[option]} both say when workers meet: leave one out"
                )
            options[option] = spelled(text, training.learning_rate, training.steps)
        if isinstance(merge := options.get("merge"), str):
            options["merge"] = spelled_rule(merge)
        for option in options:
            if option not in self.row.options:
                raise ValueError(
                    f"relaxation {self.row.name!r} has no option {option!r}; it has "
                    f"{_listed(self.row.options)}. Leave {option} out"
                )
        return self.row.build(axis_name, training, **self.parts, **options)

    def period(self, **options: Any) -> int | None:
        """Number of steps after which its communication repeats; None: it does not."""
        if self.row.period is None or options.get("periods"):
            return None
        return options.get("sync_every", self.row.period)

    def timed_by(self, text: str) -> str:
        """The option that sets the period; refuses a relaxation that has no period."""
        for option in _TIMED & self.row.options:
            return option
        able = [name for name, row in RELAXATIONS.items() if _TIMED & row.options]
        raise ValueError(
            f"relaxation {self.row.name!r} has no period, and takes no periods={text}; "
            f"{_listed(able)} do"
        )


def parse(name: str) -> Choice:
    """Takes a relaxation's name apart and checks each part.

    Args:
      name: a name of the form `NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]`.

    Returns:
      The row and the parts.

    Raises:
      ValueError: a part is unknown; the message lists the valid ones.

    Example:
      >>> from relaxjax._names import parse
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
    if not feedback:
        return COMPRESSORS[compressor]()
    if feedback[0] not in FEEDBACKS:
        raise _unknown(name, "error feedback", feedback[0], FEEDBACKS)
    return FEEDBACKS[feedback[0]](COMPRESSORS[compressor]())


def _unknown(name: str, kind: str, value: str, valid: Iterable[str]) -> ValueError:
    near = get_close_matches(value, valid, n=3)
    meant = f". Did you mean {' or '.join(near)}?" if near else ""
    return ValueError(
        f"relaxation {name!r}: there is no {kind} {value!r}; there is "
        f"{_listed(valid)}. A name is spelled {GRAMMAR}{meant}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
