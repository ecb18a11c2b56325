"""How long a step takes: its computation and its messages, in simulated time.

    one exchange     `relaxjax.schedule.simulate`: forward pass, backward pass in
                     as many parts as there are messages, each message when it is ready
                     and the one before is over; the step ends when all are
    every H steps    ((H - 1) compute + that) / H

Without overlap messages wait for the whole backward pass.

Cost: about a millisecond for a hundred messages.
"""

from dataclasses import dataclass

from relaxjax.plan._candidates import Candidate
from relaxjax.plan._messages import Message
from relaxjax.plan._model import FORWARD, Model
from relaxjax.plan._network import Network
from relaxjax.schedule import Cluster, Cost, Graph, Link, Policy, simulate

_CLOCK = 1e12  # bytes per second of a link on which a message's seconds are its bytes


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is expected of a relaxation.

    Attributes:
      seconds: of a step, on average.
      messages: seconds of communication and codecs in a step, on average.
      nbytes: that the busiest worker sends in a step, on average.
      memory: bytes of params, gradient, the two moments of Adam, and what the
        relaxation keeps; without activations.
      bucket_bytes: of its buckets.
    """

    seconds: float
    messages: float
    nbytes: float
    memory: float
    bucket_bytes: int


def predict(
    candidate: Candidate, model: Model, network: Network, bucket_bytes: int
) -> Prediction:
    """Time, bytes and memory of a relaxation.

    Args:
      candidate: the relaxation.
      model: its params and computation.
      network: the workers and links.
      bucket_bytes: of a bucket.
    """
    found, every = [], candidate.every
    if network.workers > 1:
        found = candidate.messages(model, network, bucket_bytes)
    exchange = exchange_seconds(found, model, network, candidate.compressor)
    each = _seconds(found, network, candidate.compressor)
    return Prediction(
        seconds=((every - 1) * model.compute + exchange) / every,
        messages=sum(each) / every,
        nbytes=sum(m.traffic.sent for m in found) / every,
        memory=4.0 * model.size * (4 + candidate.kept),
        bucket_bytes=bucket_bytes,
    )


def exchange_seconds(
    found: list[Message], model: Model, network: Network, codec: str = ""
) -> float:
    """Of a step with messages.

    Args:
      found: the messages, in sending order.
      model: its computation.
      network: links and codecs.
      codec: the compressor's name.
    """
    if not found:
        return model.compute
    seconds = _seconds(found, network, codec)
    return _simulated(found, seconds, model.compute, overlap=network.overlap)


def _seconds(found: list[Message], network: Network, codec: str) -> list[float]:
    return [m.traffic.seconds(network, codec, native=m.native) for m in found]


def _simulated(
    found: list[Message], seconds: list[float], compute: float, *, overlap: bool
) -> float:
    """One step and its messages."""
    ends = sorted({m.ready for m in found if m.ready} | {1.0})
    ops: dict[str, tuple[float, list[str]]] = {"forward": (compute * FORWARD, [])}
    last, done = "forward", 0.0
    for end in ends:
        part = f"backward {end}"
        ops[part] = (compute * (1 - FORWARD) * (end - done), [last])
        last, done = part, end
    names = [str(place) for place in range(len(found))]
    needs = [_need(message, last, overlap=overlap) for message in found]
    sends = dict(zip(names, zip(seconds, needs, strict=True), strict=True))
    link = Link(latency=0.0, bandwidth=_CLOCK)
    policy = Policy(
        "plan",
        collective=lambda nbytes: Cost(1, nbytes),
        buckets=tuple((name,) for name in names),
    )
    graph = Graph({}, ops, sends)
    return simulate(graph, policy, Cluster(link=link)).seconds


def _need(message: Message, last: str, *, overlap: bool) -> list[str]:
    if not overlap:
        return [last]
    return [] if message.ready is None else [f"backward {message.ready}"]
