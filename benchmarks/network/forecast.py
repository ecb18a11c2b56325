"""The simulator's steps beside those measured, at rates that it was not fitted to.

A step of method m at rate B is simulated as computation c, then one collective of all
gradients: bytes_m over a link of bandwidth share * B, and codec_m seconds for whatever
else the method does (`relaxjax.schedule.simulate`; on CPU nothing overlaps). The share
of the rate that payload gets, one number, and codec_m are fitted to some rates by least
squares of relative errors; c is what steps without communication take.

    tau     Kendall's, of prediction and measurement, among pairs of methods whose
            measured steps are within a factor of two of each other

Cost: nothing is run.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from benchmarks.network.methods import ALONE, DDP, Method
from relaxjax.schedule import Cluster, Cost, Graph, Link, Policy, simulate

_CODEC = 1e9  # bytes per second: a codec's seconds as bytes, whole ones
_NEAR = 2.0

Seconds = Mapping[float, Mapping[str, float]]
"""Seconds of a step, by rate in Mbit/s and label."""


class Fit(NamedTuple):
    """What the simulator is fitted with.

    Attributes:
      share: share of a link's rate that payload gets.
      codec: seconds of one exchange, by label.
    """

    share: float
    codec: dict[str, float]


def fit(seconds: Seconds, stated: Mapping[str, float], rates: Sequence[float]) -> Fit:
    """The share and the codecs that explain the seconds at some rates best.

    Args:
      seconds: measured seconds of a step.
      stated: bytes of a step, by label.
      rates: the rates.
    """
    labels = list(stated)
    rows, waits = [], []
    for rate in rates:
        for place, label in enumerate(labels):
            step = seconds[rate][label]
            row = np.zeros(len(labels) + 1)
            row[0], row[1 + place] = stated[label] / _bandwidth(rate), 1.0
            rows.append(row / step)
            waits.append((step - seconds[rate][ALONE]) / step)
    units = np.linalg.lstsq(np.array(rows), np.array(waits), rcond=None)[0]
    codec = np.maximum(units[1:], 0.0)
    return Fit(1 / units[0], dict(zip(labels, codec.tolist(), strict=True)))


def predicted(
    method: Method, nbytes: float, compute: float, rate: float, known: Fit
) -> float:
    """Simulated seconds of a step.

    Args:
      method: the method.
      nbytes: bytes that it sends in a step, on average over its period.
      compute: seconds of a step without communication.
      rate: Mbit/s of the links.
      known: what `fit` returns.
    """
    every = method.options.get("sync_every", 1)
    codec = round(every * known.codec[method.label] * _CODEC)
    cost = Cost(1, round(every * nbytes), codec)
    graph = Graph({}, {"step": (compute, [])}, {"all": (0.0, ["step"])}, {"all": 1})
    policy = Policy(
        method.label, collective=lambda _: cost, buckets=(("all",),), every=every
    )
    link = Link(0.0, known.share * _bandwidth(rate))
    cluster = Cluster(4, link=link, codec_bandwidth=_CODEC)
    return simulate(graph, policy, cluster, steps=every).seconds / every


def forecast(
    methods: Sequence[Method],
    seconds: Seconds,
    stated: Mapping[str, float],
    fitted: Sequence[float],
) -> dict[str, Any]:
    """Fits to some rates and predicts the others.

    Args:
      methods: the methods.
      seconds: measured seconds of a step, at all rates.
      stated: bytes of a step, by label.
      fitted: rates that are fitted to.

    Returns:
      The fit, each prediction, and by rate the mean relative error and Kendall's tau.
    """
    methods = [m for m in methods if m.label in stated and m.system != DDP]
    sizes = {m.label: stated[m.label] for m in methods if not m.alone}
    known = fit(seconds, sizes, fitted)
    rows, summary = [], {}
    for rate in (r for r in seconds if r not in fitted):
        compute = seconds[rate][ALONE]
        measured = {n: seconds[rate][n] for n in sizes}
        guess = {
            m.label: predicted(m, sizes[m.label], compute, rate, known)
            for m in methods
            if not m.alone
        }
        errors = [abs(guess[n] / measured[n] - 1) for n in measured]
        summary[rate] = {"error": float(np.mean(errors)), "tau": tau(guess, measured)}
        rows += [
            {"rate": rate, "method": n, "measured": measured[n], "predicted": guess[n]}
            for n in measured
        ]
    fits = {"fit": known._asdict(), "told": list(fitted)}
    return {**fits, "rows": rows, "held_out": summary}


def tau(guess: Mapping[str, float], measured: Mapping[str, float]) -> float:
    """Kendall's tau over pairs of labels whose measured seconds are near each other."""
    near = [
        (a, b)
        for a, b in combinations(measured, 2)
        if 1 / _NEAR <= measured[a] / measured[b] <= _NEAR
    ]
    signs = [
        np.sign(guess[a] - guess[b]) * np.sign(measured[a] - measured[b])
        for a, b in near
    ]
    return float(np.mean(signs)) if signs else float("nan")


def _bandwidth(rate: float) -> float:
    """Bytes per second of a rate in Mbit/s."""
    return rate * 1e6 / 8
