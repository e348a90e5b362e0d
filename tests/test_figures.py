"""The figure helper, and the kept figures: words beside each, and plotted numbers that are computed here once more."""

import json
import math
import re

import pytest
import torch

from book_utils.workbench import chapter_map, diagram, figure
from book_utils.workbench.figures import Drawing
from book_utils.workbench.files import ROOT, chapter_scripts

KEPT = sorted((ROOT / "figures").glob("*.json"))


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
    pictures = {path.stem for path in (ROOT / "figures").glob("*.svg")}
    assert drawn == {path.stem for path in KEPT} == pictures - {chapter_map.NAME}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_figure_has_a_sentence_and_steps_and_data(path):
    beside = json.loads(path.read_text("utf-8"))
    assert len(beside["alt"]) > 30 and len(beside["words"]) >= 3 and beside["data"]
    assert "<title>" in path.with_suffix(".svg").read_text("utf-8")


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
