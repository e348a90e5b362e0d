"""A figure that follows sliders, for someone who has the notebook open. Everywhere else it shows nothing at all."""

from base64 import b64encode
from html import escape
from io import BytesIO

import ipywidgets as widgets
import matplotlib as mpl
import torch
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from book_utils.shortcuts import ExampleDeepNeuralNetwork, gradient_means
from book_utils.workbench.figures import PNG_DPI, STYLE


def explore_gradients(depth: int, width: int, seed: int, use_shortcut: bool) -> None:
    """Show chapter 4's figure of the gradients with sliders for what it depends on, starting at these values.

    It appears only in a notebook that is open in JupyterLab or the like. Runs without a reader (scripts, papermill,
    nbval, the commands that build the book) show nothing, so their outputs stay comparable.

    depth         layers, the last of which has one output; between 2 and 64
    width         features before the last layer; between 2 and 64
    seed          of the weights
    use_shortcut  which of the two networks is drawn strong; the other one stays, faint, to compare with
    """
    if _someone_is_reading():
        display(gradients_explorer(depth, width, seed, use_shortcut))


def _someone_is_reading() -> bool:
    """Whether the cell was sent by a front end: it names the cell, which programs that run notebooks do not.

    No variable of the environment says this: a program that was started from a notebook inherits them.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    return kernel is not None and "cellId" in kernel.get_parent("shell").get("metadata", {})


def gradients_explorer(depth: int, width: int, seed: int, use_shortcut: bool) -> widgets.VBox:
    """The widgets of `explore_gradients`; numbers out of range are moved to its end."""
    style = {"description_width": "5em"}
    controls = {
        "depth": widgets.IntSlider(depth, 2, 64, description="depth", tooltip="number of layers", style=style),
        "width": widgets.IntSlider(width, 2, 64, description="width", tooltip="features of a layer", style=style),
        "seed": widgets.BoundedIntText(seed, 0, 2**32 - 1, description="seed", tooltip="of the weights", style=style),
        "use_shortcut": widgets.Checkbox(use_shortcut, description="shortcuts", style=style),
    }
    picture = widgets.HTML()

    def draw(_=None):
        picture.value = _picture(**{name: control.value for name, control in controls.items()})

    for control in controls.values():
        control.observe(draw, "value")
    draw()
    return widgets.VBox([*controls.values(), picture])


def gradient_lines(depth: int, width: int, seed: int) -> dict[str, list[float]]:
    """The mean absolute gradient of each layer, without and with shortcuts, as chapter 4 computes them."""
    x = torch.linspace(1, -1, width, dtype=torch.float64).unsqueeze(0)  # [1, width]
    lines = {}
    for name, use_shortcut in [("without shortcuts", False), ("with shortcuts", True)]:
        with torch.random.fork_rng(devices=[]):  # the notebook's own draws go on as if nobody had moved a slider
            torch.manual_seed(seed)
            network = ExampleDeepNeuralNetwork([width] * depth + [1], use_shortcut).double()
        lines[name] = list(gradient_means(network, x).values())
    return lines


def _picture(depth: int, width: int, seed: int, use_shortcut: bool) -> str:
    lines = gradient_lines(depth, width, seed)
    chosen = list(lines)[use_shortcut]
    png = BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        fig = Figure()
        ax = fig.subplots()
        for (name, means), marker in zip(lines.items(), "os", strict=True):
            label = f"{name} (0 is not drawn)" if min(means) == 0 else name
            drawn = [m if m > 0 else float("nan") for m in means]
            ax.plot(range(1, depth + 1), drawn, marker=marker, label=label, alpha=1 if name == chosen else 0.35)
        ax.set_yscale("log")
        ax.set(xlabel="layer (1 is next to the input)", ylabel="mean |gradient| (no unit)")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend()
        fig.savefig(png, format="png", dpi=PNG_DPI)
    ends = "; ".join(f"{name}, {means[0]:.1e} first and {means[-1]:.1e} last" for name, means in lines.items())
    alt = (
        f"Mean absolute gradient of each of {depth} layers with {width} features at seed {seed}, on a logarithmic "
        f"axis: {ends}. The line {chosen} is strong, the other one faint."
    )
    data = b64encode(png.getvalue()).decode()
    size = f"{STYLE['figure.figsize'][0] * 96:.0f}"
    return f'<img alt="{escape(alt)}" width="{size}" src="data:image/png;base64,{data}">'
