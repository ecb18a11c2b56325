"""Which relaxation, for this model and this network: all that there are, and a choice.

Each is predicted with the bucket size that is best for it; those that fit are ranked
(`relaxjax.plan._ranking`).

Cost: a trace of each relaxation that has no form of its own, for each shape of a leaf.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax.merges import Rule, require_rule
from relaxjax.periods import Period
from relaxjax.plan._candidate import BUCKET_BYTES, WHOLE, Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network, require_network
from relaxjax.plan._on_schedule import mean_period, on_schedule
from relaxjax.plan._predict import Prediction, predict
from relaxjax.plan._quality import CLASSES, quality_of
from relaxjax.plan._ranking import Ranking, Row, ranking
from relaxjax.plan._with_rule import with_rule

CRITERIA = ("fastest", "fewest_bytes")
_SMALLER, _LARGER = 2**20, (64 * 2**20, 512 * 2**20)  # bytes of a bucket
_GAIN = 0.01  # for less, a bucket size of its own is not worth stating


def rank(
    model: Model,
    network: Network,
    *,
    criterion: str = "fastest",
    quality: str = "equal",
    memory: float | None = None,
    bucket_bytes: int | Sequence[int] | None = None,
    axes: int | None = None,
    merge: Rule | None = None,
    sync_every: Period | None = None,
    steps: int | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Ranking:
    """Predicts a step of every relaxation, and chooses.

    Args:
      model: params and computation.
      network: workers, links, codecs.
      criterion: "fastest", or "fewest_bytes".
      quality: the worst class that may be chosen: "exact", "equal", "close", "lossy"
        or "unmeasured" (see `relaxjax.plan.quality_of`); all are ranked.
      memory: bytes that a worker has for params, gradient, Adam's moments and what the
        relaxation keeps; None: enough.
      bucket_bytes: bytes of a bucket; of several sizes, each relaxation takes its best.
        None: from 1 MiB to a single bucket, where messages are not hidden anyway.
      axes: number of the workers' axes: 1, or 2 for hosts and the workers of each;
        None: the number that each relaxation needs.
      merge: a rule of `relaxjax.merges`: those are ranked that can merge by it, with
        what it sends besides. Qualities remain those of the mean.
      sync_every: when models meet, in relaxations that have it: a number of steps, or
        a schedule of `relaxjax.periods`. None: every 8 and every 50 steps are ranked.
      steps: the length of the run, of which a schedule's costs are means.
      inputs: a record of what was asked, kept with the ranking.

    Raises:
      TypeError: `merge` is not such a rule.
      ValueError: the criterion or class is unknown; nothing is allowed (the message
        names what comes closest); a schedule without `steps`, or that never meets.

    Example:
      >>> from relaxjax import plan, schedule
      >>> network = plan.Network(workers=8, link=schedule.Link(1e-5, 1.25e10))
      >>> model = plan.Model.of_size(25_000_000, compute=0.3)
      >>> plan.rank(model, network).choice.label
      'all_reduce'
    """
    require_network("rank", network)
    check_asked(criterion, quality, memory)
    if merge is not None:
        require_rule("rank", "merge", merge)

    mean = None if sync_every is None else mean_period("rank", sync_every, steps)

    def fitting() -> list[Candidate]:
        found = candidates(network)
        if sync_every is not None and mean is not None:
            found = on_schedule(sync_every, mean, found)
        found = found if merge is None else with_rule(merge, found)
        return [c for c in found if c.fits_axes(axes) and c.fits(model)]

    rows = []
    alike = network.workers, network.per_host, axes, merge, sync_every, mean
    for candidate in model.once(alike, fitting):
        best = best_bucket(candidate, model, network, bucket_bytes)
        known = quality_of(candidate.label)
        rows.append(Row(candidate=candidate, prediction=best, quality=known))
    return ranking(rows, criterion, allowed_of(rows, quality, memory), inputs or {})


def check_asked(criterion: str, quality: str, memory: float | None) -> None:
    """Refuses what a choice cannot be made by.

    Raises:
      ValueError: an unknown criterion or class, or no memory.
    """
    _check_choice("criterion", criterion, CRITERIA)
    _check_choice("quality", quality, CLASSES)
    if memory is not None and not memory > 0:
        raise ValueError(f"memory={memory!r} must be a number of bytes, more than 0")


def allowed_of(rows: Sequence[Row], quality: str, memory: float | None) -> list[str]:
    """Labels of the rows that may be chosen.

    Raises:
      ValueError: no row may be; the message names what comes closest.
    """
    fits = [r for r in rows if memory is None or r.prediction.memory <= memory]
    worst = CLASSES.index(quality)
    allowed = [r.label for r in fits if r.quality.rank <= worst]
    if not allowed:
        raise _no_choice(rows, quality, memory)
    return allowed


def best_bucket(
    candidate: Candidate,
    model: Model,
    network: Network,
    bucket_bytes: int | Sequence[int] | None,
) -> Prediction:
    """The prediction with the best size of a bucket.

    Searched are smaller ones where a single bucket is worse than the default, else
    larger ones; and none where messages are hidden, or little is gained.
    """

    def tried(*sizes: int) -> list[Prediction]:
        return [predict(candidate, model, network, size) for size in sizes]

    if bucket_bytes is not None:
        sizes = [bucket_bytes] if isinstance(bucket_bytes, int) else bucket_bytes
        asked = [min(check_bucket_bytes(size), WHOLE) for size in sizes]
        return min(tried(*asked), key=_seconds)
    (usual,) = each = tried(BUCKET_BYTES)
    whole = min(model.nbytes, WHOLE)
    slow = usual.seconds > model.compute * (1 + _GAIN) and whole > _SMALLER
    if slow and candidate.buckets:
        each += tried(*[whole] * (whole > BUCKET_BYTES))
        if each[-1].seconds < usual.seconds:
            each += tried(*(x for x in _LARGER if x < whole))
        elif "smaller" in candidate.buckets:
            each += tried(_SMALLER)
    best = min(each, key=_seconds)
    return best if best.seconds < usual.seconds * (1 - _GAIN) else usual


def _seconds(prediction: Prediction) -> float:
    return prediction.seconds


def _no_choice(rows: Sequence[Row], quality: str, memory: float | None) -> ValueError:
    """The error that nothing is allowed, with what comes closest."""
    good = [r for r in rows if r.quality.rank <= CLASSES.index(quality)]
    least = min(good or rows, key=lambda r: r.prediction.memory)
    return ValueError(
        f"no relaxation of quality {quality!r} or better fits into memory={memory:.4g} "
        f"bytes: closest is {least.label} with {least.prediction.memory:.4g} bytes "
        "(params, gradient, Adam's moments, and what it keeps). Shard the model over "
        "more devices, or allow more"
    )


def _check_choice(name: str, value: str, valid: Sequence[str]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(valid)}")
