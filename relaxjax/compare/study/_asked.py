"""What is asked of a study besides its task and relaxations, checked before any run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relaxjax._core.foreign._fields import check_count
from relaxjax._core.foreign._ranges import SECONDS, SEEDS, STEPS, TUNED, WORKERS
from relaxjax.compare.study._methods import Method, settings

NETWORKS = ("1gbit,10ms", "25gbit,50us")
_COUNTS = {
    "seeds": SEEDS,
    "tune": TUNED,
    "workers": WORKERS,
    "steps": STEPS,
    "batch_size": STEPS,
    "seeds_at_once": SEEDS,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The arguments of a study; see `Study`.

    Raises:
      TypeError, ValueError: one of them cannot be used.
    """

    seeds: int = 3
    tune: int = 3
    grid: Mapping[str, Sequence[float]] = field(default_factory=dict)
    workers: int = 8
    steps: int | None = None
    batch_size: int | None = None
    networks: Sequence[str] = NETWORKS
    compute: float | None = None
    target: float | None = None
    seeds_at_once: int | None = None

    def __post_init__(self) -> None:
        """Checks what does not depend on the task."""
        for name, among in _COUNTS.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), among=among)
        if self.compute is not None and not 0 < self.compute <= SECONDS.most:
            raise ValueError(
                f"compute={self.compute} must be the seconds of a step, more than 0 "
                f"and at most {SECONDS.most:g}; leave it out to have them measured"
            )
        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(
                f"target={self.target} must be a finite value of the validation metric"
            )
        for option, values in self.grid.items():
            if not values or not all(map(math.isfinite, values)):
                raise ValueError(
                    f"grid: the values of {option!r} must be finite numbers, one or "
                    f"more, got {list(values)}"
                )


def require_buildable(methods: Sequence[Method], asked: Settings, steps: int) -> None:
    """Makes each method once with every point of the grid, and forgets it.

    So a name or an option that does not fit is refused before the first run.

    Raises:
      ValueError: a method cannot be made, or no method has an option of the grid.
    """
    for option in asked.grid:
        if not any(option in method.known for method in methods):
            known = sorted(set().union(*(method.known for method in methods)))
            raise ValueError(
                f"grid: no relaxation has an option {option!r}; of these there are "
                f"{', '.join(known) or 'none'}"
            )
    for method in methods:
        for rate, options in settings(method, 0.1, 1, asked.grid):
            try:
                method.build(rate, options, steps, asked.workers)
            except ValueError as error:
                raise ValueError(f"relaxation {method.label!r}: {error}") from error
