"""Pictures of pages by their files, each drawn from files that a digest is kept of."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from scripts.pictures import (
    course,
    exposed,
    frontier,
    gaps,
    goodput,
    order,
    sites,
    startup,
    time_to_loss,
)
from scripts.tables.rows import DOCS

FOLDER = DOCS / "pictures"
MADE = FOLDER / "made.json"
"""Digests of the sources that pictures were drawn from."""


class Picture(NamedTuple):
    """A picture.

    Attributes:
      draw: writes it to a file.
      sources: files and folders that it is drawn from.
    """

    draw: Callable[[Path], None]
    sources: tuple[Path, ...]


def _drawn(figure: Callable[[], Figure], *, transparent: bool) -> Callable[..., None]:
    def draw(path: Path) -> None:
        text: Any = {"svg.fonttype": "none", "svg.hashsalt": "relaxjax"}
        with matplotlib.rc_context(text):
            about = {"Date": None, "Creator": None}
            figure().savefig(path, transparent=transparent, metadata=about)

    return draw


PICTURES = {
    "course.svg": Picture(_drawn(course.figure, transparent=True), course.SOURCES),
    "exposed.svg": Picture(_drawn(exposed.figure, transparent=True), exposed.SOURCES),
    "frontier-chars.svg": Picture(
        _drawn(frontier.figure, transparent=True), frontier.SOURCES
    ),
    "gaps.svg": Picture(_drawn(gaps.figure, transparent=True), gaps.SOURCES),
    "goodput.svg": Picture(_drawn(goodput.figure, transparent=True), goodput.SOURCES),
    "order.png": Picture(lambda x: order.timeline().save_png(x), order.SOURCES),
    "sites-seconds.svg": Picture(
        _drawn(sites.seconds, transparent=False), sites.SOURCES
    ),
    "sites-winners.svg": Picture(
        _drawn(sites.winners, transparent=False), sites.SOURCES
    ),
    "startup.svg": Picture(_drawn(startup.figure, transparent=True), startup.SOURCES),
    "time_to_loss.svg": Picture(
        _drawn(time_to_loss.figure, transparent=True), time_to_loss.SOURCES
    ),
}


def digest(sources: tuple[Path, ...]) -> str:
    """That of all files, and of those in folders."""
    files = [
        each
        for source in sources
        for each in (sorted(source.iterdir()) if source.is_dir() else [source])
        if each.is_file()
    ]
    return hashlib.sha256(b"".join(x.read_bytes() for x in files)).hexdigest()[:16]


def stale() -> dict[str, str]:
    """Pictures whose sources have changed, or that are not there, with new digests."""
    made = json.loads(MADE.read_text()) if MADE.exists() else {}
    now = {name: digest(picture.sources) for name, picture in PICTURES.items()}
    return {
        name: new
        for name, new in now.items()
        if made.get(name) != new or not (FOLDER / name).exists()
    }


def draw() -> list[str]:
    """Draws those that are stale, and returns their names."""
    new = stale()
    for name in new:
        PICTURES[name].draw(FOLDER / name)
    made = {name: digest(picture.sources) for name, picture in PICTURES.items()}
    MADE.write_text(json.dumps(made, indent=1) + "\n")
    return list(new)
