"""Legs of a split model in programs for eight H100s."""

from scripts.tables.rows import heads, result, row


def programs() -> list[str]:
    """Milliseconds of a layer at each rate, and how many of them it waits."""
    found = result("split")
    rates = [f"{rate:g}" for rate in found["bandwidths"]]
    shown = [f"{rate / 1e9:g} GB/s" for rate in found["bandwidths"]]
    lines = heads("layer, codes", ["MB sent", *shown])
    for each in found["rows"]:
        cells = [
            f"{1e3 * each['seconds'][x]:.2f} ({1e3 * each['exposed'][x]:.2f})"
            for x in rates
        ]
        lines.append(
            row(f"{each['layer']}, {each['codes']}", [f"{each['MB']:.1f}", *cells])
        )
    return lines
