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
author = "The relaxjax authors"
version = release = relaxjax.__version__

extensions = [
    "algorithm_pages",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_parser",
    "compressor_table",
    "coverage_check",
    "mark_table",
    "topology_table",
]
myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"relaxjax {version}"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_ivar = True
assert inspect.ismodule(relaxjax)
