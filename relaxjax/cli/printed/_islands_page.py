"""How a run of islands stands, as one HTML page without links."""

from collections.abc import Iterable
from html import escape

from relaxjax import islands as rooms

HEADS = ("island", "incarnation", "state", "behind", "merged", "tokens")
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem;color:#222}table{border-collapse:collapse;margin:.6rem 0 1.4rem}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left}"
    ".alive{background:#e2f3e2}.silent{background:#fbdcdc}"
)


def cells(row: "rooms.Row") -> tuple[str, ...]:
    """One island in words, under `HEADS`."""
    behind = "never" if row.behind is None else str(row.behind)
    numbers = str(row.incarnation), row.state, behind, str(row.merged)
    return row.name, *numbers, f"{row.tokens:g}"


def counted(now: "rooms.Status") -> str:
    """How many merges there are, and how many of them the table has."""
    since = f", counted from merge {now.since} on" if now.since > 1 else ""
    return f"{now.version} merges{since}"


def last_merge(now: "rooms.Status") -> str:
    """The last merge in a sentence; "" before the first."""
    if now.last is None:
        return ""
    here = ", ".join(c["island"] for c in now.last["contributions"])
    return rooms.plain(
        f"last merge: fragment {now.last.get('fragment')} of {here or 'nobody'}; "
        f"absent: {', '.join(now.last['absent']) or 'nobody'}; "
        f"{now.per_second:.4g} tokens/s merged since merge {now.since}"
    )


def page(now: "rooms.Status", place: str) -> str:
    """The page; it holds what `relaxjax islands status` prints."""
    title = f"{escape(place)}: {counted(now)}"
    body = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>The lease is held by {escape(now.leader)}.</p>",
        "<table>",
        _line("th", HEADS),
        *(_line("td", cells(row), row.state) for row in now.rows),
        f"</table><p>{escape(last_merge(now))}</p></body></html>",
    ]
    return "\n".join(body) + "\n"


def _line(tag: str, words: Iterable[str], kind: str = "") -> str:
    inner = "".join(f"<{tag}>{escape(word)}</{tag}>" for word in words)
    return f"<tr class='{escape(kind)}'>{inner}</tr>"
