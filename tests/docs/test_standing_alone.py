"""Built pages need no network: equations are MathML, and a check looks at each page."""

import runpy
import sys
from pathlib import Path

import page_check
import pytest
from bs4 import BeautifulSoup
from mathml import markup
from sphinx.errors import ExtensionError

from tests.docs.building import build

ROOT = Path(__file__).parents[2]
EQUATION = """
An equation
===========

With :math:`x \\in R`,

.. math::

   \\begin{aligned}
   y &= \\sum_{i} x_i \\\\
   z &= \\min_{i} x_i
   \\end{aligned}
"""
SOUND = """<link rel="canonical" href="https://example.org/a.html">
<link rel="stylesheet" href="style.css"><a href="https://example.org">elsewhere</a>
<a href="a.html#here">here</a><img src="data:image/png;base64,aaaa"><b>Returns:</b>
<div class="table-wrapper"><div></div><table class="docutils"></table></div>"""
FAULTS = {
    '<script src="https://cdn.example.org/x.js"></script>': "loads https://cdn",
    '<script src="//cdn.example.org/x.js"></script>': "loads //cdn",
    '<link rel="stylesheet" href="http://example.org/x.css">': "loads http://",
    '<link rel="preconnect" href="https://fonts.example.org">': "loads https://fonts",
    "<style>@import 'https://example.org/x.css';</style>": "loads https://example",
    "<style>p {background: url( https://example.org/x.png)}</style>": "loads https",
    "<p style=\"background: url('https://example.org/x.png')\">": "loads https",
    '<img src="https://example.org/badge.svg">': "loads https",
    '<iframe src="https://example.org/"></iframe>': "loads https",
    '<a href="gone.html#here">': "names gone.html#here, which is not there",
    '<img src="gone.png">': "names gone.png, which is not there",
    "<dt>Return type:</dt>": "has a field called 'Return type'",
    '<div><table class="docutils"></table></div>': "has 1 tables outside a box",
}


def test_a_sound_page_has_no_faults(tmp_path):
    (tmp_path / "a.html").write_text(SOUND)
    (tmp_path / "style.css").write_text("@font-face {src: url('mine.woff2')}")
    assert page_check.check(tmp_path) == []


@pytest.mark.parametrize(("fault", "message"), FAULTS.items(), ids=FAULTS.values())
def test_each_fault_is_named(tmp_path, fault, message):
    (tmp_path / "style.css").touch()
    (tmp_path / "a.html").write_text(SOUND + fault)
    (found,) = page_check.check(tmp_path)
    assert found.startswith(f"a.html {message}")


def test_style_sheets_are_looked_at(tmp_path):
    text = "@font-face {src: url('https://fonts.example.org/a.woff2')}"
    (tmp_path / "a.css").write_text(text)
    (found,) = page_check.check(tmp_path)
    assert found.startswith("a.css loads https://fonts")


def test_equations_are_drawn_by_the_browser(tmp_path):
    settings = {"html_math_renderer": "mathml"}
    out = build(tmp_path, {"index.rst": EQUATION}, "mathml", "page_check", **settings)
    page = BeautifulSoup((out / "index.html").read_text(), "html.parser")
    inline, block = page.find_all("math")
    assert inline.get_text(strip=True) == "x∈R"
    assert block["display"] == "block"
    assert len(block.find_all("mtr")) == 2
    assert not [s for s in page.find_all("script") if "jax" in str(s.get("src"))]


def test_equations_by_a_script_from_the_network_fail_the_build(tmp_path):
    with pytest.raises(ExtensionError, match=r"index.html loads https://.*mathjax"):
        build(tmp_path, {"index.rst": EQUATION}, "sphinx.ext.mathjax", "page_check")


def test_an_unknown_command_names_the_equation():
    with pytest.raises(ExtensionError, match=r"equation a \\iffy b: .*\\iffy"):
        markup(r"a \iffy b", block=False)


def test_the_documentation_is_built_so(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # it adds to them
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    settings = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert {"mathml", "page_check", "sentences"} <= set(settings["extensions"])
    assert settings["html_math_renderer"] == "mathml"
    assert settings["default_role"] == "py:obj"
    assert not settings["napoleon_google_docstring"]
    for sheet in settings["html_css_files"]:
        assert (ROOT / "docs" / "_static" / sheet).exists()
