"""What a relaxation sends in one of its exchanges, and when it can begin to.

A message is ready after some share of the backward pass, of all gradients or of some;
before the step, if it does not depend on it. A relaxation's messages follow from its
buckets (`relaxjax.schedule.plan_buckets`, as it packs them itself), from a model's
matrices (PowerSGD), or from both, where vectors travel as they are.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from relaxjax._matrices import Matrices, matrices_of, most_square
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import (
    EXACT,
    EXCHANGES,
    Payload,
    Traffic,
    neighbors,
    psum,
)
from relaxjax.schedule import Bucket, plan_buckets, plan_groups

MOST = 48
"""Messages that are simulated; of more, neighbours count as one, as long as all."""


class Message(NamedTuple):
    """One exchange of one bucket.

    Attributes:
      ready: share of the backward pass that must be over; None: nothing of the step.
      traffic: what it takes.
      native: whether it is the backend's own all-reduce.
    """

    ready: float | None
    traffic: Traffic
    native: bool = False


Messages = Callable[[Model, Network, int], list[Message]]
"""From the model, the network and the bytes of a bucket to what is sent."""


def reduced(algorithm: str, payload: Payload = EXACT) -> Messages:
    """All gradients, bucket by bucket; in codes, vectors travel as they are.

    Args:
      algorithm: "psum", or one of `EXCHANGES`.
      payload: of a bucket.
    """

    def messages(model: Model, network: Network, bucket_bytes: int) -> list[Message]:
        if not payload.coded:
            return _by(algorithm, payload, model, "params", network, bucket_bytes)
        part = "matrices" if model.has_vectors else "params"
        found = _by(algorithm, payload, model, part, network, bucket_bytes)
        if model.has_vectors:
            found += _by("psum", EXACT, model, "vectors", network, bucket_bytes)
        return found

    return messages


def _by(
    algorithm: str,
    payload: Payload,
    model: Model,
    part: str,
    network: Network,
    bucket_bytes: int,
) -> list[Message]:
    how = plan_groups if algorithm == "psum" and not payload.coded else plan_buckets
    buckets = model.packed(part, how, bucket_bytes)
    if algorithm == "psum":
        return _timed(buckets, lambda b: _psum(b, network, payload), native=True)
    exchange = EXCHANGES[algorithm]
    return _timed(buckets, lambda b: exchange(_size(b), network, payload))


def _psum(bucket: Bucket, network: Network, payload: Payload) -> Traffic:
    """Leaf by leaf in one message; of payloads that can be added, those."""
    if payload.coded:
        floats = payload.of(_size(bucket)) // 4
        return psum(floats, network)._replace(coded=2 * 4 * _size(bucket))
    each = [psum(segment.size, network) for segment in bucket.segments]
    total = jax.tree.map(lambda *x: sum(x), *each)
    if not network.joined:
        return total
    return total._replace(hops=each[0].hops, steps=each[0].steps)


def told(degree: int, payload: Payload = EXACT, *, early: bool = False) -> Messages:
    """Models, to neighbours.

    Args:
      degree: neighbours that one sends to in a round.
      payload: of a bucket.
      early: whether the models of the last step travel.
    """

    def messages(model: Model, network: Network, bucket_bytes: int) -> list[Message]:
        buckets = model.packed("params", plan_buckets, bucket_bytes)
        found = _timed(buckets, lambda b: neighbors(_size(b), network, payload, degree))
        return early_messages(found) if early else found

    return messages


def waited(messages: Messages) -> Messages:
    """The same of a step before.

    Args:
      messages: of a relaxation.
    """
    return lambda *given: early_messages(messages(*given))


def early_messages(found: list[Message]) -> list[Message]:
    """Messages that depend on nothing of the step."""
    return [message._replace(ready=None) for message in found]


def low_rank(rank: int, algorithm: str = "psum", bits: int = 32) -> Messages:
    """PowerSGD's two messages, after the whole backward pass.

    Args:
      rank: of the approximations.
      algorithm: "psum", or one of `EXCHANGES`.
      bits: of a float in a message.
    """
    native = algorithm == "psum"
    size = Payload(lambda floats: floats * bits // 8, coded=bits != 32)

    def one(floats: int, network: Network, coded: float) -> Message:
        if native:
            found = psum(floats, network)
        else:
            found = EXCHANGES[algorithm](floats, network, size)
        return Message(1.0, found._replace(coded=coded), native)

    def messages(model: Model, network: Network, bucket_bytes: int) -> list[Message]:
        del bucket_bytes
        found = _matrices(rank, model)
        left = right = passed = 0
        for leaf, m in zip(model.leaves, found, strict=True):
            if m is None:
                left += leaf.size
            else:
                r = m.rank
                left, right = (
                    left + m.batch * m.rows * r,
                    right + m.batch * m.columns * r,
                )
                passed += leaf.size
        first = one(left, network, 4.0 * passed)
        return [first, one(right, network, 2 * 4.0 * passed)]

    return messages


def makes_smaller(rank: int, model: Model) -> bool:
    """Whether PowerSGD finds a matrix to compress.

    Args:
      rank: of the approximations.
      model: its params.
    """
    return any(_matrices(rank, model))


def _matrices(rank: int, model: Model) -> list[Matrices | None]:
    return matrices_of(
        model.params, rank=rank, min_compression=1.0, as_matrices=most_square
    )


def _size(bucket: Bucket) -> int:
    return sum(segment.size for segment in bucket.segments)


def _timed(
    buckets: tuple[Bucket, ...],
    traffic: Callable[[Bucket], Traffic],
    *,
    native: bool = False,
) -> list[Message]:
    """Messages in sending order, ready as the elements before them are of all.

    Of many buckets of one size only one is looked at.
    """
    total = sum(map(_size, buckets))
    known: dict[tuple[int, int], Traffic] = {}
    found, done, group = [], 0, -(-len(buckets) // MOST)
    for start in range(0, len(buckets), group):
        each = []
        for bucket in buckets[start : start + group]:
            key = _size(bucket), len(bucket.segments)
            if native or key not in known:
                known[key] = traffic(bucket)
            each.append(known[key])
            done += key[0]
        whole = jax.tree.map(lambda *x: sum(x), *each)
        found.append(Message(done / total, whole, native))
    return found
