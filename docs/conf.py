"""Sphinx configuration."""

import inspect
import os
import sys
from pathlib import Path

# A documentation build runs no device.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import relaxjax

project = "relaxjax"
author = copyright = "The relaxjax authors"
version = release = relaxjax.__version__

extensions = [
    "accessible",
    "algorithm_list",
    "algorithm_pages",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "myst_parser",
    "coverage_check",
    "mathml",
    "page_check",
    "room_names",
    "sentences",
]
myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["relaxjax.css"]
html_title = f"relaxjax {version}"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# For what stands in backticks; see docs/_ext/sentences.py.
default_role = "py:obj"
napoleon_use_ivar = True
# The reader of docstrings is docs/_ext/sentences.py, by the settings of napoleon.
napoleon_google_docstring = napoleon_numpy_docstring = False
assert inspect.ismodule(relaxjax)
