"""What relaxjax's own work takes, from the benchmarks of one process."""

from typing import Any

import numpy as np

from scripts.tables.rows import heads, result, row

METHODS = {
    "all_reduce": "`all_reduce`",
    "8 bits": "8 bits with feedback",
    "power_sgd": "`power_sgd`",
    "gossip": "`gossip`",
    "diloco": "`diloco`",
}
OVERHEAD = {
    "overhead": "transformer",
    "overhead-few-rows": "transformer",
    "overhead-wide": "perceptron",
    "overhead-wide-before": "perceptron, before",
}
EMULATED = {
    "emulation": "2",
    "emulation-65536": "2",
    "emulation-16384": "2",
    "emulation-one-core": "1 (`taskset -c 0`)",
}
"""Runs, and the cores they had."""


def overhead() -> list[str]:
    """A step, and a first one, over the faster of two programs without relaxjax."""
    lines = heads(
        "model",
        [
            "rows for each of 8 workers",
            "relaxjax, ms",
            "hand-written `pmean`",
            "`jit` + `NamedSharding`",
            "run, over the faster",
            "compile, over the faster",
        ],
    )
    for name, model in OVERHEAD.items():
        found = result(name)
        rows = found["conditions"]["batch_size"] // found["conditions"]["workers"]
        steps = [_ms(found["run_seconds"][k]) for k in ("relaxjax", "pmean", "jit")]
        over = [_met(found[kind], found[kind]["target"]) for kind in ("run", "compile")]
        lines.append(row(model, [f"{rows}", *steps, *over]))
    return lines


def fusion() -> list[str]:
    """Times as fast as one message per tensor, by size of buckets."""
    found = result("fusion")["speedup"]
    names = ["psum", *(name for name in found if name.endswith("buckets"))]
    shown = [name.replace(" buckets", "").replace("psum", "`psum`") for name in names]
    return [
        *heads(shown[0], shown[1:]),
        row(_near(found[names[0]]), [_near(found[name]) for name in names[1:]]),
    ]


def ring() -> list[str]:
    """Milliseconds to trace, lower and compile a ring."""
    found = result("ring")["compile_seconds"]
    took = [_ms(seconds) for seconds in found.values()]
    return [*heads("devices", found), row("trace, lower and compile, ms", took)]


def growth() -> list[str]:
    """Seconds at the largest number of leaves and of workers."""
    found = result("growth")
    leaves, workers = (
        max(map(int, found["seconds"][kind]["all_reduce"]))
        for kind in ("leaves", "workers")
    )
    columns = [
        ("leaves", leaves, "init"),
        ("leaves", leaves, "trace"),
        ("leaves", leaves, "wire_bytes"),
        ("workers", workers, "init"),
        ("workers", workers, "trace"),
    ]
    names = {"init": "`init`", "trace": "trace", "wire_bytes": "`wire_bytes`"}
    lines = heads("", [f"{names[part]}, {n} {kind}" for kind, n, part in columns])
    for name, shown in METHODS.items():
        cells = [
            f"{found['seconds'][kind][name][str(n)][part]:.3g} "
            f"({found['exponents'][kind][name][part]:.2f})"
            for kind, n, part in columns
        ]
        lines.append(row(shown, cells))
    return lines


def parameters() -> list[str]:
    """The largest exponent in the number of parameters, and the longest ranking."""
    found = result("growth")
    series = found["exponents"]["parameters"].values()
    largest = max(power for each in series for power in each.values())
    took = (x["plan"] for x in found["seconds"]["parameters"]["plan"].values())
    sizes = [int(n) for n in found["seconds"]["parameters"]["plan"]]
    first = f"1e{len(str(min(sizes))) - 1} to 1e{len(str(max(sizes))) - 1}"
    return [
        *heads("parameters", ["largest exponent", "longest `plan.rank`"]),
        row(first, [f"{largest:.2f}", f"{max(took):.1f} s"]),
    ]


def emulation() -> list[str]:
    """A step of emulated workers, over plain JAX on the same rows."""
    workers = [n for n in result("emulation")["sgd"]["ratio"] if n != "1"]
    lines = heads("rows in all", ["cores", *(f"{n} workers" for n in workers)])
    for name, cores in EMULATED.items():
        ratios = result(name)["sgd"]["ratio"]
        shown = f"{result(name)['conditions']['batch_size']:,}".replace(",", " ")
        lines.append(row(shown, [cores, *(_near(ratios[n]) for n in workers)]))
    return lines


def counted() -> list[str]:
    """Seconds of `wire_bytes`, and PowerSGD's computation beside Adam's."""
    found, low = result("bytes"), result("low-rank")
    leaves, target = found["conditions"]["leaves"], found["target"]
    lines = heads("measurement", ["result"])
    for name, seconds in found["seconds"].items():
        if name != "gradient":
            took = float(np.median(seconds))
            shown = f"{took:.2f} s" if took <= target else f"**{took:.2f} s**"
            lines.append(row(f"`wire_bytes` of {leaves} leaves, {name}", [shown]))
    size = low["conditions"]["parameters"]
    first = f"Adam's step with PowerSGD of rank 4, over Adam's, {size:,} parameters"
    lines.append(row(first, [_met(low["ratio"], low["target"])]))
    memory = {k: state / 2**20 for k, (state, _) in low["memory"].items()}
    text = "{:.1f} MiB instead of {:.1f}".format(*sorted(memory.values())[::-1])
    return [*lines, row("its state", [text])]


def codecs() -> list[str]:
    """Shares of the bytes per second of `x + 1`; alike ones share a row."""
    found = result("codecs")
    target, alike = found["target"], dict[tuple[str, str], list[str]]()
    for each in found["rows"]:
        shares = (each[f"{side} share"][0] for side in ("encode", "decode"))
        shown = (f"{x:.2f}" if x >= target else f"**{x:.2f}**" for x in shares)
        encode, decode = shown
        alike.setdefault((encode, decode), []).append(f"`{each['name']}`")
    lines = heads("code", ["encoding", "decoding"])
    return lines + [row(", ".join(names), cells) for cells, names in alike.items()]


def algorithms() -> list[str]:
    """Times psum on eight devices, by size."""
    cases = [x for x in result("algorithms")["cases"] if x["workers"] == 8]
    kib = [x["kibibytes"] for x in cases]
    sizes = [f"{n} KiB" if n < 1024 else f"{n // 1024} MiB" for n in kib]
    names = [name for name in cases[0]["ratio"] if name != "psum"]
    lines = heads("8 devices", sizes)
    lines.append(row("psum, ms", [_ms(x["seconds"]["psum"], 2) for x in cases]))
    for name in names:
        found = [x["ratio"].get(name) for x in cases]
        lines.append(row(f"`{name}`", [_near(x) if x else "-" for x in found]))
    return lines


def checkpoints() -> list[str]:
    """Steps with saves over steps without, and what is on disk."""
    heading = ["ms a step", "steps with saves, over steps without"]
    lines = heads("", [*heading, "on disk, over distinct bytes"])
    steps = result("checkpoint")["conditions"]["steps"]
    for name, each in result("checkpoint")["relaxations"].items():
        plain = 1e3 * float(np.median(each["seconds"]["not saving"])) / steps
        over, disk = (
            _met(each["ratio"], 1.05),
            each["stored_bytes"] / each["distinct_bytes"],
        )
        cells = [f"{plain:.0f}", over, f"{disk:.3f}"]
        lines.append(row(f"`{name}`", cells))
    return lines


def _ms(seconds: Any, digits: int = 0) -> str:
    return f"{1e3 * float(np.median(seconds)):.{digits}f}"


def _near(ratio: Any) -> str:
    return "{median:.3g} [{low:.3g}, {high:.3g}]".format(**ratio)


def _met(found: Any, target: float) -> str:
    """A ratio with its interval, and whether its median meets the target."""
    ratio = found.get("ratio", found)
    verdict = "met" if ratio["median"] <= target else "missed"
    return f"{_near(ratio)}, {verdict}"
