"""Docstrings on the API pages: a colon ends no type, and code is code."""

import importlib
import inspect
from typing import Any

import coverage_check
import pytest
from bs4 import BeautifulSoup
from sentences import Sentences
from sphinx.ext.napoleon import Config

from tests.docs.building import build

MODULE = '''
"""A module."""


class Curve:
    """A curve."""

    @property
    def rows(self):
        """Rows of a run: step and loss."""


def init():
    """Begins."""


def fit(steps):
    """Fits.

    Args:
      steps: how many.

    Returns:
      The curve, and its speed: rows of step and loss, see `sample.Curve`; `init` stays.

    Raises:
      ValueError: no steps.
    """
'''
PAGE = """
Sample
======

.. py:currentmodule:: sample
.. autofunction:: init
.. autofunction:: fit
.. autoclass:: Curve
   :members:
"""


def described():
    """Every public function, class, and member of one, by its name."""
    for name in coverage_check.public_names():
        module, _, last = name.rpartition(".")
        value = getattr(importlib.import_module(module), last)
        yield name, value
        if inspect.isclass(value):
            yield from ((f"{name}.{k}", v) for k, v in vars(value).items())


def test_no_public_docstring_states_a_type():
    settings: Any = Config(napoleon_use_ivar=True)
    seen = 0
    for name, value in described():
        kind = "property" if isinstance(value, property) else "function"
        doc = inspect.getdoc(value) or ""
        lines = Sentences(doc.splitlines(), settings, what=kind, name=name).lines()
        typed = [x for x in lines if x.startswith((":rtype:", ":type:"))]
        assert not typed, f"{name}: {typed}"
        seen += any(x.startswith(":returns:") for x in lines)
    assert seen > 100


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A page with a function and a class."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "sample.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        out = build(
            folder,
            {"index.rst": PAGE},
            "sphinx.ext.autodoc",
            "sentences",
            default_role="py:obj",
            napoleon_google_docstring=False,
            napoleon_numpy_docstring=False,
        )
    return BeautifulSoup((out / "index.html").read_text(), "html.parser")


def test_a_page_says_what_the_docstring_says(built):
    fields = {
        dt.get_text(strip=True): dt.find_next_sibling("dd")
        for dt in built.select("dl.field-list > dt")
    }
    assert list(fields) == ["Parameters:", "Returns:", "Raises:"]
    returned = fields["Returns:"]
    assert returned.get_text(strip=True).startswith("The curve, and its speed: rows")
    assert "Rows of a run: step and loss." in built.get_text()


def test_full_names_are_links_and_bare_names_are_code(built):
    links = {a.get_text(): a["href"] for a in built.select("dd a.internal")}
    assert links == {"sample.Curve": "#sample.Curve"}
    assert {"init", "sample.Curve"} <= {c.get_text() for c in built.select("code")}
