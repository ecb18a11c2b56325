"""Figures of other papers, and what the planner predicts of them."""

from typing import Any

from scripts.tables.rows import heads, result, row

SYSTEMS = {
    "PyTorch-DDP": "PyTorch DDP",
    "Horovod": "Horovod",
    "ByteGrad": "BAGUA ByteGrad",
    "Decentralized": "BAGUA decentralized",
    "LowPrecision": "BAGUA decentralized, 8 bits",
}
MODELS = {
    "ResNet-101": "ResNet-101 by RDMA",
    "BERT-Large, BytePS": "BERT-Large by BytePS",
}
TARGET = "15 %"
FAR = ("Decentralized", "LowPrecision", "Horovod", "PyTorch-DDP")
"""Systems at the highest latency, the fastest first."""


def epochs() -> list[str]:
    """Seconds of an epoch by system and rate of the links."""
    found = result("published")["bagua"]
    rates = sorted({each["gbps"] for each in found})
    shown = [f"{rate:g} Gbit/s" for rate in rates]
    shown[0] += ": published, predicted"
    shown[-1] += " and more"
    lines = heads("seconds of an epoch, BERT-Large on SQuAD, 16 hosts of 8 V100", shown)
    for system, name in SYSTEMS.items():
        own = [each for each in found if each["system"] == system]
        cells = map(_beside, sorted(own, key=lambda each: each["gbps"]))
        lines.append(row(name, cells))
    return lines


def _beside(each: dict[str, Any]) -> str:
    error = f"{100 * each['error']:+.1f} %"
    return f"{each['published']}, {each['predicted']:.0f} ({error})"


def errors() -> list[str]:
    """The mean error of these epochs, by how computation and messages go together."""
    found = result("published")
    lines = heads("mean error", ["target", "without overlap", "with overlap"])
    means = found["mean_error"], found["mean_error_overlapped"]
    cells = (f"{100 * each:.1f} %" for each in means)
    return [*lines, row("of the epochs above", [TARGET, *cells])]


def scaling() -> list[str]:
    """Efficiencies, without those to which a number was fitted."""
    found = [each for each in result("published")["scaling"] if not each["fitted"]]
    lines = heads("scaling efficiency", ["GPUs", "published", "predicted"])
    for each in found:
        label = str(each["label"])
        cells = [f"{each[x]:.2f}" for x in ("published", "predicted")]
        lines.append(row(MODELS.get(label, label), [f"{each['gpus']}", *cells]))
    return lines


def far() -> list[str]:
    """Predicted seconds of an epoch at the highest latency."""
    kept = result("published")
    ways = [kept[x][-1] for x in ("by_latency", "by_latency_in_a_window")]
    head = f"seconds of an epoch at {ways[0]['latency_ms']:g} ms, predicted"
    lines = heads(head, ["without the window", "with it"])
    for name in FAR:
        lines.append(row(SYSTEMS[name], [f"{way[name]:.0f}" for way in ways]))
    return lines
