"""Layers that lie sharded over eight H100s, in programs that were not run."""

from scripts.tables.rows import heads, result, row

NAMES = {
    "stock": "`jit` and `NamedSharding`",
    "stock, XLA's flags": "the same, with XLA's flags",
    "fsdp, a turn for itself": "`fsdp` in a plain scan",
    "fsdp, a layer ahead": "`fsdp.scan_layers`",
    "fsdp, a layer ahead, XLA's flags": "the same, with XLA's flags",
    "fsdp 8 and 4 bits, a turn for itself": "8 and 4 bits, in a plain scan",
    "fsdp 8 and 4 bits, a layer ahead": "8 and 4 bits, `fsdp.scan_layers`",
    "fsdp 8 and 4 bits, a layer ahead, XLA's flags": "the same, with XLA's flags",
}


def steps() -> list[str]:
    """Milliseconds of a step at each rate, and how many of them it waits."""
    kept = result("sharded")
    found = {each["program"]: each for each in kept["rows"]}
    rates = {f"{rate:g}": f"{rate / 1e9:g} GB/s" for rate in kept["bandwidths"]}
    lines = heads("", ["MiB sent", *rates.values()])
    for name, label in NAMES.items():
        one = found[name]
        cells = [
            f"{1e3 * one['seconds'][x]:.3f} ({1e3 * one['exposed'][x]:.3f})"
            for x in rates
        ]
        lines.append(row(label, [f"{one['MiB']:.3g}", *cells]))
    return lines


def conditions() -> list[str]:
    """The model, what the replay assumes, and the version that compiled."""
    said = result("sharded")["conditions"]
    width = said["width"]
    model = f"{said['layers']} layers of {width} x {width}, "
    model += f"with {said['rows']} rows on a device"
    rates = f"{said['tflops']:g} Tflop/s, {said['microseconds']:g} us a transfer"
    return [
        *heads("", [""]),
        row("model", [model]),
        row("rates", [rates]),
        row("version", [f"jax {said['jax']}"]),
    ]
