"""Which run comes next: a pure function of the study and of what has been recorded.

    tune      every method at the same number of settings, on the tuning seed
    one more  each method at one setting next to its best
    report    each method at its best setting, on the report seeds

The best has the best validation metric at its end; where several are equal, the one in
the middle of their learning rates. A method looks at its own records only, so that
shards can own whole methods, and a study that was stopped goes on as if nothing had
happened.

A tuning run stops at half of its steps where it is hopeless: if what it has there is
worse than what the method's best run so far had at a tenth.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from relaxjax.compare.kept._records import Record
from relaxjax.compare.kept._settings import middle_of, setting_of
from relaxjax.compare.kept._statistics import cost
from relaxjax.compare.study._asked import Settings
from relaxjax.compare.study._methods import Method, Planned, Setting, one_more, settings
from relaxjax.tasks import Task

KeyOf = Callable[[Planned], str]
TUNE_SEED = 1000
"""The seed of all tuning runs; those of the report are smaller."""


def planned(
    method: Method,
    known: Mapping[str, Record],
    key_of: KeyOf,
    task: Task,
    asked: Settings,
) -> Iterator[Planned]:
    """A method's runs, in order; what follows from runs that are not done is left out.

    Args:
      method: the method.
      known: records by their keys.
      key_of: the key of a run.
      task: it has the learning rate, and says which metric is better.
      asked: numbers of learning rates (1 takes the usual one) and of report seeds,
        and values of options to tune.
    """
    tried = settings(method, task.learning_rate, asked.tune, asked.grid)
    alone = len(tried) == 1 or not method.usual
    if alone:
        best = tried[0]
    else:
        runs = [Planned(method, "tune", TUNE_SEED, *setting) for setting in tried]
        yield from runs
        if not all(key_of(run) in known for run in runs):
            return
        extra = one_more(tried, _best(runs, known, key_of, task.better))
        runs.append(Planned(method, "tune", TUNE_SEED, *extra))
        yield runs[-1]
        if key_of(runs[-1]) not in known:
            return
        best = _best(runs, known, key_of, task.better)
    for seed in range(asked.seeds):
        yield Planned(method, "report", seed, *best)


def _best(
    runs: Sequence[Planned], known: Mapping[str, Record], key_of: KeyOf, better: str
) -> Setting:
    costs = [cost(known[key_of(run)]["validation"], better) for run in runs]
    equals = [run for run, x in zip(runs, costs, strict=True) if x == min(costs)]
    best = middle_of(setting_of(run._asdict()) for run in equals)
    return best.learning_rate, dict(best.options)


def hopeless_at(
    earlier: Sequence[Record], steps: int, better: str
) -> tuple[int, float] | None:
    """A step, and the validation metric that a tuning run must reach there.

    Args:
      earlier: the method's tuning runs that come before this one.
      steps: steps of a run.
      better: "higher" or "lower".
    """
    done = [r for r in earlier if r["stopped_at"] is None and r["curve"]]
    best = min(done, key=lambda r: cost(r["validation"], better), default=None)
    if best is None or cost(best["validation"], better) == math.inf:
        return None
    early = next((x for s, _, x in best["curve"] if s >= steps / 10), None)
    half = next((s for s, *_ in best["curve"] if s >= steps / 2), None)
    return None if early is None or half is None else (half, early)


def shard_of(found: Sequence[Method], shard: tuple[int, int]) -> list[Method]:
    """The methods of shard i of n, counted from 1: each i-th, dealt in turn."""
    index, count = shard
    if not 1 <= index <= count:
        raise ValueError(
            f"Study.run: shard={shard!r} must be (i, n), the i-th of n parts, counted "
            "from 1, as in (1, 2)"
        )
    return list(found[index - 1 :: count])
