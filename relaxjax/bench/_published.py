"""The planner's model of time against figures that others have published.

From the size of a model, the layout of the workers, the network, and a computation time
that *one* row of each table gives, all other rows are predicted. No row has a constant
of its own, and links are at their nominal rate:

    between hosts    the stated rate, 50 microseconds (5 where it is RDMA)
    inside a host    100 GB/s, 5 microseconds
    codecs           900 GB/s of memory (V100), read twice and written in a quarter
    overlap          none, in all rows (what `--overlap` would say is printed beside it)

Sources: BAGUA (Gan et al. 2021), figures of its tutorials' benchmark page, read off
the plots to 1-2 %: BERT-Large on SQuAD, 16 hosts of 8 V100, 6 sequences for each GPU,
seconds of an epoch. Horovod (Sergeev and Del Balso 2018; README and benchmarks page):
scaling efficiency over hosts of 4 Pascal GPUs at 25 Gbit/s. BytePS (README): BERT-Large
on 32 hosts of 8 V100 at 100 Gbit/s RDMA; its own servers run on further hosts.

Cost: a few seconds; nothing is measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from relaxjax.bench._report import conditions, save, show
from relaxjax.compression import min_max_uint8
from relaxjax.plan import Model, Network
from relaxjax.plan._messages import Message, Messages, reduced, told
from relaxjax.plan._predict import exchange_seconds
from relaxjax.plan._traffic import Traffic, payload
from relaxjax.schedule import Link

_MIB = 2**20
_TCP, _RDMA = 50e-6, 5e-6
_CODECS = {"": 9e11 / 2.25}


def bert_large() -> int:
    """Elements of BERT-Large with the head for questions."""
    h, ff, layers = 1024, 4096, 24
    embedded = (30522 + 512 + 2) * h + 2 * h
    layer = 4 * (h * h + h) + 2 * 2 * h + (h * ff + ff) + (ff * h + h)
    return embedded + layers * layer + 2 * h + 2


RESNET_101, VGG_16 = 44_549_160, 138_357_544
QUESTIONS, ROWS = 87_599, 16 * 8 * 6  # SQuAD 1.1; of a step


@dataclass(frozen=True, kw_only=True)
class System:
    """What a published system sends.

    Attributes:
      name: as published.
      messages: of a step; None: nothing for which a step waits.
      bucket_bytes: of its buckets.
      codec: compressor, by name.
    """

    name: str
    messages: Messages | None
    bucket_bytes: int
    codec: str = ""


def _over_hosts(messages: Messages) -> Messages:
    """Leaders of hosts gossip: as if a host were one worker."""

    def between(model: Model, network: Network, bucket_bytes: int) -> list[Message]:
        leaders = replace(network, workers=network.hosts, per_host=1)
        return messages(model, leaders, bucket_bytes)

    return between


def _pushed(model: Model, network: Network, bucket_bytes: int) -> list[Message]:
    """Servers on hosts of their own, as many: sums go up and come back at once."""
    del bucket_bytes
    nbytes = 4.0 * model.size
    return [Message(1.0, Traffic(nbytes, line=nbytes, hops=2))]


_CODE = payload(min_max_uint8())
DDP = System(name="PyTorch-DDP", messages=reduced("psum"), bucket_bytes=25 * _MIB)
HOROVOD = System(name="Horovod", messages=reduced("psum"), bucket_bytes=64 * _MIB)
BAGUA = (
    DDP,
    HOROVOD,
    System(
        name="ByteGrad",
        messages=reduced("hierarchical", _CODE),
        bucket_bytes=10 * _MIB,
        codec="min_max_uint8",
    ),
    System(name="Decentralized", messages=_over_hosts(told(1)), bucket_bytes=2**40),
    System(
        name="LowPrecision",
        messages=_over_hosts(told(2, _CODE)),
        bucket_bytes=10 * _MIB,
        codec="min_max_uint8",
    ),
    System(name="Async", messages=None, bucket_bytes=2**40),
)
BYTEPS = System(name="BytePS", messages=_pushed, bucket_bytes=2**40)
EPOCHS = {
    1.0: (2580, 2580, 700, 1505, 735, 61),
    4.0: (648, 652, 174, 400, 183, 61),
    64.0: (125, 115, 86, 83, 75, 61),
}
"""Seconds of an epoch by Gbit/s (the last column: at least so many)."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A published efficiency: throughput over that of as many lone GPUs.

    Attributes:
      label: model and system.
      elements: of the model.
      system: what is sent.
      hosts: how many.
      per_host: GPUs of each.
      gbps: between hosts.
      latency: seconds.
      efficiency: as published.
      fitted: whether it gives the computation time of its model.
    """

    label: str
    elements: int
    system: System
    hosts: int
    per_host: int
    gbps: float
    latency: float
    efficiency: float
    fitted: bool = False

    @property
    def network(self) -> Network:
        """Where."""
        link = Link(latency=self.latency, bandwidth=self.gbps * 1e9 / 8)
        workers = self.hosts * self.per_host
        return Network(
            workers=workers, per_host=self.per_host, link=link, overlap=False
        )


_PASCAL: dict[str, Any] = {"system": HOROVOD, "per_host": 4, "gbps": 25.0}
SCALING = (
    Scaling(
        label="VGG-16",
        elements=VGG_16,
        hosts=32,
        latency=_RDMA,
        efficiency=0.79,
        fitted=True,
        **_PASCAL,
    ),
    Scaling(
        label="VGG-16",
        elements=VGG_16,
        hosts=128,
        latency=_RDMA,
        efficiency=0.68,
        **_PASCAL,
    ),
    Scaling(
        label="ResNet-101",
        elements=RESNET_101,
        hosts=32,
        latency=_TCP,
        efficiency=0.88,
        fitted=True,
        **_PASCAL,
    ),
    Scaling(
        label="ResNet-101",
        elements=RESNET_101,
        hosts=32,
        latency=_RDMA,
        efficiency=0.90,
        **_PASCAL,
    ),
    Scaling(
        label="ResNet-101",
        elements=RESNET_101,
        hosts=128,
        latency=_RDMA,
        efficiency=0.90,
        **_PASCAL,
    ),
    *(
        Scaling(
            label=f"BERT-Large, {system.name}",
            elements=bert_large(),
            system=system,
            hosts=32,
            per_host=8,
            gbps=100.0,
            latency=_RDMA,
            efficiency=efficiency,
            fitted=system is HOROVOD,
        )
        for system, efficiency in ((HOROVOD, 0.70), (BYTEPS, 0.90))
    ),
)


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
        link = Link(latency=_TCP, bandwidth=gbps * 1e9 / 8)
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
            for r, other in zip(rows, hidden, strict=True)
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
            for r in scaled
        ],
    )
    print(
        f"mean error {result['mean_error']:.1%} ({result['mean_error_overlapped']:.1%} "
        f"with overlap); order not as published: {result['misplaced'] or 'nowhere'}"
    )
    save(result, out, "published")
    return result


def _mean(rows: Iterable[dict[str, Any]]) -> float:
    return float(np.mean([abs(row["error"]) for row in rows]))
