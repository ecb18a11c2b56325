"""What can be checked on records: equal budgets, fresh seeds, test data unseen."""

from collections.abc import Iterable, Iterator, Sequence

from relaxjax.compare.kept._settings import Record, StudyRuns, setting_of


def remarks(study: Record, records: Sequence[Record]) -> list[str]:
    """Sentences on what makes a comparison unfair or unfinished.

    Args:
      study: what is in `study.json`.
      records: all runs.

    Returns:
      An empty list for a fair and finished study.
    """
    checks = (_seeds, _unseen_test, _budgets, _others, _edges, _missing, _seconds)
    runs = StudyRuns(study, records)
    return [sentence for check in checks for sentence in check(runs)]


def _seeds(runs: StudyRuns) -> Iterator[str]:
    tuning = {run["seed"] for run in runs.records if run["phase"] == "tune"}
    both = sorted(tuning & set(runs.study["seeds"]))
    if both:
        yield (
            f"Seeds that report were also used for tuning: {_list(both)}. The chosen "
            "setting has seen them, so the differences flatter what was tuned."
        )


def _unseen_test(runs: StudyRuns) -> Iterator[str]:
    seen = [
        run["method"]
        for run in runs.records
        if run["phase"] == "tune" and run.get("test") is not None
    ]
    if seen:
        yield (
            f"Tuning runs of {_list(dict.fromkeys(seen))} have a test metric: test "
            "data were seen while settings were chosen."
        )


def _budgets(runs: StudyRuns) -> Iterator[str]:
    counts = {name: runs.count_tuned(name) for name in runs.study["methods"]}
    if len(set(counts.values())) > 1:
        each = _list(f"{name} {count}" for name, count in counts.items())
        yield f"The methods were tuned with different numbers of runs: {each}."


def _others(runs: StudyRuns) -> Iterator[str]:
    for name in runs.study["methods"]:
        best, report = runs.chosen(name), runs.reported(name)
        odd = {setting_of(run) for run in report.values()} - {best}
        if best and odd:
            yield (
                f"{name} is reported at {_list(odd)}, although {best} was better in "
                "tuning: its report runs are older than its tuning."
            )


def _edges(runs: StudyRuns) -> Iterator[str]:
    for name in runs.study["methods"]:
        best = runs.chosen(name)
        rates = {s.learning_rate for s in runs.tuned(name)}
        if best is None or len(rates) < 2:
            continue
        for end, word in ((min(rates), "smallest"), (max(rates), "largest")):
            if best.learning_rate == end:
                yield (
                    f"The best learning rate of {name} is the {word} that was tried, "
                    f"{end:.3g}: a better one may lie beyond it."
                )


def _missing(runs: StudyRuns) -> Iterator[str]:
    seeds = len(runs.study["seeds"])
    counts = {name: len(runs.reported(name)) for name in runs.study["methods"]}
    short = [f"{name} {n}" for name, n in counts.items() if n < seeds]
    if short:
        yield f"The study is not finished: of {seeds} report seeds, {_list(short)}."


def _seconds(runs: StudyRuns) -> Iterator[str]:
    known = runs.study.get("seconds", {})
    names = [network["name"] for network in runs.study.get("networks", [])]
    without = [
        method
        for method in runs.study["methods"]
        if runs.of(method, "report")
        and any(known.get(method, {}).get(name) is None for name in names)
    ]
    if without:
        yield f"There is no prediction of seconds for {_list(without)}."


def _list(words: Iterable[object]) -> str:
    return ", ".join(map(str, words))
