"""Sphinx builds the documentation site from this folder: `make docs`. Nothing of the site needs a network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "_ext"), str(HERE.parent)]

from twofold.version import __version__  # noqa: E402 (the line above adds the repository to the path)

project = "Twofold"
author = "The Twofold authors"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "docstrings",
    "generated_pages",
]

# Pages
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "_static", "generators", "reference/methods/_families.md"]
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
highlight_language = "text"  # blocks without a language are commands, which Pygments would colour at random
nitpicky = False
smartquotes = False  # they would change the prime in z'

# Python API
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
default_role = "code"
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

# Site
html_theme = "furo"
html_title = "Twofold"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": [], "navigation_with_keys": True}
