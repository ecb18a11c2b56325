"""What a run came to: from the log of merges and from the diaries.

    goodput       merged tokens / (pace x islands x time); a contribution counts for the
                  P-th of the model that it is of
    merged twice  contributions with one (island, incarnation, fragment, base)
    lost          contributions that an island has heard to be merged, and that the log
                  does not have

What was under way at the start counts, and what is under way at the end does not.
"""

import sys
from collections.abc import Mapping
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.islands import course, diary, live
from benchmarks.islands.live import Lived
from benchmarks.islands.setting import Setting
from relaxjax.islands import Folder, replay, rerun
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._common_model import CommonModel

Figures = dict[str, Any]


def of_islands(setting: Setting, lived: Lived) -> Figures:
    """The figures of a run of islands."""
    store = Folder(lived.folder / "run")
    lines = [log.read(store, v)[0] for v in range(1, log.newest(store) + 1)]
    here = [r for r in lines if is_within(lived, r["version"])]
    seconds = lived.stop - lived.start
    tokens = sum(c["tokens"] for r in here for c in r["contributions"])
    merged = tokens / setting.fragments
    return {
        "goodput": merged / (setting.tokens_per_second * seconds),
        "tokens": merged,
        "seconds": seconds,
        "merges": len(here),
        "pause": _pauses(setting, lived, here),
        "staleness": _staleness(here),
        "ledger": _ledger(setting, lines, diary.read(lived.folder)),
        "faults": [m._asdict() | {"at": m.at - lived.start} for m in lived.met],
        "restarts": restarts(lived),
        "cores": cores(lived),
        "seconds_to_start": lived.seconds_to_start,
        "stood_still": lived.stood_still,
        "course": course.of_merges(setting, lived, here),
    }


def of_fail_stop(setting: Setting, lived: Lived) -> Figures:
    """The figures of a run that begins again; tokens of its last state count."""
    steps = [x for x in diary.read(lived.folder) if x["what"] == "step"]
    first = max(x["steps"] for x in steps if x["at"] <= lived.start)
    last = [x["steps"] for x in steps if x["at"] <= lived.stop][-1]
    tokens = (last - first) * setting.rows * setting.islands
    seconds = lived.stop - lived.start
    ends = [x["loss"] for x in diary.read(lived.folder) if x["what"] == "end"]
    return {
        "goodput": tokens / (setting.tokens_per_second * seconds),
        "tokens": tokens,
        "seconds": seconds,
        "starts": lived.starts,
        "faults": [m._asdict() | {"at": m.at - lived.start} for m in lived.met],
        "restarts": restarts(lived),
        "cores": cores(lived),
        "held_out_loss": fmean(ends) if ends else None,
        "stood_still": lived.stood_still,
        "seconds_to_start": lived.seconds_to_start,
        "course": course.of_steps(setting, lived, steps, first),
    }


def of_torchft(setting: Setting, lived: Lived) -> Figures:
    """The figures of a run of torchft; tokens of its committed rounds count."""
    said = [x for x in diary.read(lived.folder) if x["what"] == "round"]
    here = [x for x in said if lived.start < x["at"] <= lived.stop]
    done = [x for x in here if x["committed"]]
    tokens = sum(x["tokens"] for x in done) / setting.fragments
    seconds = lived.stop - lived.start
    times = sorted({x["round"]: x["at"] for x in reversed(done)}.values())
    spans = [b - a for a, b in pairwise([lived.start, *times, lived.stop])]
    return {
        "goodput": tokens / (setting.tokens_per_second * seconds),
        "tokens": tokens,
        "seconds": seconds,
        "rounds": len({x["round"] for x in done}),
        "given_up": len(here) - len(done),
        "pause": {"usual": median(spans), "longest": max(spans)},
        "faults": [m._asdict() | {"at": m.at - lived.start} for m in lived.met],
        "restarts": restarts(lived),
        "cores": cores(lived),
        "held_out_loss": median(x["loss"] for x in done[-setting.islands :]),
        "stood_still": lived.stood_still,
        "seconds_to_start": lived.seconds_to_start,
    }


def common_model(lived: Lived) -> tuple[dict[str, np.ndarray], list[str]]:
    """The newest common model by the names of its leaves, and what is wrong with it."""
    store = Folder(lived.folder / "run")
    said: list[str] = []
    state = CommonModel(store, Agreed.read(store), said.append)
    state.catch_up()
    arrays: dict[str, np.ndarray] = {}
    for fragment in state.anchors.values():
        arrays |= fragment.anchor
    return arrays, said


def replayed(lived: Lived) -> Figures:
    """The log once more: merges of what was kept, and each process's own steps."""
    store = Folder(lived.folder / "run")
    merges = list(replay(store))
    command = [sys.executable, str(live.HERE / "island.py")]
    steps = list(rerun(store, command, live.environment(lived.folder.absolute())))
    return {
        "merges": len(merges),
        "merges_equal": sum(m.is_equal for m in merges),
        "faults": [m.fault for m in merges if m.fault]
        + [c.fault for c in steps if c.fault],
        "processes": len({c.member for c in steps}),
        "contributions": len(steps),
        "contributions_equal": sum(c.is_equal for c in steps),
        "largest_difference": max(c.difference for c in steps),
    }


def restarts(lived: Lived) -> Figures:
    """Seconds from a kill until the victim trains again, and what they went into."""
    lines = diary.read(lived.folder)
    steps = [x for x in lines if x["what"] == "step"]
    back = []
    for met in lived.met:
        if met.kind not in ("kill", "syncer") or not met.pid:
            continue
        later = [
            x["at"] - met.at
            for x in steps
            if x["at"] > met.at and (x["name"], x["pid"] != met.pid) == (met.name, True)
        ]
        back += later[:1]
    births = [_birth([x for x in lines if x["pid"] == pid]) for pid in _pids(lines)]
    parts = [birth for birth in births if birth]
    return {
        "back_after": sorted(back),
        "median": median(back) if back else None,
        "from_birth_to_training": median(whole for whole, _ in parts),
        "compilation": median(compiled for _, compiled in parts),
    }


def _birth(own: list[Any]) -> tuple[float, float] | None:
    """Seconds from a process's birth to its first step, and those of compilation."""
    first = {x["what"]: x for x in reversed(own)}
    if not {"born", "compiled", "step"} <= set(first):
        return None
    return first["step"]["at"] - first["born"]["born"], first["compiled"]["seconds"]


def _pids(lines: list[Any]) -> list[int]:
    return sorted({x["pid"] for x in lines})


def is_within(lived: Lived, version: int) -> bool:
    """Whether a merge was committed between the start and the stop."""
    return lived.start < lived.commits.get(version, lived.stop + 1) <= lived.stop


def _pauses(setting: Setting, lived: Lived, here: list[Any]) -> Figures:
    """Times between commits, seen every 0.02 s; those in which a syncer was killed."""
    times = [lived.commits[r["version"]] for r in here]
    spans = list(pairwise([lived.start, *times, lived.stop]))
    killed = [m.at for m in lived.met if m.kind == "syncer" and m.pid]
    leaders = {r["version"]: r["leader"] for r in here}
    changed = {
        lived.commits[w]
        for v, w in pairwise(sorted(leaders))
        if leaders[v] != leaders[w]
    }
    hit = [b - a for a, b in spans if b in changed or any(a < at <= b for at in killed)]
    rest = [
        b - a
        for a, b in spans
        if not (b in changed or any(a < at <= b for at in killed))
    ]
    return {
        "usual": median(b - a for a, b in spans),
        "planned": setting.sync_every / setting.fragments / setting.pace,
        "longest": max(rest, default=None),
        "longest_with_a_new_leader": max(hit, default=None),
        "new_leaders": len(changed),
    }


def _staleness(here: list[Any]) -> Figures:
    """Steps from an offer to taking the merge over; merges that islands have missed."""
    offered, steps, missed = {}, {}, {}
    last: dict[str, int] = {}
    for record in here:
        for c in record["contributions"]:
            who = c["island"], c["incarnation"]
            offered[(*who, record["version"])] = c["step"]
            for version, step in c["adopted"]:
                if (*who, version) in offered:
                    steps[(*who, version)] = step - offered[(*who, version)]
            name, version = c["island"], record["version"]
            missed[name] = max(
                missed.get(name, 0), version - last.get(name, version) - 1
            )
            last[name] = version
    taken = list(steps.values())
    return {
        "steps_until_taken_over": fmean(taken) if taken else None,
        "most_steps_until_taken_over": max(taken, default=None),
        "most_merges_missed_in_a_row": missed,
        "alive_and_absent": sum(len(r["absent"]) for r in here),
        "refused": [why for r in here for why in r["refused"]],
    }


def _ledger(setting: Setting, lines: list[Any], said: list[Any]) -> Figures:
    """Contributions merged twice, or acknowledged and lost; where tokens went."""
    keys, logged = [], {}
    for record in lines:
        for c in record["contributions"]:
            who = c["island"], c["incarnation"]
            keys.append((*who, record["fragment"], c["base"]))
            logged.setdefault(who, []).append(c["tokens"])
    last: dict[tuple[str, int], Mapping[str, Any]] = {}
    lost = []
    for x in said:
        if x["what"] == "step":
            who = x["name"], x["incarnation"]
            last[who] = x
            if x["merged"] not in {0, *accumulate(logged.get(who, []))}:
                lost.append([*who, x["merged"]])
    p = setting.fragments
    taken_in = sum(x["steps"] for x in last.values()) * setting.rows
    merged = sum(sum(tokens) for tokens in logged.values()) / p
    dropped = sum(x["dropped"] for x in last.values()) / p
    return {
        "contributions": len(keys),
        "merged_twice": len(keys) - len(set(keys)),
        "acknowledged_and_lost": lost,
        "tokens_taken_in": taken_in,
        "tokens_merged": merged,
        "tokens_dropped_at_merges": dropped,
        "tokens_lost": taken_in - merged - dropped,
    }


def cores(lived: Lived) -> float:
    """Cores that all processes together use while they train, as the median of each."""
    rates: dict[str, list[float]] = {}
    steps = [x for x in diary.read(lived.folder) if x["what"] == "step"]
    for pid in _pids(steps):
        own = [x for x in steps if x["pid"] == pid]
        for a, b in pairwise(own[::10]):
            rates.setdefault(a["name"], []).append(
                (b["cpu"] - a["cpu"]) / (b["at"] - a["at"])
            )
    return sum(median(r) for r in rates.values())
