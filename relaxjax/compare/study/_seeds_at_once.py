"""How many seeds of a setting one program trains.

Small models leave a GPU idle: its time is that of starting kernels, and seeds that are
trained together share it. On a CPU nothing is gained, and each seed has its program.

    seeds at once = floor(share of the device's memory / memory of one seed's program)

The seeds of a report are cut into groups of as many, in their order. A group is always
trained whole, so that a study that was stopped has the numbers of one that was not.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import jax

from relaxjax._core.foreign._json import number
from relaxjax.compare.study._methods import Planned
from relaxjax.compare.study._one_run import Program, Shape, program, started
from relaxjax.programs import lowered
from relaxjax.tasks import Task

_SHARE = 0.8
"""Of the device's memory; the rest is for metrics and what the allocator loses."""


@dataclasses.dataclass
class Programs:
    """The programs of the setting at hand; those of another are forgotten.

    Attributes:
      shape: what all runs have in common.
      asked: seeds at once, as the study says; None: as many as fit.
    """

    shape: Shape
    asked: int | None
    _setting: str = ""
    _built: dict[int, Program] = dataclasses.field(default_factory=dict)
    _fit: int = 0

    def of(self, run: Planned, task: Task) -> Program:
        """A run's program; of a run for the report, with as many seeds as it may."""
        setting = json.dumps(
            [run.method.label, run.learning_rate, run.options], default=number
        )
        if setting != self._setting:
            self._setting, self._built, self._fit = setting, {}, self.asked or 0
        one = self._with(1, run, task)
        if run.phase == "tune" or one.conductor:
            return one
        self._fit = self._fit or seeds_that_fit(one, task, self.shape)
        return self._with(self._fit, run, task)

    def _with(self, seeds: int, run: Planned, task: Task) -> Program:
        if seeds not in self._built:
            self._built[seeds] = program(run, task, self.shape, seeds)
        return self._built[seeds]


def seeds_that_fit(
    program: Program, task: Task, shape: Shape, device: Any = None
) -> int:
    """How many seeds to train at once: on a GPU as many as its memory takes, else 1.

    Args:
      program: the setting's program for one seed.
      task: the task of a seed.
      shape: what all runs have in common.
      device: the device; None: JAX's first.
    """
    device = device or jax.devices()[0]
    if device.platform != "gpu":
        return 1
    memory = device.memory_stats()["bytes_limit"]
    return max(1, int(_SHARE * memory) // bytes_of_one(program, task, shape))


def bytes_of_one(program: Program, task: Task, shape: Shape) -> int:
    """Memory of one seed's step: what goes in and comes out, and what is between."""
    state = started(program, [task], shape.workers)
    batch = next(task.batches(0, shape.batch_size))
    found: Any = lowered(program.step, *state, batch).compile().memory_analysis()
    there = found.argument_size_in_bytes + found.output_size_in_bytes
    return there - found.alias_size_in_bytes + found.temp_size_in_bytes


def group_of(run: Planned, seeds: Sequence[int], size: int) -> list[Planned]:
    """The runs of a report that are trained with this one, itself among them."""
    if run.phase == "tune":
        return [run]
    begin = seeds.index(run.seed) // size * size
    return [run._replace(seed=seed) for seed in seeds[begin : begin + size]]
