"""Programs for GPUs, compiled without one: what their transfers hold up."""

from typing import Any

from scripts.tables.rows import heads, result, row

MODELS = {
    "6-layer perceptron": "perceptron",
    "12-layer transformer": "transformer",
    "scanned transformer": "scanned",
    "4 microbatches": "4 microbatches",
}
THREE = "exposed ms, units, share"
PLAIN = {
    "pmean": "`pmean`",
    "jit + NamedSharding": "`jit` + `NamedSharding`",
    "pmean, XLA's flags": "`pmean`, XLA's flags",
    "relaxjax psum, true order": "`psum`, true order",
    "relaxjax psum, default order": "`psum`, default order",
    "relaxjax psum, wrong order": "`psum`, wrong order",
    "relaxjax ring, true order": "`ring`, true order",
    "relaxjax reduce_in_backward": "`reduce_in_backward`",
    "relaxjax scan_layers": "`scan_layers`",
}
NO_FLAGS = ("pmean, XLA's flags", "relaxjax ring, true order")
FLAGGED = {k: v for k, v in PLAIN.items() if k not in NO_FLAGS} | {
    "relaxjax delay(1), psum": "`delay(1)`, `psum`",
    "relaxjax 8 bits, true order": "8 bits with feedback, true order",
}
PEERS = {
    "relaxjax combine_then_adapt, ring": "`combine_then_adapt`",
    "relaxjax gossip, ring": "`gossip`",
}
CODES = {
    "relaxjax psum, true order": "floats, `psum`, true order",
    "relaxjax 8 bits": "8 bits with feedback",
    "relaxjax 8 bits, true order": "the same, true order",
    "relaxjax signs": "signs with feedback",
    "relaxjax signs, true order": "the same, true order",
    "relaxjax power_sgd": "`power_sgd`, rank 4",
}
RATES = (450e9, 50e9, 25e9)
"""Bytes a second at which steps in codes are shown."""


def rates() -> list[str]:
    """What the replays assume, and the version that compiled."""
    said = result("overlap")["conditions"]
    cells = {
        "buckets": f"{said['bucket_bytes'] / 2**20:g} MiB",
        "computation": f"{said['tflops']:g} Tflop/s",
        "a link": f"{said['bandwidth'] / 1e9:g} GB/s",
        "a transfer": f"{1e6 * said['latency']:g} microseconds",
    }
    return [*heads("jax", cells), row(said["jax"], cells.values())]


def overlap() -> list[str]:
    """Exposed communication by program and model."""
    return _by_model(PLAIN, "share")


def with_flags() -> list[str]:
    """The same, where XLA's scheduler has been told the network."""
    return _by_model(FLAGGED, "share", "overlap-flags")


def peers() -> list[str]:
    """Gossip; the share is of all flops."""
    return _by_model(PEERS, "share_of_all")


def codes() -> list[str]:
    """Codes, and milliseconds of a step of the transformer at each rate."""
    found, models = result("overlap"), [*MODELS][:2]
    shown = [f"{rate / 1e9:g} GB/s" for rate in RATES]
    shown[0] = f"transformer, {shown[0]}"
    lines = heads("", [*(MODELS[x] for x in models), *shown])
    for name, label in CODES.items():
        one, ratios = _of(found, name), _exposed(found, models[1], name)
        compute = 1e3 * one[models[1]]["compute"]
        cells = [_three(one[model], "share") for model in models]
        cells += [f"{compute * (1 + ratios[rate]):.1f}" for rate in RATES]
        lines.append(row(label, cells))
    return lines


def _by_model(shown: dict[str, str], share: str, name: str = "overlap") -> list[str]:
    """Three numbers of each program in each model; none where it is not compiled."""
    found = result(name)
    ran = {each["model"] for each in found["rows"]}
    models = [x for x in MODELS if x in ran]
    first, *rest = (MODELS[x] for x in models)
    lines = heads("program", [f"{first}: {THREE}", *rest])
    for program, label in shown.items():
        own = _of(found, program)
        cells = [_three(own[x], share) if x in own else "" for x in models]
        lines.append(row(label, cells))
    return lines


def _of(found: Any, program: str) -> dict[str, Any]:
    """A program's rows by model."""
    return {x["model"]: x for x in found["rows"] if x["program"] == program}


def _exposed(found: Any, model: str, program: str) -> dict[float, float]:
    """Exposed over computed seconds, by bandwidth."""
    ratios = found["exposed_over_compute"][f"{model}: {program}"]
    return dict(zip(found["bandwidths"], ratios, strict=True))


def _three(each: dict[str, Any], share: str) -> str:
    exposed = short(1e3 * each["exposed"], 3)
    return f"{exposed}, {short(each['units'], 2)}, {short(each[share], 2)}"


def short(value: float, places: int) -> str:
    """Three digits from 1 on, and so many places below it."""
    if not round(value, places):
        return "0"
    return f"{value:#.3g}".rstrip(".") if value >= 1 else f"{value:.{places}f}"
