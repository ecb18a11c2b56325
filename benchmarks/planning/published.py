"""The planner's model of time against figures that others have published.

From the size of a model, the layout of the workers, the network, and a computation time
that *one* row of each table gives, all other rows are predicted. No row has a constant
of its own, and links are at their nominal rate:

    between hosts    the stated rate, 50 microseconds (5 where it is RDMA)
    inside a host    100 GB/s, 5 microseconds
    codecs           900 GB/s of memory (V100), read twice and written in a quarter
    overlap          none, in all rows (what `--overlap` would say is printed beside it)

BAGUA's measurements with latencies up to 5 ms are public as a picture and in words
only: among its own and others' algorithms, decentralized SGD loses the least, and is
the fastest once the latency is high. What is predicted for that is shown beside it.

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
    LATENCIES,
    QUESTIONS,
    ROWS,
    SCALING,
    TCP,
    WINDOW,
    System,
    bert_large,
)
from benchmarks.report import Result, Run, Table, benchmark
from relaxjax.plan import Model, Network
from relaxjax.plan._predict import exchange_seconds
from relaxjax.schedule import Link

_CODECS = {"": 9e11 / 2.25}


def seconds(system: System, elements: int, network: Network, compute: float) -> float:
    """Seconds of a step of a system.

    Args:
      system: the system, which says what is sent.
      elements: elements of the model.
      network: the network.
      compute: seconds of a step without communication.
    """
    if system.messages is None:
        return compute
    model = Model.of_size(elements, compute=compute)
    messages = system.messages(model, network, system.bucket_bytes)
    return exchange_seconds(messages, model, network, system.codec)


def bagua(*, overlap: bool = False) -> list[dict[str, Any]]:
    """Each row of the table, predicted; the computation is that of `Async`.

    With `overlap`, messages travel under the backward pass.
    """
    rows = []
    for gbps, epochs in EPOCHS.items():
        link = Link(latency=TCP, bandwidth=gbps * 1e9 / 8)
        for system, published in zip(BAGUA[:-1], epochs[:-1], strict=True):
            predicted = _epoch(system, link, epochs[-1], overlap=overlap)
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


def _epoch(system: System, link: Link, alone: float, *, overlap: bool = False) -> float:
    """Seconds of an epoch, which takes so many `alone`, without communication."""
    steps = QUESTIONS / ROWS
    network = Network(
        workers=128, per_host=8, link=link, codec=_CODECS, overlap=overlap
    )
    return steps * seconds(system, bert_large(), network, alone / steps)


def by_latency(window: float | None = None) -> list[dict[str, Any]]:
    """Predicted seconds of an epoch at 100 Gbit/s, by the latency in milliseconds.

    Args:
      window: bytes that a stream has under way; None: as many as the link takes.
    """
    alone, rows = EPOCHS[64.0][-1], []
    for ms in LATENCIES:
        link = Link(latency=ms / 1e3, bandwidth=100e9 / 8, window=window)
        row = {system.name: _epoch(system, link, alone) for system in BAGUA[:-1]}
        rows.append({"latency_ms": ms, **row})
    return rows


def scaling() -> list[dict[str, Any]]:
    """Efficiencies; a model's first row gives its computation time."""
    rows, compute = [], {}
    for row in SCALING:
        waits = seconds(row.system, row.elements, row.network, 1.0) - 1.0
        if row.fitted:
            compute[row.elements] = waits * row.efficiency / (1 - row.efficiency)
        computes = compute[row.elements]
        predicted = computes / (computes + waits)
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
      rows: what `bagua` returns.
      least: pairs whose published figures differ by less have no order.
    """
    return [
        f"{a['system']}, {b['system']} at {a['gbps']:g} Gbit/s"
        for a, b in combinations(rows, 2)
        if a["gbps"] == b["gbps"]
        and abs(a["published"] / b["published"] - 1) >= least
        and (a["published"] > b["published"]) != (a["predicted"] > b["predicted"])
    ]


@benchmark("published")
def published(run: Run) -> Result:
    """The planner's times against published figures of BAGUA, Horovod and BytePS."""
    rows, hidden, scaled, far = bagua(), bagua(overlap=True), scaling(), by_latency()
    errors, odd = (_mean(rows), _mean(hidden)), misplaced(rows)
    shown = [
        row | {"hidden": other["error"]}
        for row, other in zip(rows, hidden, strict=True)
    ]
    return run.finish(
        {
            "conditions": run.conditions(params=bert_large(), steps=QUESTIONS / ROWS),
            "bagua": rows,
            "bagua_overlapped": hidden,
            "mean_error": errors[0],
            "mean_error_overlapped": errors[1],
            "misplaced": odd,
            "scaling": scaled,
            "by_latency": far,
            "by_latency_in_a_window": by_latency(WINDOW),
        },
        tables=[
            Table.of(
                "BERT-Large, 128 V100, seconds of an epoch",
                shown,
                "system",
                ("Gbit/s", "gbps"),
                "published",
                "predicted",
                ("error", lambda r: f"{r['error']:+.1%}"),
                ("with overlap", lambda r: f"{r['hidden']:+.1%}"),
            ),
            Table.of(
                "Scaling efficiency",
                scaled,
                ("model", "label"),
                ("GPUs", "gpus"),
                "published",
                "predicted",
                ("error", lambda r: "fitted" if r["fitted"] else f"{r['error']:+.1%}"),
            ),
            Table.of(
                "BERT-Large at 100 Gbit/s, predicted seconds of an epoch (published: "
                "a picture)",
                far,
                ("latency, ms", "latency_ms"),
                *(system.name for system in BAGUA[:-1]),
            ),
        ],
        notes=[
            f"mean error {errors[0]:.1%} ({errors[1]:.1%} with overlap); order not as "
            f"published: {odd or 'nowhere'}"
        ],
    )


def _mean(rows: Iterable[dict[str, Any]]) -> float:
    return float(np.mean([abs(row["error"]) for row in rows]))
