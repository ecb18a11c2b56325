"""Relaxations in order of what is expected of them, and the one to take.

The choice is the fastest of those that are allowed (by quality and memory), or the one
that sends least. Plain all-reduce is preferred where nothing allowed is faster by more
than a margin: what changes nothing needs no trust.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxjax._core.foreign._folders import local_path, write_whole
from relaxjax._core.foreign._html import paragraphs, table
from relaxjax.plan._candidate import Candidate, sized
from relaxjax.plan._predict import Prediction
from relaxjax.plan._quality import Quality

PLAIN = "all_reduce"
BY_COMPILER = "jax.jit of a batch with NamedSharding"
"""The same bytes, time and update as plain all-reduce's, without relaxjax."""
MARGIN = 0.03


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
            "merge": self.candidate.merge and self.candidate.merge.record(),
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

    def _repr_html_(self) -> str:
        """The verdict, its line, and a table for a notebook."""
        rows = [
            (
                row.label,
                f"{1e3 * row.seconds:.4g}",
                f"{row.prediction.nbytes:,.0f}",
                row.quality.name,
                row.candidate.why,
            )
            for row in self.rows
        ]
        heads = ("relaxation", "ms a step", "bytes a step", "quality", "what it does")
        found = table(heads, rows, bold=self.rows.index(self.choice))
        return paragraphs([self.verdict, self.choice.tx]) + found

    def save(self, path: str | Path) -> None:
        """Writes the ranking to a JSON file."""
        text = json.dumps(self.told(), indent=1) + "\n"
        write_whole(local_path("save", "path", path), text)


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
    exact = "" if plain.candidate.merge else f", or {BY_COMPILER}"
    return f"Plain all-reduce is best here{exact}: {rest}."


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
