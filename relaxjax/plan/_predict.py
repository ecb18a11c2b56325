"""How long a step takes: its computation and its messages, in simulated time.

    one exchange     `relaxjax.schedule.simulate`: forward pass, backward pass in
                     as many parts as there are messages, each message when it is ready
                     and the one before is over; the step ends when all are
    every H steps    ((H - 1) compute + that) / H

Encoding and decoding take the device: the backward pass waits for the codes of what is
sent while it runs. Without overlap messages wait for the whole backward pass.

Cost: about a millisecond for a hundred messages.
"""

from dataclasses import dataclass

from relaxjax.plan._candidate import Candidate
from relaxjax.plan._messages import PlannedMessage
from relaxjax.plan._model import FORWARD, Model
from relaxjax.plan._network import Network
from relaxjax.schedule import Cluster, Cost, Graph, Link, Policy, simulate

_CLOCK = 1e12  # bytes per second of a link on which a message's seconds are its bytes


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is expected of a relaxation.

    Attributes:
      seconds: seconds of a step, on average.
      messages: seconds of communication and codecs in a step, on average.
      nbytes: bytes that the busiest worker sends in a step, on average.
      memory: bytes of params, gradient, the two moments of Adam, and what the
        relaxation keeps; without activations.
      bucket_bytes: bytes of a bucket.
    """

    seconds: float
    messages: float
    nbytes: float
    memory: float
    bucket_bytes: int


def predict(
    candidate: Candidate, model: Model, network: Network, bucket_bytes: int
) -> Prediction:
    """Time, bytes and memory of a relaxation, with buckets of this size."""
    messages, every = [], candidate.every
    if network.workers > 1:
        messages = candidate.messages(model, network, bucket_bytes)
    exchange = exchange_seconds(messages, model, network, candidate.compressor)
    each = _seconds(messages, network, candidate.compressor)
    return Prediction(
        seconds=((every - 1) * model.compute + exchange) / every,
        messages=sum(each) / every,
        nbytes=sum(m.traffic.sent for m in messages) / every,
        memory=4.0 * model.size * (4 + candidate.keeps),
        bucket_bytes=bucket_bytes,
    )


def exchange_seconds(
    messages: list[PlannedMessage], model: Model, network: Network, codec: str = ""
) -> float:
    """Seconds of a step that sends messages in this order, with this compressor."""
    if not messages:
        return model.compute
    if not network.overlap:
        messages = [message._replace(ready=1.0) for message in messages]
    coding = [
        m.traffic.coding(network, codec) if (m.ready or 0.0) < 1 else 0.0
        for m in messages
    ]
    seconds = _seconds(messages, network, codec)
    return _simulated(messages, seconds, coding, model.compute)


def _seconds(
    messages: list[PlannedMessage], network: Network, codec: str
) -> list[float]:
    return [m.traffic.seconds(network, codec, native=m.native) for m in messages]


def _simulated(
    messages: list[PlannedMessage],
    seconds: list[float],
    coding: list[float],
    compute: float,
) -> float:
    """One step; of each message's seconds, the device spends `coding` on its code."""
    ends = sorted({m.ready for m in messages if m.ready} | {1.0})
    parts = {"forward": compute * FORWARD}
    codes = {
        end: [i for i, m in enumerate(messages) if m.ready == end and coding[i]]
        for end in (None, *ends)
    }
    parts |= {f"code {i}": coding[i] for i in codes[None]}
    done = 0.0
    for end in ends:
        parts[f"backward {end}"] = compute * (1 - FORWARD) * (end - done)
        parts |= {f"code {i}": coding[i] for i in codes[end]}
        done = end
    before = [[], *([name] for name in parts)]
    ops = dict(zip(parts, zip(parts.values(), before, strict=False), strict=True))
    sends = {
        str(i): (seconds[i] - coding[i], _need(i, message, coding))
        for i, message in enumerate(messages)
    }
    link = Link(latency=0.0, bandwidth=_CLOCK)
    policy = Policy(
        "plan",
        collective=lambda nbytes: Cost(1, nbytes),
        buckets=tuple((name,) for name in sends),
    )
    return simulate(Graph({}, ops, sends), policy, Cluster(link=link)).seconds


def _need(number: int, message: PlannedMessage, coding: list[float]) -> list[str]:
    """The part of the step that a message waits for."""
    if coding[number]:
        return [f"code {number}"]
    return [] if message.ready is None else [f"backward {message.ready}"]
