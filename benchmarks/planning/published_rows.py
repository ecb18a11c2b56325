"""What others have published: systems, models, networks, and the figures.

Sources: BAGUA (Gan et al. 2021), figures of its tutorials' benchmark page, read off
the plots to 1-2 %: BERT-Large on SQuAD, 16 hosts of 8 V100, 6 sequences for each GPU,
seconds of an epoch. Horovod (Sergeev and Del Balso 2018; README and benchmarks page):
scaling efficiency over hosts of 4 Pascal GPUs at 25 Gbit/s. BytePS (README): BERT-Large
on 32 hosts of 8 V100 at 100 Gbit/s RDMA; its own servers run on further hosts.
"""

from dataclasses import dataclass, replace

from relaxjax.plan import Model, Network
from relaxjax.plan._messages import Messages, PlannedMessage, gossiped, reduced
from relaxjax.plan._traffic import Traffic, payload
from relaxjax.schedule import Link

_MIB = 2**20
TCP, RDMA = 50e-6, 5e-6
WINDOW = 6 * _MIB
"""Bytes that Linux lets one stream of TCP have under way."""


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
      name: the name under which it is published.
      messages: the messages of a step; None: nothing for which a step waits.
      bucket_bytes: bytes of a bucket.
      codec: name of the compressor.
    """

    name: str
    messages: Messages | None
    bucket_bytes: int
    codec: str = ""


def _over_hosts(messages: Messages) -> Messages:
    """The messages of hosts' leaders, as if a host were one worker."""

    def between(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        leaders = replace(network, workers=network.hosts, per_host=1)
        return messages(model, leaders, bucket_bytes)

    return between


def _pushed(model: Model, network: Network, bucket_bytes: int) -> list[PlannedMessage]:
    """A server for each worker, on its own host: sums go up and come back at once."""
    del bucket_bytes
    nbytes = 4.0 * model.size
    return [PlannedMessage(1.0, Traffic(nbytes, line=nbytes, hops=2))]


_CODE = payload("min_max_uint8")
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
    System(name="Decentralized", messages=_over_hosts(gossiped(1)), bucket_bytes=2**40),
    System(
        name="LowPrecision",
        messages=_over_hosts(gossiped(2, _CODE)),
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
LATENCIES = (0.05, 0.5, 1.0, 2.0, 5.0)
"""Milliseconds; BAGUA's figure, which has no readable numbers, goes up to 5."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A published efficiency: throughput over that of as many lone GPUs.

    Attributes:
      label: model and system.
      elements: elements of the model.
      system: the system.
      hosts: number of hosts.
      per_host: GPUs of a host.
      gbps: Gbit/s between hosts.
      latency: seconds of a message between hosts.
      efficiency: the published efficiency.
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
        """The network of these hosts."""
        link = Link(latency=self.latency, bandwidth=self.gbps * 1e9 / 8)
        workers = self.hosts * self.per_host
        return Network(
            workers=workers, per_host=self.per_host, link=link, overlap=False
        )


_PASCAL = (
    ("VGG-16", VGG_16, 32, RDMA, 0.79, True),
    ("VGG-16", VGG_16, 128, RDMA, 0.68, False),
    ("ResNet-101", RESNET_101, 32, TCP, 0.88, True),
    ("ResNet-101", RESNET_101, 32, RDMA, 0.90, False),
    ("ResNet-101", RESNET_101, 128, RDMA, 0.90, False),
)
SCALING = (
    *(
        Scaling(
            label=label,
            elements=elements,
            system=HOROVOD,
            hosts=hosts,
            per_host=4,
            gbps=25.0,
            latency=latency,
            efficiency=efficiency,
            fitted=fitted,
        )
        for label, elements, hosts, latency, efficiency, fitted in _PASCAL
    ),
    *(
        Scaling(
            label=f"BERT-Large, {system.name}",
            elements=bert_large(),
            system=system,
            hosts=32,
            per_host=8,
            gbps=100.0,
            latency=RDMA,
            efficiency=efficiency,
            fitted=system is HOROVOD,
        )
        for system, efficiency in ((HOROVOD, 0.70), (BYTEPS, 0.90))
    ),
)
