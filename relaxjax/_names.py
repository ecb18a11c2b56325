"""From a relaxation's name to its transformation.

A name follows the grammar `NAME[+COMPRESSOR[+FEEDBACK]][@ALGORITHM]`, as in
`all_reduce@ring`. The `_rows` of the rooms list the valid parts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._relaxation import Relaxation, Training
from relaxjax._core.foreign._spelling import listed, taken_apart
from relaxjax.compression import COMPRESSORS, FEEDBACKS, error_feedback, quantize
from relaxjax.controllers import (
    DECIDED,
    Conducted,
    is_controller,
    norms_of_sums,
    refuse_controllers,
    require_decidable,
    require_sums,
    spelled_controller,
    without_tables,
)
from relaxjax.decentralized import _rows as decentralized
from relaxjax.gradients import _rows as gradients
from relaxjax.gradients import by_step
from relaxjax.local_updates import _rows as local_updates
from relaxjax.merges import spelled as spelled_rule
from relaxjax.periods import spelled
from relaxjax.ps import _rows as ps

_TIMED = frozenset({"every", "periods", "sync_every"})  # a row has one at most
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
            `periods` is a schedule, or one as text, see `relaxjax.periods`, for the
            option that says when workers meet, or "recorded:PATH" of a controller's
            decisions; `ranks` and `codes` (bits of all leaves) are that, or
            "table:0=4,1000=1"; `merge` is a rule as text, such as "trimmed:b=1".

        Raises:
          ValueError: the relaxation does not have this option.
        """
        options = {key: value for key, value in options.items() if value is not None}
        refuse_controllers(self.row.name, options)
        options = without_tables(options)
        if (codes := options.pop("codes", None)) is not None:
            return self._by_codes(axis_name, training, codes, options)
        if (periods := options.pop("periods", None)) is not None:
            option = self.timed_by(periods)
            if option in options:
                raise ValueError(
                    f"relaxation {self.row.name!r}: periods={periods} and {option}="
                    f"{options[option]} both say when workers meet: leave one out"
                )
            if isinstance(periods, str):
                periods = spelled(periods, training.learning_rate, training.steps)
            options[option] = periods
        if isinstance(merge := options.get("merge"), str):
            options["merge"] = spelled_rule(merge)
        for option in options:
            if option not in self.row.options:
                raise ValueError(
                    f"relaxation {self.row.name!r} has no option {option!r}; it has "
                    f"{listed(self.row.options)}. Leave {option} out"
                )
        return self.row.build(axis_name, training, **self.parts, **options)

    def _by_codes(
        self,
        axis_name: AxisName,
        training: Training,
        codes: Mapping[int, int],
        options: Mapping[str, Any],
    ) -> optax.GradientTransformationExtraArgs:
        """Rounding to so many bits from each step on, with error feedback."""
        self._require_decidable("codes", str(dict(codes)), options)

        def of(bits: int) -> optax.GradientTransformationExtraArgs:
            code = error_feedback(quantize(bits))
            choice = Choice(self.row, {**self.parts, "compressor": code})
            return choice.build(axis_name, training, **options)

        return by_step({step: of(bits) for step, bits in codes.items()})

    def conducted(
        self, axis_name: AxisName, training: Callable[[Any], Training], **options: Any
    ) -> Conducted | None:
        """The method under a controller; None if no option names one.

        Args:
          axis_name: the data-parallel axes.
          training: from a learning rate to the run.
          **options: see `build`; `periods` may name a controller, as in
            "ada_comm:start=16", and so may `ranks` and `codes`.

        Raises:
          ValueError: the controller lacks a number, or refuses one; the relaxation has
            nothing that it could decide.
        """
        named = [key for key in DECIDED if is_controller(key, options.get(key))]
        if not named:
            return None
        text = options.pop(option := named[0])
        self._require_decidable(option, text, options)
        found = spelled_controller(option, text)
        if found.every is not None:
            require_sums(self.row, RELAXATIONS.values(), option, text)

        def build(rate: Any, rows: list[tuple[int, Any]]) -> Any:
            run = training(rate)
            if found.every is not None:
                sums = norms_of_sums(found.every)
                run = run._replace(optimizer=optax.chain(sums, run.optimizer))
            return self.build(axis_name, run, **options, **found.options(rows))

        how = found.every, found.readings, found.beside
        return Conducted(found.controller, build, *how)

    def _require_decidable(
        self, option: str, text: str, options: Mapping[str, Any]
    ) -> None:
        """Refuses what has nothing to decide, and a level that is stated besides."""
        if option == "periods":
            self.timed_by(text)
        else:
            given = {**self.parts, **options}
            require_decidable(self.row, RELAXATIONS.values(), option, text, given)

    def period(self, **options: Any) -> int | None:
        """Number of steps after which its communication repeats; None: it does not."""
        phases = options.get("periods") or options.get("codes")
        if self.row.period is None or phases:
            return None
        return options.get("sync_every", self.row.period)

    def timed_by(self, text: str) -> str:
        """The option that sets the period; refuses a relaxation that has no period."""
        for option in _TIMED & self.row.options:
            return option
        able = [name for name, row in RELAXATIONS.items() if _TIMED & row.options]
        raise ValueError(
            f"relaxation {self.row.name!r} has no period, and takes no periods={text}; "
            f"{listed(able)} do"
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
    found = taken_apart(name, RELAXATIONS, COMPRESSORS, FEEDBACKS)
    parts: dict[str, Any] = {}
    if found.compressor:
        compressor = COMPRESSORS[found.compressor]()
        around = FEEDBACKS[found.feedback] if found.feedback else None
        parts["compressor"] = around(compressor) if around else compressor
    if found.algorithm:
        parts["algorithm"] = found.algorithm
    return Choice(RELAXATIONS[found.base], parts)
