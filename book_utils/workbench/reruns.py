"""One chapter with other parameters: executed, its outcome noted in it and the cell marked where it ended."""

import platform
import re
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from book_utils.workbench.execute import Failure, execute
from book_utils.workbench.pairs import read_source, write_notebook
from book_utils.workbench.results import Results, published
from book_utils.workbench.runs import ABOUT, COLUMNS, COMPLETE, PACKAGES, Run


def notebook_of(run: Run) -> NotebookNode:
    """The chapter without outputs, and after its parameters a cell with the given ones, as papermill writes it."""
    notebook = read_source(run.script)
    del notebook.metadata["jupytext"]  # a run is no pair
    if run.given:
        lines = ["# Parameters", *(f"{name} = {value!r}" for name, value in run.given.items())]
        cell = new_code_cell("\n".join(lines), id="injected", metadata={"tags": ["injected-parameters"]})
        tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
        place = next(number for number, found in enumerate(tags) if "parameters" in found)
        notebook.cells.insert(place + 1, cell)
    notebook.metadata[ABOUT] = run.about()
    return notebook


def perform(
    notebook: NotebookNode, name: str, folder: Path, timeout: int, environment: Mapping[str, str]
) -> Failure | None:
    """Execute a run in place, note in its metadata how it went, and mark the cell where it ended too early."""
    start = time.monotonic()
    failure = execute(notebook, name, folder, timeout, {"BOOK_FIGURES": "", **environment})
    if not failure and (error := _unusable_results(notebook)):
        failure = Failure(name, "cell error", 0, "", error)
    notebook.metadata[ABOUT] |= {
        "status": failure.kind if failure else COMPLETE,
        "error": failure.error if failure else "",
        "seconds": round(time.monotonic() - start, 1),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in PACKAGES},
    }
    if failure:
        _mark(notebook, failure)
    return failure


def _unusable_results(notebook: NotebookNode) -> str:
    """Why what a run published cannot be gathered; an empty text if it can."""
    try:
        names = published(notebook).values
    except ValueError as error:
        return str(error)
    taken = [name for name in names if name in notebook.metadata[ABOUT]["parameters"] or name in COLUMNS]
    return f"the result {taken[0]} has the name of a parameter, or of a column that every run has" if taken else ""


def _mark(notebook: NotebookNode, failure: Failure) -> None:
    """Say at the top that the run did not reach its end, and in front of the cell that it ended there."""
    fence = "`" * (3 + max(map(len, re.findall("`+", failure.error)), default=0))
    quoted = "\n".join(f"> {line}" for line in [fence, *failure.error.splitlines(), fence])
    place = f" It ended in cell {failure.cell + 2}, below the heading “Here the run ended”." if failure.cell else ""
    notes = [new_markdown_cell(f"> [!CAUTION]\n> This run did not reach its end ({failure.kind}).{place}\n>\n{quoted}")]
    if failure.cell:
        ended = notebook.cells[failure.cell - 1]
        ended.metadata["tags"] = [*ended.metadata.get("tags", []), "failed"]
        notebook.cells.insert(failure.cell - 1, new_markdown_cell("## Here the run ended"))
    notebook.cells[:0] = notes


def rerun(run: Run, path: Path, timeout: int) -> tuple[Path, Failure | None, Results]:
    """Perform `run` and keep it at `path`. Returns where it is, what ended it too early, and its results.

    A run that ended too early does not take the place of one that is there: it goes beside it, as NAME.failed.ipynb.
    """
    notebook = notebook_of(run)
    failure = perform(notebook, path.name, Path.cwd(), timeout, {})
    if failure and path.exists():
        path = path.with_suffix(".failed.ipynb")
    write_notebook(notebook, path)
    return path, failure, Results([]) if failure else published(notebook)
