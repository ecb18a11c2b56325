"""What overlap, fusion and hierarchy are worth between hosts, over families.

    family       a relaxation as it is: in buckets, each of which leaves when it is full
    overlap      the same, of which nothing leaves before the last gradient is there
    fusion       the same leaf by leaf, in messages of their own
    hierarchy    two workers on each host: over the hosts' links once for each host,
                 against the same over one axis of all workers

    loss = seconds of a step without / with, in blocks of the same round

Cost: a training of each in every process; hierarchy runs after the others have ended.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.network.curves import HOSTS
from benchmarks.network.lab import BUDGET, STEPS, Lab, Row
from benchmarks.network.methods import PAIRS, RELAXJAX, Method
from benchmarks.network.report import medians, paired
from benchmarks.report import conditions, save, show

RATES = (50.0, 1000.0)


class Ablation(NamedTuple):
    """Two rows that differ in one thing.

    Attributes:
      whole: with it.
      without: and not.
    """

    whole: Method
    without: Method


def _of(name: str, *, period: int = 1, **options: Any) -> Method:
    return Method(system=RELAXJAX, name=name, options=options, period=period)


def _flat(whole: str, flat: str, *, period: int = 1, **options: Any) -> Ablation:
    with_it = _of(whole, period=period, **options)
    with_it = replace(with_it, system=PAIRS)
    return Ablation(with_it, replace(with_it, name=flat, without="hierarchy"))


FAMILIES = (
    _of("all_reduce@ring"),
    _of("all_reduce+quantize8@two_shot"),
    _of("gossip", period=2),
    _of("local_sgd@ring", period=8, sync_every=8),
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
    *,
    width: int,
    layers: int,
    rates: Sequence[float] = RATES,
    rounds: int = 4,
    hosts: int = HOSTS,
    seed: int = 0,
    ablations: Sequence[Ablation] = ABLATIONS,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Times blocks of every row with and without, at every rate.

    Args:
      width: of the model.
      layers: of the model.
      rates: of the links, in Mbit/s.
      rounds: in random order.
      hosts: how many.
      seed: of the order.
      ablations: rows.
      out: folder of the JSON.

    Returns:
      What was measured, as saved.
    """
    shape = {"width": width, "layers": layers, "hosts": hosts}
    rng, rows = random.Random(seed), []
    for system in (RELAXJAX, PAIRS):
        own = [a for a in ablations if a.whole.system == system]
        if own:
            rows += _measured(own, shape, rates, rounds, rng)
    result = {
        "conditions": conditions(**shape, rates=list(rates), rounds=rounds, seed=seed),
        "rows": rows,
    }
    save(result, out, "network_ablation")
    columns = ("without", "family", "Mbit/s", "s/step", "without", "ratio", "pairs")
    cells = [
        (*(row[k] for k in ("what", "family", "rate", "whole", "lacking")), *rest)
        for row in rows
        for rest in [(_text(row["ratio"]), row["ratio"][3])]
    ]
    show("Steps without, over steps with", columns, cells)
    return result


def _text(found: Sequence[float]) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*found)


def _measured(
    own: Sequence[Ablation], shape: Row, rates: Sequence[float], rounds: int, rng: Any
) -> list[Row]:
    methods = list({m.label: m for each in own for m in each}.values())
    blocks: list[Row] = []
    with Lab(methods, **shape, steps=1000) as lab:
        for rate in rates if lab.namespaces else [0.0]:
            lab.shape(rate)
            for number in range(rounds):
                for method in rng.sample(methods, len(methods)):
                    block = lab.block(method, steps=STEPS, budget=BUDGET)
                    blocks.append({"rate": rate, "round": number, **block})
                    print(blocks[-1], flush=True)
    rates = list(dict.fromkeys(block["rate"] for block in blocks))
    return [_row(blocks, rate, each) for rate in rates for each in own]


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
