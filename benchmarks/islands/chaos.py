"""Islands, fail-stop training and torchft under one schedule of kills.

`relaxjax islands`, `relaxjax run` and torchft's DiLoCo train the same perceptron on
digits, each process paced to a fixed number of steps per second, while processes are
killed (SIGKILL), among them whoever merges, or frozen (SIGSTOP). Fail-stop begins again
from its last checkpoint, H steps old at most, as soon as a process has died.
"""

import shutil
from collections.abc import Callable
from statistics import median
from typing import Annotated, Any

import jax
import typer

from benchmarks.islands import beside, data, digits, ledger, live
from benchmarks.islands.calm import calm
from benchmarks.islands.faults import schedule
from benchmarks.islands.setting import Setting
from benchmarks.report import Result, Run, Table, benchmark

CALM_SEEDS = 3
PARTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "islands": (live.islands, ledger.of_islands),
    "fail-stop": (beside.fail_stop, ledger.of_fail_stop),
    "torchft": (beside.torchft, ledger.of_torchft),
}
Seconds = Annotated[float, typer.Option(min=0, help="Seconds between two; 0: never.")]


@benchmark("chaos", family="islands", platform="cpu")
def chaos(
    run: Run,
    minutes: Annotated[float, typer.Option(min=0.05, help="Of each part.")] = 1.0,
    islands: Annotated[int, typer.Option(min=2, help="Processes.")] = 3,
    kill_every: Seconds = 30.0,
    kill_syncer_every: Seconds = 60.0,
    freeze_every: Seconds = 0.0,
    fill_every: Seconds = 0.0,
    freeze_for: Annotated[
        float, typer.Option(min=0, help="Seconds of a freeze, and of a full disk.")
    ] = 10.0,
    slow: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="Pace of the last island, as a share."),
    ] = 1.0,
    pace: Annotated[float, typer.Option(min=0.1, help="Steps per second.")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Of kills and data.")] = 0,
    carrier: Annotated[str, typer.Option(help="folder or ray.")] = "folder",
    spares: Annotated[
        bool, typer.Option("--spares", help="Processes that have imported JAX wait.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help=f"One part: {', '.join(PARTS)}.")
    ] = None,
    tiny: Annotated[
        bool, typer.Option(help="Two islands, 9 s, a small model: does it run at all?")
    ] = False,
) -> Result:
    """Islands under kills: goodput, pauses, a ledger of tokens; fail-stop beside it."""
    if only is not None and only not in PARTS:
        raise typer.BadParameter(f"--only {only}: it must be one of {', '.join(PARTS)}")
    if carrier not in ("folder", "ray"):
        raise typer.BadParameter(f"--carrier {carrier}: it must be folder or ray")
    every = {"kill": kill_every, "syncer": kill_syncer_every, "freeze": freeze_every}
    every |= {"disk": fill_every}
    if tiny:
        islands, minutes, every = 2, 0.15, {"kill": 4.0, "syncer": 7.0}
    setting = Setting(
        islands, pace, slow, rows=64, sync_every=96, fragments=3, grace=0.5,
        lost_after=3.0, poll=0.02, rate=0.05, width=16 if tiny else 128, seed=seed,
        carrier=carrier, spares=spares,
    )  # fmt: skip
    seconds = 60 * minutes
    faults = schedule(seed, seconds, islands, every)
    folder = run.out / "chaos"
    shutil.rmtree(folder, ignore_errors=True)
    conditions = run.conditions(**setting._asdict(), schedule=[*map(list, faults)])
    result: Result = {"conditions": conditions}
    for name in _parts(only):
        start, figures = PARTS[name]
        lived = start(setting, faults, seconds, freeze_for, folder / name)
        result[name] = figures(setting, lived)
        if name == "islands":
            result["loss"] = _losses(setting, lived, result[name])
            result["replay"] = ledger.replayed(lived)
        run.save(result)
    shown = [name for name in PARTS if name in result]
    return run.finish(
        result,
        tables=[_table(result, shown), *_more(result)],
        notes=_notes(result),
    )


def _parts(only: str | None) -> list[str]:
    """What runs: all that is installed, unless one is asked for."""
    if only is not None:
        return [only]
    return [name for name in PARTS if name != "torchft" or beside.has_torchft()]


def _losses(setting: Setting, lived: live.Lived, found: Any) -> dict[str, Any]:
    """Losses of the common model, and of those of runs without kills.

    Those have as many tokens, or as many merges: a merge moves the model as far whether
    an island is missing or not.
    """
    train, held_out = (data.noisy(rows, 0) for rows in data.read(lived.folder))
    model, damaged = ledger.common_model(lived)
    overlap = round(found["staleness"]["steps_until_taken_over"] or 0)
    tokens = found["ledger"]["tokens_merged"]

    def measured(params: Any) -> dict[str, float]:
        return {
            "train": float(jax.jit(digits.loss)(params, train)),
            "held_out": float(jax.jit(digits.loss)(params, held_out)),
            "accuracy": float(jax.jit(digits.accuracy)(params, held_out)),
        }

    def calms(steps: int) -> list[dict[str, float]]:
        seeds = range(CALM_SEEDS)
        return [
            measured(calm(setting, steps, overlap, seed, lived.folder))
            for seed in seeds
        ]

    return {
        "tokens": tokens,
        "kills": measured(model),
        "calm": calms(round(tokens / (setting.rows * setting.islands))),
        "as_many_merges": calms(found["merges"] * setting.every),
        "said": damaged,
    }


def _table(result: Result, names: list[str]) -> Table:
    def row(name: str) -> dict[str, Any]:
        found = result[name]
        kills = [f for f in found["faults"] if f["pid"]]
        return {
            "run": name,
            "goodput": found["goodput"],
            "faults": f"{len(kills)} of {len(found['faults'])} hit",
            "back": found["restarts"]["median"] or "-",
            "worst": max(found["restarts"]["back_after"], default="-"),
            "compile": found["restarts"]["compilation"] or "-",
            "start": found["restarts"]["from_birth_to_training"] or "-",
            "cores": found["cores"],
            "still": found["stood_still"],
        }

    return Table.of(
        "under the same schedule of kills",
        map(row, names),
        "run",
        "goodput",
        "faults",
        ("victim trains again after s", "back"),
        ("at most", "worst"),
        ("process to training s", "start"),
        ("compilation s", "compile"),
        ("cores in use", "cores"),
        ("machine stood still s", "still"),
    )


def _more(result: Result) -> list[Table]:
    if "islands" not in result:
        return []
    pause, ledger_ = result["islands"]["pause"], result["islands"]["ledger"]
    stale, loss = result["islands"]["staleness"], result["loss"]
    again = result["replay"]
    missed = stale["most_merges_missed_in_a_row"]
    calms = [x["train"] for x in loss["calm"]]
    merges = [x["train"] for x in loss["as_many_merges"]]
    rows = [
        ("merges", result["islands"]["merges"]),
        ("seconds from merge to merge, median", pause["usual"]),
        ("longest", pause["longest"]),
        ("longest at a new leader", pause["longest_with_a_new_leader"] or "-"),
        ("steps from offer to taking over", stale["steps_until_taken_over"]),
        ("most merges missed in a row", max(missed.values(), default="-")),
        ("contributions merged twice", ledger_["merged_twice"]),
        ("acknowledged and lost", len(ledger_["acknowledged_and_lost"])),
        ("tokens taken in", ledger_["tokens_taken_in"]),
        ("tokens merged", ledger_["tokens_merged"]),
        ("tokens dropped at merges", ledger_["tokens_dropped_at_merges"]),
        ("tokens lost or under way", ledger_["tokens_lost"]),
        ("merges again, equal to the bit", again["merges_equal"]),
        ("contributions", again["contributions"]),
        ("again by own steps, equal to the bit", again["contributions_equal"]),
        ("largest difference", again["largest_difference"]),
        ("loss", loss["kills"]["train"]),
        ("loss without kills, median", median(calms)),
        ("least", min(calms)),
        ("most", max(calms)),
        ("loss of as many merges without kills", median(merges)),
    ]  # fmt: skip
    return [Table("islands", ["", ""], rows)]


def _notes(result: Result) -> list[str]:
    """What was aimed at."""
    if "islands" not in result:
        return []
    notes = [f"goodput {result['islands']['goodput']:.3f}; aim: 0.88 or more"]
    calms = median(x["train"] for x in result["loss"]["calm"])
    ratio = result["loss"]["kills"]["train"] / calms
    notes.append(f"loss over that without kills {ratio:.3f}; aim: within 1 %")
    return notes
