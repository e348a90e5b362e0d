"""A chapter is a pair: the script, which is the source, and the notebook, which adds the outputs."""

import json
from hashlib import sha256
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

from book_utils._files import write_whole


def read_source(script: Path) -> NotebookNode:
    """The notebook that a chapter's script describes, without outputs. The same script gives the same notebook."""
    notebook = jupytext.read(script)
    notebook.metadata["jupytext"] = {
        "formats": notebook.metadata["jupytext"]["formats"]
    }  # the rest is the script's own
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    taken = set()
    for cell in notebook.cells:
        cell.id = _cell_id(cell, taken)
    return notebook


def _cell_id(cell: NotebookNode, taken: set[str]) -> str:
    """An id that follows from the content, so that a conversion never changes it."""
    count = 0
    while (new := sha256(f"{count}{cell.cell_type}{cell.source}".encode()).hexdigest()[:8]) in taken:
        count += 1  # the same content stands above already
    taken.add(new)
    return new


def differences(script: Path) -> list[str]:
    """Where the notebook beside `script` says something else than the script, a line each; contents, not times."""
    notebook = script.with_suffix(".ipynb")
    if not notebook.exists():
        return [f"{notebook.name} is missing"]
    ours, theirs = read_source(script).cells, nbformat.read(notebook, as_version=4).cells
    lines = [
        f"cell {number}: another {part}"
        for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1)
        for part in _PARTS
        if _PARTS[part](a) != _PARTS[part](b)
    ]
    if len(ours) != len(theirs):
        lines.append(f"the script has {len(ours)} cells, the notebook {len(theirs)}")
    return lines


_PARTS = {
    "type": lambda cell: cell.cell_type,
    "text": lambda cell: cell.source,
    "tag": lambda cell: cell.metadata.get("tags", []),
}


def has_newer_edits(script: Path) -> bool:
    """Whether the notebook differs from the script and was saved after it: an edit, perhaps, not to be lost."""
    notebook = script.with_suffix(".ipynb")
    return notebook.exists() and notebook.stat().st_mtime > script.stat().st_mtime and bool(differences(script))


def leave_out_the_machine(notebook: NotebookNode | dict) -> None:
    """Remove what tells when and where a notebook was executed: time stamps, and the version of Python."""
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)
    notebook["metadata"].get("language_info", {}).pop("version", None)


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook in the form that is committed. Its JSON is strict: what is not a number becomes a text."""
    leave_out_the_machine(notebook)
    write_whole(path, nbformat.writes(_strict(notebook)) + "\n")


def _strict(notebook: NotebookNode) -> NotebookNode:
    return nbformat.from_dict(json.loads(json.dumps(notebook), parse_constant=str))
