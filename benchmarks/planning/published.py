"""The planner's model of time against figures that others have published.

From the size of a model, the layout of the workers, the network, and a computation time
that *one* row of each table gives, all other rows are predicted. No row has a constant
of its own, and links are at their nominal rate:

    between hosts    the stated rate, 50 microseconds (5 where it is RDMA)
    inside a host    100 GB/s, 5 microseconds
    codecs           900 GB/s of memory (V100), read twice and written in a quarter
    overlap          none, in all rows (what `--overlap` would say is printed beside it)

The rows and their sources: `benchmarks.planning.published_rows`.

Cost: a few seconds; nothing is measured.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.planning.published_rows import (
    BAGUA,
    EPOCHS,
    QUESTIONS,
    ROWS,
    SCALING,
    TCP,
    System,
    bert_large,
)
from benchmarks.report import conditions, save, show
from relaxjax.plan import Model, Network
from relaxjax.plan._predict import exchange_seconds
from relaxjax.schedule import Link

_CODECS = {"": 9e11 / 2.25}


def seconds(system: System, elements: int, network: Network, compute: float) -> float:
    """Of a step.

    Args:
      system: what is sent.
      elements: of the model.
      network: where.
      compute: seconds without communication.
    """
    if system.messages is None:
        return compute
    model = Model.of_size(elements, compute=compute)
    found = system.messages(model, network, system.bucket_bytes)
    return exchange_seconds(found, model, network, system.codec)


def bagua(*, overlap: bool = False) -> list[dict[str, Any]]:
    """Each row of the table, predicted; the computation is that of `Async`.

    Args:
      overlap: whether messages travel under the backward pass.
    """
    steps, size, rows = QUESTIONS / ROWS, bert_large(), []
    for gbps, epochs in EPOCHS.items():
        compute = epochs[-1] / steps
        link = Link(latency=TCP, bandwidth=gbps * 1e9 / 8)
        network = Network(
            workers=128, per_host=8, link=link, codec=_CODECS, overlap=overlap
        )
        for system, published in zip(BAGUA[:-1], epochs[:-1], strict=True):
            predicted = steps * seconds(system, size, network, compute)
            rows.append(
                {
                    "gbps": gbps,
                    "system": system.name,
                    "published": published,
                    "predicted": predicted,
                    "error": predicted / published - 1,
                }
            )
    return rows


def scaling() -> list[dict[str, Any]]:
    """Efficiencies; a model's first row gives its computation time."""
    rows, compute = [], {}
    for row in SCALING:
        waits = seconds(row.system, row.elements, row.network, 1.0) - 1.0
        if row.fitted:
            compute[row.elements] = waits * row.efficiency / (1 - row.efficiency)
        own = compute[row.elements]
        predicted = own / (own + waits)
        rows.append(
            {
                "label": row.label,
                "gpus": row.hosts * row.per_host,
                "published": row.efficiency,
                "predicted": predicted,
                "error": predicted / row.efficiency - 1,
                "fitted": row.fitted,
            }
        )
    return rows


def misplaced(rows: Iterable[dict[str, Any]], least: float = 0.01) -> list[str]:
    """Pairs of systems at one rate whose order is not as published.

    Args:
      rows: of `bagua`.
      least: pairs that differ by less, as published, have no order.
    """
    return [
        f"{a['system']}, {b['system']} at {a['gbps']:g} Gbit/s"
        for a, b in combinations(rows, 2)
        if a["gbps"] == b["gbps"]
        and abs(a["published"] / b["published"] - 1) >= least
        and (a["published"] > b["published"]) != (a["predicted"] > b["predicted"])
    ]


def published(*, out: str = "runs/bench") -> dict[str, Any]:
    """Prints and saves all rows.

    Args:
      out: folder of the JSON.

    Returns:
      What was found, as saved.
    """
    rows, hidden, scaled = bagua(), bagua(overlap=True), scaling()
    result = {
        "conditions": conditions(params=bert_large(), steps=QUESTIONS / ROWS),
        "bagua": rows,
        "bagua_overlapped": hidden,
        "mean_error": _mean(rows),
        "mean_error_overlapped": _mean(hidden),
        "misplaced": misplaced(rows),
        "scaling": scaled,
    }
    _print(result)
    save(result, out, "published")
    return result


def _print(result: dict[str, Any]) -> None:
    show(
        "BERT-Large, 128 V100, seconds of an epoch",
        ("system", "Gbit/s", "published", "predicted", "error", "with overlap"),
        [
            (
                r["system"],
                r["gbps"],
                r["published"],
                r["predicted"],
                f"{r['error']:+.1%}",
                f"{other['error']:+.1%}",
            )
            for r, other in zip(
                result["bagua"], result["bagua_overlapped"], strict=True
            )
        ],
    )
    show(
        "Scaling efficiency",
        ("model", "GPUs", "published", "predicted", "error"),
        [
            (
                r["label"],
                r["gpus"],
                r["published"],
                r["predicted"],
                "fitted" if r["fitted"] else f"{r['error']:+.1%}",
            )
            for r in result["scaling"]
        ],
    )
    print(
        f"mean error {result['mean_error']:.1%} ({result['mean_error_overlapped']:.1%} "
        f"with overlap); order not as published: {result['misplaced'] or 'nowhere'}"
    )


def _mean(rows: Iterable[dict[str, Any]]) -> float:
    return float(np.mean([abs(row["error"]) for row in rows]))
