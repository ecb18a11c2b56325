"""Verdicts in words: each method against the baseline, seed by seed.

The interval of a method is drawn at the level at which Holm's procedure judged it. So
it excludes zero exactly if the verdict that follows from it is "better" or "worse", and
it is never narrower than the usual one of 95 %.
"""

from collections.abc import Mapping
from typing import NamedTuple

from relaxjax.compare.kept._statistics import ALPHA, Difference, holm, levels, paired

LEAST_PAIRS = 3
"""Fewer pairs give no verdict in words."""
BETTER, WORSE, ALIKE, NONE = "better", "worse", "not distinguishable", "no verdict"

Runs = Mapping[int, float | None]
"""The value of each seed's run; None where the run diverged."""


class Verdict(NamedTuple):
    """What the pairs of one method say.

    Attributes:
      word: "better", "worse", "not distinguishable", or "no verdict".
      because: a sentence where the word does not follow from the interval, else "".
      difference: over the seeds at which both runs are finite, at the level at which
        Holm's procedure judged the method; None without such a seed.
      holm_p: p corrected for the number of methods; None where p is.
      pairs: number of seeds that both have, diverged runs among them.
      diverged: number of the method's runs among them that diverged.
    """

    word: str
    because: str
    difference: Difference | None
    holm_p: float | None
    pairs: int
    diverged: int


def verdicts(
    runs: Mapping[str, Runs], baseline: str, *, better: str, alpha: float = ALPHA
) -> dict[str, Verdict]:
    """Judges every method against the baseline, seed by seed.

    A method with a diverged run is worse, whatever its other runs say; where the
    baseline itself diverged there is no verdict.

    Args:
      runs: values by method and seed.
      baseline: the method that the others are compared with.
      better: "higher" or "lower".
      alpha: the chance of one wrong word among all methods.

    Returns:
      A verdict for each method but the baseline.

    Raises:
      ValueError: `better` is another word, or the baseline is not in `runs`.
    """
    if better not in ("higher", "lower"):
        raise ValueError(f'better must be "higher" or "lower": got {better!r}')
    if baseline not in runs:
        raise ValueError(f"the baseline {baseline!r} has no runs: {sorted(runs)}")
    pairs = {
        name: _Pairs.of(runs[name], runs[baseline]) for name in runs if name != baseline
    }
    judged = _judged({name: p for name, p in pairs.items() if p.values}, alpha)
    result = {}
    for name, pair in pairs.items():
        difference, p = judged.get(name, (None, None))
        sure = difference is not None and p is not None and p <= alpha
        up = difference is not None and (difference.mean > 0) == (better == "higher")
        word = (BETTER if up else WORSE) if sure else ALIKE
        special = _special(pair, None if p is None else word)
        word, because = special or (word, "")
        result[name] = Verdict(word, because, difference, p, pair.seeds, pair.lost)
    return result


class _Pairs(NamedTuple):
    """Finite pairs, and what is not finite.

    Attributes:
      values: of the method, where both are finite.
      base: of the baseline, likewise.
      seeds: number of seeds that both have.
      lost: number of the method's runs among them that diverged.
      base_lost: number of the baseline's.
    """

    values: list[float]
    base: list[float]
    seeds: int
    lost: int
    base_lost: int

    @classmethod
    def of(cls, runs: Runs, base: Runs) -> "_Pairs":
        shared = sorted(runs.keys() & base.keys())
        both = [(runs[seed], base[seed]) for seed in shared]
        finite = [(x, y) for x, y in both if x is not None and y is not None]
        lost = sum(x is None for x, _ in both)
        base_lost = sum(y is None for _, y in both)
        values, others = [x for x, _ in finite], [y for _, y in finite]
        return cls(values, others, len(shared), lost, base_lost)


def _judged(
    pairs: Mapping[str, _Pairs], alpha: float
) -> dict[str, tuple[Difference, float | None]]:
    """Differences at the level of Holm's procedure, with p corrected by it."""
    result: dict[str, tuple[Difference, float | None]] = {
        name: (paired(p.values, p.base, alpha=alpha), None) for name, p in pairs.items()
    }
    found = {name: d.p for name, (d, _) in result.items() if d.p is not None}
    p_values = list(found.values())
    both = zip(levels(p_values, alpha=alpha), holm(p_values), strict=True)
    for name, (level, p) in zip(found, both, strict=True):
        one = pairs[name]
        result[name] = paired(one.values, one.base, alpha=level), p
    return result


def _special(pair: _Pairs, word: str | None) -> tuple[str, str] | None:
    """The word, and why, where it does not follow from the interval."""
    if pair.seeds < LEAST_PAIRS:
        needs = f"a verdict needs {LEAST_PAIRS} report seeds; there "
        return NONE, needs + ("is 1" if pair.seeds == 1 else f"are {pair.seeds}")
    if pair.base_lost:
        return NONE, f"the baseline diverged in {pair.base_lost} of {pair.seeds} runs"
    if pair.lost:
        return WORSE, f"{pair.lost} of {pair.seeds} runs diverged"
    if word is None:
        return NONE, "every pair differs by the same amount, so there is no interval"
    return None
