"""Boxes and arrows, for the diagrams of the shell, the block and the whole route."""

from collections.abc import Sequence
from contextlib import contextmanager

from matplotlib.patches import Circle, FancyBboxPatch

from book_utils.workbench.figures import COLORS, figure

# Kinds differ in fill, border and line style, so that they can be told apart without colour.
KINDS = {
    "layer": {"facecolor": "#d6e9f8", "edgecolor": COLORS[0], "linewidth": 1.6},
    "placeholder": {"facecolor": "white", "edgecolor": "#555555", "linewidth": 1.6, "linestyle": "--"},
    "data": {"facecolor": "none", "edgecolor": "none"},
}
INK = "#222222"
UNIT = 0.32  # inches


@contextmanager
def diagram(name: str, width: float, height: float, *, alt: str, words: Sequence[str]):
    """A figure of `width` x `height` units on which boxes and arrows are drawn; kept and shown as `figure` does.

    Its data are the texts of the boxes and the pairs of names that arrows and shortcuts join.
    """
    data = {"boxes": {}, "arrows": []}
    with figure(name, alt=alt, words=words, data=data, size=(width * UNIT, height * UNIT)) as ax:
        ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
        ax.axis("off")
        yield Diagram(ax, data)


class Diagram:
    """Boxes first, then the arrows between them by name. y runs upwards; a line of text is about a unit high."""

    def __init__(self, ax, data: dict):
        self.ax = ax
        self._data = data
        self._edges = {}  # name -> (x, y, half width, half height)

    def box(
        self, name: str, x: float, y: float, text: str, *, kind: str = "layer", width: float = 9, height: float = 1.6
    ) -> None:
        """A box with its centre at (x, y). Kinds: "layer" (computes), "placeholder" (dashed), "data" (text alone)."""
        corner = (x - width / 2, y - height / 2)
        self.ax.add_patch(
            FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.3", **KINDS[kind])
        )
        self.text(x, y, text)
        self._place(name, text, x, y, width / 2, height / 2)

    def plus(self, name: str, x: float, y: float) -> None:
        """A sum: a small circle with a plus sign."""
        self.ax.add_patch(Circle((x, y), 0.6, facecolor="white", edgecolor=INK, linewidth=1.6))
        self.text(x, y, "+")
        self._place(name, "+", x, y, 0.6, 0.6)

    def frame(self, x: float, y: float, width: float, height: float, text: str) -> None:
        """A thin frame around a group, centre at (x, y), with its name at the upper right, inside."""
        corner = (x - width / 2, y - height / 2)
        style = {"facecolor": "none", "edgecolor": "#777777", "linewidth": 1, "linestyle": ":"}
        self.ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.4", **style))
        self.text(x + width / 2 - 0.4, y + height / 2 - 0.8, text, ha="right")

    def text(self, x: float, y: float, text: str, ha: str = "center") -> None:
        """Text alone, with its centre (or the side that `ha` names) at (x, y)."""
        self.ax.text(x, y, text, ha=ha, va="center", fontsize=11, color=INK)

    def arrow(self, start: str, end: str, label: str = "") -> None:
        """A straight arrow from the lower edge of `start` to the upper edge of `end`, or sideways at equal height.

        A label stands to the right of a vertical arrow.
        """
        self._data["arrows"].append([start, end])
        x0, y0, w0, h0 = self._edges[start]
        x1, y1, w1, h1 = self._edges[end]
        if y0 == y1:
            side = 1 if x1 > x0 else -1
            tail, head = (x0 + side * w0, y0), (x1 - side * w1, y1)
        else:
            side = 1 if y1 > y0 else -1
            tail, head = (x0, y0 + side * h0), (x1, y1 - side * h1)
        self._line([tail, head])
        if label:
            self.text((tail[0] + head[0]) / 2 + 0.4, (tail[1] + head[1]) / 2, label, ha="left")

    def shortcut(self, start: str, end: str, x: float) -> None:
        """A path that leaves below `start`, runs down at the position `x`, and enters `end` from the side."""
        self._data["arrows"].append([start, end])
        x0, y0, _, h0 = self._edges[start]
        x1, y1, w1, _ = self._edges[end]
        branch = y0 - h0 - 0.35
        side = 1 if x > x1 else -1
        self._line([(x0, branch), (x, branch), (x, y1), (x1 + side * w1, y1)])

    def _place(self, name: str, text: str, *edges: float) -> None:
        self._data["boxes"][name] = text
        self._edges[name] = edges

    def _line(self, points: list[tuple[float, float]]) -> None:
        style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14}
        if len(points) > 2:
            self.ax.plot(*zip(*points[:-1], strict=True), color=INK, linewidth=1.4, linestyle="-")
        self.ax.annotate("", xy=points[-1], xytext=points[-2], arrowprops=style)
