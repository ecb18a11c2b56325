"""Numbers and findings of a study in words, the same in every kind of report."""

from collections.abc import Iterator, Sequence

from relaxjax._core.foreign._words import fixed
from relaxjax.compare.kept._settings import StudyRuns, setting_of
from relaxjax.compare.kept._summary import Row, Summary
from relaxjax.compare.kept._verdicts import ALIKE, BETTER, NONE, WORSE

UNKNOWN, NOT_REACHED = "-", "not reached"


def scaled(value: float | None, unit: str) -> str:
    """Three digits and a unit of the SI, as in `183 kB`; minutes and hours for seconds.

    Example:
      >>> from relaxjax.compare.page._words import scaled
      >>> scaled(182_896, "B"), scaled(0.0123, "s"), scaled(5400, "s"), scaled(None, "")
      ('183 kB', '12.3 ms', '1.5 h', '-')
    """
    if value is None:
        return UNKNOWN
    if unit == "s" and value >= 120:
        return f"{value / 60:.3g} min" if value < 5400 else f"{value / 3600:,.3g} h"
    signs = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m")]
    scale, sign = next((s for s in signs if value >= 0.9995 * s[0]), (1e-6, "\u00b5"))
    if value == 0 or (unit == "B" and scale < 1):
        return f"{value:.3g} {unit}"
    return f"{value / scale:.{3 if value / scale < 999.5 else 4}g} {sign}{unit}"


def metric(value: float | None) -> str:
    """Four decimals, or four digits of what is larger, or two of what is smaller."""
    if value is None:
        return UNKNOWN
    return fixed(value, 4) if abs(value) < 100 else f"{value:,.4g}"


def mean_and_spread(row: Row) -> str:
    """The test metric, as in `0.9664 \u00b1 0.0021`, and how many runs diverged."""
    lost = sum(value is None for value in row.test.values())
    if row.mean is None:
        return f"diverged ({lost} of {len(row.test)})" if lost else UNKNOWN
    spread = "" if row.spread is None else f" \u00b1 {metric(row.spread)}"
    return metric(row.mean) + spread


def difference(row: Row) -> str:
    """The paired difference and its interval, as in `-0.0103 [-0.0150, -0.0056]`."""
    found = row.verdict.difference if row.verdict else None
    if found is None:
        return UNKNOWN
    mean = _signed(found.mean)
    if found.low is None or found.high is None:
        return mean
    return f"{mean} [{_signed(found.low)}, {_signed(found.high)}]"


def _signed(value: float) -> str:
    return f"{value:+.4f}" if abs(value) < 100 else f"{value:+,.4g}"


def verdict(row: Row) -> str:
    """The word, and its reason where the interval is not the reason."""
    if row.verdict is None:
        return "baseline"
    word, because = row.verdict.word, row.verdict.because
    return f"{word}: {because}" if because else word


def steps_to_target(row: Row) -> str:
    """The median over the seeds, and how many reach the target if some do not."""
    runs = len(row.test)
    if not runs:
        return UNKNOWN
    steps = row.steps_to_target
    word = NOT_REACHED if steps is None else f"{steps:,.0f}"
    return word if row.reached in (0, runs) else f"{word} ({row.reached} of {runs})"


def reached(row: Row, value: float | None, unit: str) -> str:
    """An amount until the target, or that it is not reached."""
    if value is None and row.test and row.steps_to_target is None:
        return NOT_REACHED
    return scaled(value, unit)


def conclusion(summary: Summary) -> list[str]:
    """What the study found, in a few sentences."""
    seeds = len(summary.study["seeds"])
    found = []
    for word in (BETTER, ALIKE, WORSE, NONE):
        names = [r.method for r in summary.rows if r.verdict and r.verdict.word == word]
        if names:
            found.append(f"{word.capitalize()}: {', '.join(names)}.")
    sentences = [
        f"Test {summary.metric_name} against {summary.baseline}, seed by seed ({seeds} "
        f"seed{'s' * (seeds != 1)}). {' '.join(found)}".rstrip()
    ]
    standing = [row for row in summary.rows if row.stands]
    reach = [row for row in standing if row.bytes_to_target is not None]
    if len(reach) > 1:
        best = min(reach, key=lambda row: row.bytes_to_target or 0)
        sentences.append(
            f"{best.method} reaches the target with the fewest bytes: "
            f"{scaled(best.bytes_to_target, 'B')}."
        )
    return [*sentences, *_fastest(summary)]


def _fastest(summary: Summary) -> Iterator[str]:
    for network in summary.study.get("networks", []):
        name = network["name"]
        known = [
            (seconds, row.method)
            for row in summary.rows
            if row.stands and (seconds := row.seconds_to_target.get(name)) is not None
        ]
        if known:
            seconds, method = min(known)
            yield (
                f"On {name}, {method} is predicted to reach the target first, "
                f"after {scaled(seconds, 's')}."
            )


def times(value: float | None) -> str:
    """A factor, as in `32x`."""
    if value is None:
        return UNKNOWN
    return f"{value:.2g}x" if value < 99.5 else f"{value:,.0f}x"


def reading(summary: Summary) -> list[str]:
    """How the numbers were made: what is measured, counted and predicted."""
    study = summary.study
    name = summary.metric_name
    chosen = "stated by the study"
    if study.get("target") is None:
        chosen = f"the final one of {summary.baseline}, 2 % worse"
    target = "There is no target, because the baseline has no finite final metric."
    if summary.target is not None:
        target = (
            f"The target is a validation {name} of {metric(summary.target)} "
            f"({chosen}). It counts as reached when the running best reaches it, on a "
            "straight line between two evaluations; the table has the median over the "
            "seeds."
        )
    return [
        f"Measured: the {name}, of which {summary.better} is better. Tuning and the "
        f"curves see validation data, the table shows test data. "
        f"Validation data: {study['task']['split_note'].rstrip('.')}.",
        "Tests are paired t over the seeds, corrected by Holm for the number of "
        "methods. An interval is drawn at the level at which its method was judged, at "
        "least 95 %, and excludes zero exactly if the word is better or worse. A "
        "method with a diverged run is worse. The spread is the standard deviation "
        "over the seeds. Not distinguishable is not equal: the interval says how far "
        "apart the two may be.",
        target,
        "Counted from the program: the bytes that the busiest worker sends in a step, "
        "averaged over a period.",
        _predicted(summary),
    ]


def _predicted(summary: Summary) -> str:
    """Where the seconds come from."""
    study = summary.study
    compute = scaled(study.get("compute_seconds"), "s")
    sources = study.get("seconds_source", {})
    traced = ", ".join(name for name, source in sources.items() if source != "plan")
    other = (
        f"; those of {traced}, from traced bytes and rounds of messages"
        if traced
        else ""
    )
    return (
        f"Predicted: seconds. They follow from a computation of {compute} a step "
        f"({study.get('compute_source', 'of unknown source')}), the counted messages, "
        f"and the stated latency and bandwidth of each network{other}."
    )


def tuning(summary: Summary, records: Sequence[dict]) -> str:
    """The budget of tuning, and the rates that were tried."""
    found = StudyRuns(summary.study, records)
    runs = {row.tuning_runs for row in summary.rows}
    rates = {
        setting_of(run).learning_rate
        for row in summary.rows
        for several in found.tuned(row.method).values()
        for run in several
    }
    if not rates:
        return "none"
    count = " to ".join(map(str, sorted({min(runs), max(runs)})))
    tried = ", ".join(f"{rate:.3g}" for rate in sorted(rates))
    return f"{count} runs for each method; learning rates {tried}"
