"""A compiled program's schedule, replayed over several bandwidths: rows and columns."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from relaxjax.schedule import Device, Link, replay


def row_of(
    text: str, device: Device, link: Link, bandwidths: Sequence[float]
) -> tuple[dict[str, Any], int]:
    """A row of JSON, seconds and exposed seconds by bandwidth; and the bytes."""
    replays = {
        b: replay(text, device=device, link=Link(link.latency, b)) for b in bandwidths
    }
    one = replays[bandwidths[-1]]
    row = {
        "transfers": len(one.transfers),
        "compute": one.compute,
        "seconds": {f"{b:g}": r.total for b, r in replays.items()},
        "exposed": {f"{b:g}": r.exposed for b, r in replays.items()},
    }
    return row, sum(t.nbytes for t in one.transfers)


def columns_of(bandwidths: Sequence[float]) -> list[tuple[str, Any]]:
    """Columns of a table: milliseconds, and the exposed ones in brackets."""
    return [
        (f"ms at {b / 1e9:g} GB/s (exposed)", partial(_milliseconds, b))
        for b in bandwidths
    ]


def _milliseconds(bandwidth: float, row: Mapping[str, Any]) -> str:
    seconds, exposed = (row[key][f"{bandwidth:g}"] for key in ("seconds", "exposed"))
    return f"{1e3 * seconds:.3f} ({1e3 * exposed:.3f})"
