"""A run under a controller, between its steps.

    record <- update(record, step, readings)      where it is due

    a period     the one that begins here lasts so long (`relaxjax.periods.lasting`)
    a rank       the state goes over to `build(rate, table)` (`continued`)

Law: a run of `build(rate, record.table)`, without a controller, is the same run to the
bit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from relaxjax.controllers._conducted import Conducted
from relaxjax.controllers._continued import continued
from relaxjax.controllers._from_state import nodes, norms_in, own_row
from relaxjax.controllers._record import Decision
from relaxjax.periods import Meetings, lasting
from relaxjax.tasks import Task, train_step_of
from relaxjax.workers import data_parallel, state_shapes, workers_of


class Conductor:
    """One run of a conducted method, between its steps.

    Attributes:
      record: the decisions so far.
      losses: of the steps since the last decision.
      step: the step for the decisions so far.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import controllers, periods
      >>> mesh = relaxjax.emulate(2)
      >>> tx_of = lambda rate, table: optax.chain(
      ...     optax.sgd(rate), relaxjax.local_sgd("data", periods.table(table)))
      >>> method = controllers.Conducted(controllers.ada_comm(2), tx_of)
      >>> tx = method.start(0.1)
      >>> def train_step(w, opt_state, x):
      ...     loss, g = jax.value_and_grad(lambda w: jnp.mean((x - w) ** 2))(w)
      ...     updates, opt_state = tx.update(g, opt_state, w)
      ...     return optax.apply_updates(w, updates), opt_state, {"loss": loss}
      >>> asks = controllers.Conductor(
      ...     method, 0.1, relaxjax.data_parallel(train_step, mesh), make=None)
      >>> state = list(relaxjax.init(tx, jnp.zeros(()), mesh))
      >>> for step in range(1, 6):
      ...     *state, metrics = asks.step(*state, jnp.arange(2.0))
      ...     state = asks.after(step, state, metrics["loss"])
      >>> asks.record.table
      [(0, 2), (4, 1)]
    """

    def __init__(
        self,
        method: Conducted,
        rate: Any,
        step: Any,
        make: Callable[[optax.GradientTransformation], tuple[Any, Any]],
    ):
        """Begins with the first level.

        Args:
          method: the method.
          rate: the learning rate, a number or a schedule.
          step: the step of the run, for the first level.
          make: from a transformation to the step of the run, and to an optimizer state
            or its shapes.
        """
        self._method, self._rate, self._make = method, rate, make
        self.record = method.controller.init()
        self.losses: list[Any] = []
        self.step = step

    @classmethod
    def of_task(
        cls, method: Conducted, rate: Any, step: Any, task: Task, mesh: Any
    ) -> "Conductor":
        """The conductor of a run of a task, whose later steps are of that task too.

        Args:
          method: the method.
          rate: the learning rate, a number or a schedule.
          step: the step of the run, for the first level.
          task: data and model.
          mesh: where the workers are.
        """

        def make(tx: optax.GradientTransformation) -> tuple[Any, Any]:
            like = state_shapes(tx, task.params, workers_of(mesh, None, "controllers"))
            return data_parallel(train_step_of(task, tx), mesh, donate=True), like

        return cls(method, rate, step, make)

    @property
    def tx(self) -> optax.GradientTransformation:
        """The transformation of the table so far."""
        return self._method.build(self._rate, self.record.table)

    def save(self, path: str | Path) -> None:
        """Writes the decisions so far, and the options that hold beside them.

        Args:
          path: the file, for `relaxjax.controllers.load`.
        """
        self.record.save(path, options=self._method.options)

    def go_on(
        self,
        decisions: Iterable[Decision],
        done: int,
        state: Sequence[Any],
        losses: Sequence[Any] = (),
    ) -> list[Any]:
        """The state to go on with, of a run that was stopped after so many steps.

        Args:
          decisions: those of `relaxjax.controllers.load`; later ones are dropped.
          done: number of steps taken.
          state: that of the checkpoint, as one of the first level.
          losses: of the steps since the last decision.

        Raises:
          ValueError: the controller has other numbers than the recorded one, or a
            decision is missing.
        """
        taken = [row for row in decisions if row.step <= done]
        self.record = self._method.controller.replayed(taken)
        if (due := self._method.due(self.record)) <= done:
            raise ValueError(
                f"controllers.Conductor: {done} steps were taken, and the decisions "
                f"end before step {due}, at which the controller was asked: take those "
                "that were written before this checkpoint, or an earlier checkpoint"
            )
        self.losses = list(losses)
        changed = len(self.record.table) > 1 and self._method.every is not None
        return self._changed(state) if changed else list(state)

    def after(self, done: int, state: Sequence[Any], loss: Any) -> list[Any]:
        """The state to go on with, after so many steps; asks where it is time.

        Args:
          done: number of steps taken.
          state: the params, the optimizer's state with its worker axis, and the rest.
          loss: of this step, a mean over the workers.
        """
        self.losses.append(loss)
        if done != self._method.due(self.record):
            return list(state)
        params, opt_state, *rest = state
        before = self.record.table
        readings = self._readings(opt_state)
        self.record = self._method.controller.update(self.record, done, readings)
        self.losses.clear()
        if self._method.every is None:
            _require_met(done, opt_state)
            return [params, lasting(opt_state, self.record.level), *rest]
        return list(state) if self.record.table == before else self._changed(state)

    def _changed(self, state: Sequence[Any]) -> list[Any]:
        """The same arrays under the program of the table so far."""
        params, opt_state, *rest = state
        self.step, like = self._make(self.tx)
        return [params, continued(opt_state, like), *rest]

    def _readings(self, opt_state: Any) -> Mapping[str, Any]:
        loss = float(np.mean(jax.device_get(self.losses), dtype=np.float64))
        if self._method.readings is not None:
            return self._method.readings(opt_state, loss)
        norms = norms_in(opt_state)
        return {"loss": loss, **({"norms": norms} if norms else {})}


def _require_met(done: int, opt_state: Any) -> None:
    """Refuses a run whose periods are not those that the record says."""

    def met(x: Any) -> bool:
        return all(own_row(at).item() == done for at in (x.taken, x.begun))

    if not all(map(met, nodes(opt_state, lambda x: isinstance(x, Meetings)))):
        raise ValueError(
            f"controllers.Conducted: after step {done} no period begins: this method "
            "meets at other steps than its levels say, as fragments that take turns "
            "do, or counts other steps, as under accumulate; give it a schedule"
        )
