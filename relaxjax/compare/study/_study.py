"""A study: many relaxations on one task, each tuned with as many runs as the others.

    study = Study("my_task.py", ["all_reduce", "power_sgd", "diloco"], seeds=3, tune=3)
    results = study.run("runs/study")

`study.json` says what was asked; `results.jsonl` has a line for each finished run. The
same study in the same folder goes on where it was stopped, and repeats nothing.

Cost: (tune + 1 + seeds) runs of each relaxation.
"""

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from relaxjax._core.foreign._folders import local_path
from relaxjax.compare.kept import _records
from relaxjax.compare.page._results import Results, conditions
from relaxjax.compare.study import _identity as identity
from relaxjax.compare.study import _runs
from relaxjax.compare.study._asked import NETWORKS, Settings, require_buildable
from relaxjax.compare.study._methods import Method, Planned, as_decided, methods
from relaxjax.compare.study._one_run import Shape, trained
from relaxjax.compare.study._progress import Progress, shown_here
from relaxjax.compare.study._seconds import (
    MEASURED,
    STATED,
    Seconds,
    compute_seconds,
    link_of,
)
from relaxjax.compare.study._seeds_at_once import Programs, group_of
from relaxjax.compare.study._study_file import (
    described,
    runs_of_all,
    study_there,
    write_study,
)
from relaxjax.tasks import TASKS, Task, load, task_of

Known = dict[str, _records.Record]


class Study:
    """A comparison of relaxations on a task.

    Args:
      task: a task file such as `my_task.py` or `my_task.py:NAME`, the name of a task
        that comes with relaxjax, or a function from a seed to a `relaxjax.tasks.Task`.
      relaxations: names with options, such as `"diloco+quantize8 sync_every=16"`; or a
        mapping from labels to names, to transformations over the axis `"data"`, or to
        functions that make one from a schedule of the learning rate. The first is the
        baseline.
      seeds: number of runs of each for the report, 1 or more; with fewer than 3 the
        report has no verdicts.
      tune: number of learning rates, a factor of 3 apart around the task's own; each
        relaxation then gets one more. 1 takes the usual rate and tunes nothing.
      grid: values of options that are tuned as well, for relaxations that have them;
        the others get more learning rates in their place.
      workers: number of workers.
      steps: steps of a run; None: the task's.
      batch_size: rows of a step over all workers; None: the task's, rounded up to a
        multiple of `workers`.
      networks: bandwidth and latency of a worker's link, as in `"1gbit,10ms"`.
      compute: seconds of a step without communication; None: measured here.
      target: value of the validation metric that counts as reached; None: what the
        baseline ends with, less 2 %.
      seeds_at_once: number of a report's seeds that are one program; None: on a GPU as
        many as its memory takes, on a CPU 1. Numbers differ by rounding.

    Raises:
      TypeError, ValueError: an argument cannot be used; the message says what can.

    Example:
      >>> from relaxjax import compare
      >>> study = compare.Study(
      ...     "digits", ["all_reduce", "local_sgd"], seeds=1, tune=1, workers=2, steps=4
      ... )
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     records = study.run(folder).records()
      >>> [record["method"] for record in records]
      ['all_reduce', 'local_sgd']
    """

    NETWORKS = NETWORKS

    def __init__(
        self,
        task: str | Callable[[int], Task],
        relaxations: Sequence[Any] | Mapping[str, Any],
        **settings: Any,
    ):
        self.settings = Settings(**settings)
        self._source, self._digest = identity.name_of(task), ""
        if isinstance(task, str) and task not in TASKS:
            task, self._digest = load(task)
        self._make = TASKS[task] if isinstance(task, str) else task
        self.links = {name: link_of(name) for name in self.settings.networks}
        # The task of a seed, with validation data; it is made once.
        self._task = functools.cache(lambda seed: task_of(self._make(seed)))
        self._digests: dict[tuple[str, float], str] = {}
        first = self._task(0)
        self.methods: list[Method] = methods(relaxations, first)
        self.shape = Shape(
            make=self._task,
            steps=self.settings.steps or first.steps,
            workers=self.settings.workers,
            batch_size=self._rows(first),
        )
        require_buildable(self.methods, self.settings, self.shape.steps)

    def _rows(self, task: Task) -> int:
        workers, rows = self.settings.workers, self.settings.batch_size
        if rows is None:
            return -(-task.batch_size // workers) * workers
        if rows < 1 or rows % workers:
            raise ValueError(
                f"batch_size={rows} cannot be shared equally by workers={workers}: "
                f"take {-(-max(rows, 1) // workers) * workers}"
            )
        return rows

    def run(
        self,
        out: str | Path,
        *,
        shard: tuple[int, int] = (1, 1),
        budget: float = math.inf,
        progress: Progress | None = None,
        command: str = "",
    ) -> Results:
        """Does the runs that are not there yet, and returns all that are.

        Args:
          out: the folder.
          shard: (i, n) does the methods of the i-th of n parts, counted from 1.
          budget: seconds after which no further run is begun.
          progress: called before each run with the numbers of finished and of all
            runs that are known of, and what is run; None: a notebook shows a line.
          command: what to state as the command that made the study.

        Raises:
          ValueError: the folder holds another study; a record cannot be read; a shard
            that is not one of 1 to n.
        """
        folder, began = local_path("Study.run", "out", out), time.monotonic()
        mine = _runs.shard_of(self.methods, shard)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{folder}: cannot make this folder ({error.strerror}); name one that "
                "you may write to"
            ) from error
        self._write(folder, command)
        part = "" if shard == (1, 1) else "-{}of{}".format(*shard)
        path = folder / f"results{part}.jsonl"
        known = {r["key"]: r for r in _records.read(folder)}
        self._leave_out(folder, known)
        programs = Programs(self.shape, self.settings.seeds_at_once)
        told = progress or shown_here()
        while run := self._next(mine, known):
            if time.monotonic() - began > budget:
                break
            told(
                self._done(known),
                runs_of_all(self.methods, self.settings),
                f"{run.method.label}, {run.phase}",
            )
            for key, record in self._trained(run, known, programs).items():
                if key not in known:
                    known[key] = {"key": key, **record}
                    _records.append(path, known[key])
        if any(method.conducted for method in self.methods):
            self._write(folder, command, list(known.values()))
        self._leave_out(folder, known)
        return Results(folder)

    def _leave_out(self, folder: Path, known: Known) -> None:
        """Writes which records are of other rates, code or transformations.

        No table counts them.
        """
        every = (self._planned(method, known) for method in self.methods)
        runs = {self._key(run) for some in every for run in some}
        write_study(
            folder,
            study_there(folder, self._asked) | {"left_out": sorted({*known} - runs)},
        )

    def _done(self, known: Known) -> int:
        """The runs that are there; records of other code and settings are no runs."""
        every = (self._planned(method, known) for method in self.methods)
        return sum(self._key(run) in known for runs in every for run in runs)

    def _next(self, mine: list[Method], known: Known) -> Planned | None:
        for method in mine:
            for run in self._planned(method, known):
                if self._key(run) not in known:
                    return run
        return None

    def _planned(self, method: Method, known: Known) -> Iterator[Planned]:
        return _runs.planned(method, known, self._key, self._task(0), self.settings)

    def _key(self, run: Planned) -> str:
        return _records.key_of(
            method=run.method.label,
            phase=run.phase,
            seed=run.seed,
            learning_rate=run.learning_rate,
            options=run.options,
            own=self._own(run.method, run.learning_rate),
            **self._decides,
        )

    def _own(self, method: Method, rate: float) -> str:
        """A digest of a user's own transformation; a relaxation's name says it all.

        Where it is called something else, its name with options.
        """
        known, shape = (method.label, rate), self.shape
        if not method.name and known not in self._digests:
            tx = method.build(rate, {}, shape.steps, shape.workers)
            rows = shape.workers, shape.batch_size
            self._digests[known] = identity.step_digest(tx, self._task(0), *rows)
        return method.text or self._digests.get(known, "")

    @functools.cached_property
    def _decides(self) -> dict[str, Any]:
        """What decides the numbers of all runs alike."""
        return {
            "task": self._digest,
            "program": self._program,
            "data": self._task(0).data.sha256,
            **identity.own_optimizer(self._task(0)),
            **self.shape.sizes,
            "code": _records.code_digest(),
            "jax": jax.__version__,
        }

    @functools.cached_property
    def _program(self) -> str:
        return identity.task_digest(self._task(0), self.shape.batch_size)

    def _trained(self, run: Planned, known: Known, programs: Programs) -> Known:
        """Records by their keys, of a run and of those that are trained with it."""
        task = self._task(run.seed)
        program = programs.of(run, task)
        runs = group_of(run, range(self.settings.seeds), program.seeds)
        stops = None
        if run.phase == "tune":
            before = itertools.takewhile(
                lambda other: other != run, self._planned(run.method, known)
            )
            earlier = [known[self._key(other)] for other in before]
            stops = _runs.hopeless_at(earlier, self.shape.steps, task.better)
        found = trained(runs, self.shape, program, stops)
        return dict(zip(map(self._key, runs), found, strict=True))

    def _write(
        self, folder: Path, command: str, known: Sequence[_records.Record] = ()
    ) -> None:
        """Writes `study.json`, whose measured part stays as it is once it is there.

        Seconds of a method under a controller are those of what it decided.
        """
        before = study_there(folder, self._asked)
        task, settings = self._task(0), self.settings
        kept = before.get("compute_seconds"), before.get("compute_source")
        compute, source = (settings.compute, STATED) if settings.compute else kept
        if not compute:
            compute, source = compute_seconds(task, self.shape), MEASURED
        settled = [as_decided(method, known) for method in self.methods]
        seconds = Seconds(settled, task, self.shape, compute)
        said = {
            "version": version("relaxjax"),
            "asked": self._asked,
            "task": identity.record_of(task, self._source, self._digest),
            "methods": [method.label for method in self.methods],
            "tune_seeds": [_runs.TUNE_SEED],
            **described(settings, self.shape),
            **seconds.record(self.links),
            "compute_seconds": compute,
            "compute_source": source,
            "conditions": conditions(),
            "command": command or before.get("command", ""),
        }
        write_study(folder, said)

    @functools.cached_property
    def _asked(self) -> dict[str, Any]:
        """What makes it this study; more seeds, methods and networks may be added."""
        return {
            "task": self._source,
            "task_digest": self._digest[:16],
            "program": self._program[:16],
            **self.shape.sizes,
            "baseline": self.methods[0].label,
        }
