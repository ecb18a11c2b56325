"""What can be checked on records: equal budgets, fresh seeds, test data unseen."""

from collections.abc import Iterable, Iterator, Sequence

from relaxjax.compare.kept._settings import (
    Record,
    chosen,
    of_method,
    reported,
    setting_of,
    tuned,
)


def remarks(study: Record, records: Sequence[Record]) -> list[str]:
    """Sentences on what makes a comparison unfair or unfinished.

    Args:
      study: what is in `study.json`.
      records: all runs.

    Returns:
      An empty list for a fair and finished study.
    """
    checks = (_seeds, _unseen_test, _budgets, _others, _edges, _missing, _seconds)
    return [sentence for check in checks for sentence in check(study, records)]


def _seeds(study: Record, records: Sequence[Record]) -> Iterator[str]:
    tuning = {run["seed"] for run in records if run["phase"] == "tune"}
    both = sorted(tuning & set(study["seeds"]))
    if both:
        yield (
            f"Seeds that report were also used for tuning: {_list(both)}. The chosen "
            "setting has seen them, so the differences flatter what was tuned."
        )


def _unseen_test(study: Record, records: Sequence[Record]) -> Iterator[str]:
    seen = [
        run["method"]
        for run in records
        if run["phase"] == "tune" and run.get("test") is not None
    ]
    if seen:
        yield (
            f"Tuning runs of {_list(dict.fromkeys(seen))} have a test metric: test "
            "data were seen while settings were chosen."
        )


def _budgets(study: Record, records: Sequence[Record]) -> Iterator[str]:
    counts = {
        name: sum(map(len, tuned(study, records, name).values()))
        for name in study["methods"]
    }
    if len(set(counts.values())) > 1:
        each = _list(f"{name} {count}" for name, count in counts.items())
        yield f"The methods were tuned with different numbers of runs: {each}."


def _others(study: Record, records: Sequence[Record]) -> Iterator[str]:
    for name in study["methods"]:
        best, runs = chosen(study, records, name), reported(study, records, name)
        odd = {setting_of(run) for run in runs.values()} - {best}
        if best and odd:
            yield (
                f"{name} is reported at {_list(odd)}, although {best} was better in "
                "tuning: its report runs are older than its tuning."
            )


def _edges(study: Record, records: Sequence[Record]) -> Iterator[str]:
    for name in study["methods"]:
        best = chosen(study, records, name)
        rates = {s.learning_rate for s in tuned(study, records, name)}
        if best is None or len(rates) < 2:
            continue
        for end, word in ((min(rates), "smallest"), (max(rates), "largest")):
            if best.learning_rate == end:
                yield (
                    f"The best learning rate of {name} is the {word} that was tried, "
                    f"{end:.3g}: a better one may lie beyond it."
                )


def _missing(study: Record, records: Sequence[Record]) -> Iterator[str]:
    seeds = len(study["seeds"])
    counts = {name: len(reported(study, records, name)) for name in study["methods"]}
    short = [f"{name} {n}" for name, n in counts.items() if n < seeds]
    if short:
        yield f"The study is not finished: of {seeds} report seeds, {_list(short)}."


def _seconds(study: Record, records: Sequence[Record]) -> Iterator[str]:
    known = study.get("seconds", {})
    names = [network["name"] for network in study.get("networks", [])]
    without = [
        method
        for method in study["methods"]
        if of_method(study, records, method, "report")
        and any(known.get(method, {}).get(name) is None for name in names)
    ]
    if without:
        yield f"There is no prediction of seconds for {_list(without)}."


def _list(words: Iterable[object]) -> str:
    return ", ".join(map(str, words))
