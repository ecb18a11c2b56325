"""Relaxations and PyTorch's DDP between hosts, at several rates of their links.

    block        some steps of one method, between two orders; one step goes before
    round        a block of each method, in random order, at one rate
    efficiency   a step of the same system without communication / a step
    ratio        of two methods' steps in the same round; median over rounds, 95 %

Time to a loss = steps to it (`benchmarks.network.curves`) * seconds of a step.
"""

import random
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.network import report
from benchmarks.network.curves import HOSTS, RATE, curves
from benchmarks.network.jax_worker import transformation
from benchmarks.network.lab import BUDGET, STEPS, Lab, Row
from benchmarks.network.methods import DDP, METHODS, Method, available
from benchmarks.network.problem import LAYERS, ROWS, WIDTH, task
from benchmarks.report import conditions, save
from relaxjax.hosts import Namespaces
from relaxjax.programs._wire_bytes import wire_bytes
from relaxjax.workers._mesh import emulate

PARTS = ("curves", "steps")
RATES = (20.0, 50.0, 200.0, 1000.0)  # Mbit/s


def network(
    *,
    parts: Sequence[str] = PARTS,
    rates: Sequence[float] = RATES,
    rounds: int = 2,
    pairs: int = 8,
    steps: int = STEPS,
    loss: float | None = None,
    curve_steps: int = 150,
    methods: Sequence[Method] = METHODS,
    hosts: int = HOSTS,
    width: int = WIDTH,
    layers: int = LAYERS,
    seed: int = 0,
    out: str = "runs/bench",
) -> Row:
    """Measures every method at every rate, and the best of them again, in pairs.

    Each part writes a file, and the report is of all files that are there; so trainings
    may be run while the machine does something else, and steps when it does not.

    Args:
      parts: of `PARTS`.
      rates: of the links, in Mbit/s.
      rounds: of all methods.
      pairs: further rounds, of the best relaxations of every step, the best hooks, and
        steps without communication.
      steps: of a block.
      loss: the stated one, held-out, in nats; None: the highest of what the methods
        that contend end with.
      curve_steps: of the trainings that tell steps to the loss.
      methods: rows.
      hosts: how many.
      width: of the model.
      layers: of the model.
      seed: of the order in rounds.
      out: folder of JSON and PNG.

    Returns:
      What was measured, as saved.
    """
    methods, folder = available(methods), Path(out)
    shape = {"width": width, "layers": layers, "hosts": hosts}
    if "curves" in parts:
        path = folder / report.CURVES
        curves(methods, steps=curve_steps, path=path, **shape)
    if "steps" in parts:
        lines = report.read(folder / report.CURVES).get("curves", {})
        needed = report.steps_needed(methods, lines, loss)[1]
        result = {
            "conditions": _conditions(shape, rounds, pairs, seed),
            "stated": stated(methods, **shape),
            "blocks": [],
        }
        run = Plan(methods, rounds, pairs, steps, random.Random(seed), needed)
        with Lab(methods, **shape, steps=curve_steps) as lab:
            for rate in rates if lab.namespaces else [0.0]:
                _sweep(lab, rate, run, result["blocks"])
                save(result, folder, report.STEPS)
    return report.report(methods, folder, loss)


class Plan(NamedTuple):
    """What is run at each rate.

    Attributes:
      methods: rows.
      rounds: of all.
      pairs: of the best.
      steps: of a block.
      rng: of the order.
      needed: steps to the loss by label, where they are known.
    """

    methods: Sequence[Method]
    rounds: int
    pairs: int
    steps: int
    rng: random.Random
    needed: Mapping[str, float]


def _sweep(lab: Lab, rate: float, plan: Plan, blocks: list[Row]) -> None:
    """Rounds of all methods, then of the best."""
    lab.shape(rate)
    for number in range(plan.rounds + plan.pairs):
        chosen = plan.methods
        if number >= plan.rounds:
            chosen = contenders(chosen, blocks, rate, plan.needed)
        for method in plan.rng.sample(chosen, len(chosen)):
            block = lab.block(method, steps=plan.steps, budget=BUDGET)
            blocks.append({"rate": rate, "round": number, **block})
            print(blocks[-1], flush=True)


def _conditions(shape: Row, rounds: int, pairs: int, seed: int) -> Row:
    why = Namespaces.missing()
    return conditions(
        **shape,
        model="chars",
        rows=ROWS,
        optimizer=f"Adam, {RATE}",
        threads="1 for compute in each process, both systems",
        links=f"loopback: {why}" if why else "namespaces, reno",
        torch=version("torch") if find_spec("torch") else None,
        rounds=rounds,
        pairs=pairs,
        seed=seed,
    )


def contenders(
    methods: Sequence[Method],
    blocks: Sequence[Row],
    rate: float,
    needed: Mapping[str, float],
    best: int = 2,
) -> list[Method]:
    """The best of each system by time to the loss, and steps without communication.

    Args:
      methods: rows.
      blocks: measured.
      rate: at which.
      needed: steps to the loss by label, where they are known; a method of which they
        are not is left out if others are known.
      best: how many of each system.
    """
    seconds = report.medians(blocks, rate)
    few = [m for m in methods if m.alone]
    for system in dict.fromkeys(m.system for m in methods):
        own = [m for m in methods if m.system == system and m.contends]
        known = [m for m in own if m.label in needed] or own
        known.sort(key=lambda m: seconds[m.label] * needed.get(m.label, 1.0))
        few += known[:best]
    return few


def stated(
    methods: Sequence[Method], *, hosts: int, width: int, layers: int
) -> dict[str, float]:
    """Bytes that the busiest host sends in a step, as `wire_bytes` counts them.

    First steps in full are not counted.

    Args:
      methods: rows; DDP's have no such count.
      hosts: how many.
      width: of the model.
      layers: of the model.
    """
    params = task(width, layers).params
    found = {}
    for method in methods:
        if method.system != DDP:
            tx = transformation(method.plain(rate=RATE, steps=1000), hosts)
            when = {"steps": method.period, "start": method.start}
            count = wire_bytes(tx, params, emulate(hosts), axis_name="data", **when)
            found[method.label] = count / method.period
    return found


def checked(parts: Sequence[str] | None) -> Sequence[str]:
    """The parts that are asked for.

    Args:
      parts: names; None is what is usual.

    Raises:
      ValueError: an unknown name.
    """
    known = (*PARTS, "ablation", "bytes", "memory", "slow", "none")
    if odd := [name for name in parts or () if name not in known]:
        raise ValueError(f"part must be one of {[*known]}, got {odd[0]!r}")
    return parts or PARTS
