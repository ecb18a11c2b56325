"""Bytes of a step: what relaxjax states, and what the kernel counts at each host.

The kernel counts whole Ethernet frames: payloads, acknowledgements of what a host
receives, and the headers of both. Of a frame of 1500 bytes 1448 are payload and 66 are
headers (Ethernet, IP, TCP with timestamps); the link's own overhead is not counted.

    excess = kernel's bytes / stated bytes - 1

Cost: a period of each method, and one step before it.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.network.curves import HOSTS
from benchmarks.network.lab import Lab
from benchmarks.network.methods import Method, available
from benchmarks.network.study import stated
from benchmarks.report import conditions, save, show
from relaxjax.hosts import Namespaces

HEADERS = 66 / 1448
"""Of a full frame, beside its payload."""
MARGIN = 0.05
STEPS = 4


def audit(
    *,
    methods: Sequence[Method],
    width: int,
    layers: int,
    hosts: int = HOSTS,
    steps: int = STEPS,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Counts every method's bytes in both ways, on unshaped links.

    Args:
      methods: rows.
      width: of the model.
      layers: of the model.
      hosts: how many.
      steps: of each, rounded up to whole periods.
      out: folder of the JSON.

    Returns:
      What was counted, as saved.

    Raises:
      ValueError: there are no namespaces here, of which the kernel counts.
    """
    if why := Namespaces.missing():
        raise ValueError(f"--audit counts the kernel's bytes of namespaces: {why}")
    methods = [m for m in available(methods) if not m.alone]
    shape = {"width": width, "layers": layers, "hosts": hosts}
    said = stated(methods, **shape)
    with Lab(methods, **shape, steps=1000) as lab:
        rows = [_row(lab, m, said.get(m.label), steps) for m in methods]
    result = {"conditions": conditions(**shape), "rows": rows}
    save(result, out, "network_audit")
    columns = ("method", "stated", "kernel, least", "kernel, most", "excess", "steps")
    cells = [
        (
            *(row[k] for k in ("method", "stated", "least", "most")),
            "" if row["excess"] is None else f"{row['excess']:+.2%}",
            row["steps"],
        )
        for row in rows
    ]
    show(f"Bytes of a host's step; headers are {HEADERS:.1%}", columns, cells)
    return result


def _row(lab: Lab, method: Method, said: float | None, steps: int) -> dict[str, Any]:
    """One method's bytes, per step and host."""
    count = -(-steps // method.period) * method.period
    crew, before = lab.crews[method.system], lab.sent()
    crew.steps(method.label, count)
    sent = [(b - a) / count for a, b in zip(before, lab.sent(), strict=True)]
    return {
        "method": method.label,
        "steps": count,
        "stated": said,
        "least": min(sent),
        "most": max(sent),
        "excess": max(sent) / said - 1 if said else None,
        "within": said is None or max(sent) / said - 1 <= HEADERS + MARGIN,
    }
