"""Relaxations and PyTorch's DDP between hosts, at several rates of their links.

    block        some steps of one method, between two orders; one step goes before
    round        a block of each method, in random order, at one rate
    efficiency   a step of the same system without communication / a step
    ratio        of two methods' steps in the same round; median over rounds, 95 %

Time to a loss = steps to it (`benchmarks.network.curves`) * seconds of a step.
"""

import os
import random
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, NamedTuple

import typer

from benchmarks.network import report
from benchmarks.network.ablation import RATES as ABLATION_RATES
from benchmarks.network.ablation import ablation
from benchmarks.network.audit import audit, stated
from benchmarks.network.curves import curves
from benchmarks.network.inside import RATES as INSIDE_RATES
from benchmarks.network.inside import inside
from benchmarks.network.lab import BUDGET, STEPS, Lab, Row
from benchmarks.network.memory import memory
from benchmarks.network.methods import RATE, Method, available, chosen
from benchmarks.network.problem import HOSTS, LAYERS, ROWS, WIDTH, Shape
from benchmarks.network.sharded import RATES as SHARDED_RATES
from benchmarks.network.sharded import sharded
from benchmarks.network.slow_host import slow_host
from benchmarks.report import Result, Run, benchmark
from relaxjax._core.foreign._huge_pages import TUNABLES, huge_pages
from relaxjax.cli.common._errors import user_errors
from relaxjax.hosts import Namespaces

PARTS = ("curves", "steps")
ALL_PARTS = (*PARTS, "ablation", "bytes", "memory", "sharded", "inside", "slow", "none")
RATES = (20.0, 50.0, 200.0, 1000.0)  # Mbit/s


@benchmark("network")
def network(
    run: Run,
    rate: Annotated[
        list[float] | None,
        typer.Option(min=0.1, help="Mbit/s of each link; default: 20, 50, 200, 1000."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Label of a row, as tables have it; default: all."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of all methods.")] = 2,
    pairs: Annotated[
        int, typer.Option(min=0, help="Further rounds, of the best alone.")
    ] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Timed in each block.")] = STEPS,
    loss: Annotated[
        float | None, typer.Option(help="Held-out, nats; default: what all reach.")
    ] = None,
    curve_steps: Annotated[
        int, typer.Option(min=1, help="Steps of the trainings that show the loss.")
    ] = 150,
    width: Annotated[int, typer.Option(min=8, help="Width of the model.")] = WIDTH,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = LAYERS,
    hosts: Annotated[int, typer.Option(min=2, help="Number of hosts.")] = HOSTS,
    seed: Annotated[int, typer.Option(help="Seed of the order in rounds.")] = 0,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="curves, steps, ablation (of overlap, fusion, hierarchy), bytes "
            "(stated, the kernel's), memory (of a process), sharded (weights), inside "
            "(a split model), slow (a host at half its processor); none: only report "
            "of what the folder has. "
            "Default: curves and steps."
        ),
    ] = None,
) -> Result:
    """Relaxations and PyTorch's DDP over four hosts, at several rates of their links.

    Hosts are network namespaces (Linux, root, iproute2), or processes over loopback.
    Each part writes a file, and the report is of all files that are there; so trainings
    may be run while the machine does something else, and steps when it does not.
    """
    shape = Shape(width, layers, hosts)
    with user_errors():
        parts, methods = checked(part), available(chosen(method))
        if "bytes" in parts:
            audit(run._replace(name="network_audit"), methods, shape)
        if "ablation" in parts:
            renamed, rates = (
                run._replace(name="network_ablation"),
                rate or ABLATION_RATES,
            )
            ablation(renamed, shape, rates=rates, rounds=rounds, seed=seed)
        if "memory" in parts:
            memory(run._replace(name="network_memory"), methods, shape)
        if "sharded" in parts:
            sharded(
                run._replace(name="network_sharded"),
                shape,
                rates=rate or SHARDED_RATES,
                rounds=rounds,
                curve_steps=curve_steps,
                seed=seed,
            )
        if "inside" in parts:
            renamed = run._replace(name=f"network_inside_{shape.hosts}")
            rates = rate or INSIDE_RATES
            inside(renamed, shape, rates=rates, rounds=rounds, seed=seed)
        if "slow" in parts:
            renamed = run._replace(name="network_slow")
            slow_host(renamed, methods, shape, rounds=rounds)
    if "curves" in parts:
        curves(methods, shape, steps=curve_steps, path=run.out / report.CURVES)
    if "steps" in parts:
        lines = report.read(run.out / report.CURVES).get("curves", {})
        needed = report.steps_needed(methods, lines, loss)[1]
        why, blocks = Namespaces.missing(), []
        conditions = run.conditions(
            model="chars",
            rows=ROWS,
            optimizer=f"Adam, {RATE}",
            threads="1 for compute in each process, both systems",
            links=f"loopback: {why}" if why else "namespaces, reno",
            glibc={**huge_pages(os.environ), **os.environ}.get(TUNABLES),
            torch=version("torch") if find_spec("torch") else None,
        )
        result = {"conditions": conditions, "stated": stated(methods, shape)}
        sweep = Sweep(methods, rounds, pairs, steps, random.Random(seed), needed)
        with Lab(methods, shape, steps=curve_steps) as lab:
            for mbit in (rate or RATES) if lab.namespaces else [0.0]:
                _run_at(lab, mbit, sweep, blocks)
                renamed = run._replace(name=report.STEPS)
                renamed.save(result | {"blocks": blocks})
    return report.report(run, methods, loss)


class Sweep(NamedTuple):
    """What is run at each rate.

    Attributes:
      methods: the methods.
      rounds: number of rounds of all methods.
      pairs: number of rounds of the best methods.
      steps: steps of a block.
      rng: draws the order.
      needed: steps to the loss by label, where they are known.
    """

    methods: Sequence[Method]
    rounds: int
    pairs: int
    steps: int
    rng: random.Random
    needed: Mapping[str, float]


def _run_at(lab: Lab, rate: float, sweep: Sweep, blocks: list[Row]) -> None:
    """Rounds of all methods, then of the best; their blocks are appended."""
    lab.shape(rate)
    for number in range(sweep.rounds + sweep.pairs):
        methods = sweep.methods
        if number >= sweep.rounds:
            methods = contenders(methods, blocks, rate, sweep.needed)
        for method in sweep.rng.sample(methods, len(methods)):
            block = lab.block(method, steps=sweep.steps, budget=BUDGET)
            blocks.append({"rate": rate, "round": number, **block})
            print(blocks[-1], flush=True)


def contenders(
    methods: Sequence[Method],
    blocks: Sequence[Row],
    rate: float,
    needed: Mapping[str, float],
    best: int = 2,
) -> list[Method]:
    """The best of each system by time to the loss, and steps without communication.

    Args:
      methods: the methods.
      blocks: what was measured.
      rate: the rate at which they are compared.
      needed: steps to the loss by label, where they are known; a method whose steps are
        not known is left out if others' are.
      best: number of methods of each system.
    """
    seconds = report.medians(blocks, rate)
    few = [m for m in methods if m.alone]
    for system in dict.fromkeys(m.system for m in methods):
        contending = [m for m in methods if m.system == system and m.contends]
        known = [m for m in contending if m.label in needed] or contending
        known.sort(key=lambda m: seconds[m.label] * needed.get(m.label, 1.0))
        few += known[:best]
    return few


def checked(parts: Sequence[str] | None) -> Sequence[str]:
    """The parts that are asked for (None: the usual ones).

    Raises:
      ValueError: an unknown name.
    """
    if odd := [name for name in parts or () if name not in ALL_PARTS]:
        raise ValueError(f"part must be one of {[*ALL_PARTS]}, got {odd[0]!r}")
    return parts or PARTS
