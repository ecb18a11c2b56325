"""The laws of a topology: matrices that keep the mean, and workers that meet.

W >= 0,  rows sum to 1 (equal values stay),  columns sum to 1 (the mean stays)
|lambda_2| < 1 over a period (all hear of all)
messages: permutations that together carry W, and gossip that does what W says
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import optax

from relaxjax.check._run import flat, moments
from relaxjax.check._subjects import CLAIMS, require_claims
from relaxjax.check._verdict import (
    Verdict,
    farthest,
    refuted,
    spelled,
    unclaimed,
    verdict_of,
)
from relaxjax.decentralized import gossip
from relaxjax.topology import Topology
from relaxjax.workers import emulate

COUNTS = (2, 3, 4, 5, 8)
WORKERS = 8  # the number of workers that every topology must support
_TOLERANCE = 1e-6


def topology_laws(
    make: Callable[[int], Topology],
    *,
    claims: Collection[str] = CLAIMS["topology"],
    counts: Sequence[int] = COUNTS,
) -> tuple[Verdict, ...]:
    """Checks a topology against what it claims, for several numbers of workers.

    Args:
      make: returns the topology for a number of workers. It may refuse some numbers by
        a ValueError, but not 8.
      claims: some of `CLAIMS["topology"]`: whose sums are 1.
      counts: numbers of workers, the smallest first, so that counterexamples are small.

    Returns:
      A verdict for each law.

    Raises:
      ValueError: `claims` has another word.

    Example:
      >>> from relaxjax import topology
      >>> from relaxjax.check import topology_laws
      >>> all(law.holds in (True, None) for law in topology_laws(topology.ring))
      True
    """
    require_claims("topology_laws: claims", "topology", claims)
    graphs: list[Topology] = []
    law = "for every number of workers"
    first = verdict_of(law, lambda: _for_all(make, counts, graphs))
    if first.holds is False:
        return (first,)
    laws: dict[str, Callable[[], Verdict]] = {
        "weights": lambda: _weights(graphs),
        "rows sum to 1": lambda: _sums(graphs, "row", "rows" in claims),
        "columns sum to 1": lambda: _sums(graphs, "column", "columns" in claims),
        "all hear of all": lambda: _gap(graphs),
        "messages": lambda: _messages(graphs),
        "gossip is W": lambda: _gossip(graphs, claims),
    }
    return (first, *(verdict_of(name, check) for name, check in laws.items()))


def _for_all(
    make: Callable[[int], Topology], counts: Sequence[int], graphs: list[Topology]
) -> Verdict:
    """Fills `graphs`."""
    law, refused = "for every number of workers", []
    for n in counts:
        try:
            graph = make(n)
        except ValueError as error:
            if n == WORKERS:
                where, found = {"workers": n}, "it was refused"
                return refuted(law, found, where, "a topology", str(error))
            refused.append(str(n))
            continue
        shape = (graph.period, n, n)
        if graph.matrices.shape != shape or not graph.period:
            expected, seen = f"matrices {shape}", f"{graph.matrices.shape}"
            return refuted(law, "another shape", {"workers": n}, expected, seen)
        graphs.append(graph)
    found = f"{', '.join(str(g.n) for g in graphs)} workers"
    refusals = f"; refuses {', '.join(refused)}" if refused else ""
    return Verdict(law, None if refused else True, found + refusals)


def _weights(graphs: Sequence[Topology]) -> Verdict:
    expected = "finite and 0 or more"
    for graph in graphs:
        bad = ~(np.isfinite(graph.matrices) & (graph.matrices >= 0))
        if bad.any():
            step, i, j = map(int, np.argwhere(bad)[0])
            where = {"workers": graph.n, "round": step, "row": i, "column": j}
            seen = graph.matrices[step, i, j]
            return refuted("weights", "a bad weight", where, expected, seen)
    return Verdict("weights", True, expected)


def _sums(graphs: Sequence[Topology], kind: str, claimed: bool) -> Verdict:
    law, axis = f"{kind}s sum to 1", 2 if kind == "row" else 1
    for graph in graphs:
        sums = graph.matrices.sum(axis=axis)
        wrong = np.argwhere(np.abs(sums - 1) > _TOLERANCE)
        if wrong.size:
            step, index = map(int, wrong[0])
            where = {"workers": graph.n, "round": step, kind: index}
            w = graph.matrices[step]
            weights = w[index] if kind == "row" else w[:, index]
            seen = f"{sums[step, index]:.6g}, of {spelled(weights)}"
            failed = refuted(law, "they do not", where, "1", seen)
            return failed if claimed else unclaimed(failed, "not claimed")
    return Verdict(law, True if claimed else None, "in every round")


def _gap(graphs: Sequence[Topology]) -> Verdict:
    law = "all hear of all"
    for graph in graphs:
        gap = graph.spectral_gap()
        if gap > 1e-9:
            continue
        reached = np.eye(graph.n, dtype=bool)
        for _ in range(graph.n):
            for w in graph.matrices:
                reached = (w > 0) @ reached
        apart = np.argwhere(~reached)
        why = "values go around and are never mixed"
        if apart.size:
            why = f"worker {apart[0][0]} never hears of {apart[0][1]}"
        where = {"workers": graph.n, "period": graph.period}
        expected, seen = "a spectral gap above 0", f"{gap:.4g}: {why}"
        return refuted(law, "no agreement", where, expected, seen)
    last = graphs[-1]
    period = f"in a period of {last.period}, {last.n} workers"
    return Verdict(law, True, f"gap {last.spectral_gap():.4g} {period}")


def _messages(graphs: Sequence[Topology]) -> Verdict:
    law = "messages"
    for graph in graphs:
        for step, w in enumerate(graph.matrices):
            where = {"workers": graph.n, "round": step}
            carried = np.diag(np.diag(w))
            for message in graph.messages(step):
                sources, targets = zip(*message.pairs, strict=True)
                if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
                    expected, seen = "one message from and to each", str(message.pairs)
                    return refuted(law, "not a permutation", where, expected, seen)
                carried[list(targets), list(sources)] += message.weights[list(targets)]
            if np.abs(carried - w).max() > _TOLERANCE:
                i, j = map(int, np.argwhere(np.abs(carried - w) > _TOLERANCE)[0])
                where |= {"row": i, "column": j}
                found = "they do not carry W"
                return refuted(law, found, where, w[i, j], carried[i, j])
    last = graphs[-1]
    return Verdict(law, True, f"{last.degree} a round at most, {last.n} workers")


def _gossip(graphs: Sequence[Topology], claims: Collection[str]) -> Verdict:
    """Gossip of different models, against products of matrices in numpy."""
    law, graph = "gossip is W", graphs[-1]
    if "rows" not in claims:
        return Verdict(law, None, "push-sum's graphs are not gossiped over")
    n, steps = graph.n, min(4, 2 * graph.period)
    x = np.random.default_rng(2).normal(size=(n, 5))
    tx = optax.chain(optax.sgd(1.0), gossip("data", graph))
    moves = [{"x": np.float32(-x if step == 0 else 0 * x)} for step in range(steps)]
    zeros = {"x": np.zeros(5, np.float32)}
    for step, now in enumerate(moments(tx, moves, emulate(n), zeros)):
        x, params = graph.matrix(step) @ x, flat(now.params)
        (worker, element), off = farthest(params, x)
        if off > 1e-5:
            where = {"workers": n, "seed": 2, "step": step, "worker": worker}
            expected, seen = x[worker, element], params[worker, element]
            return refuted(law, "another mean", where, expected, seen)
    return Verdict(law, True, f"over {steps} steps, {n} workers")
