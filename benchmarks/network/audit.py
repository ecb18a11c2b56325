"""Bytes of a step: what relaxjax states, and what the kernel counts at each host.

The kernel counts whole Ethernet frames: payloads, acknowledgements of what a host
receives, and the headers of both. Of a frame of 1500 bytes 1448 are payload and 66 are
headers (Ethernet, IP, TCP with timestamps); the link's own overhead is not counted.

    excess = kernel's bytes / stated bytes - 1

Cost: a period of each method, and one step before it.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.network.jax_worker import transformation
from benchmarks.network.lab import Lab
from benchmarks.network.methods import DDP, Method
from benchmarks.network.problem import Shape, task
from benchmarks.report import Result, Run, Table
from relaxjax import emulate, wire_bytes
from relaxjax.hosts import Namespaces

HEADERS = 66 / 1448
"""Headers of a full frame, over its payload."""
MARGIN = 0.05
STEPS = 4  # of each method, at least


def stated(methods: Sequence[Method], shape: Shape) -> dict[str, float]:
    """Bytes that the busiest host sends in a step, as `wire_bytes` counts them.

    First steps in full are not counted; DDP's methods have no such count.
    """
    params = task(shape.width, shape.layers).params
    counts = {}
    for method in methods:
        if method.system != DDP:
            tx = transformation(method.plain(steps=1000), shape.hosts)
            when: Any = {"steps": method.period, "start": method.start}
            mesh = emulate(shape.hosts)
            count = wire_bytes(tx, params, mesh, axis_name="data", **when)
            counts[method.label] = count / method.period
    return counts


def audit(run: Run, methods: Sequence[Method], shape: Shape) -> Result:
    """Counts every method's bytes in both ways, on unshaped links.

    Raises:
      ValueError: there are no namespaces here, whose bytes the kernel counts.
    """
    if why := Namespaces.missing():
        raise ValueError(f"--part bytes counts the kernel's bytes of namespaces: {why}")
    methods = [m for m in methods if not m.alone]
    bytes_stated = stated(methods, shape)
    with Lab(methods, shape, steps=1000) as lab:
        rows = [_row(lab, m, bytes_stated.get(m.label)) for m in methods]
    table = Table.of(
        f"Bytes of a host's step; headers are {HEADERS:.1%}",
        rows,
        "method",
        "stated",
        ("kernel, least", "least"),
        ("kernel, most", "most"),
        ("excess", lambda r: "" if r["excess"] is None else f"{r['excess']:+.2%}"),
        "steps",
    )
    conditions = run.conditions(**shape._asdict())
    return run.finish({"conditions": conditions, "rows": rows}, tables=[table])


def _row(lab: Lab, method: Method, nbytes: float | None) -> Result:
    """One method's bytes, per step and host, beside those that are stated."""
    count = -(-STEPS // method.period) * method.period
    crew, before = lab.crews[method.system], lab.sent()
    crew.steps(method.label, count)
    sent = [(b - a) / count for a, b in zip(before, lab.sent(), strict=True)]
    excess = max(sent) / nbytes - 1 if nbytes else None
    return {
        "method": method.label,
        "steps": count,
        "stated": nbytes,
        "least": min(sent),
        "most": max(sent),
        "excess": excess,
        "within": excess is None or excess <= HEADERS + MARGIN,
    }
