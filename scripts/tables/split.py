"""Split models: in programs for eight H100s, and between hosts of the lab."""

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


def between_hosts() -> list[str]:
    """Milliseconds of a step, over the uncoded step, and over the floor."""
    files = {hosts: result(f"split-{hosts}-hosts") for hosts in (2, 4)}
    rates = list(dict.fromkeys(each["rate"] for each in files[2]["rows"]))
    lines = heads("split, hosts, codes", [f"{rate:g} Mbit/s" for rate in rates])
    for hosts, found in files.items():
        by_name: dict[tuple[str, str], list[str]] = {}
        for each in found["rows"]:
            cell = f"{1e3 * each['seconds']:.0f} ({each['over'][0]:.2f}, "
            cell += f"{each['over_floor'][0]:.2f})"
            by_name.setdefault((each["split"], each["codes"]), []).append(cell)
        lines += [
            row(f"{split}, {hosts}, {codes}", cells)
            for (split, codes), cells in by_name.items()
        ]
    return lines


def quality() -> list[str]:
    """Bits a character, held out over the uncoded model of the same seed, and bytes."""
    lines = heads(
        "split, codes",
        ["training", "held out", "held out, over uncoded", "bytes forward", "backward"],
    )
    for each in result("split-quality")["rows"]:
        trained, held_out = (
            sum(each[x]) / len(each[x]) for x in ("trained", "held out")
        )
        by_seed = each["over by seed, %"]
        over = f"{each['over uncoded, %']:+.1f} % "
        over += f"({min(by_seed):+.1f} to {max(by_seed):+.1f})"
        cells = [f"{trained:.3f}", f"{held_out:.3f}"]
        cells += [over if each["codes"] != "as it is" else ""]
        cells += [f"{each[way]:,}".replace(",", " ") for way in ("forward", "backward")]
        lines.append(row(f"{each['split']}, {each['codes']}", cells))
    return lines
