"""Tables of pages by their names, each made from a file of docs/results."""

from collections.abc import Callable, Mapping

from scripts.tables import (
    changing,
    decided,
    islands,
    network,
    peers,
    published,
    rules,
    speed,
    split,
)

TABLES: Mapping[str, Callable[[], list[str]]] = {
    "changing-link": changing.choices,
    "decided": decided.ranks,
    "first-step": speed.first_steps,
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
    "split": split.programs,
    "split-hosts": split.between_hosts,
    "split-quality": split.quality,
}
