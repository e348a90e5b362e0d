"""The site: Sphinx over the executed notebooks, everything it needs inside it. `make book` and `make site` call it."""

from importlib.util import find_spec
from pathlib import Path

project = "Assembling GPT"
author = "The authors of Assembling GPT"
language = "en"

extensions = [
    "book_utils.workbench.site",
    "myst_nb",
    "sphinx_external_toc",
    "sphinx_design",
    "sphinx_togglebutton",
    "sphinx_copybutton",
]
include_patterns = ["chapters/*.ipynb", "chapters/*.md", "library/*.rst"]
suppress_warnings = [
    "etoc.toctree",  # a title in _toc.yml's parts is no page
    "mystnb.unknown_mime_type",  # results are for programs; a table beside them is for people
]

nb_execution_mode = "off"  # what is shown was executed before, and is checked by nbval
nb_render_markdown_format = "myst"  # a table that a cell shows as Markdown
myst_enable_extensions = ["alert", "amsmath", "colon_fence", "dollarmath"]

add_module_names = False
maximum_signature_line_length = 72
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
default_role = "code"
nitpick_ignore_regex = [("py:.*", ".*")]  # the types of other packages have their pages on the network

html_theme = "sphinx_book_theme"
html_title = project
html_theme_options = {
    "navbar_persistent": [],  # one search bar is enough
    "use_download_button": False,  # each chapter begins with links to its files
}
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_scaled_image_link = False  # site.js opens a picture large, on the page
html_show_sourcelink = False

if tags.has("page"):  # a rerun as one page, which has no others to lead to; see build.build_page
    include_patterns = ["run.ipynb"]
    html_sidebars = {"**": []}
    html_theme_options |= {"article_header_start": [], "disable_search": True}


def inside(package: str, *parts: str) -> str:
    """The path of a file that a Python package brings along."""
    return str(Path(find_spec(package).submodule_search_locations[0], *parts))


# MathJax as one file from a Python package, so that no page asks the network for it.
mathjax_path = "tex-svg-full.js"
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_use_index = html_domain_indices = False  # the search finds more
html_static_path = [
    inside("mathjax", "static", "mathjax", "es5", mathjax_path),
    inside("book_utils", "workbench", html_css_files[0]),
    inside("book_utils", "workbench", html_js_files[0]),
]
