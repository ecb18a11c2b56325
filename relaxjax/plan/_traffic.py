"""What a worker and its host do to exchange d elements, and how long it takes.

n workers on h hosts of m. A payload of c elements takes P(c) bytes, 4 c uncompressed.

                    sent by a worker        line of a host            in a row, between
    psum            2 (n-1) ceil(d/n) 4     as sent                   2 ceil(log2 h)
    ring            2 (n-1) P(ceil(d/n))    as sent                   2 (h - 1)
    halving_doubl.  2 (n-1)/n d 4           m 2 (h-1)/h d 4           2 ceil(log2 n)
    tree            ceil(log2 n) d 4        2 ceil(log2 n) d 4        2 ceil(log2 n)
    two_shot        2 (n-1) P(ceil(d/n))    2 m (n-m) P(ceil(d/n))    n
    one_shot        (n-1) P(d)              m (n-m) P(d)              n - 1
    hierarchical    2 (m-1) 4 c + 2 (h-1) P(ceil(c/h)), c = ceil(d/m)
                                            m times the second        h
    neighbors       k P(d)                  as many as cross          k

`sent` is the closed form beside each algorithm (`relaxjax.collectives._algorithms`),
which is what `relaxjax.wire_bytes` counts. The line of a host carries the messages of
its m workers, one after the other; "in a row" are latencies that nothing hides. A ring
of workers in the order of their hosts crosses each link once a round; psum may be
NCCL's ring or tree, and counts as the better of each. The messages of a shot are on
their way at once; gathered messages go around a ring.

Cost: O(1).
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from relaxjax.collectives import ALGORITHMS, CODED_EXCHANGES, EXACT_EXCHANGES, Codec
from relaxjax.plan._network import Network
from relaxjax.plan.forms._payload_sizes import payload_size


class Traffic(NamedTuple):
    """What the exchange of a message, a bucket or a model takes.

    Attributes:
      sent: bytes that the busiest worker sends.
      line: bytes over the busiest host's link, one after the other.
      hops: number of messages between hosts that wait for each other.
      inside: bytes that a worker sends within its host.
      steps: number of messages within a host that wait for each other.
      coded: bytes of float32 that a worker encodes or decodes.
    """

    sent: float
    line: float = 0.0
    hops: int = 0
    inside: float = 0.0
    steps: int = 0
    coded: float = 0.0

    def seconds(
        self, network: Network, codec: str = "", *, native: bool = False
    ) -> float:
        """Seconds that the exchange takes.

        Args:
          network: its links and codecs.
          codec: the compressor's name.
          native: whether it is the backend's own all-reduce.
        """
        link = (network.psum or network.link) if native else network.link
        between = link.seconds(self.line, self.hops)
        within = network.inside.seconds(self.inside, self.steps)
        return between + within + self.coding(network, codec)

    def in_items_of(self, itemsize: float) -> "Traffic":
        """The same exchange of elements of so many bytes, where these are of 4."""
        sent, line, inside = (
            x * itemsize / 4 for x in (self.sent, self.line, self.inside)
        )
        return self._replace(sent=sent, line=line, inside=inside)

    def coding(self, network: Network, codec: str = "") -> float:
        """Seconds of these in which a worker encodes and decodes."""
        return self.coded / network.codec_rate(codec)


class PayloadSize(NamedTuple):
    """P, and whether it takes encoding.

    Attributes:
      of: from a number of elements to the bytes of their payload.
      coded: whether values are encoded.
    """

    of: Callable[[int], int]
    coded: bool


EXACT = PayloadSize(lambda elements: 4 * elements, coded=False)


@functools.cache
def payload(compressor: str) -> PayloadSize:
    """The payloads of a compressor by its name, with feedback or without."""
    return PayloadSize(payload_size(compressor), coded=True)


def _levels(n: int) -> int:
    return math.ceil(math.log2(n))


@functools.cache
def _sent(algorithm: str, d: int, hosts: int, per_host: int, p: PayloadSize) -> int:
    """Bytes that a worker sends, by the algorithm's closed form."""
    axes = hosts, per_host
    workers = axes if ALGORITHMS[algorithm].two_axes else hosts * per_host
    if not p.coded:
        x = jax.ShapeDtypeStruct((d,), jnp.float32)
        return EXACT_EXCHANGES[algorithm].wire_bytes(x, workers)
    codec = Codec(
        lambda x, place: jnp.zeros(p.of(x.size), jnp.uint8),
        lambda payload, size, place: jnp.zeros(size, jnp.float32),
    )
    return CODED_EXCHANGES[algorithm].wire_bytes(d, workers, codec)


def over_links(
    network: Network, sent: float, line: float, hops: int, steps: int
) -> Traffic:
    """Bytes on links between hosts, or all within the only host."""
    if network.hosts == 1:
        return Traffic(sent, inside=sent, steps=hops + steps)
    return Traffic(sent, line=line, hops=hops, steps=steps)


def psum(d: int, network: Network) -> Traffic:
    """The backend's own all-reduce of one array."""
    sent = _sent("psum", d, network.hosts, network.per_host, EXACT)
    steps = 2 * _levels(network.per_host)
    return over_links(network, sent, sent, 2 * _levels(network.hosts), steps)


def ring(d: int, network: Network, p: PayloadSize) -> Traffic:
    """Around all workers; encoded anew at each hop."""
    n, h, m = network.workers, network.hosts, network.per_host
    sent = _sent("ring", d, h, m, p)
    traffic = over_links(network, sent, sent, 2 * (h - 1), 2 * (n - h))
    return traffic._replace(coded=4.0 * 4 * d if p.coded else 0.0)


def bidirectional_ring(d: int, network: Network, p: PayloadSize) -> Traffic:
    """A half in each direction."""
    sent = _sent("bidirectional_ring", d, network.hosts, network.per_host, EXACT)
    return ring(d, network, p)._replace(sent=sent)


def halving_doubling(d: int, network: Network, p: PayloadSize) -> Traffic:
    """Distant workers first, so that all m of a host cross its link."""
    del p
    n, h, m = network.workers, network.hosts, network.per_host
    sent = _sent("halving_doubling", d, h, m, EXACT)
    line = sent if m == 1 else m * 2 * (h - 1) / h * 4 * d
    return over_links(network, sent, line, 2 * _levels(n), 0)


def tree(d: int, network: Network, p: PayloadSize) -> Traffic:
    """Whole arrays up, and down."""
    del p
    rounds = 2 * _levels(network.workers)
    sent = _sent("tree", d, network.hosts, network.per_host, EXACT)
    traffic = over_links(network, sent, rounds * 4 * d, rounds, 0)
    return traffic._replace(inside=rounds * 4 * d) if network.hosts == 1 else traffic


def two_shot(d: int, network: Network, p: PayloadSize) -> Traffic:
    """A chunk to each other worker, and the means back."""
    n, m = network.workers, network.per_host
    sent = _sent("two_shot", d, network.hosts, m, p)
    line = 2 * m * (n - m) * p.of(-(-d // n))
    traffic = over_links(network, sent, line, n, 0)
    return traffic._replace(coded=(4 + 1 / n) * 4 * d if p.coded else 0.0)


def one_shot(d: int, network: Network, p: PayloadSize) -> Traffic:
    """Everything to each other worker."""
    n, m = network.workers, network.per_host
    sent = _sent("one_shot", d, network.hosts, m, p)
    traffic = over_links(network, sent, m * (n - m) * p.of(d), n - 1, 0)
    return traffic._replace(coded=2 * 4 * d + n * p.of(d) if p.coded else 0.0)


def hierarchical(d: int, network: Network, p: PayloadSize) -> Traffic:
    """Chunks inside hosts as they are, and two shots of each chunk between them."""
    h, m = network.hosts, network.per_host
    chunk = -(-d // m)
    sent = _sent("hierarchical", d, h, m, p)
    across = _sent("two_shot", chunk, h, 1, p)
    return Traffic(
        sent,
        line=m * across,
        hops=h if h > 1 else 0,
        inside=sent - across,
        steps=m if m > 1 else 0,
        coded=(4 + 1 / h) * 4 * chunk if p.coded else 0.0,
    )


def neighbors(d: int, network: Network, p: PayloadSize, degree: int) -> Traffic:
    """Whole models to neighbors; over hosts, an m-th of it by each worker.

    Args:
      d: number of elements.
      network: its links.
      p: the payload; a coded one has no mean inside hosts.
      degree: number of neighbors that a worker, or a host, sends to in a round.
    """
    m = network.per_host
    if p.coded or m == 1 or network.hosts == 1:
        sent = degree * p.of(d)
        traffic = over_links(network, sent, sent, degree, 0)  # a ring leaves at two
        return traffic._replace(coded=(2 + degree) * 4.0 * d if p.coded else 0.0)
    chunk = -(-d // m)
    inside, across = 2 * (m - 1) * chunk * 4, degree * 4 * chunk
    return Traffic(inside + across, m * across, degree, inside, m)


EXCHANGES: Mapping[str, Callable[[int, Network, PayloadSize], Traffic]] = {
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "halving_doubling": halving_doubling,
    "tree": tree,
    "two_shot": two_shot,
    "one_shot": one_shot,
    "hierarchical": hierarchical,
}
"""From the names of `relaxjax.all_reduce` to their traffic."""
