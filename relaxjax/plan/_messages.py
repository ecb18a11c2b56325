"""What a relaxation sends in one of its exchanges, and when it can begin to.

A message is ready after a share of the backward pass, of which all its gradients are
part; before the step, if it does not depend on it. Messages follow from a relaxation's
buckets (`relaxjax.schedule.plan_buckets`, which packs them in the relaxation itself),
from a model's matrices (PowerSGD), or from both, where vectors travel as they are.
"""

import functools
from collections.abc import Callable
from operator import mul
from typing import Any, NamedTuple

from relaxjax._core._buckets import Bucket, plan_buckets, plan_groups
from relaxjax.gradients import Matrices, matrices_of, merge_small, most_square, views_of
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
"""Messages that are simulated; beyond, adjacent ones are merged, as long as all."""


class PlannedMessage(NamedTuple):
    """One exchange of one bucket.

    Attributes:
      ready: share of the backward pass that must be over; None: it depends on nothing
        of the step.
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

    So does `plain`, the share of all elements that is first in sending order. Elements
    that are not coded have the bytes of their dtype, and codes are of float32.
    """

    def messages(model: Model, *others: Any) -> list[PlannedMessage]:
        if not payload.coded:
            return _by(algorithm, payload, model, *others)
        coded = _by(algorithm, payload, model.widened, *others, "matrix", plain)
        rest = _by("psum", EXACT, model, *others, "vector", plain)
        return sorted(coded + rest, key=lambda m: m.ready or 0.0)

    return messages


def _by(
    algorithm: str,
    payload: PayloadSize,
    model: Model,
    network: Network,
    bucket_bytes: int,
    *part: Any,
) -> list[PlannedMessage]:
    """All params, or a part of them (`Model.part`), by one algorithm."""
    native = algorithm == "psum"
    how = plan_groups if native and not payload.coded else plan_buckets
    buckets = model.packed(how, bucket_bytes, *part)
    if native:
        leaves = model.leaves_of(*part)
        traffic = functools.partial(
            _psum, leaves=leaves, network=network, payload=payload
        )
        return _timed(model, buckets, traffic, native=True)
    exchange = EXCHANGES[algorithm]

    def one(bucket: Bucket) -> Traffic:
        whole = exchange(_size(bucket), network, payload)
        return whole if payload.coded else whole.in_items_of(_itemsize(bucket))

    return _timed(model, buckets, one)


def of_models(messages: Messages) -> Messages:
    """The same messages of models, which travel in float32 or wider."""
    return lambda model, *others: messages(model.widened, *others)


def _psum(
    bucket: Bucket, leaves: list[Any], network: Network, payload: PayloadSize
) -> Traffic:
    """One all-reduce with an operand for each leaf; payloads are added up as such."""
    if payload.coded:
        floats = payload.of(_size(bucket)) // 4
        return psum(floats, network)._replace(coded=2 * 4 * _size(bucket))
    members = [leaves[segment.leaf] for segment in bucket.segments]
    sizes = [sum(members[i].size for i in few) for few in merge_small(members)]
    each = [psum(x, network).in_items_of(_itemsize(bucket)) for x in sizes]
    total = _added(each, [1] * len(each))
    if not network.joined:
        return total
    return total._replace(hops=each[0].hops, steps=each[0].steps)


def gossiped(degree: int, payload: PayloadSize = EXACT) -> Messages:
    """Models, to `degree` neighbors in a round, with this payload for each bucket."""

    def messages(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        buckets = model.packed(plan_buckets, bucket_bytes)
        return _timed(
            model, buckets, lambda b: neighbors(_size(b), network, payload, degree)
        )

    return of_models(messages)


def delayed(messages: Messages) -> Messages:
    """The same messages, of the step before: nothing of this step delays them."""
    return lambda *inputs: [m._replace(ready=None) for m in messages(*inputs)]


def low_rank(
    rank: int, algorithm: str = "psum", bits: int = 32, *, by_turns: bool = False
) -> Messages:
    """PowerSGD's two messages, after the backward pass, in floats of these bits.

    By turns, as in ACP-SGD, one message as long as the longer of both factors.
    """
    native = algorithm == "psum"
    size = (
        coded_payload(f"quantize{bits}")
        if bits < 16
        else PayloadSize(lambda floats: floats * bits // 8, coded=bits != 32)
    )

    def one(floats: int, network: Network, coded: float) -> PlannedMessage:
        if native:
            traffic = psum(floats, network)
        else:
            traffic = EXCHANGES[algorithm](floats, network, size)
        return PlannedMessage(1.0, traffic._replace(coded=coded), native)

    def messages(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        del bucket_bytes
        found = _matrices(rank, model)
        both = list(zip(model.leaves, found, strict=True))
        plain = sum(leaf.size for leaf, m in both if m is None)
        passed = 4.0 * sum(leaf.size for leaf, m in both if m)
        if by_turns:
            sides = [[v.floats(k) for v in views_of(found) if v] for k in (0, 1)]
            return [one(plain + max(map(sum, sides)), network, 3 * passed)]
        left = sum(m.batch * m.rows * m.rank for m in found if m)
        right = sum(m.batch * m.columns * m.rank for m in found if m)
        return [one(plain + left, network, passed), one(right, network, 2 * passed)]

    return messages


def makes_smaller(rank: int, model: Model) -> bool:
    """Whether PowerSGD of this rank finds a matrix to compress."""
    return any(_matrices(rank, model))


def _matrices(rank: int, model: Model) -> list[Matrices | None]:
    how = {"rank": rank, "min_compression": 1.0, "as_matrices": most_square}
    return model.once(("matrices", rank), lambda: matrices_of(model.params, **how))


def _size(bucket: Bucket) -> int:
    return sum(segment.size for segment in bucket.segments)


def _itemsize(bucket: Bucket) -> float:
    """Bytes of an element, on average where dtypes are mixed."""
    return bucket.nbytes / max(1, _size(bucket))


def _timed(
    model: Model,
    buckets: tuple[Bucket, ...],
    traffic: Callable[[Bucket], Traffic],
    *,
    native: bool = False,
) -> list[PlannedMessage]:
    """Messages in sending order, each ready when its last gradient is.

    Buckets of one size have the same traffic, which is computed once.
    """
    known: dict[tuple[int, int, int], Traffic] = {}
    messages = []
    for ready, group in model.grouped(buckets, MOST):
        each, times = [], []
        for key, alike in group.items():
            if native:
                each += map(traffic, alike)
                times += [1] * len(alike)
                continue
            if key not in known:
                known[key] = traffic(alike[0])
            each.append(known[key])
            times.append(len(alike))
        messages.append(PlannedMessage(ready, _added(each, times), native))
    return messages


def _added(each: list[Traffic], times: list[int]) -> Traffic:
    return Traffic(*(sum(map(mul, x, times)) for x in zip(*each, strict=True)))
