"""The choice over a grid of bandwidths and latencies, as a chart."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relaxjax._core.foreign._extra import extra
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network, require_network
from relaxjax.plan._rank import rank
from relaxjax.schedule import Link

GBPS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LATENCY_MS = (0.005, 0.05, 0.5, 5.0, 50.0)


def choices(
    model: Model,
    network: Network,
    *,
    gbps: Sequence[float] = GBPS,
    latency_ms: Sequence[float] = LATENCY_MS,
    **how: Any,
) -> list[list[str]]:
    """The choice at each latency and bandwidth.

    Args:
      model: params and computation.
      network: the workers; its link between hosts is replaced.
      gbps: bandwidths, Gbit/s.
      latency_ms: latencies, milliseconds.
      **how: further arguments of `rank`.

    Returns:
      Labels: a row for each latency, a column for each bandwidth.
    """
    require_network("choices", network)

    def at(latency: float, bandwidth: float) -> str:
        window = network.link.window
        link = Link(latency / 1e3, bandwidth * 1e9 / 8, window)
        return rank(model, replace(network, link=link, psum=None), **how).choice.label

    return [[at(late, wide) for wide in gbps] for late in latency_ms]


def winners(path: str | Path, model: Model, network: Network, **how: Any) -> None:
    """Draws `choices`; needs matplotlib.

    Args:
      path: the PNG to write.
      model: params and computation.
      network: the workers; its link between hosts is replaced.
      **how: further arguments of `choices`.

    Raises:
      ImportError: matplotlib is missing.
    """
    with extra("charts need"):
        from matplotlib.figure import Figure
    gbps = how.pop("gbps", GBPS)
    latency_ms = how.pop("latency_ms", LATENCY_MS)
    chosen = choices(model, network, gbps=gbps, latency_ms=latency_ms, **how)
    labels = list(dict.fromkeys(label for row in chosen for label in row))
    figure = Figure(figsize=(9, 5), layout="constrained")
    chart = figure.add_subplot()
    numbers = [[labels.index(label) for label in row] for row in chosen]
    chart.imshow(numbers, cmap="tab20", vmin=0, vmax=19, aspect="auto", origin="lower")
    for y, row in enumerate(numbers):
        for x, number in enumerate(row):
            chart.text(x, y, str(number), ha="center", va="center")
    chart.set_xticks(range(len(gbps)), [f"{b:g}" for b in gbps])
    chart.set_yticks(range(len(latency_ms)), [f"{late:g}" for late in latency_ms])
    chart.set_xlabel("Gbit/s between hosts")
    chart.set_ylabel("latency, ms")
    chart.set_title(f"{model.size:,} params, {network.workers} workers")
    key = "\n".join(f"{number}  {label}" for number, label in enumerate(labels))
    chart.text(1.02, 0.98, key, transform=chart.transAxes, va="top", fontsize="small")
    figure.savefig(path, dpi=120, bbox_inches="tight", format="png")
