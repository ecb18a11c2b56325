"""Islands of which one is wrong, under kills: what the others' model comes to.

The last island diverges, sends NaN, and reports tokens that it has not taken in, in
turns (`benchmarks.islands.wrong_ways`). It is frozen, and wakes. All of them are killed
(SIGKILL) by the schedule of `python -m benchmarks islands chaos`. Beside it run the
same islands, under the same kills, without that one; and merges without any defense.
"""

import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

from benchmarks.islands import data, digits, ledger, live
from benchmarks.islands.faults import Fault, schedule
from benchmarks.islands.setting import Setting
from benchmarks.islands.wrong_ways import way_of
from benchmarks.report import Result, Run, Table, benchmark
from relaxjax.islands import Folder, replay
from relaxjax.islands.common import _log as log

TARGET = 0.02  # of the loss without that island
FREEZES, FROZEN = 45.0, 10.0  # seconds from one to the next, and of each


@benchmark("wrong-member", family="islands", platform="cpu")
def wrong_member(
    run: Run,
    minutes: Annotated[float, typer.Option(min=0.05, help="Of the run.")] = 1.0,
    islands: Annotated[int, typer.Option(min=3, help="Processes.")] = 5,
    rules: Annotated[
        str, typer.Option(help="Merges in bounds, such as clipped,rda.")
    ] = "clipped:by=all",
    bare: Annotated[
        str, typer.Option(help="Merges without bounds, such as mean,rda.")
    ] = "",
    kill_every: Annotated[float, typer.Option(min=1, help="Seconds.")] = 30.0,
    kill_syncer_every: Annotated[float, typer.Option(min=1, help="Seconds.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Of kills and data.")] = 0,
    steps_again: Annotated[
        bool, typer.Option(help="Replays each process's own steps as well.")
    ] = True,
    width: Annotated[int, typer.Option(min=1, help="Of hidden layers.")] = 128,
) -> Result:
    """One of several islands is wrong, under kills: the others' goodput and loss."""
    setting = Setting(
        islands, pace=20.0, slow=1.0, rows=64, sync_every=96, fragments=3, grace=0.5,
        lost_after=3.0, poll=0.02, rate=0.05, width=width, seed=seed, has_wrong=True,
    )  # fmt: skip
    settings: dict[str, Setting] = {}
    for rule in filter(None, rules.split(",")):
        with_it = setting._replace(merge=rule)
        settings[rule] = with_it
        settings[f"{rule}, absent"] = with_it._replace(
            islands=islands - 1, has_wrong=False
        )
    for rule in filter(None, bare.split(",")):
        settings[f"{rule}, bare"] = setting._replace(merge=rule, limit=None, cap=None)
    faults = _schedule(seed, 60 * minutes, islands, kill_every, kill_syncer_every)
    folder = run.out / "wrong_member"
    shutil.rmtree(folder, ignore_errors=True)

    def lived(name: str) -> live.Lived:
        place = folder / name.replace(", ", "-")
        return live.islands(settings[name], faults, 60 * minutes, FROZEN, place)

    with ThreadPoolExecutor(len(settings)) as threads:  # the same machine for all
        runs = dict(zip(settings, threads.map(lived, settings), strict=True))
    conditions = run.conditions(
        **setting._asdict() | {"islands": islands, "seed": seed, "width": width},
        schedule=[*map(list, faults)],
    )
    rows = [
        _figures(name, settings[name], runs[name], islands - 1, steps_again)
        for name in settings
    ]
    ends = {row["run"]: row["loss"] for row in rows}
    for row in rows:
        absent = ends.get(f"{row['run']}, absent")
        row["over_absent"] = row["loss"] / absent if absent and row["loss"] else None
    return run.finish(
        {"conditions": conditions, "target": TARGET, "rows": rows},
        tables=[_table(rows)],
        notes=_notes(rows),
    )


def _schedule(
    seed: int, seconds: float, islands: int, kills: float, syncers: float
) -> list[Fault]:
    """Kills of all, and freezes of the last one."""
    every = {"kill": kills, "syncer": syncers, "freeze": min(FREEZES, seconds / 2)}
    faults = schedule(seed, seconds, islands, every)
    last = islands - 1
    return [f._replace(number=last) if f.kind == "freeze" else f for f in faults]


def _figures(
    name: str, setting: Setting, lived: live.Lived, others: int, steps_again: bool
) -> dict[str, Any]:
    """What a run came to; `others` are those that are right."""
    store = Folder(lived.folder / "run")
    lines = [log.read(store, v)[0] for v in range(1, log.newest(store) + 1)]
    here = [r for r in lines if ledger.is_within(lived, r["version"])]
    wrong = f"island-{others}" if setting.has_wrong else ""
    parts = [c for r in here for c in r["contributions"]]
    right = sum(c["tokens"] for c in parts if c["island"] != wrong)
    whole = setting.pace * setting.rows * others * (lived.stop - lived.start)
    left = [c for r in here for c in r["left_out"]]
    params, damaged = ledger.common_model(lived)
    train, held_out = (data.noisy(rows, 0) for rows in data.read(lived.folder))
    return {
        "run": name,
        "goodput_of_others": right / setting.fragments / whole,
        "merges": len(here),
        "wrong_merged": _by_way(wrong, parts),
        "wrong_left_out": _by_way(wrong, left),
        "others_left_out": sum(c["island"] != wrong for c in left),
        "loss": _finite(jax.jit(digits.loss)(params, train)),
        "accuracy": _finite(jax.jit(digits.accuracy)(params, held_out)),
        "largest_param": _finite(max(np.abs(x).max() for x in params.values())),
        "faults": [m._asdict() | {"at": m.at - lived.start} for m in lived.met],
        "said": damaged,
        "replay": ledger.replayed(lived) if steps_again else _merged_again(store),
        "cores": ledger.cores(lived),
        "stood_still": lived.stood_still,
    }


def _by_way(wrong: str, parts: list[Any]) -> dict[str, int]:
    """Contributions of the wrong island, by the way in which it was wrong."""
    ways = [way_of(c["incarnation"]) for c in parts if c["island"] == wrong]
    return {way: ways.count(way) for way in sorted(set(ways))}


def _merged_again(store: Folder) -> dict[str, Any]:
    merges = list(replay(store))
    return {
        "merges": len(merges),
        "merges_equal": sum(m.is_equal for m in merges),
        "faults": [m.fault for m in merges if m.fault],
    }


def _finite(value: Any) -> float | None:
    """The value; None, as JSON has no other word, if it is not finite."""
    return float(value) if math.isfinite(value) else None


def _table(rows: list[dict[str, Any]]) -> Table:
    return Table.of(
        "one of the islands is wrong",
        rows,
        "run",
        ("goodput of the others", "goodput_of_others"),
        "merges",
        ("of them equal", lambda row: row["replay"]["merges_equal"]),
        ("its merged", lambda row: sum(row["wrong_merged"].values())),
        ("left out", lambda row: sum(row["wrong_left_out"].values())),
        ("loss", lambda row: row["loss"] if row["loss"] is not None else "not finite"),
        ("over absent", lambda row: row["over_absent"] or "-"),
        ("largest param", lambda row: f"{row['largest_param'] or math.inf:.3g}"),
    )


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """What was aimed at."""
    notes = []
    for row in rows:
        if row["over_absent"]:
            verdict = "met" if abs(row["over_absent"] - 1) <= TARGET else "missed"
            notes.append(
                f"{row['run']}: loss {row['over_absent']:.3f} of that without the "
                f"wrong island; aim: within 2 %: {verdict}"
            )
    return notes


def output_of(out: Path, name: str) -> Path:
    """What the islands of a run have printed."""
    return out / "wrong_member" / name.replace(", ", "-") / "output.txt"
