"""Fails the build when a page needs the network, or says what its source did not.

What a browser loads by itself (scripts, styles, fonts, pictures, frames) must lie
beside the pages, and so must the pages that links name. No field may be called "Return
type": docstrings state none. Tables stand in boxes that scroll, for small screens.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADED = {"script", "img", "iframe", "embed", "object", "source", "video", "audio"}
HINTS = {"canonical", "next", "prev", "search", "index"}
"""Relations of `<link>` that a browser does not follow by itself."""
OUTSIDE = re.compile(r"^(https?:)?//")
IN_STYLES = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
MANGLED = re.compile(r">\s*(Return type|Yield type)\b")


class Reader(HTMLParser):
    """Collects what is checked of a page.

    Attributes:
      loaded: the addresses of what a browser fetches by itself.
      linked: the addresses where a reader may go.
      unboxed: tables of documents outside a box that scrolls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.unboxed = 0
        self._boxes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the addresses of a tag, and where tables stand."""
        given = {name: value or "" for name, value in attrs}
        address = given.get("src") or given.get("data") or given.get("href", "")
        if tag in LOADED and address:
            self.loaded.append(address)
        if tag == "link" and not set(given.get("rel", "").split()) & HINTS:
            self.loaded.append(address)
        if tag == "a" and address:
            self.linked.append(address)
        self.loaded += in_styles(given.get("style", ""))
        if tag == "div":
            self._boxes.append(given.get("class", ""))
        if tag == "table" and "docutils" in given.get("class", "").split():
            self.unboxed += not any("table-wrapper" in box for box in self._boxes)

    def handle_endtag(self, tag: str) -> None:
        """Leaves a box."""
        if tag == "div" and self._boxes:
            self._boxes.pop()


def in_styles(text: str) -> list[str]:
    """The addresses in a style sheet."""
    return [first or second for first, second in IN_STYLES.findall(text)]


def faults(page: Path) -> Iterator[str]:
    """What is wrong with a page."""
    text = page.read_text()
    found = Reader()
    found.feed(text)
    inside = re.findall(r"<style[^>]*>(.*?)</style>", text, re.S)
    loaded = [*found.loaded, *(a for style in inside for a in in_styles(style))]
    yield from (f"loads {a} from the network" for a in loaded if OUTSIDE.match(a))
    for address in {*loaded, *found.linked}:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or not parts.path:
            continue
        if not (page.parent / unquote(parts.path)).exists():
            yield f"names {address}, which is not there"
    if found.unboxed:
        yield f"has {found.unboxed} tables outside a box that scrolls"
    if match := MANGLED.search(text):
        yield f"has a field called {match.group(1)!r}"


def check(folder: Path) -> list[str]:
    """All faults of the pages and styles in a folder."""
    wrong = [
        f"{page.relative_to(folder)} {fault}"
        for page in sorted(folder.rglob("*.html"))
        for fault in faults(page)
    ]
    return wrong + [
        f"{style.relative_to(folder)} loads {address} from the network"
        for style in sorted(folder.rglob("*.css"))
        for address in in_styles(style.read_text())
        if OUTSIDE.match(address)
    ]


def finish(app: Sphinx, error: Exception | None) -> None:
    """Checks what was built."""
    if error is None and app.builder.format == "html":
        wrong = check(Path(app.outdir))
        if wrong:
            raise ExtensionError("pages that do not stand alone:\n" + "\n".join(wrong))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
