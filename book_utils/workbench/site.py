"""What the site does differently from myst-nb: a figure brings its own alternative text."""

from typing import ClassVar


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
