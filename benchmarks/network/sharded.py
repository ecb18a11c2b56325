"""The race of sharded weights: FSDP over hosts, in codes and not, beside PyTorch's.

    jit_fsdp             JAX's own, by annotations of a plain jit program
    fsdp, sdp4bit        relaxjax.fsdp, of so many bits
    DDP fully_shard      PyTorch's FSDP2 over gloo, one group of all leaves

    ratio     a step over a step of `jit_fsdp` in the same round

Cost: a block of each in every round, at every rate.
"""

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.network import report
from benchmarks.network.curves import curves
from benchmarks.network.lab import Lab
from benchmarks.network.methods import ALONE, DDP, RELAXJAX, Method, available
from benchmarks.network.problem import Shape
from benchmarks.report import Result, Run, Table
from relaxjax.hosts import Namespaces

STOCK = "jit_fsdp"
METHODS = (
    Method(system=RELAXJAX, name=ALONE),
    Method(system=DDP, name=ALONE),
    Method(system=RELAXJAX, name=STOCK),
    Method(system=RELAXJAX, name="fsdp"),
    Method(system=RELAXJAX, name="fsdp", options={"weights": 8, "gradients": 8}),
    Method(system=RELAXJAX, name="fsdp", options={"weights": 8, "gradients": 4}),
    Method(system=RELAXJAX, name="sdp4bit"),
    Method(system=DDP, name="fully_shard"),
)
RATES = (50.0, 200.0, 1000.0)  # Mbit/s
CURVES = "network_sharded_curves.json"


def sharded(
    run: Run,
    shape: Shape,
    *,
    rates: Sequence[float] = RATES,
    rounds: int,
    curve_steps: int,
    seed: int = 0,
) -> Result:
    """Loss after some steps of each, then their blocks in random order at each rate."""
    methods, rng = available(METHODS), random.Random(seed)
    lines = curves(methods, shape, steps=curve_steps, path=run.out / CURVES)
    losses = {label: curve[-1][2] for label, curve in lines.items()}
    why, blocks = Namespaces.missing(), []
    links = f"loopback: {why}" if why else "namespaces, reno"
    known = run.conditions(**shape._asdict(), rounds=rounds, links=links)
    result = {"conditions": known, "losses": losses, "steps": curve_steps}
    with Lab(methods, shape, steps=curve_steps) as lab:
        for block in lab.rounds(methods, rates, rounds, rng):
            blocks.append(block)
            run.save(result | {"blocks": blocks})  # in case it is ended here
    labels = [m.label for m in methods]
    tables = [
        _table(blocks, rate, labels, losses)
        for rate in dict.fromkeys(b["rate"] for b in blocks)
    ]
    return run.finish(result | {"blocks": blocks}, tables=tables)


def _table(
    blocks: Sequence[Any], rate: float, labels: Sequence[str], losses: dict[str, float]
) -> Table:
    """Everything at one rate."""
    rows = []
    for n in labels:
        seconds, busy, sent = (
            median(report.values(blocks, rate, n, key))
            for key in ("seconds", "busy", "sent")
        )
        ratio = report.paired(blocks, rate, n, STOCK)
        rows.append((n, seconds, str(ratio), sent, busy, losses.get(n, "")))
    columns = ("method", "s/step", "over stock's", "kernel's bytes", "CPU s/step")
    return Table(f"{rate:g} Mbit/s", (*columns, "loss"), rows)
