"""What is compared: relaxations by name with options, or a user's own transformations.

A method is made anew for every learning rate, since the rate is what is tuned.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import optax

from relaxjax._core._relaxation import Training
from relaxjax._core.foreign._words import number_of
from relaxjax._names import parse
from relaxjax.controllers import DECIDED, Conducted, is_controller, without_tables
from relaxjax.merges import spelled as spelled_rule
from relaxjax.periods import spelled
from relaxjax.tasks import Optimizer, Task, optimizer_of, schedule

AXIS = "data"
_PERIODS, _MERGE = "periods", "merge"
_TEXTS = (*DECIDED, _MERGE)  # options that are text
APART = 3.0  # a learning rate over the next one

Options = Mapping[str, Any]  # numbers; a schedule of periods and a rule as text
Grid = Mapping[str, Sequence[float]]
Setting = tuple[float, dict[str, float]]  # learning rate and options
Own = Callable[[optax.Schedule], optax.GradientTransformation]


class Method(NamedTuple):
    """A relaxation with its optimizer, of which rate and options are open.

    Attributes:
      label: how tables and records call it.
      name: its name in relaxjax; "" for a user's own.
      fixed: options that are not tuned.
      build: `build(learning_rate, options, steps, workers)` makes the transformation.
      usual: its usual learning rate, as a multiple of the task's.
      known: names of its options.
      conducted: `conducted(options, steps, workers)` is the method under a controller;
        None: nothing decides while it trains.
      text: its name with options, where a user calls it something else.
    """

    label: str
    name: str
    fixed: Options
    build: Callable[[float, Options, int, int], Any]
    usual: float = 1.0
    known: frozenset[str] = frozenset()
    conducted: Callable[[Options, int, int], Conducted] | None = None
    text: str = ""


class Planned(NamedTuple):
    """A run to do.

    Attributes:
      method: the method.
      phase: "tune" or "report".
      seed: seed of the model's start and of the batches.
      learning_rate: peak of the schedule.
      options: options of the method that are tuned.
    """

    method: Method
    phase: str
    seed: int
    learning_rate: float
    options: dict[str, float]

    def heading(self) -> dict[str, Any]:
        """The fields of its record that are known before it."""
        return self._asdict() | {"method": self.method.label}


def named(text: str, task: Task) -> Method:
    """A method by its name and options, such as `diloco+quantize8 sync_every=16`.

    Its optimizer is the task's, or the one that the relaxation is made for.

    Raises:
      ValueError: an unknown name or option, or an option without a number.
    """
    name, *rest = text.split() or [""]
    choice = parse(name)
    fixed = dict(_option(text, part) for part in rest)
    if odd := set(fixed) - choice.row.options - {*DECIDED}:
        raise ValueError(
            f"relaxation {text!r}: {name} has no option {sorted(odd)[0]!r}; it has "
            f"{', '.join(sorted(choice.row.options)) or 'none'}"
        )
    decided = any(is_controller(key, fixed.get(key)) for key in DECIDED)
    periods = without_tables(fixed).get(_PERIODS)  # refuses what is no record
    if periods and not decided:
        choice.timed_by(fixed[_PERIODS])
        if isinstance(periods, str):
            spelled(periods, 1.0, task.steps)  # refuses what is no schedule
    if merge := fixed.get(_MERGE):
        spelled_rule(merge)
    optimizer: Optimizer = optimizer_of(task, choice.row.parent)

    def conducted(options: Options, steps: int, workers: int) -> Any:
        def training(rates: Any) -> Training:
            return Training(optimizer.make(rates), rates, steps, workers)

        return choice.conducted(AXIS, training, **fixed, **_whole(options))

    def build(rate: float, options: Options, steps: int, workers: int) -> Any:
        rates = schedule(rate, steps)
        if decided:
            return conducted(options, steps, workers).start(rates)
        training = Training(optimizer.make(rates), rates, steps, workers)
        return choice.build(AXIS, training, **fixed, **_whole(options))

    known = frozenset(choice.row.options)
    label, under = " ".join(text.split()), conducted if decided else None
    if decided:
        conducted({}, task.steps, 1)  # refuses what is no controller
    return Method(label, name, fixed, build, optimizer.rate, known, under)


def own(label: str, make: Own | Conducted | optax.GradientTransformation) -> Method:
    """A user's own: a transformation, or a function of the schedule that makes one.

    Or a method under a controller, which gets the schedule.

    Raises:
      TypeError: it is something else.
    """
    if isinstance(make, Conducted):
        return own(label, make.start)._replace(conducted=lambda *_: make)
    if isinstance(make, optax.GradientTransformation):
        return Method(label, "", {}, lambda *_: make, 0.0)
    if not callable(make):
        raise TypeError(
            f"relaxations[{label!r}]={make!r} must be the name of a relaxation, an "
            "optax transformation over the axis 'data', a function that makes one "
            "from a schedule of the learning rate, or a controllers.Conducted"
        )
    return Method(label, "", {}, lambda rate, _, steps, __: make(schedule(rate, steps)))


def as_decided(method: Method, records: Sequence[Mapping[str, Any]]) -> Method:
    """Under a controller: the method of the table of its first run for the report."""
    tables = [
        r["table"]
        for r in records
        if r["method"] == method.label and r["phase"] == "report" and "table" in r
    ]
    decides = method.conducted
    if decides is None or not tables:
        return method
    rows = [(step, level) for step, level in tables[0]]

    def build(rate: float, options: Options, steps: int, workers: int) -> Any:
        return decides(options, steps, workers).build(schedule(rate, steps), rows)

    return method._replace(build=build)


def methods(relaxations: Sequence[Any] | Mapping[str, Any], task: Task) -> list[Method]:
    """All methods of a study of a task; the first is the baseline.

    Raises:
      ValueError: there is no relaxation, or two have one label.
    """
    if isinstance(relaxations, str):
        relaxations = [relaxations]
    if not isinstance(relaxations, Mapping):
        relaxations = {
            x if isinstance(x, str) else f"own {i}": x
            for i, x in enumerate(relaxations)
        }
    found = [
        _labeled(label, named(x, task)) if isinstance(x, str) else own(label, x)
        for label, x in relaxations.items()
    ]
    if not found:
        raise ValueError("relaxations=[] compares nothing: name two or more")
    return found


def _labeled(label: str, method: Method) -> Method:
    """A named method, as the user calls it."""
    label = " ".join(str(label).split())
    if label == method.label:
        return method
    return method._replace(label=label, text=method.label)


def settings(method: Method, rate: float, tune: int, grid: Grid) -> list[Setting]:
    """Learning rates and options that a method is tuned over, the usual ones first.

    Every method has the same number of them: `tune` times the points of the grid.
    Where a method has none of the grid's options, it has more rates in their place,
    between the same two ends.

    Args:
      method: the method.
      rate: the task's learning rate.
      tune: number of learning rates, a factor of 3 apart.
      grid: values of options.
    """
    mine = {
        k: v for k, v in grid.items() if k in method.known and k not in method.fixed
    }
    points = [dict(zip(mine, x, strict=True)) for x in product(*mine.values())]
    most = max(1, int(np.prod([len(v) for v in grid.values()], dtype=int)))
    count = tune * most // len(points)
    middle = rate * (method.usual or 1.0)
    half = APART ** (((tune if tune > 1 else count) - 1) / 2)
    rates = np.geomspace(middle / half, middle * half, count) if count > 1 else [middle]
    ordered = sorted(map(float, rates), key=lambda x: abs(np.log(x / middle)))
    return [(_tidy(x), point) for point in points for x in ordered]


def one_more(tried: Sequence[Setting], best: Setting) -> Setting:
    """The setting that every method gets after the others: next to its best rate.

    Beyond the edge if the best rate is at it, or else between the best and the next
    larger one.
    """
    rates = sorted({rate for rate, _ in tried})
    at = rates.index(best[0])
    steps = len(rates) - 1
    step = (rates[-1] / rates[0]) ** (1 / steps) if steps else APART
    if at == 0:
        return _tidy(rates[0] / step), best[1]
    if at == len(rates) - 1:
        return _tidy(rates[-1] * step), best[1]
    return _tidy(float(np.sqrt(rates[at] * rates[at + 1]))), best[1]


def _tidy(rate: float) -> float:
    """Six digits, so that a record's rate is the one that was used."""
    return float(f"{rate:.6g}")


def _whole(options: Options) -> dict[str, float]:
    return {k: int(v) if float(v).is_integer() else v for k, v in options.items()}


def _option(text: str, part: str) -> tuple[str, Any]:
    key, equals, value = part.partition("=")
    if key in _TEXTS and value:
        return key, value
    number = number_of(value) if equals else None
    if number is None:
        raise ValueError(
            f"relaxation {text!r}: {part!r} must be OPTION=NUMBER, as in sync_every=16"
            "; a schedule or a controller, as in periods=qsr:peaks=2; or a rule, as in "
            "merge=clipped"
        )
    return key, number
