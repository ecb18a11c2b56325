"""How long a step takes: its computation and its messages, in simulated time.

    one exchange     forward pass, backward pass in as many parts as there are messages,
                     each message when it is ready and the one before is over; the step
                     ends when all are
    every H steps    ((H - 1) compute + that) / H

Encoding and decoding take the device: the backward pass waits for the codes of what is
sent while it runs. Without overlap messages wait for the whole backward pass.

That is `relaxjax.schedule.simulate` of one device and one link, in closed form; tests
compare the two.

Cost: O(k log k), k messages.
"""

from dataclasses import dataclass

from relaxjax.plan._candidate import Candidate
from relaxjax.plan._messages import PlannedMessage
from relaxjax.plan._model import FORWARD, Model
from relaxjax.plan._network import Network


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
    send, every, messages = candidate.messages, candidate.every, []
    if network.workers > 1:  # the same, whatever the links are
        alike = send, network.workers, network.per_host, network.joined, bucket_bytes
        messages = model.once(alike, lambda: send(model, network, bucket_bytes))
    exchange = exchange_seconds(messages, model, network, candidate.compressor)
    each = _seconds(messages, network, candidate.compressor)
    return Prediction(
        seconds=((every - 1) * model.compute + exchange) / every,
        messages=sum(each) / every,
        nbytes=sum(m.traffic.sent for m in messages) / every,
        memory=4.0 * (model.nbytes + model.size * candidate.keeps),
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
    return _step(messages, seconds, coding, model.compute)


def _seconds(
    messages: list[PlannedMessage], network: Network, codec: str
) -> list[float]:
    return [m.traffic.seconds(network, codec, native=m.native) for m in messages]


def _step(
    messages: list[PlannedMessage],
    seconds: list[float],
    coding: list[float],
    compute: float,
) -> float:
    """One step; of each message's seconds, the device spends `coding` on its code."""
    ready, device = _ready(messages, coding, compute)
    link = 0.0
    for i in sorted(range(len(messages)), key=ready.__getitem__):  # ties by place
        link = max(link, ready[i]) + seconds[i] - coding[i]
    return max(device, link)


def _ready(
    messages: list[PlannedMessage], coding: list[float], compute: float
) -> tuple[list[float], float]:
    """When each message may be sent, and when the device is done."""
    backward = compute * (1 - FORWARD)
    ready, now = [0.0] * len(messages), compute * FORWARD
    passed = done = 0.0  # when a part of the backward pass was over, and which
    for i in sorted(range(len(messages)), key=lambda i: messages[i].ready or 0.0):
        if (part := messages[i].ready or 0.0) > done:
            passed = now = now + backward * (part - done)
            done = part
        now += coding[i]
        ready[i] = now if coding[i] else passed
    return ready, now + backward * (1 - done)
