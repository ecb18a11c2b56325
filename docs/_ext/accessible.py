"""Pages by keyboard and screen reader, where the theme leaves something out.

Rules of axe-core 4.14: a box that scrolls can be focused, a heading has a level, and
the empty corner of a table is no heading. The theme has contrast and alternative texts
right.
"""

from typing import Any

from sphinx.application import Sphinx

IN_BODY = {
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
    '<th class="head"><p></p></th>': "<td></td>",
}
IN_NAVIGATION = {'role="heading"': 'role="heading" aria-level="2"'}


def mended(page: str, changes: dict[str, str]) -> str:
    """HTML with all changes."""
    for old, new in changes.items():
        page = page.replace(old, new)
    return page


def mend(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Changes the body and the navigation of a page before they are written."""
    del app, pagename, templatename, doctree
    for part, changes in ("body", IN_BODY), ("furo_navigation_tree", IN_NAVIGATION):
        if part in context:
            context[part] = mended(context[part], changes)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", mend, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
