"""JupyterLab's hook for the book, named by `make lab`: a saved chapter holds nothing of the machine that saved it."""

from book_utils.workbench.pairs import leave_out_the_machine


def before_saving(model: dict, **_) -> None:
    """Contents managers call this with what is to be saved."""
    if model["type"] == "notebook" and model["content"]:
        leave_out_the_machine(model["content"])
