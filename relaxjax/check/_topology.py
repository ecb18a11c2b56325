"""The laws of a topology: matrices that keep the mean, and workers that meet.

W >= 0,  rows sum to 1 (equal values stay),  columns sum to 1 (the mean stays)
|lambda_2| < 1 over a period (all hear of all)
messages: permutations that together carry W, and gossip that does what W says
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import optax

from relaxjax.check._run import flat, moments
from relaxjax.check._verdict import (
    Counterexample,
    Verdict,
    refuted,
    spelled,
    verdict_of,
)
from relaxjax.decentralized import gossip
from relaxjax.topology import Topology
from relaxjax.workers import emulate

CLAIMS = ("rows", "columns")
COUNTS = (2, 3, 4, 5, 8)
WORKERS = 8  # that a topology must be there for
_TOLERANCE = 1e-6


def topology_laws(
    make: Callable[[int], Topology],
    *,
    claims: Collection[str] = CLAIMS,
    counts: Sequence[int] = COUNTS,
) -> tuple[Verdict, ...]:
    """Holds a topology to what it claims, for several numbers of workers.

    Args:
      make: from a number of workers to their topology. It may refuse some numbers by a
        ValueError, but not 8.
      claims: of `CLAIMS`: whose sums are 1.
      counts: numbers of workers, the smallest first: so are counterexamples.

    Returns:
      A verdict for each law.

    Example:
      >>> from relaxjax import topology
      >>> from relaxjax.check import topology_laws
      >>> all(law.holds in (True, None) for law in topology_laws(topology.ring))
      True
    """
    made: list[Topology] = []
    first = verdict_of("for every number of workers", lambda: _made(make, counts, made))
    if first.holds is False:
        return (first,)
    laws: dict[str, Callable[[], Verdict]] = {
        "weights": lambda: _weights(made),
        "rows sum to 1": lambda: _sums(made, "row", "rows" in claims),
        "columns sum to 1": lambda: _sums(made, "column", "columns" in claims),
        "all hear of all": lambda: _gap(made),
        "messages": lambda: _messages(made),
        "gossip is W": lambda: _gossiped(made, claims),
    }
    return (first, *(verdict_of(name, check) for name, check in laws.items()))


def _made(
    make: Callable[[int], Topology], counts: Sequence[int], made: list[Topology]
) -> Verdict:
    law, without = "for every number of workers", []
    for n in counts:
        try:
            graph = make(n)
        except ValueError as error:
            if n == WORKERS:
                case = Counterexample({"workers": n}, "a topology", str(error))
                return refuted(law, "it was refused", case)
            without.append(n)
            continue
        shape = (graph.period, n, n)
        if graph.matrices.shape != shape or not graph.period:
            case = Counterexample(
                {"workers": n}, f"matrices {shape}", f"{graph.matrices.shape}"
            )
            return refuted(law, "another shape", case)
        made.append(graph)
    found = f"{', '.join(str(g.n) for g in made)} workers"
    refused = f"; refuses {', '.join(map(str, without))}" if without else ""
    return Verdict(law, None if without else True, found + refused)


def _weights(made: Sequence[Topology]) -> Verdict:
    for graph in made:
        bad = ~(np.isfinite(graph.matrices) & (graph.matrices >= 0))
        if bad.any():
            step, i, j = map(int, np.argwhere(bad)[0])
            where = {"workers": graph.n, "round": step, "row": i, "column": j}
            seen = f"{graph.matrices[step, i, j]:.6g}"
            case = Counterexample(where, "finite and 0 or more", seen)
            return refuted("weights", "a weight that is none", case)
    return Verdict("weights", True, "finite and 0 or more")


def _sums(made: Sequence[Topology], kind: str, claimed: bool) -> Verdict:
    law, axis = f"{kind}s sum to 1", 2 if kind == "row" else 1
    for graph in made:
        sums = graph.matrices.sum(axis=axis)
        wrong = np.argwhere(np.abs(sums - 1) > _TOLERANCE)
        if wrong.size:
            step, place = map(int, wrong[0])
            where = {"workers": graph.n, "round": step, kind: place}
            w = graph.matrices[step]
            weights = w[place] if kind == "row" else w[:, place]
            seen = f"{sums[step, place]:.6g}, of {spelled(weights)}"
            case = Counterexample(where, "1", seen)
            if claimed:
                return refuted(law, "they do not", case)
            return Verdict(law, None, f"not claimed: {case}")
    return Verdict(law, True if claimed else None, "in every round")


def _gap(made: Sequence[Topology]) -> Verdict:
    law = "all hear of all"
    for graph in made:
        if graph.spectral_gap() > 1e-9:
            continue
        reached = np.eye(graph.n, dtype=bool)
        for _ in range(graph.n):
            for w in graph.matrices:
                reached = (w > 0) @ reached
        apart = np.argwhere(~reached)
        case = Counterexample(
            {"workers": graph.n, "period": graph.period},
            "a spectral gap above 0",
            f"{graph.spectral_gap():.4g}"
            + (
                f": worker {apart[0][0]} never hears of {apart[0][1]}"
                if apart.size
                else ": values go around and are never mixed"
            ),
        )
        return refuted(law, "no agreement", case)
    last = made[-1]
    found = (
        f"gap {last.spectral_gap():.4g} in a period of {last.period}, {last.n} workers"
    )
    return Verdict(law, True, found)


def _messages(made: Sequence[Topology]) -> Verdict:
    law = "messages"
    for graph in made:
        for step, w in enumerate(graph.matrices):
            carried = np.diag(np.diag(w))
            for message in graph.messages(step):
                sources, targets = zip(*message.pairs, strict=True)
                if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
                    case = Counterexample(
                        {"workers": graph.n, "round": step},
                        "one message from and to each",
                        str(message.pairs),
                    )
                    return refuted(law, "no permutation", case)
                carried[list(targets), list(sources)] += message.weights[list(targets)]
            if np.abs(carried - w).max() > _TOLERANCE:
                i, j = map(int, np.argwhere(np.abs(carried - w) > _TOLERANCE)[0])
                case = Counterexample(
                    {"workers": graph.n, "round": step, "row": i, "column": j},
                    f"{w[i, j]:.6g}",
                    f"{carried[i, j]:.6g}",
                )
                return refuted(law, "they do not carry W", case)
    last = made[-1]
    return Verdict(law, True, f"{last.degree} a round at most, {last.n} workers")


def _gossiped(made: Sequence[Topology], claims: Collection[str]) -> Verdict:
    """Gossip of unlike models, against products of matrices in numpy."""
    law, graph = "gossip is W", made[-1]
    if "rows" not in claims:
        return Verdict(law, None, "push-sum's graphs are not gossiped over")
    n, steps = graph.n, min(4, 2 * graph.period)
    x0 = np.random.default_rng(2).normal(size=(n, 5))
    tx = optax.chain(optax.sgd(1.0), gossip("data", graph))
    given = [{"x": np.float32(-x0 if step == 0 else 0 * x0)} for step in range(steps)]
    x = x0
    for step, now in enumerate(
        moments(tx, given, emulate(n), {"x": np.zeros(5, np.float32)})
    ):
        x = graph.matrix(step) @ x
        off = np.abs(flat(now.params) - x)
        if off.max() > 1e-5:
            worker, element = map(int, np.unravel_index(off.argmax(), off.shape))
            where = {"workers": n, "seed": 2, "step": step, "worker": worker}
            seen = f"{flat(now.params)[worker, element]:.6g}"
            case = Counterexample(where, f"{x[worker, element]:.6g}", seen)
            return refuted(law, "another mean", case)
    return Verdict(law, True, f"over {steps} steps, {n} workers")
