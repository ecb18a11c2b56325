"""What a relaxation sends in one of its exchanges, and when it can begin to.

A message is ready after some share of the backward pass, of all gradients or of some;
before the step, if it does not depend on it. A relaxation's messages follow from its
buckets (`relaxjax.schedule.plan_buckets`, as it packs them itself), from a model's
matrices (PowerSGD), or from both, where vectors travel as they are.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from relaxjax._core._buckets import Bucket, plan_buckets, plan_groups
from relaxjax.compression import quantize
from relaxjax.gradients import Matrices, matrices_of, merge_small, most_square
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import (
    EXACT,
    EXCHANGES,
    PayloadSize,
    Traffic,
    neighbors,
    psum,
)
from relaxjax.plan._traffic import payload as coded_payload

MOST = 48
"""Messages that are simulated; of more, neighbours count as one, as long as all."""


class PlannedMessage(NamedTuple):
    """One exchange of one bucket.

    Attributes:
      ready: share of the backward pass that must be over; None: nothing of the step.
      traffic: what it takes.
      native: whether it is the backend's own all-reduce.
    """

    ready: float | None
    traffic: Traffic
    native: bool = False


Messages = Callable[[Model, Network, int], list[PlannedMessage]]
"""From the model, the network and the bytes of a bucket to what is sent."""


def reduced(
    algorithm: str, payload: PayloadSize = EXACT, plain: float = 0.0
) -> Messages:
    """All gradients, bucket by bucket; in codes, vectors travel as they are.

    Args:
      algorithm: "psum", or one of `EXCHANGES`.
      payload: of a bucket.
      plain: share of all elements, the first in sending order, that is not coded.
    """

    def messages(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        told = model, network, bucket_bytes
        if not payload.coded:
            return _by(algorithm, payload, *told)
        rest = _by("psum", EXACT, *told, "vector", plain)
        return _in_order(_by(algorithm, payload, *told, "matrix", plain) + rest)

    return messages


def _in_order(found: list[PlannedMessage]) -> list[PlannedMessage]:
    """Whatever is ready first goes first."""
    return sorted(found, key=lambda m: m.ready or 0.0)


def _by(
    algorithm: str,
    payload: PayloadSize,
    model: Model,
    network: Network,
    bucket_bytes: int,
    *which: Any,
) -> list[PlannedMessage]:
    native = algorithm == "psum"
    how = plan_groups if native and not payload.coded else plan_buckets
    buckets = model.packed(how, bucket_bytes, *which)
    if native:
        leaves = jax.tree.leaves(model.part(*which) if which else model.params)
        traffic = functools.partial(
            _psum, leaves=leaves, network=network, payload=payload
        )
        return _timed(model, buckets, traffic, native=True)
    exchange = EXCHANGES[algorithm]
    return _timed(model, buckets, lambda b: exchange(_size(b), network, payload))


def _psum(
    bucket: Bucket, leaves: list[Any], network: Network, payload: PayloadSize
) -> Traffic:
    """Operand by operand in one message; of payloads that can be added, those."""
    if payload.coded:
        floats = payload.of(_size(bucket)) // 4
        return psum(floats, network)._replace(coded=2 * 4 * _size(bucket))
    members = [leaves[segment.leaf] for segment in bucket.segments]
    sizes = [sum(members[i].size for i in few) for few in merge_small(members)]
    each = [psum(size, network) for size in sizes]
    total = jax.tree.map(lambda *x: sum(x), *each)
    if not network.joined:
        return total
    return total._replace(hops=each[0].hops, steps=each[0].steps)


def gossiped(
    degree: int, payload: PayloadSize = EXACT, *, early: bool = False
) -> Messages:
    """Models, to neighbours.

    Args:
      degree: neighbours that one sends to in a round.
      payload: of a bucket.
      early: whether the models of the last step travel.
    """

    def messages(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        buckets = model.packed(plan_buckets, bucket_bytes)
        found = _timed(
            model, buckets, lambda b: neighbors(_size(b), network, payload, degree)
        )
        return early_messages(found) if early else found

    return messages


def delayed(messages: Messages) -> Messages:
    """The same of a step before.

    Args:
      messages: of a relaxation.
    """
    return lambda *given: early_messages(messages(*given))


def early_messages(found: list[PlannedMessage]) -> list[PlannedMessage]:
    """Messages that depend on nothing of the step."""
    return [message._replace(ready=None) for message in found]


def low_rank(rank: int, algorithm: str = "psum", bits: int = 32) -> Messages:
    """PowerSGD's two messages, after the whole backward pass.

    Args:
      rank: of the approximations.
      algorithm: "psum", or one of `EXCHANGES`.
      bits: of a float in a message; 8 are codes.
    """
    native = algorithm == "psum"
    size = (
        coded_payload(quantize(bits))
        if bits < 16
        else PayloadSize(lambda floats: floats * bits // 8, coded=bits != 32)
    )

    def one(floats: int, network: Network, coded: float) -> PlannedMessage:
        if native:
            found = psum(floats, network)
        else:
            found = EXCHANGES[algorithm](floats, network, size)
        return PlannedMessage(1.0, found._replace(coded=coded), native)

    def messages(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
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
    model: Model,
    buckets: tuple[Bucket, ...],
    traffic: Callable[[Bucket], Traffic],
    *,
    native: bool = False,
) -> list[PlannedMessage]:
    """Messages in sending order, each ready when its last gradient is.

    Of many buckets of one size only one is looked at.
    """
    known: dict[tuple[int, int], Traffic] = {}
    found, group = [], max(1, -(-len(buckets) // MOST))
    for start in range(0, len(buckets), group):
        each, ready = [], 0.0
        for bucket in buckets[start : start + group]:
            key = _size(bucket), len(bucket.segments)
            if native or key not in known:
                known[key] = traffic(bucket)
            each.append(known[key])
            ready = max(ready, *map(model.ready, bucket.segments))
        whole = jax.tree.map(lambda *x: sum(x), *each)
        found.append(PlannedMessage(ready, whole, native))
    return found
