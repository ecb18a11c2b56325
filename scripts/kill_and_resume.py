"""Kills a process of a training job at a random time, resumes, and compares bit by bit.

python scripts/kill_and_resume.py [--rounds 20] [--seed 0] [--processes 3]

Each round takes the next relaxation, trains it in several processes over loopback
without a fault, then again, while a random process is killed (SIGKILL) at a random time
in the last 70 % of what the first took, and once more with `--resume`. The last
checkpoint and all that run.json says must be the same, but for speeds. Prints a line
for each round, and exits non-zero if one differs, hangs, or leaves something behind.

Needs relaxjax[cli].
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from relaxjax import hosts

STEPS, EVERY, LOST_AFTER = 60, 5, 6.0
PATIENCE = 60.0  # seconds from a death to the end of all
RELAXATIONS = (
    "all_reduce",
    "all_reduce@ring",
    "all_reduce+sign+ef14@two_shot",
    "all_reduce+quantize4+ef21@one_shot",
    "all_reduce+random_k+ef14",
    "power_sgd",
    "deep_gradient_compression",
    "one_bit_adam",
    "delay",
    "local_sgd",
    "local_sgd+quantize8",
    "diloco",
    "diloco+quantize4",
    "streaming_diloco",
    "gossip",
    "gossip+sign",
    "gradient_tracking",
    "push_sum",
    "parameter_server",
    "slow_momentum",
)
# The victim ends itself: a thread of its own waits, and sends the signal.
MORTAL = """
import os, runpy, signal, sys, threading
victim, seconds = sys.argv.pop(1), float(sys.argv.pop(1))
if os.environ["JAX_PROCESS_ID"] == victim:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
sys.argv[0] = "relaxjax"
runpy.run_module("relaxjax", run_name="__main__")
"""


def main() -> None:
    """Reads the options, and goes round by round."""
    parser = argparse.ArgumentParser(description="Kills, resumes, compares.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=3)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    wrong = 0
    for number in range(given.rounds):
        name = RELAXATIONS[number % len(RELAXATIONS)]
        with tempfile.TemporaryDirectory() as folder:
            said = one_round(name, given.processes, draw, Path(folder))
        wrong += not said.startswith("the same")
        print(f"{number + 1:2d} {name}: {said}", flush=True)
    sys.exit(1 if wrong else 0)


def one_round(name: str, processes: int, draw: random.Random, folder: Path) -> str:
    """Trains without a fault and with one, and says how the two compare."""
    whole, killed = folder / "whole", folder / "killed"
    ended, took = job(name, processes, whole)
    if ended.status:
        return f"fails without a fault: {ended.why}"
    victim, after = draw.randrange(processes), draw.uniform(0.3 * took, took)
    ended, seconds = job(name, processes, killed, victim, after)
    death = f"process {victim} killed after {after:.1f} of {took:.1f} s, "
    death += f"all had ended after {seconds:.1f} s"
    if not ended.status:
        same = result(killed) == result(whole)
        return f"{'the same' if same else 'DIFFERS'}, ended before its time ({death})"
    if seconds > after + PATIENCE:
        return f"HUNG ({death})"
    resume = ["--resume"] if (killed / "checkpoints").is_dir() else []
    ended, _ = job(name, processes, killed, -1, 0.0, *resume)
    if ended.status:
        return f"DOES NOT RESUME: {ended.why} ({death})"
    rest = [x.name for x in (killed / "checkpoints").iterdir() if not x.name.isdigit()]
    if rest:
        return f"leaves {rest} behind"
    if result(killed) != result(whole):
        return f"DIFFERS ({death})"
    return f"the same ({death})"


def job(
    name: str, processes: int, out: Path, victim: int = -1, after: float = 0, *more: str
) -> tuple[hosts.Ended, float]:
    """Trains in several processes; how it ended, and how long it took."""
    options = {
        "--relaxation": name,
        "--steps": STEPS,
        "--batch-size": 8 * processes,
        "--checkpoint-every": EVERY,
        "--lost-after": LOST_AFTER,
        "--out": out,
    }
    listed = [str(x) for pair in options.items() for x in pair]
    command = [sys.executable, "-c", MORTAL, str(victim), str(after)]
    command += ["train", "--no-baseline", *listed, *more]
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1", "NPROC": "8"}
    said: list[str] = []
    began = time.monotonic()
    ended = hosts.launch(
        command,
        processes,
        environment=environment,
        say=lambda number, _, line: said.append(f"[{number}] {line}"),
    )
    if ended.status and not (victim >= 0 and "SIGKILL" in ended.why):
        print("\n".join(said), file=sys.stderr)
    return ended, time.monotonic() - began


def result(out: Path) -> dict[str, Any]:
    """What a run came to: its report but for speeds, and its last checkpoint."""
    run = json.loads((out / "run.json").read_text())
    del run["steps_per_second"]
    saved = out / "checkpoints" / str(STEPS) / "state" / "index.json"
    lines = [json.loads(line) for line in saved.read_text().splitlines()[1:]]
    kept = [{key: body[key] for key in ("blobs", "arrays")} for body in lines]
    return {"run": run, "checkpoint": kept}


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
