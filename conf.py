"""The site: Sphinx over the executed notebooks, everything it needs inside it. `make book` and `make site` call it."""

from importlib.util import find_spec
from pathlib import Path

project = "Assembling GPT"
author = "The authors of Assembling GPT"
language = "en"

extensions = [
    "myst_nb",
    "sphinx_external_toc",
    "sphinx_design",
    "sphinx_togglebutton",
    "sphinx_copybutton",
    "sphinxcontrib.lightbox2",
]
include_patterns = ["chapters/*.ipynb", "chapters/*.md"]
suppress_warnings = ["etoc.toctree"]  # a title in _toc.yml's parts is no page

nb_execution_mode = "off"  # what is shown was executed before, and is checked by nbval
nb_render_markdown_format = "myst"  # a table that a cell shows as Markdown
myst_enable_extensions = ["alert", "amsmath", "colon_fence", "dollarmath"]

html_theme = "sphinx_book_theme"
html_title = project
html_theme_options = {"navbar_persistent": []}  # one search bar is enough
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_scaled_image_link = False  # a click opens the picture large, on the page
html_show_sourcelink = False


def inside(package: str, *parts: str) -> str:
    """The path of a file that a Python package brings along."""
    return str(Path(find_spec(package).submodule_search_locations[0], *parts))


# MathJax as one file from a Python package, so that no page asks the network for it.
mathjax_path = "tex-svg-full.js"
html_css_files = ["site.css"]
html_static_path = [
    inside("mathjax", "static", "mathjax", "es5", mathjax_path),
    inside("book_utils", "workbench", html_css_files[0]),
]
