"""What the site does differently from Sphinx and myst-nb.

- A figure brings its own alternative text.
- A link to a module's source leads to the module's page.
- A chapter begins with links to its notebook and its script.
- The map of the chapters stands in the page itself, so that its links work.
- A page that a browser shows gets the little that site.css and site.js add.
"""

import re
from typing import ClassVar

from docutils import nodes
from sphinx import addnodes

from book_utils.workbench import api, chapter_map

_SOURCE_LINK = re.compile(r"\]\(\.\./book_utils/([\w/]+)\.py\)")


def setup(app) -> dict:
    """Sphinx calls this once (see conf.py)."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("source-read", link_to_library)
    app.connect("doctree-read", add_downloads, priority=400)  # before Sphinx collects what can be downloaded
    app.connect("doctree-read", inline_map, priority=400)
    app.connect("autodoc-process-docstring", api.process_docstring)
    app.connect("autodoc-skip-member", api.leave_out)
    app.connect("autodoc-process-signature", api.own_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def link_to_library(app, docname, source) -> None:
    """A chapter names a module by its file, which JupyterLab opens; on the site the library's page stands for it."""
    source[0] = _SOURCE_LINK.sub(lambda found: f"](../{api.FOLDER}/{api.page(found[1])}.rst)", source[0])


def add_downloads(app, doctree) -> None:
    """Below a chapter's title: its notebook and its script."""
    docname = app.env.docname
    name = docname.rpartition("/")[2]
    if not name[0].isdigit():
        return
    links = []
    for file in (f"{name}.ipynb", f"{name}.py"):
        links += [
            nodes.Text(" · " if links else "Download: "),
            addnodes.download_reference("", "", nodes.literal("", file), reftarget=file, refdoc=docname),
        ]
    title = next(doctree.findall(nodes.title))
    title.parent.insert(title.parent.index(title) + 1, nodes.paragraph("", "", *links, classes=["downloads"]))


def inline_map(app, doctree) -> None:
    """The picture of the map becomes the map with its links."""
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].endswith(f"/{chapter_map.NAME}.svg"):
            image.replace_self(nodes.raw("", chapter_map.draw("{}.html"), format="html"))


class FigureRenderer:
    """A plug-in of myst-nb (see pyproject.toml): the `alt` in an SVG output's metadata becomes the picture's."""

    mime_priority_overrides: ClassVar = ()

    @staticmethod
    def handle_mime(renderer, data, inline):
        alt = data.output_metadata.get("image/svg+xml", {}).get("alt")
        if data.mime_type != "image/svg+xml" or alt is None:
            return None
        nodes = renderer.render_image(data)
        for node in nodes:
            node["alt"] = alt
        return nodes
