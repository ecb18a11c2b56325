"""Ways to let weights lie sharded: what they send, and what a worker holds.

Source: ZeRO (Rajbhandari et al. 2020) and ZeRO++ (Wang et al. 2023). With n workers,
floats for each parameter on a worker:

    all_reduce          params 1, gradient 1, moments 2
    parameter_server    params 1, gradient 1, moments 2 / n      (ZeRO-1)
    fsdp                params, gradient, moments 4 / n; weights that are gathered 1
      reshard           of which two leaves at a time, at most
      secondary         as reshard, and a copy of a host's slice, as it travelled
      difference        and what all workers have of the weights: 1

Bytes are those of `relaxjax.fsdp.sent_bytes`: gathers before the weights are used, and
the scatter after the backward pass. With overlap a gather runs ahead of the layers that
need it, and holds up nothing but the link.

Cost: the closed form of each way, twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from relaxjax import compression, fsdp
from relaxjax.plan._candidate import BUCKET_BYTES, Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._messages import PlannedMessage
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network, require_network
from relaxjax.plan._predict import predict
from relaxjax.plan._quality import quality_of
from relaxjax.plan._rank import allowed_of, check_asked
from relaxjax.plan._ranking import Ranking, Row, ranking
from relaxjax.plan._traffic import Traffic, over_links
from relaxjax.workers import emulate

_WHOLE = ("all_reduce", "parameter_server")
_BLOCKS = {"weights": 2048, "gradients": 128}


class Way(NamedTuple):
    """Arguments of `relaxjax.fsdp.gathered`.

    Attributes:
      weights: bits of gathered weights; 32: as they are.
      gradients: bits of scattered gradients, likewise.
      extra: "", or the argument that is true: "reshard_after_forward", "secondary" or
        "difference".
      why: what it does, in a phrase.
    """

    weights: int = 32
    gradients: int = 32
    extra: str = ""
    why: str = "params, gradients and moments are cut into slices"

    @property
    def bits(self) -> dict[str, int]:
        """Bits of what travels in codes."""
        return {k: v for k, v in self._asdict().items() if k in _BLOCKS and v != 32}

    @property
    def name(self) -> str:
        """Its name in a plan."""
        return "+".join(filter(None, ("fsdp", self.extra.partition("_")[0])))


_RESHARD = "reshard_after_forward"
WAYS = (
    Way(),
    Way(extra=_RESHARD, why="as fsdp, and gathered weights are not kept"),
    Way(8, why="weights travel in 8 bits"),
    Way(8, 4, why="weights travel in 8 bits, gradients in 4"),
    Way(8, 4, _RESHARD, "codes, and gathered weights are not kept"),
    Way(8, 4, "secondary", "codes, and the backward pass gathers inside hosts"),
    Way(4, 4, "difference", "weights travel as 4-bit changes, gradients in 4 bits"),
)


def sharded(
    model: Model,
    network: Network,
    *,
    criterion: str = "fastest",
    quality: str = "equal",
    memory: float | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Ranking:
    """Predicts a step of every way to shard weights and moments, and chooses.

    Experimental: this may change in any release.

    Args:
      model: params and computation.
      network: workers, links, codecs.
      criterion: "fastest", or "fewest_bytes".
      quality: the worst class that may be chosen, see `relaxjax.plan.rank`.
      memory: bytes that a worker has for params, gradient, Adam's moments and gathered
        weights, without activations; None: enough.
      inputs: a record of what was asked, kept with the ranking.

    Returns:
      A ranking of `relaxjax.fsdp` in its forms, and beside them of the all-reduce,
      which shards nothing, and the parameter server, which shards the moments.

    Raises:
      ValueError: see `relaxjax.plan.rank`.

    Example:
      >>> from relaxjax import plan, schedule
      >>> network = plan.Network(workers=8, link=schedule.Link(1e-5, 1.25e10))
      >>> model = plan.Model.of_size(1_000_000_000, compute=0.3)
      >>> plan.sharded(model, network, memory=8e9).choice.label
      'fsdp'
    """
    require_network("sharded", network)
    check_asked(criterion, quality, memory)
    whole = [c for c in candidates(network, _WHOLE) if c.relaxation in _WHOLE]
    held = {"all_reduce": 4.0, "parameter_server": 2.0 + 2.0 / network.workers}
    found = [replace(c, keeps=_kept(held[c.relaxation], model)) for c in whole]
    found += [_candidate(way, model, network) for way in _possible(network)]
    rows = [
        Row(
            candidate=c,
            prediction=predict(c, model, network, BUCKET_BYTES),
            quality=quality_of(c.label),
        )
        for c in found
    ]
    return ranking(rows, criterion, allowed_of(rows, quality, memory), inputs or {})


def _possible(network: Network) -> Iterator[Way]:
    """Ways for these hosts: a second copy inside a host needs a host of several."""
    for way in WAYS:
        if way.extra != "secondary" or 1 < network.hosts < network.workers:
            yield way


def _axes(network: Network) -> dict[str, int]:
    if 1 < network.hosts < network.workers:
        return {"host": network.hosts, "device": network.per_host}
    return {"data": network.workers}


def _candidate(way: Way, model: Model, network: Network) -> Candidate:
    axes = _axes(network)
    codes = [
        f", {k}=relaxjax.compression.quantize({bits}, block_size={_BLOCKS[k]})"
        for k, bits in way.bits.items()
    ]
    value = '"device"' if way.extra == "secondary" else "True"
    extra = f", {way.extra}={value}" if way.extra else ""
    where = '("host", "device")' if len(axes) > 1 else '"data"'
    return Candidate(
        relaxation=way.name,
        options=way.bits,
        messages=lambda model, network, _: _messages(way, model, network),
        tx=f"loss = relaxjax.fsdp.gathered(loss, {where}{''.join(codes)}{extra})\n"
        "shards, opt_state = relaxjax.fsdp.init(optimizer, params, mesh)",
        why=way.why,
        keeps=_kept(_held(way, model, network), model),
        compressor=f"quantize{min(way.bits.values())}" if way.bits else "",
        axes=len(axes),
    )


def _kept(held: float, model: Model) -> float:
    """Floats beyond the four copies of the params that an all-reduce holds."""
    return (held - 4.0) * model.nbytes / (4 * model.size)


def _held(way: Way, model: Model, network: Network) -> float:
    """Floats on a worker for each parameter."""
    n, largest = network.workers, max(x.size for x in model.leaves)
    gathered = 1.0
    if way.extra in (_RESHARD, "secondary"):
        gathered = min(1.0, 2 * largest / model.size)
    if way.extra == "secondary":
        gathered += way.weights / 32 / network.per_host
    return 4.0 / n + gathered + (way.extra == "difference")


def _messages(way: Way, model: Model, network: Network) -> list[PlannedMessage]:
    """The gather, that of the backward pass if there is one, and the scatter."""
    axes = _axes(network)
    once = _sent(way, model, axes, extra="")
    again = _sent(way, model, axes, extra=_RESHARD)
    gather = {k: again[k] - once[k] for k in axes}
    scatter = {k: once[k] - gather[k] for k in axes}
    behind = []
    if way.extra == _RESHARD:
        behind = [gather]
    elif way.extra == "secondary":
        behind = [{k: x if k == "device" else 0 for k, x in gather.items()}]
    floats = 4.0 * model.size
    coded = [floats if way.weights != 32 else 0.0] * (1 + len(behind))
    coded.append(floats if way.gradients != 32 else 0.0)
    each = zip([gather, *behind, scatter], coded, strict=True)
    found = [_traffic(sent, axes, network, codes) for sent, codes in each]
    ready = [None] * (1 + len(behind)) + [1.0]
    return [PlannedMessage(at, x) for at, x in zip(ready, found, strict=True)]


def _sent(way: Way, model: Model, axes: dict[str, int], extra: str) -> dict[str, int]:
    """Bytes by axis, with or without a second gather."""
    codes = {
        k: compression.quantize(bits, block_size=_BLOCKS[k])
        for k, bits in way.bits.items()
    }
    loss = fsdp.gathered(
        lambda params: params,
        tuple(axes),
        reshard_after_forward=bool(extra),
        weights=codes.get("weights"),
        gradients=codes.get("gradients"),
    )
    return fsdp.sent_bytes(loss, model.params, emulate(axes)).by_axis


def _traffic(
    sent: dict[str, int], axes: dict[str, int], network: Network, coded: float
) -> Traffic:
    total = float(sum(sent.values()))
    if len(axes) > 1:
        line = float(sent["host"] * network.per_host)
        hops, steps = (n - 1 if sent[k] else 0 for k, n in axes.items())
        return Traffic(total, line, hops, float(sent["device"]), steps, coded)
    around = over_links(network, total, total, network.workers - 1, 0)
    return around._replace(coded=coded)
