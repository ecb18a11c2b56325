"""What overlap, fusion and hierarchy are worth between hosts, over families.

    family       a relaxation as it is: in buckets, each of which leaves when it is full
    overlap      without it, nothing leaves before the last gradient is there
    fusion       without it, each leaf travels in messages of its own
    hierarchy    two workers on each host: over the hosts' links once for each host;
                 without it, over one axis of all workers

    loss = seconds of a step without / with, in blocks of the same round

Cost: a training of each in every process; hierarchy runs after the others have ended.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.measure import Ratio
from benchmarks.network.lab import Lab, Row
from benchmarks.network.methods import PAIRS, RELAXJAX, Method
from benchmarks.network.problem import Shape
from benchmarks.network.report import medians, paired
from benchmarks.report import Result, Run, Table

RATES = (50.0, 1000.0)


class Ablation(NamedTuple):
    """Two rows that differ in one thing, which one of them has."""

    whole: Method
    without: Method


def _family(name: str, *, period: int = 1, **options: Any) -> Method:
    return Method(system=RELAXJAX, name=name, options=options, period=period)


def _flat(name: str, flat: str, *, period: int = 1, **options: Any) -> Ablation:
    whole = replace(_family(name, period=period, **options), system=PAIRS)
    return Ablation(whole, replace(whole, name=flat, without="hierarchy"))


FAMILIES = (
    _family("all_reduce@ring"),
    _family("all_reduce+quantize8@two_shot"),
    _family("gossip", period=2),
    _family("local_sgd@ring", period=8, sync_every=8),
)
ABLATIONS = (
    *(Ablation(m, replace(m, without="overlap")) for m in FAMILIES),
    *(Ablation(m, replace(m, without="fusion")) for m in FAMILIES),
    _flat("all_reduce@hierarchical", "all_reduce@ring"),
    _flat("all_reduce+quantize8@hierarchical", "all_reduce+quantize8@two_shot"),
    _flat("gossip", "gossip", period=6),
    _flat("local_sgd@hierarchical", "local_sgd@ring", period=8, sync_every=8),
)


def ablation(
    run: Run,
    shape: Shape,
    *,
    rates: Sequence[float] = RATES,
    rounds: int = 4,
    seed: int = 0,
    ablations: Sequence[Ablation] = ABLATIONS,
) -> Result:
    """Times blocks of every row with and without, at every rate.

    Args:
      run: the benchmark, by the name of this file.
      shape: model and hosts.
      rates: Mbit/s of the links.
      rounds: number of rounds, each in random order.
      seed: seed of the order.
      ablations: the rows.

    Returns:
      What was measured, as saved.
    """
    rng, rows = random.Random(seed), []
    for system in (RELAXJAX, PAIRS):
        of_system = [a for a in ablations if a.whole.system == system]
        if of_system:
            rows += _measured(of_system, shape, rates, rounds, rng)
    known = {"rates": list(rates), "rounds": rounds, "seed": seed}
    table = Table.of(
        "Steps without, over steps with",
        rows,
        ("without", "what"),
        "family",
        ("Mbit/s", "rate"),
        ("s/step", "whole"),
        ("without", "lacking"),
        ("ratio", lambda row: Ratio(*row["ratio"])),
        ("pairs", lambda row: row["ratio"][3]),
    )
    conditions = run.conditions(**shape._asdict(), **known)
    return run.finish({"conditions": conditions, "rows": rows}, tables=[table])


def _measured(
    ablations: Sequence[Ablation],
    shape: Shape,
    rates: Sequence[float],
    rounds: int,
    rng: random.Random,
) -> list[Row]:
    methods = list({m.label: m for each in ablations for m in each}.values())
    with Lab(methods, shape, steps=1000) as lab:
        blocks = list(lab.rounds(methods, rates, rounds, rng))
    rates = list(dict.fromkeys(block["rate"] for block in blocks))
    return [_row(blocks, rate, each) for rate in rates for each in ablations]


def _row(blocks: Sequence[Row], rate: float, each: Ablation) -> Row:
    whole, without = (m.label for m in each)
    seconds = medians(blocks, rate)
    return {
        "what": each.without.without,
        "family": whole,
        "flat": each.without.name,
        "rate": rate,
        "whole": seconds[whole],
        "lacking": seconds[without],
        "ratio": list(paired(blocks, rate, without, whole)),
    }
