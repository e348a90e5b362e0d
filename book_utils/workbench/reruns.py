"""One chapter with other parameters: checked before a kernel starts, executed, kept under a name that tells them.

A run is a notebook. Beside its outputs it holds, in its metadata under `assembling_gpt`, what it is:

    {"chapter": "04_shortcuts", "parameters": {"depth": 24, …}, "source": "3f2a…", "status": "complete", "error": "",
     "seconds": 12.3, "versions": {"python": "3.11.2", "torch": "2.13.0", …}}

`parameters` are all of them, defaults too; `source` is a digest of the chapter's text; `status` is "complete" or the
kind of failure (`execute.EXIT` has them), and `error` says what happened.
"""

import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from book_utils.workbench import files
from book_utils.workbench.execute import Failure, execute
from book_utils.workbench.pairs import read_source, write_notebook
from book_utils.workbench.parameters import checked, read_parameters
from book_utils.workbench.results import Results, published

ABOUT = "assembling_gpt"  # in a notebook's metadata
COMPLETE = "complete"
PACKAGES = ("torch", "numpy", "book_utils")


@dataclass(frozen=True)
class Run:
    """A chapter and what it is run with: the parameters that were given, and all of them."""

    script: Path
    given: Mapping[str, object]
    parameters: Mapping[str, object]

    @property
    def chapter(self) -> str:
        return self.script.stem

    @property
    def name(self) -> str:
        """A file's name, without its ending, that tells the given parameters: "04_shortcuts,depth=24"."""
        name = ",".join([self.chapter, *(f"{key}={_tame(value)}" for key, value in self.given.items())])
        told = len(name) <= 150 and all(_is_told(value) for value in self.given.values())
        return name if told else f"{name[:140]}-{_digest(repr(dict(self.given)))[:8]}"

    def about(self) -> dict:
        """What the run is, as its notebook notes it."""
        source = _digest(self.script.read_text("utf-8"))
        return {"chapter": self.chapter, "parameters": dict(self.parameters), "source": source}

    def notebook(self) -> NotebookNode:
        """The chapter without outputs, and after its parameters a cell with the given ones, as papermill writes it."""
        notebook = read_source(self.script)
        del notebook.metadata["jupytext"]  # a run is no pair
        if self.given:
            lines = ["# Parameters", *(f"{name} = {value!r}" for name, value in self.given.items())]
            cell = new_code_cell("\n".join(lines), id="injected", metadata={"tags": ["injected-parameters"]})
            tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
            place = next(number for number, found in enumerate(tags) if "parameters" in found)
            notebook.cells.insert(place + 1, cell)
        notebook.metadata[ABOUT] = self.about()
        return notebook

    def is_complete(self, notebook: Mapping) -> bool:
        """Whether `notebook` is this very run, of the chapter as it is now, and came to its end."""
        about = notebook["metadata"].get(ABOUT, {})
        return about.get("status") == COMPLETE and about | self.about() == about


def _tame(value: object) -> str:
    """As part of a file's name on any system."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", str(value))


def _is_told(value: object) -> bool:
    """Whether the file's name tells the value; capitals do not, where a system takes them for small letters."""
    return not isinstance(value, str) or value == _tame(value).lower()


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def plan(chapter: str, given: Mapping[str, object]) -> Run:
    """The run of `chapter` with the parameters `given`, which are checked against the chapter's own cell.

    ValueError for an unknown chapter or parameter and out of range, TypeError for another type.
    """
    script = files.find_chapter(chapter)
    parameters = read_parameters(script)
    given = checked(parameters, given)
    return Run(script, given, {p.name: p.default for p in parameters} | given)


def read_given(chapter: str, given: Sequence[tuple[str, str]], raw: Sequence[tuple[str, str]]) -> dict[str, object]:
    """Values as a command line has them: each of `given` is read by the type of its parameter, each of `raw` is a text.

    ValueError for an unknown chapter, and for a parameter that is given twice.
    """
    known = {parameter.name: parameter for parameter in read_parameters(files.find_chapter(chapter))}
    values = {}
    for name, text in [*given, *raw]:
        if name in values:
            raise ValueError(f"the parameter {name} is given twice")
        values[name] = known[name].read(text) if name in known and (name, text) not in raw else text
    return values


def perform(
    notebook: NotebookNode, name: str, folder: Path, timeout: int, environment: Mapping[str, str]
) -> Failure | None:
    """Execute a run in place, note in its metadata how it went, and mark the cell where it ended too early."""
    start = time.monotonic()
    failure = execute(notebook, name, folder, timeout, {"BOOK_FIGURES": "", **environment})
    notebook.metadata[ABOUT] |= {
        "status": failure.kind if failure else COMPLETE,
        "error": failure.error if failure else "",
        "seconds": round(time.monotonic() - start, 1),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in PACKAGES},
    }
    if failure:
        _mark(notebook, failure)
    return failure


def _mark(notebook: NotebookNode, failure: Failure) -> None:
    """Say at the top that the run did not reach its end, and in front of the cell that it ended there."""
    fence = "`" * (3 + max(map(len, re.findall("`+", failure.error)), default=0))
    quoted = "\n".join(f"> {line}" for line in [fence, *failure.error.splitlines(), fence])
    place = f" It ended in cell {failure.cell + 2}, below the heading “Here the run ended”." if failure.cell else ""
    notes = [new_markdown_cell(f"> [!CAUTION]\n> This run did not reach its end ({failure.kind}).{place}\n>\n{quoted}")]
    if failure.cell:
        ended = notebook.cells[failure.cell - 1]
        ended.metadata["tags"] = [*ended.metadata.get("tags", []), "failed"]
        notebook.cells.insert(failure.cell - 1, new_markdown_cell("### Here the run ended"))
    notebook.cells[:0] = notes


@contextmanager
def claimed(path: Path, replace: bool = False) -> Iterator[None]:
    """Hold the place of a run, from before it is computed until it is written.

    ValueError for a place that is no run's, OSError for a run that exists (unless it may be replaced), for one that
    another command is making, and where nothing can be written.
    """
    shown = files.shown(path)
    if path.suffix != ".ipynb":
        raise ValueError(f"a run is a notebook, and its name ends in .ipynb; got {path}")
    if path.resolve().is_relative_to((files.ROOT / "chapters").resolve()):
        raise ValueError(f"{path} is among the chapters, where a run is never written")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.stem[:200]}.lock")
    try:
        with FileLock(lock, timeout=0):
            try:
                if path.exists() and not replace:
                    raise FileExistsError(f"{shown} exists; --replace writes over it, --output gives another name")
                yield
            finally:
                lock.unlink(missing_ok=True)
    except Timeout:
        raise BlockingIOError(f"another command is making {shown}") from None


def rerun(run: Run, path: Path, timeout: int, replace: bool = False) -> tuple[Failure | None, Results]:
    """Perform `run` and keep it at `path`, as far as it came. Returns what ended it too early, and its results."""
    with claimed(path, replace):
        notebook = run.notebook()
        failure = perform(notebook, path.name, Path.cwd(), timeout, {})
        write_notebook(notebook, path)
    return failure, published(notebook)
