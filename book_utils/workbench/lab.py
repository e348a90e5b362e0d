"""JupyterLab for the book: how `make lab` starts it, and what a saved chapter leaves out."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from book_utils.workbench.files import ROOT
from book_utils.workbench.pairs import leave_out_the_machine

OPTIONS = {
    "--ServerApp.root_dir": str(ROOT),
    "--ServerApp.ip": "127.0.0.1",  # nobody but this machine
    "--LabApp.default_url": "/lab/tree/chapters/01_shell.ipynb",
    # other defaults than JupyterLab's, which a reader's own settings go before: neither news nor new versions
    # are looked up, and nobody is asked whether they may be
    "--LabApp.app_settings_dir": str(Path(__file__).with_name("lab_settings")),
    "--FileContentsManager.pre_save_hook": f"{__name__}.before_saving",
}
WIDGET = "application/vnd.jupyter.widget-view+json"


def start(arguments: Sequence[str] = ()) -> None:
    """Start JupyterLab with the book's options; `arguments` are more of its options, and go before the book's."""
    from jupyterlab.labapp import LabApp

    warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # jupytext calls ours, too
    given = {_short(argument.partition("=")[0]) for argument in arguments}
    ours = [f"{name}={value}" for name, value in OPTIONS.items() if _short(name) not in given]
    LabApp.launch_instance([*ours, *arguments])


def _short(name: str) -> str:
    """`ip` for `--ServerApp.ip` and for `--ip`."""
    return name.lstrip("-").rpartition(".")[2]


def before_saving(model: dict, **_) -> None:
    """Contents managers call this with what is to be saved: a chapter keeps nothing of the machine, and no widget.

    A widget lives in the kernel that made it. What would be saved of it is an address that leads nowhere.
    """
    if model["type"] == "notebook" and model["content"]:
        notebook = model["content"]
        leave_out_the_machine(notebook)
        notebook["metadata"].pop("widgets", None)
        for cell in notebook["cells"]:
            if "outputs" in cell:
                cell["outputs"] = [output for output in cell["outputs"] if WIDGET not in output.get("data", {})]
