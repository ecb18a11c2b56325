"""Candidates that merge contributions by a rule of `relaxjax.merges`.

    all             4 (n - 1) (l + 1) bytes for the lengths of l leaves and a weight
    by lengths      these, then what the candidate sends, of which no bucket leaves
                    earlier; and 8 (n - 1) bytes for the sum of weights, in each factor
                    of a low rank
    by coordinates  two shots in floats or in a dense code
    by distances    the same in one bucket, when all gradients are there, with
                    2 (n - 1) ceil(k^2 / n) floats of a matrix of k = n rows, or n + 1
                    about a center

Rows of n workers lie in memory by coordinates and distances: a model in all. Qualities
remain those of the mean: `docs/merges.md` has what rules cost beside it.

Cost: O(1) for each message.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from relaxjax.merges import Rule, looks_at
from relaxjax.plan._candidate import BUCKET, MERGE, WHOLE, Candidate
from relaxjax.plan._messages import Messages, PlannedMessage, of_models, reduced
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import EXACT, Traffic, one_shot, psum, two_shot
from relaxjax.plan.forms._payload_sizes import compressor_named


def with_rule(rule: Rule, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Those that can merge by it, as they do."""
    for c in candidates:
        if MERGE not in c.tx:
            continue
        messages = c.messages
        if looks_at(rule) != "lengths":
            if not _in_two_shots(c):
                continue
            messages = messages if c.compressor else _in_shots(c)
        at_once = looks_at(rule) == "distances"  # in one bucket, whatever its size
        yield replace(
            c,
            buckets=() if at_once else c.buckets,
            merge=rule,
            messages=_merging(rule, messages, 1 + (c.compressor == "power_sgd")),
            tx=c.tx.replace(MERGE, f", {_keyword(c)}={_source(rule)}").replace(
                BUCKET, "" if at_once else BUCKET
            ),
            keeps=c.keeps + (looks_at(rule) != "lengths"),
            why=f"{c.why}; merged by {rule}, where the quality is that of a mean",
        )


def _in_shots(c: Candidate) -> Messages:
    exact = reduced("two_shot")
    return exact if _keyword(c) == "op" else of_models(exact)


def _keyword(c: Candidate) -> str:
    reduces = "relaxjax.all_reduce(", "relaxjax.compress_matrices("
    return "op" if any(x in c.tx for x in reduces) else "merge"


def _source(rule: Rule) -> str:
    """The expression that makes it."""
    knobs = (
        f"{key}={_source(x) if isinstance(x, Rule) else repr(x)}"
        for key, x in rule.knobs
    )
    return f"relaxjax.merges.{rule.name}({', '.join(knobs)})"


def _in_two_shots(c: Candidate) -> bool:
    """Whether each worker's values are seen at one place: floats, or a dense code."""
    name, _, feedback = c.compressor.partition("+")
    algorithm = c.relaxation.partition("@")[2]
    if not name:
        return not algorithm
    dense = name != "power_sgd" and compressor_named(name).algorithm == "two_shot"
    return dense and not feedback and algorithm in ("", "two_shot")


def _merging(rule: Rule, messages: Messages, means: int) -> Messages:
    """The messages, and those beside them; `means` is how many are taken."""
    waits = looks_at(rule) != "coordinates"

    def merging(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        at_once = looks_at(rule) == "distances"
        usual = messages(model, network, WHOLE if at_once else bucket_bytes)
        first = [
            PlannedMessage(1.0, one) for one in _beside(rule, model, network, means)
        ]
        if not waits:
            return [*usual, *first]
        after = [m._replace(ready=m.ready if m.ready is None else 1.0) for m in usual]
        return [*first, *after]

    return merging


def _beside(rule: Rule, model: Model, network: Network, means: int) -> list[Traffic]:
    """What tells who counts, how long contributions are, or how far apart."""
    lengths = one_shot(len(model.leaves) + 1, network, EXACT)
    if looks_at(rule) == "lengths":
        return [lengths, *[psum(1, network)] * means]
    if looks_at(rule) == "coordinates":
        return [lengths]
    rows = network.workers + (rule.name == "centered_clip")
    inner = rule.numbers.get("rule")
    times = 1 + (inner is not None and looks_at(inner) == "distances")
    return [lengths] + times * [two_shot(rows**2, network, EXACT)]
