"""What the legs inside a split model send, and how long a step waits for them.

Bytes of a call are those of `relaxjax.activations.sent_bytes`. The next product waits
for each call, so that no computation hides it:

    seconds    messages between hosts, messages inside, and codecs, one after the other

Memory is 16 bytes (param, gradient, Adam's moments) for each param that a worker has:
(1 - e) / (tensor pipeline) of all, and e / (tensor pipeline expert), where e is the
share of the params that are in experts.

Cost: O(1), and a trace of a row for each code.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relaxjax import compression
from relaxjax._core._checks import check_type, require_whole
from relaxjax._core.foreign._ranges import PARAMS
from relaxjax.activations import SentBytes, sent_bytes
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network, require_network
from relaxjax.plan.inside._work import AXES, Work, traffic_of

CODES = (("", ""), ("e4m3", ""), ("e4m3", "e5m2"), ("e2m1", ""), ("e2m1", "e2m1"))
"""Elements of `compression.mx` forward and backward; "" sends 16 bits as they are."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One axis of a split model in one pair of codes.

    Attributes:
      axis: "tensor", "expert" or "pipeline".
      workers: number of workers on it.
      forward: element of `compression.mx` in the forward pass; "": 16 bits.
      backward: that of the backward pass.
      sent: bytes that a worker sends in a step, each way.
      seconds: seconds of a step for its messages and codecs.
    """

    axis: str
    workers: int
    forward: str
    backward: str
    sent: SentBytes
    seconds: float

    @property
    def codes(self) -> str:
        """The arguments of the collectives in `relaxjax.activations`."""
        named = {"forward": self.forward, "backward": self.backward}
        return ", ".join(
            f'{way}=relaxjax.compression.mx("{element}")'
            for way, element in named.items()
            if element
        )

    def told(self) -> dict[str, Any]:
        """The leg as JSON has it."""
        return {
            "axis": self.axis,
            "workers": self.workers,
            "forward": self.forward or None,
            "backward": self.backward or None,
            "forward_bytes": self.sent.forward,
            "backward_bytes": self.sent.backward,
            "communication_ms": 1e3 * self.seconds,
            "codes": self.codes,
        }


@dataclass(frozen=True, kw_only=True)
class Split:
    """All legs of a split model.

    Attributes:
      legs: each axis without codes, and then in codes.
      memory: bytes of a worker's params, gradient and moments, without activations.
      compute: seconds of a step without communication.
    """

    legs: tuple[Leg, ...]
    memory: float
    compute: float

    def told(self) -> dict[str, Any]:
        """The legs as JSON has them."""
        return {
            "compute_ms": 1e3 * self.compute,
            "memory_bytes": self.memory,
            "legs": [leg.told() for leg in self.legs],
        }


def split(
    model: Model,
    network: Network,
    *,
    layers: int,
    width: int,
    tokens: int,
    tensor: int = 1,
    expert: int = 1,
    pipeline: int = 1,
    experts_per_token: int = 1,
    expert_params: float = 0.0,
) -> Split:
    """Predicts bytes and seconds of the legs inside a split model, in some codes.

    Experimental: this may change in any release.

    Args:
      model: all params, and the computation of one worker.
      network: workers, links, codecs.
      layers: number of layers of the whole model.
      width: elements of a token between layers.
      tokens: tokens of a worker in a step, over all microbatches.
      tensor: workers that share each product; 1: products are whole.
      expert: workers that hold the experts of a layer; 1: layers without experts.
      pipeline: stages; 1: the model is in one piece.
      experts_per_token: experts that each token goes to.
      expert_params: share of all params that are in experts, 0 to 1.

    Returns:
      A `Split`.

    Raises:
      TypeError: `model` or `network` is something else.
      ValueError: a number is not whole or below 1; the workers do not fill the axes; no
        axis has two workers; `expert_params` is no share, or left out with experts.

    Example:
      >>> from relaxjax import plan, schedule
      >>> network = plan.Network(workers=8, link=schedule.Link(1e-4, 1.25e9))
      >>> model = plan.Model.of_size(1_000_000_000, compute=0.3)
      >>> sizes = {"layers": 24, "width": 2048, "tokens": 4096}
      >>> legs = plan.split(model, network, tensor=8, **sizes).legs
      >>> [(leg.forward, leg.sent.forward) for leg in legs[:2]]
      [('', 1409286144), ('e4m3', 726663168)]
    """
    check_type("split: model", model, Model, "say plan.Model.of_size(...)")
    require_network("split", network)
    work = Work(layers, width, tokens, tensor, expert, pipeline, experts_per_token)
    _check(work, network, expert_params)
    apart = (1 - expert_params) + expert_params / expert
    return Split(
        legs=tuple(_legs(work, network)),
        memory=16.0 * model.size * apart / (tensor * pipeline),
        compute=model.compute,
    )


def _check(work: Work, network: Network, expert_params: float) -> None:
    for name, value in work._asdict().items():
        require_whole("split", name, value, broken=PARAMS.broken)
    sizes = {axis: getattr(work, axis) for axis in AXES}
    said = ", ".join(f"{axis}={n}" for axis, n in sizes.items())
    product = math.prod(sizes.values())
    if product == 1:
        raise ValueError(
            f"split: {said} split nothing: give one of them 2 workers or more"
        )
    if network.workers % product:
        raise ValueError(
            f"split: {said} take groups of {product} workers, and workers="
            f"{network.workers} must be a multiple of that"
        )
    if work.experts_per_token > 1 and work.expert == 1:
        raise ValueError(
            f"split: experts_per_token={work.experts_per_token} with expert=1: there "
            "are no experts; say how many workers hold them"
        )
    if not (0 <= expert_params <= 1):
        raise ValueError(
            f"split: expert_params={expert_params!r} must be a share of the params, "
            "from 0 to 1"
        )
    if (expert_params > 0) != (work.expert > 1):
        raise ValueError(
            f"split: expert={work.expert} with expert_params={expert_params}: experts "
            "hold a share of the params that is more than 0; give both, or neither"
        )


def _legs(work: Work, network: Network) -> Iterator[Leg]:
    stride = 1
    for axis in AXES:
        n = getattr(work, axis)
        for forward, backward in CODES if n > 1 else ():
            yield _leg(work, network, axis, stride, forward, backward)
        stride *= n


def _leg(
    work: Work, network: Network, axis: str, stride: int, forward: str, backward: str
) -> Leg:
    n, x, seconds = getattr(work, axis), work.sends(axis), 0.0
    total = SentBytes(0, 0)
    made = [compression.mx(c) if c else None for c in (forward, backward)]
    for collective, times in work.calls(axis):
        each = sent_bytes(collective, x, n, forward=made[0], backward=made[1])
        for sent, element in zip(each, (forward, backward), strict=True):
            traffic = traffic_of(collective, sent, x.size, n, stride, network)
            if not element:
                traffic = traffic._replace(coded=0.0)
            seconds += times * traffic.seconds(network, f"mx_{element}")
        total = SentBytes(*(a + times * b for a, b in zip(total, each, strict=True)))
    return Leg(
        axis=axis,
        workers=n,
        forward=forward,
        backward=backward,
        sent=total,
        seconds=seconds,
    )
