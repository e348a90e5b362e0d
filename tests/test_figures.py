"""The figure helper, and the kept figures: words beside each, and plotted numbers that are computed here once more."""

import json
import math
import re
from collections import defaultdict
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from colorspacious import cspace_convert, deltaE

from book_utils.workbench import chapter_map, diagram, figure
from book_utils.workbench.figures import COLORS, STYLE, Drawing
from book_utils.workbench.files import ROOT, chapter_scripts

KEPT = sorted((ROOT / "figures").glob("*.json"))
PHONE = 328  # px, the width of a figure on a page 360 px wide
SVG = "{http://www.w3.org/2000/svg}"
each_figure = pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)


def draw(name="line"):
    data = {"x": [0.0, 1.0], "y": [1 / 3, 2.0]}
    with figure(name, alt="A <rising> line", words=["x runs from 0 to 1.", "y rises to 2."], data=data) as ax:
        ax.plot(data["x"], data["y"], label="line")
        ax.legend()


def test_a_figure_is_kept_only_where_a_folder_is_named_and_is_the_same_bytes_each_time(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("BOOK_FIGURES", raising=False)
    monkeypatch.chdir(tmp_path)
    draw()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == "Figure: A <rising> line\n1. x runs from 0 to 1.\n2. y rises to 2.\n"
    bundle, metadata = Drawing(
        "<svg/>", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x80", "seen"
    )._repr_mimebundle_()
    assert bundle["text/plain"] == "Figure: seen" and metadata["image/png"] == {"alt": "seen", "width": 256}
    kept = []
    for folder in ("first", "second"):
        monkeypatch.setenv("BOOK_FIGURES", str(tmp_path / folder))
        draw()
        kept.append([(tmp_path / folder / name).read_bytes() for name in ("line.svg", "line.json")])
    assert kept[0] == kept[1]
    assert b"<title>A &lt;rising&gt; line</title>" in kept[0][0] and b"<dc:date>" not in kept[0][0]
    beside = json.loads(kept[0][1])
    assert beside["data"] == {"x": [0.0, 1.0], "y": [0.33333333, 2.0]} and len(beside["words"]) == 2


def test_an_error_while_drawing_keeps_and_shows_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BOOK_FIGURES", str(tmp_path))
    with pytest.raises(ZeroDivisionError), figure("half", alt="a", words=["b"], data={}) as ax:
        ax.plot([0, 1 / 0])
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().out == ""


def test_a_figure_leaves_matplotlibs_settings_and_backend_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw()
    assert dict(matplotlib.rcParams) == before


def test_a_diagram_keeps_its_boxes_and_arrows(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOK_FIGURES", str(tmp_path))
    with diagram("flow", 10, 8, alt="Two boxes", words=["From a to b."]) as d:
        d.box("a", 5, 7, "first")
        d.plus("b", 5, 2)
        d.arrow("a", "b", "x")
        d.shortcut("a", "b", 9)
    data = json.loads((tmp_path / "flow.json").read_text("utf-8"))["data"]
    assert data == {"boxes": {"a": "first", "b": "+"}, "arrows": [["a", "b"], ["a", "b"]]}


def test_every_figure_that_a_chapter_draws_is_kept_and_no_other():
    drawn = {
        name
        for script in chapter_scripts()
        for name in re.findall(r'with (?:figure|diagram)\(\s*"(\w+)"', script.read_text("utf-8"))
    }
    drawn |= {f"{plan.name.partition('.')[0][3:]}_sweep" for plan in (ROOT / "chapters").glob("*.sweep.yml")}
    pictures = {path.stem for path in (ROOT / "figures").glob("*.svg")}
    assert drawn == {path.stem for path in KEPT} == pictures - {chapter_map.NAME}


@each_figure
def test_every_figure_has_a_sentence_and_steps_and_data(path):
    beside = json.loads(path.read_text("utf-8"))
    assert len(beside["alt"]) > 30 and len(beside["words"]) >= 3 and beside["data"]
    assert "<title>" in path.with_suffix(".svg").read_text("utf-8")


@each_figure
def test_the_text_of_a_figure_can_be_read_on_a_phone(path):
    svg = path.with_suffix(".svg").read_text("utf-8")
    width = float(re.search(r'width="([\d.]+)pt"', svg)[1])
    # the outer group of each text: its font size is 100 times the scale; signs above and below the line lie inside
    sizes = [
        100 * float(size) for size in re.findall(r"<g [^>]*transform=\"translate\([^)]*\)[^\"]*scale\(([\d.]+) -", svg)
    ]
    assert sizes and min(sizes) * PHONE / width >= 8, f"text {min(sizes):.0f} pt high in a figure {width:.0f} pt wide"


def seen(color, deficiency=None):
    """A colour as one without a kind of cones sees it, red, green and blue from 0 to 1."""
    rgb = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    space = {"name": "sRGB1+CVD", "cvd_type": deficiency, "severity": 100}
    return np.clip(cspace_convert(rgb, space, "sRGB1"), 0, 1) if deficiency else np.array(rgb)


def contrast(rgb):
    """The contrast with white, as the Web Content Accessibility Guidelines 2.2 define it: 1 .. 21."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05)


@pytest.mark.parametrize("deficiency", [None, "protanomaly", "deuteranomaly", "tritanomaly"])
def test_lines_are_seen_and_told_apart_by_colour_blind_readers(deficiency):
    """Simulated after Machado et al. 2009; a distance of 10 in CAM02-UCS is plain to see side by side."""
    lines = [seen(color, deficiency) for color in STYLE["axes.prop_cycle"].by_key()["color"]]
    assert min(float(deltaE(a, b, input_space="sRGB1")) for a, b in combinations(lines, 2)) > 10
    assert min(map(contrast, lines)) > 2.8  # the guidelines ask for 3 of a graphic in its own colours
    assert deficiency or min(map(contrast, lines)) > 3


@each_figure
def test_lines_of_two_colours_differ_in_more_than_colour(path):
    """In grey they are told apart by their dashes or their markers."""
    root = ElementTree.parse(path.with_suffix(".svg")).getroot()
    colors = {color.lower() for color in COLORS}
    for axes in (group for group in root.iter(f"{SVG}g") if group.get("id", "").startswith("axes_")):
        looks = defaultdict(set)
        for line in (group for group in axes.findall(f"{SVG}g") if group.get("id", "").startswith("line2d_")):
            styles = [part.get("style", "") for part in line.iter() if part.get("style")]
            marker = [part.get("d") for part in line.iterfind(f"{SVG}defs/{SVG}path")]
            dashes = re.findall(r"stroke-dasharray: ([\d., ]+)", " ".join(styles))
            filled = sorted(
                {fill for style in styles for fill in re.findall(r"fill: (none|#\w+)", style)} & {"none", "#ffffff"}
            )
            look = (tuple(dashes[:1]), tuple(marker), tuple(filled) if marker else ())
            looks[look] |= colors & set(re.findall(r"stroke: (#\w+)", " ".join(styles)))
        assert all(len(found) <= 1 for found in looks.values()), looks


# The numbers behind the curves, once more, from their formulas and with none of the book's classes


def data_of(name):
    return json.loads((ROOT / "figures" / f"{name}.json").read_text("utf-8"))["data"]


def normal_cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def tanh_form(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def test_the_curves_of_gelu_and_relu():
    data = data_of("gelu_relu")
    density = [math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) for x in data["x"]]
    assert data["GELU"] == pytest.approx([x * normal_cdf(x) for x in data["x"]], abs=1e-7)
    slopes = [normal_cdf(x) + x * phi for x, phi in zip(data["x"], density, strict=True)]
    assert data["GELU's derivative"] == pytest.approx(slopes, abs=1e-7)
    assert data["ReLU"] == [max(0.0, x) for x in data["ReLU, x"]]


def test_the_curve_of_the_difference_between_the_two_forms():
    data = data_of("gelu_difference")
    expected = [tanh_form(x) - x * normal_cdf(x) for x in data["x"]]
    assert data["tanh form − erf form"] == pytest.approx(expected, abs=1e-11)
    assert 4e-4 < max(map(abs, expected)) < 5e-4


def test_the_gradient_means():
    data = data_of("gradient_means")
    for name, shortcut in [("without shortcuts", 0), ("with shortcuts", 1)]:
        torch.manual_seed(123)
        layers = [torch.nn.Linear(3, width).double() for width in (3, 3, 3, 3, 1)]
        x = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64)
        for layer in layers:
            out = torch.nn.functional.gelu(layer(x), approximate="tanh")
            x = out + shortcut * x if layer.out_features == 3 else out
        (x**2).sum().backward()
        means = [layer.weight.grad.abs().mean().item() for layer in layers]
        assert data[name] == pytest.approx(means, rel=1e-7)


def test_the_attention_weights_are_causal_and_shared_out():
    weights = data_of("attention_weights")["weights"]
    assert [sum(row) for row in weights] == pytest.approx([1.0] * len(weights), abs=1e-6)
    assert all(weight == 0 for t, row in enumerate(weights) for weight in row[t + 1 :])
