"""Ranks that a controller decides while training, against fixed ones, by `compare`.

PowerSGD on characters, a transformer of one block, eight workers. Every method tries
the same learning rates. Beside fixed ranks 1, 2 and 4:

    accordion     1 or 4, by how much the norm of a leaf's gradients changes
    l_greco       the fewest bytes for the error of rank 2
    by time       a table without any reading: lower later, and lower for large leaves,
                  of the bytes of rank 2 (LEGACY's null hypothesis)

The test bits per character are paired with rank 2's of the same seed. As bytes differ,
they are also held against the line through the fixed ranks' (log bytes, bits), at the
method's own bytes: below 0 is better than a fixed rank of these bytes.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import jax
import numpy as np
import optax
import typer

from benchmarks.report import Result, Run, Runs, Table, benchmark
from benchmarks.training.study import interval
from relaxjax import compare, controllers, power_sgd
from relaxjax.tasks import OPTIMIZERS, Task, chars

EVERY, RANK, HIGHEST = 100, 2, 4
LARGE = 4096  # elements of a leaf
LATER = 0.345  # of the run: the table of `by time` then sends what rank 2 sends
FIXED = {f"power_sgd rank={rank}": rank for rank in (1, RANK, HIGHEST)}
Row = dict[str, Any]


@benchmark("decided", platform="cpu")
def decided(
    run: Run,
    steps: Annotated[int, typer.Option(min=4, help="Steps of a run.")] = 3000,
    seeds: Runs = 3,
    tune: Annotated[int, typer.Option(min=1, help="Learning rates of each.")] = 3,
    workers: Annotated[int, typer.Option(min=2, help="Workers.")] = 8,
) -> Result:
    """Ranks by controllers and by a table against fixed ranks: loss over bytes."""
    study = compare.Study(
        small, methods(steps), seeds=seeds, tune=tune, workers=workers, steps=steps
    )
    records = study.run(run.out / "decided", progress=print).records()
    rows = rows_of([r for r in records if r["phase"] == "report"])
    table = Table.of(
        "Ranks that are decided while training",
        rows,
        *("method", "bytes a step", "changes"),
        ("bits per character", lambda row: f"{np.mean(row['bits']):.3f}"),
        ("over rank 2", lambda row: _spread(row["over"])),
        ("over fixed ranks of its bytes", lambda row: _spread(row["line"])),
    )
    conditions = run.conditions(every=EVERY, params=_size(small(0)))
    return run.finish({"conditions": conditions, "rows": rows}, tables=[table])


def small(seed: int) -> Task:
    """A transformer of one block, of 23,136 params."""
    return chars(seed, width=32, layers=1)


def methods(steps: int) -> dict[str, Any]:
    """By their names in tables; the first is the baseline."""
    shapes = {
        name: x.shape for name, x in _named(small(0).params).items() if x.ndim == 2
    }
    rank_all = {name: name for name in sorted(FIXED, key=lambda x: FIXED[x] != RANK)}
    by_error = controllers.Conducted(
        controllers.l_greco(shapes, RANK), _by_table, EVERY, _errors(shapes)
    )
    return {
        **rank_all,
        f"power_sgd ranks=accordion:low=1,high={HIGHEST},every={EVERY}": (
            f"power_sgd ranks=accordion:low=1,high={HIGHEST},every={EVERY}"
        ),
        f"power_sgd by l_greco, rank={RANK}": by_error,
        "power_sgd by time and size": lambda rate: _by_table(
            rate, by_time(shapes, steps)
        ),
    }


def by_time(shapes: Any, steps: int) -> list[tuple[int, Any]]:
    """Ranks 4 and 3 at first, 2 and 1 later; the lower ones are large leaves'."""
    large = {name: int(np.prod(shape) >= LARGE) for name, shape in shapes.items()}
    begin = {name: 4 - large[name] for name in shapes}
    end = {name: 2 - large[name] for name in shapes}
    return [(0, begin), (round(LATER * steps), end)]


def _by_table(rate: Any, table: list[tuple[int, Any]]) -> Any:
    return optax.chain(
        power_sgd("data", rank=dict(table), highest=HIGHEST),
        controllers.norms_of_sums(EVERY),
        OPTIMIZERS["adamw"].make(rate),
    )


def _errors(shapes: Any) -> Any:
    """What each rank leaves of the gradients that a period's steps took, added up."""

    def readings(opt_state: Any, loss: float) -> Row:
        del loss
        sums = {
            name: np.asarray(x)[0] for name, x in _named(opt_state[1].total).items()
        }
        ranks = {name: _ranks(shape) for name, shape in shapes.items()}
        return {
            "errors": {
                name: controllers.rank_errors(sums[name], ranks[name]) for name in ranks
            }
        }

    return readings


def _ranks(shape: Sequence[int]) -> list[int]:
    most = min(*shape, 2 * RANK)
    return list(range(max(1, RANK // 2), most + 1))


def rows_of(records: Sequence[Row]) -> list[Row]:
    """A row of each method, with differences to rank 2 and to the line, in percent."""
    by_method: dict[str, list[Row]] = {}
    for record in records:
        by_method.setdefault(record["method"], []).append(record)
    for runs in by_method.values():
        runs.sort(key=lambda r: r["seed"])
    bits = {name: np.array([r["test"] for r in x]) for name, x in by_method.items()}
    sent = {
        name: float(np.mean([r["bytes_per_step"] for r in x]))
        for name, x in by_method.items()
    }
    known = sorted(FIXED, key=lambda name: sent[name])
    at = np.log([sent[name] for name in known])
    rows = []
    for name, runs in by_method.items():
        lines = [
            np.interp(np.log(sent[name]), at, [bits[k][i] for k in known])
            for i in range(len(runs))
        ]
        rows.append(
            {
                "method": name,
                "bytes a step": round(sent[name]),
                "changes": [max(0, len(r.get("table", ())) - 1) for r in runs],
                "bits": bits[name].tolist(),
                "over": interval(
                    100 * (bits[name] / bits[f"power_sgd rank={RANK}"] - 1)
                ),
                "line": interval(100 * (bits[name] / np.array(lines) - 1)),
            }
        )
    return rows


def _spread(found: Sequence[float]) -> str:
    return "{:+.2f} % [{:+.2f}, {:+.2f}]".format(*found)


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by the names that `power_sgd` gives them."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in leaves}


def _size(task: Task) -> int:
    return sum(x.size for x in jax.tree.leaves(task.params))
