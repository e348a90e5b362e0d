"""The map on the home page: the model as a picture, each part of which leads to the chapter that builds it.

It is written as SVG by hand, and not drawn as the chapters' figures are, since its texts are links.
"""

from collections.abc import Iterable
from html import escape
from textwrap import wrap

from book_utils.workbench.figures import COLORS
from book_utils.workbench.files import chapter_scripts, chapter_title

NAME = "map"  # figures/map.svg is the map without links: a picture inside a page cannot be clicked
WIDTH, HEIGHT = 360, 752  # as wide as a phone, so that the text keeps its size
AXIS, SHORTCUT = 130, 296  # x of the way through the model, and of the way around a branch
LINE, LETTER = 17, 7.4  # height of a line, and about the width of a letter
STYLE = f"""
  .map text {{ font: 13px "DejaVu Sans", Verdana, sans-serif; fill: #222222; text-anchor: middle; }}
  .map .caption {{ font-weight: bold; }}
  .map .line {{ fill: none; stroke: #555555; stroke-width: 1.4; }}
  .map .dashed {{ stroke-dasharray: 5 4; }}
  .map .box {{ fill: #d6e9f8; stroke: {COLORS[0]}; stroke-width: 1.6; }}
  .map .plain {{ fill: white; stroke: #555555; stroke-width: 1.4; }}
  .map a {{ text-decoration: none; }}
  .map a tspan {{ text-decoration: underline; }}
  .map a:hover .box, .map a:focus .box {{ stroke-width: 4; }}
"""
# chapter, x and y of the centre, width and height. Layer normalization stands at three places of the model.
BOXES = [
    (1, 290, 72, 108, 26),
    (6, 290, 142, 100, 56),
    (2, AXIS, 195, 200, 26),
    (4, SHORTCUT - 8, 224, 104, 26),
    (5, AXIS, 237, 200, 26),
    (2, AXIS, 321, 200, 26),
    (3, AXIS, 371, 200, 42),
    (2, AXIS, 461, 200, 26),
    (7, 290, 482, 108, 42),
    *((8 + i, 62 + 118 * i, 636, 112, 44) for i in range(3)),
    *((11 + i, 62 + 118 * i, 722, 112, 44) for i in range(3)),
]
STAGES = [("embeddings", 72), ("output head", 503)]  # built in the chapters of the frame
TEXTS = [("token ids", AXIS, 24), ("logits", AXIS, 570), ("L times", 60, 144)]
CAPTIONS = [("Put to the proof", 604), ("In use", 690)]
FRAMES = [("", 6, 44, 348, 490), ("dashed", 14, 108, 332, 326)]  # the model, the block
SUMS = [276, 416]  # y of the two plus signs
ARROWS = [(30, 59), (85, 182), (208, 224), (250, 267), (285, 308), (334, 350), (392, 407), (425, 448), (474, 490)]
ARROWS += [(516, 554)]
BRANCHES = [(175, SUMS[0]), (295, SUMS[1])]  # y where a shortcut leaves the stream, and where it comes back


def draw(link: str | None = None) -> str:
    """The map as SVG. `link` makes a page of a chapter's name, say "{}.html"; without it nothing is a link."""
    drawn = "\n".join([*_frames(), *_ways(), *_stages(), *_chapters(link)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="group"'
        f' aria-label="Map of the chapters">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="white"/>\n{drawn}\n</svg>\n'
    )


def _chapters(link: str | None) -> Iterable[str]:
    for number, x, y, width, height in BOXES:
        script = chapter_scripts()[number - 1]
        drawn = _box("box", x, y, width, height) + _text(x, y, chapter_title(script), int(width / LETTER))
        yield f'<a href="{link.format(script.stem)}">{drawn}</a>' if link else drawn


def _stages() -> Iterable[str]:
    for name, y in STAGES:
        yield _box("plain", AXIS, y, 200, 26) + _text(AXIS, y, name)
    for y in SUMS:
        yield f'<circle class="plain" cx="{AXIS}" cy="{y}" r="9"/>{_text(AXIS, y, "+")}'
    for name, x, y in TEXTS:
        yield _text(x, y, name)
    for name, y in CAPTIONS:
        yield _text(WIDTH / 2, y, name, style="caption")


def _frames() -> Iterable[str]:
    for style, x, y, width, height in FRAMES:
        yield f'<rect class="line {style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'


def _ways() -> Iterable[str]:
    for start, end in ARROWS:
        yield f'<path class="line" d="M{AXIS} {start}V{end}m-4 -6l4 6l4 -6"/>'
    for start, end in BRANCHES:
        yield f'<path class="line" d="M{AXIS} {start}H{SHORTCUT}V{end}H{AXIS + 9}m6 -4l-6 4l6 4"/>'


def _box(style: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{style}" x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="5"/>'
    )


def _text(x: float, y: float, text: str, letters: int = 40, style: str = "") -> str:
    """Text centred at (x, y), on lines of at most so many letters."""
    lines = wrap(text.replace(" · ", "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}"), letters, break_on_hyphens=False)
    first = y + 4.5 - LINE / 2 * (len(lines) - 1)
    spans = [f'<tspan x="{x:g}" y="{first + LINE * i:g}">{escape(line)}</tspan>' for i, line in enumerate(lines)]
    return f'<text class="{style}">{" ".join(spans)}</text>'
