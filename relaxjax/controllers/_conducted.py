"""A method whose period, or whose other level, a controller decides in the run.

A run is asked right after each meeting where the level is a period, and else after each
`every`-th step. `Conductor` does it between the steps, with the same lines in every
loop.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from relaxjax._core._checks import require_whole
from relaxjax.controllers._controller import Controller
from relaxjax.controllers._record import Record

Build = Callable[[Any, list[tuple[int, Any]]], optax.GradientTransformation]
"""From a learning rate and a table of levels to the transformation of a run."""


class Conducted(NamedTuple):
    """A method whose period, or whose other level, a controller decides in the run.

    Attributes:
      controller: what decides.
      build: from the learning rate (a number or a schedule) and a table, rows (step,
        level), to the transformation; of a level that is a period, it is
        `relaxjax.periods.table(table)`.
      every: steps between two questions; None: the level is the period, and the
        question comes right after each meeting.
      readings: from the optimizer's state, with its worker axis, and the mean loss
        since the last question, a float, to the readings; None: `loss`, and `norms` of
        `norms_of_sums` where that is in the state.
      options: of the method, which hold beside the table and are kept with it.

    Example:
      >>> import optax, relaxjax
      >>> from relaxjax import controllers, periods
      >>> def build(rate, table):
      ...     tx = relaxjax.local_sgd("data", periods.table(table))
      ...     return optax.chain(optax.adamw(rate), tx)
      >>> method = controllers.Conducted(controllers.ada_comm(16), build)
      >>> method.due(method.controller.init())
      16
    """

    controller: Controller
    build: Build
    every: int | None = None
    readings: Callable[[Any, float], Mapping[str, Any]] | None = None
    options: Mapping[str, int] = {}

    def start(self, rate: Any) -> optax.GradientTransformation:
        """The transformation of the first level.

        Args:
          rate: the learning rate, a number or a schedule.
        """
        return self.build(rate, self.controller.init().table)

    def due(self, record: Record) -> int:
        """The step after which the controller is asked next.

        Args:
          record: the decisions so far.

        Raises:
          ValueError: `every < 1`.
        """
        if self.every is not None:
            require_whole("controllers.Conducted", "every", self.every)
        steps = record.level if self.every is None else self.every
        return record.decisions[-1].step + steps
