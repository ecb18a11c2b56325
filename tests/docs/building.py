"""Small projects, built as the documentation is."""

import io
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils


def build(
    folder: Path, pages: dict[str, str], *extensions: str, **settings: Any
) -> Path:
    """Builds pages, whose names have their endings, and returns the folder of HTML.

    A warning is an error, as in the documentation's own build.
    """
    for name, text in pages.items():
        (folder / name).write_text(text)
    out = folder / "html"
    settings = {"extensions": list(extensions), "html_theme": "basic", **settings}
    with docutils_namespace(), patch_docutils():
        app = Sphinx(
            folder,
            None,
            out,
            folder / "trees",
            "html",
            settings,
            status=None,
            warning=io.StringIO(),
            warningiserror=True,
            exception_on_warning=True,
        )
        app.build()
    return out
