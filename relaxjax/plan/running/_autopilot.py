"""A plan that looks at the run: which relaxation, as links and computation change.

A step that sends takes t seconds, in the median of a few, and one that sends nothing c
seconds. The link is taken to be f times as fast as it was said to be, where the
prediction T of the relaxation in force says just that (found by bisection):

    T(now, f, c) + e = t

and as slow or as fast as t (1 + gain) and t (1 - gain) allow, f- and f+. (A t below
that of the fastest link counts as that.) Each relaxation costs its mean seconds of a
step over what a step is worth,

    cost(r, f) = ((H_r - 1) c + T(r, f, c) + e_r) / (H_r worth_r)

and another one is taken where it costs less by the gain at f-, f and f+ alike, the one
that costs least at f. So a link that hides behind computation, of which f+ may be
anything, never asks for more messages by itself.

No prediction is right: e_r is by how much this one is wrong, as the run has shown
(`relaxjax.plan.running._links`). So what turned out slower than it was said to be is
left again, and not come back to until the link has changed, or something else has.

Law: the same readings give the same decisions; where the seconds are those predicted,
it takes the relaxation of least cost, or stays within the gain of it.

Cost: a few hundred predictions where the link has changed, else a few.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from relaxjax.controllers import Controller, controller
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network, require_network
from relaxjax.plan._ranking import Row
from relaxjax.plan.running._costs import Costs
from relaxjax.plan.running._links import Memory, looked

_CALLER = "plan.autopilot"


def autopilot(
    rows: Sequence[Row],
    model: Model,
    network: Network,
    *,
    worth: Mapping[str, float] | None = None,
    start: int = 0,
    gain: float = 0.05,
    dwell: int = 0,
) -> Controller:
    """Says in a run which relaxation to take from here on.

    Experimental: this may change in any release.

    It reads `exchange`, the seconds of the last few steps that sent, three or more, and
    `compute` where that is measured: seconds of steps that sent nothing. All processes
    give those of the first (`relaxjax.controllers.of_first_process`). Ask where a phase
    may begin. It only says; the loop takes the relaxation, or stays.

    Args:
      rows: the relaxations it may take, of a ranking, such as those that are allowed.
      model: params and computation.
      network: workers, links and codecs, as they were when the run began.
      worth: by label, what a step is worth, in steps of plain all-reduce to the same
        loss, as `relaxjax compare` measures; 1 where nothing is said.
      start: the place in `rows` of the relaxation that runs at first.
      gain: what a change must save at least, and what counts as the same seconds.
      dwell: steps between two changes at least.

    Returns:
      A controller. Its level is a place in `rows`.

    Raises:
      TypeError: `network` is not a network.
      ValueError: no rows, or a place or label that is not there; a `worth` that is not
        positive; `gain` is not in (0, 1); `dwell < 0`.

    Example:
      >>> from relaxjax import plan, schedule
      >>> model = plan.Model.of_size(1_000_000, compute=0.05)
      >>> network = plan.Network(workers=4, link=schedule.Link(1e-4, 1.25e8))
      >>> ranked = plan.rank(model, network, quality="unmeasured")
      >>> names = ["all_reduce", "local_sgd"]
      >>> rows = [row for name in names for row in ranked.rows if row.label == name]
      >>> pilot = plan.autopilot(rows, model, network, worth={"local_sgd": 0.7})
      >>> record = pilot.update(pilot.init(), 3, {"exchange": [5.1, 4.9, 5.0]})
      >>> names[record.level]  # a hundred times as slow as was said
      'local_sgd'
    """
    require_network(_CALLER, network)
    costs = Costs(tuple(rows), model, network, dict(worth or {}))
    _check(costs, start, gain)

    def rule(memory: Any, level: Any, told: Mapping[str, Any]) -> tuple[Any, int]:
        seconds = _median(told["exchange"])
        if seconds <= 0:  # no clock counts so
            return memory, level
        memory = memory or Memory((1.0, 1.0, 1.0), model.compute)
        if "compute" in told:
            memory = memory._replace(compute=_median(told["compute"]))
        memory = looked(memory, costs, level, seconds, gain)
        return memory, _better(costs, level, memory, gain)

    return controller(
        rule, start=start, reads=["exchange"], dwell=dwell, caller=_CALLER
    )


def _better(costs: Costs, level: int, memory: Memory, gain: float) -> int:
    """The relaxation to take."""
    same = memory.error(level) or 0.0

    def cost(other: int, f: float) -> float:
        e = memory.error(other)
        return costs(other, f, memory.compute, same if e is None else e)

    limits = [(f, cost(level, f) * (1 - gain)) for f in memory.links]
    may = [level]
    for other in range(len(costs.rows)):
        if other != level and all(cost(other, f) < limit for f, limit in limits):
            may.append(other)
    return min(may, key=lambda other: cost(other, memory.links[1]))


def _median(seconds: Any) -> float:
    return statistics.median(seconds if isinstance(seconds, list) else [seconds])


def _check(costs: Costs, start: int, gain: float) -> None:
    labels = [row.label for row in costs.rows]
    if not 0 <= start < len(labels):
        raise ValueError(
            f"{_CALLER}: start={start} must be the place of one of rows={labels}"
        )
    if not 0 < gain < 1:
        raise ValueError(f"{_CALLER}: gain={gain} must be in (0, 1); 0.05 is usual")
    for name, value in costs.worth.items():
        if name not in labels or not value > 0:
            raise ValueError(
                f"{_CALLER}: worth[{name!r}]={value} must be a positive number for one "
                f"of rows={labels}"
            )
