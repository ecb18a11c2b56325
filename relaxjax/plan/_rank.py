"""Which relaxation, for this model and this network: a ranking, and a choice.

The choice is the fastest of those that are allowed (by quality and memory), or the one
that sends least. Plain all-reduce is preferred where nothing allowed is faster by more
than a margin: what changes nothing needs no trust.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax.plan._candidate import BUCKET_BYTES, Candidate, sized
from relaxjax.plan._candidates import candidates
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._predict import Prediction, predict
from relaxjax.plan._quality import CLASSES, Quality, quality_of

PLAIN = "all_reduce"
BY_COMPILER = "jax.jit of a batch with NamedSharding"
"""The same bytes, time and update as plain all-reduce's, without relaxjax."""
MARGIN = 0.03
CRITERIA = ("fastest", "fewest_bytes")
_SMALLER, _LARGER = 2**20, (64 * 2**20, 512 * 2**20)  # bytes of a bucket
_GAIN = 0.01  # for less, a bucket size of its own is not worth stating


@dataclass(frozen=True, kw_only=True)
class Row:
    """A relaxation and what is expected of it.

    Attributes:
      candidate: the relaxation.
      prediction: its time, bytes and memory.
      quality: how well it trains.
      measured: seconds of a step, if it was run.
    """

    candidate: Candidate
    prediction: Prediction
    quality: Quality
    measured: float | None = None

    @property
    def label(self) -> str:
        """Name and options."""
        return self.candidate.label

    @property
    def seconds(self) -> float:
        """Seconds of a step: measured, or else predicted."""
        return self.prediction.seconds if self.measured is None else self.measured

    @property
    def tx(self) -> str:
        """The line of code that makes it."""
        return sized(self.candidate.tx, self.prediction.bucket_bytes)

    def told(self) -> dict[str, Any]:
        """The row as JSON has it."""
        p = self.prediction
        return {
            "relaxation": self.candidate.relaxation,
            "options": dict(self.candidate.options),
            "step_ms": 1e3 * p.seconds,
            "measured_ms": None if self.measured is None else 1e3 * self.measured,
            "bytes_per_step": p.nbytes,
            "communication_ms": 1e3 * p.messages,
            "memory_bytes": p.memory,
            "bucket_bytes": p.bucket_bytes,
            "quality": self.quality.name,
            "evidence": self.quality.evidence,
            "why": self.candidate.why,
            "tx": self.tx,
        }


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """All relaxations, fastest first, and the one to take.

    Attributes:
      rows: fastest first.
      choice: the one to take.
      verdict: why it is chosen, in a sentence.
      allowed: labels of those that may be chosen, by quality and memory.
      criterion: what the choice was made by.
      inputs: what was asked, for the record.
    """

    rows: tuple[Row, ...]
    choice: Row
    verdict: str
    allowed: tuple[str, ...]
    criterion: str = "fastest"
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """The ranking as JSON has it."""
        return {
            "inputs": dict(self.inputs),
            "choice": self.choice.told(),
            "verdict": self.verdict,
            "ranking": [row.told() for row in self.rows],
        }

    def save(self, path: str | Path) -> None:
        """Writes the ranking to a JSON file."""
        Path(path).write_text(json.dumps(self.told(), indent=1) + "\n")


def rank(
    model: Model,
    network: Network,
    *,
    criterion: str = "fastest",
    quality: str = "equal",
    memory: float | None = None,
    bucket_bytes: int | Sequence[int] | None = None,
    axes: int | None = None,
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
      inputs: a record of what was asked, kept with the ranking.

    Raises:
      ValueError: the criterion or class is unknown; nothing is allowed (the message
        names what comes closest).

    Example:
      >>> from relaxjax import plan, schedule
      >>> network = plan.Network(workers=8, link=schedule.Link(1e-5, 1.25e10))
      >>> model = plan.Model.of_size(25_000_000, compute=0.3)
      >>> plan.rank(model, network).choice.label
      'all_reduce'
    """
    check_asked(criterion, quality, memory)
    rows = []
    for candidate in candidates(network):
        if not (candidate.fits_axes(axes) and candidate.fits(model)):
            continue
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
        return min(tried(*map(check_bucket_bytes, sizes)), key=_seconds)
    (usual,) = each = tried(BUCKET_BYTES)
    whole = 4 * model.size
    if usual.seconds > model.compute * (1 + _GAIN) and whole > BUCKET_BYTES:
        each += tried(whole)
        larger = each[1].seconds < usual.seconds
        each += tried(*(x for x in _LARGER if x < whole)) if larger else tried(_SMALLER)
    best = min(each, key=_seconds)
    return best if best.seconds < usual.seconds * (1 - _GAIN) else usual


def _seconds(prediction: Prediction) -> float:
    return prediction.seconds


def ranking(
    rows: Sequence[Row],
    criterion: str,
    allowed: Sequence[str],
    inputs: Mapping[str, Any],
) -> Ranking:
    """Sorts rows, and chooses among those whose labels are allowed."""
    ordered = tuple(sorted(rows, key=_fastest))
    may = [row for row in ordered if row.label in allowed]
    best = min(may, key=_fastest if criterion == "fastest" else _least)
    plain = next((r for r in may if r.label == PLAIN), None)
    choice, verdict = best, _pays(best, plain)
    fast_enough = best.seconds * (1 + MARGIN)
    if criterion == "fastest" and plain and plain.seconds <= fast_enough:
        choice, verdict = plain, _plain_is_best(plain, best)
    return Ranking(
        rows=ordered,
        choice=choice,
        verdict=verdict,
        allowed=tuple(allowed),
        criterion=criterion,
        inputs=inputs,
    )


def _fastest(row: Row) -> tuple[float, int, float]:
    return row.seconds, row.quality.rank, row.prediction.nbytes


def _least(row: Row) -> tuple[float, float]:
    return row.prediction.nbytes, row.seconds


def _plain_is_best(plain: Row, best: Row) -> str:
    share = plain.seconds / best.seconds - 1
    rest = "nothing that is allowed is faster"
    if share > 0:
        rest = f"{best.label} would save {share:.1%}, under the margin of {MARGIN:.0%}"
    return f"Plain all-reduce is best here, or {BY_COMPILER}: {rest}."


def _pays(best: Row, plain: Row | None) -> str:
    if plain is None:
        return f"{best.label}: {best.candidate.why}."
    faster = plain.seconds / best.seconds
    fewer = plain.prediction.nbytes / max(best.prediction.nbytes, 1)
    less = f", and sends {fewer:.3g}x less" if fewer > 1.5 else ""
    return (
        f"{best.label} takes {1e3 * best.seconds:.4g} ms where plain all-reduce takes "
        f"{1e3 * plain.seconds:.4g} ({faster:.2f}x){less}: {best.candidate.why}."
    )


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
