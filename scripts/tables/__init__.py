"""Tables of pages by their names, each made from a file of docs/results."""

from collections.abc import Callable, Mapping
from functools import partial

from scripts.tables import (
    changing,
    decided,
    gpu,
    islands,
    network,
    peers,
    published,
    rules,
    speed,
    split,
    studies,
)

TABLES: Mapping[str, Callable[[], list[str]]] = {
    "changing-link": changing.choices,
    "decided": decided.ranks,
    "first-step": speed.first_steps,
    "gpu-all": gpu.every_row,
    "gpu-bases": gpu.bases,
    "gpu-copies": gpu.copies,
    "gpu-steps": gpu.steps,
    "gpu-text": gpu.text,
    "islands-wrong": islands.wrong_member,
    "islands-wrong-merges": islands.other_merges,
    "merges-fast": rules.fast,
    "merges-lengths": rules.lengths,
    "merges-tax": rules.tax,
    "network-steps": network.steps,
    "network-time": network.times,
    "peer-codes": peers.codes,
    "peer-owed": peers.owed,
    "peers": peers.versions,
    "published-epochs": published.epochs,
    "published-errors": published.errors,
    "published-scaling": published.scaling,
    "quality-frontier": studies.frontier,
    "quality-merges": studies.merges,
    "periods-3000": partial(studies.of, "periods-3000"),
    "periods-3000-seconds": partial(studies.seconds, "periods-3000"),
    "quality-chars": partial(studies.of, "frontier-chars", "recent-chars"),
    "quality-digits": partial(studies.of, "frontier-digits", "recent-digits"),
    "quality-longer": partial(studies.of, "longer"),
    "sites": partial(studies.of, "two-sites"),
    "sites-seconds": partial(studies.seconds, "two-sites"),
    "split": split.programs,
    "split-hosts": split.between_hosts,
    "split-quality": split.quality,
}
