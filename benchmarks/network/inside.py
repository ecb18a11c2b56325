"""Split models between hosts: steps in codes beside steps as they are.

    alone    a step without links: a host's own computation, codecs not among it
    bare     as many bytes by the same collectives of JAX, without computation
    floor    alone + bare, of the same round

Cost: a block of each in every round, at every rate.
"""

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.measure import Ratio, ratio
from benchmarks.network import report
from benchmarks.network.lab import Lab
from benchmarks.network.methods import RELAXJAX, Method
from benchmarks.network.problem import Shape
from benchmarks.report import Result, Run, Table
from relaxjax.hosts import Namespaces

CODES: tuple[dict[str, str], ...] = (
    {},
    {"forward": "e4m3"},
    {"forward": "e4m3", "backward": "e5m2"},
    {"forward": "e2m1", "backward": "e2m1"},
)
NAMES = ("tensor", "pipeline")
RATES = (50.0, 200.0, 1000.0)  # Mbit/s
MOST = 1.15
"""A step over its floor, at most."""


def methods(names: Sequence[str] = NAMES) -> list[Method]:
    """Each split alone, and each code with its bare bytes."""
    alone = [Method(system=RELAXJAX, name=n, without="links") for n in names]
    coded = [
        Method(system=RELAXJAX, name=name, options=codes, without=without)
        for name in names
        for codes in CODES
        for without in ("", "computation")
    ]
    return [*alone, *coded]


def inside(
    run: Run,
    shape: Shape,
    *,
    rates: Sequence[float] = RATES,
    rounds: int,
    seed: int = 0,
) -> Result:
    """Blocks of all in random order, at each rate.

    Args:
      run: where results go.
      shape: width and layers of the model, and the number of hosts, of which each has a
        part; it divides heads and layers.
      rates: rates of the links, Mbit/s.
      rounds: rounds of all.
      seed: of the order in rounds.
    """
    rows, rng, why = methods(), random.Random(seed), Namespaces.missing()
    links = f"loopback: {why}" if why else "namespaces, reno"
    known = run.conditions(**shape._asdict(), rounds=rounds, links=links)
    blocks: list[Any] = []
    with Lab(rows, shape, steps=rounds) as lab:
        for block in lab.rounds(rows, rates, rounds, rng):
            blocks.append(block)
            run.save({"conditions": known, "blocks": blocks})  # in case it ends here
    at = dict.fromkeys(block["rate"] for block in blocks)
    found = [row for rate in at for row in compared(blocks, rate)]
    table = Table.of(
        f"A split model on {shape.hosts} hosts",
        found,
        *("rate", "split", "codes", "seconds", "sent"),
        ("over uncoded", lambda row: str(Ratio(*row["over"]))),
        ("over its floor", lambda row: str(Ratio(*row["over_floor"]))),
    )
    result = {"conditions": known, "rows": found, "blocks": blocks}
    return run.finish(result, tables=[table])


def compared(blocks: Sequence[Any], rate: float) -> list[dict[str, Any]]:
    """Each code at a rate: its step over the uncoded one, and over its floor."""
    rows = []
    for method in methods():
        if method.without:
            continue
        plain = Method(system=RELAXJAX, name=method.name)
        bare = Method(
            system=RELAXJAX,
            name=method.name,
            options=method.options,
            without="computation",
        )
        alone = Method(system=RELAXJAX, name=method.name, without="links")
        seconds, uncoded, sending, own = (
            report.values(blocks, rate, m.label, "seconds")
            for m in (method, plain, bare, alone)
        )
        floor = [a + b for a, b in zip(sending, own, strict=True)]
        sent = report.values(blocks, rate, method.label, "sent")
        rows.append(
            {
                "rate": rate,
                "split": method.name,
                "codes": ", ".join(method.options.values()) or "none",
                "seconds": median(seconds),
                "alone": median(own),
                "bare": median(sending),
                "sent": median(sent),
                "over": [*ratio(seconds, uncoded)],
                "over_floor": [*ratio(seconds, floor)],
            }
        )
    return rows
