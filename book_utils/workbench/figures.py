"""One style for every figure of the book, and one way to show and keep it.

A figure is shown three times: as a drawing, as a sentence (its alternative text) and in steps (`words`). Drawing and
numbers are kept only where the environment variable BOOK_FIGURES names a folder, which the commands that build the book
do; a reader who reruns a chapter overwrites nothing.
"""

import io
import json
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path

import matplotlib as mpl
from IPython.display import display
from matplotlib.figure import Figure

from book_utils._files import write_whole

PNG_DPI = 144  # sharp on most screens
# Okabe and Ito's colours, told apart by colour-blind readers; the line styles tell them apart in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLE = {
    "figure.figsize": (6.4, 3.6),
    "figure.facecolor": "white",  # a card that stays readable on a dark page
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 12,
    "axes.prop_cycle": mpl.cycler(color=COLORS[:4]) + mpl.cycler(linestyle=["-", "--", "-.", ":"]),
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2.2,
    "legend.frameon": False,
    "svg.hashsalt": "book",  # with no date, the same figure is the same bytes
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class Drawing:
    """A figure as a notebook shows it; a script prints its alternative text.

    The site takes the SVG. The PNG is for JupyterLab, which shows no SVG of a notebook that was not run here yet.
    """

    svg: str
    png: bytes
    alt: str

    def _repr_mimebundle_(self, **_):
        data = {"image/svg+xml": self.svg, "image/png": b64encode(self.png).decode(), "text/plain": repr(self)}
        width = int.from_bytes(self.png[16:20], "big") * 96 // PNG_DPI  # from the PNG's header; a page has 96 dpi
        return data, {"image/svg+xml": {"alt": self.alt}, "image/png": {"alt": self.alt, "width": width}}

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


@dataclass(frozen=True)
class Words:
    """A figure in steps, folded in a notebook and on the site."""

    steps: Sequence[str]

    def _repr_html_(self) -> str:
        items = "\n".join(f"<li>{escape(step)}</li>" for step in self.steps)
        # the sign is text, since JupyterLab hides a summary's own marker; the site hides it too (site.css)
        summary = '<summary style="cursor: pointer">▸ Read this figure in words</summary>'
        return f"<details>\n{summary}\n<ol>\n{items}\n</ol>\n</details>"

    def __repr__(self) -> str:
        return "\n".join(f"{number}. {step}" for number, step in enumerate(self.steps, 1))


@contextmanager
def figure(
    name: str,
    *,
    alt: str,
    words: Sequence[str],
    data: Mapping[str, object],
    size: tuple[float, float] | None = None,
    tolerance: float = 0.0,
    folder: Path | None = None,
    **subplots,
):
    """Draw inside the block, on the axes it yields; at its end the figure is shown with its words, and kept.

        with figure("squares", alt="…", words=["…", "…"], data={"x": x, "y": y}) as ax:
            ax.plot(x, y)

    name       the file's name without ending; kept, where BOOK_FIGURES names a folder, as NAME.svg and NAME.json
    alt        what is seen, in one sentence
    words      the figure in steps; numbers in them are rounded by the caller
    data       what is plotted, by label: numbers, strings, or (nested) sequences of them
    size       width and height in inches
    tolerance  how far the numbers of `data` may be off on another machine (those of a training); 0 for figures whose
               numbers and words are the same everywhere
    folder     where to keep it; None: where BOOK_FIGURES says, if it does
    subplots   as for matplotlib's Figure.subplots, say ncols=2, sharey=True
    """
    with mpl.rc_context():
        mpl.rcdefaults()  # not the settings of the reader's own matplotlibrc
        mpl.rcParams.update(STYLE)
        fig = Figure(figsize=size)
        yield fig.subplots(**subplots)
        svg, png = io.StringIO(), io.BytesIO()
        fig.savefig(svg, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None, "Title": alt})
        fig.savefig(png, format="png", bbox_inches="tight", metadata={"Software": None}, dpi=PNG_DPI)
    lines = [line.rstrip() for line in svg.getvalue().splitlines()]  # matplotlib ends some lines with a space
    drawing = Drawing("\n".join(lines) + "\n", png.getvalue(), alt)
    if folder := folder or os.environ.get("BOOK_FIGURES"):
        beside = {"alt": alt, "words": list(words), "data": {key: _plain(value) for key, value in data.items()}}
        beside |= {"tolerance": tolerance} if tolerance else {}
        write_whole(Path(folder) / f"{name}.svg", drawing.svg)
        write_whole(Path(folder) / f"{name}.json", json.dumps(beside, indent=1, ensure_ascii=False) + "\n")
    display(drawing)
    display(Words(list(words)))


def _plain(value: object) -> object:
    """Tensors and sequences as lists, floats to 8 significant digits: the rest differs between processors."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value
