"""The library's pages on the site: one for each module, from its docstrings and signatures.

The docstrings are written to be read in a notebook, by `help` or `?`, so they hold no markup but backticks. What they
hold is turned into reStructuredText, the language in which Sphinx reads docstrings.
"""

import inspect
import re
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path

from book_utils import workbench
from book_utils.workbench.files import ROOT, chapter_scripts

_INTRODUCTION = """What the chapters build, in its final form, in the order of the chapters.

The names that a reader of the chapters needs can be imported from ``book_utils`` itself.
"""
_WORKBENCH = "* :doc:`workbench`: what the chapters use to show and to check."
FOLDER = "library"  # of the pages, in the site
_COLUMNS = re.compile(r"(\S.*?) {2,}(\S.*)")  # "name   what it means"


def write_pages(site: Path) -> None:
    """Write a page for each module, and one that lists them, into the folder of the site's sources."""
    (site / FOLDER).mkdir()
    names = modules()
    for name in names:
        text = f".. automodule:: book_utils.{name}\n   :members:\n   :undoc-members:\n   :ignore-module-all:\n"
        _write(site, name, name, text)
    tools = [_member(name) for name in workbench.__all__]
    _write(site, "workbench", "workbench", "\n".join(["What the chapters use to show and to check.\n", *tools]))
    rows = [f"* :doc:`{name}`: {_text(_summary(name))}" for name in names]
    order = ["", ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in [*names, "workbench"])]
    _write(site, "index", "The library", "\n".join([_INTRODUCTION, *rows, _WORKBENCH, *order]))


def page(path: str) -> str:
    """The page for a module's file, named without its ending: "kv_cache", "parity/stages", "parity/__init__"."""
    return path.replace("/", ".").removesuffix("__init__").rstrip(".") or "index"


def process_docstring(app, what, name, object, options, lines) -> None:
    """Sphinx calls this for each docstring that it shows."""
    lines[:] = as_rst("\n".join(lines)).splitlines()


def leave_out(app, what, name, object, skip, options) -> bool | None:
    """Sphinx asks this for each member. Fields are explained with their class; methods have a signature to show."""
    return True if what == "class" and not (inspect.isroutine(object) or isinstance(object, property)) else None


def own_signature(app, what, name, object, options, signature, returns) -> tuple[str, str] | None:
    """Sphinx asks this for each signature: a class without an `__init__` of its own has none to show."""
    return ("", "") if what == "class" and signature == "(*args, **kwargs)" else None


def as_rst(docstring: str) -> str:
    """A docstring of this project as reStructuredText: examples as code, columns as definitions, chapters as links."""
    grouped = groupby(docstring.splitlines(), key=lambda line: bool(line.strip()))
    return "\n\n".join(_paragraph(list(lines)) for filled, lines in grouped if filled) + "\n"


def _paragraph(lines: list[str]) -> str:
    if lines[0].startswith("    "):
        return "\n".join([".. code-block:: python", "", *lines])
    if not _COLUMNS.fullmatch(lines[0]):
        return _text("\n".join(lines).replace("\nSource: ", "\n\nSource: "))
    entries = []  # [name, meaning]; a long name has its meaning on the next line
    for line in lines:
        if line.startswith(" "):
            entries[-1][1] += f" {line.strip()}"
        else:
            found = _COLUMNS.fullmatch(line)
            entries.append([found[1], found[2]] if found else [line, ""])
    return "\n".join(f"``{name}``\n   {_text(meaning.strip())}" for name, meaning in entries)


def _text(text: str) -> str:
    """Text whose only markup are backticks, around code."""
    pieces = text.split("`")
    for i, piece in enumerate(pieces):
        pieces[i] = f"\\ ``{piece}``\\ " if i % 2 else _chapter_links(re.sub(r"([*|_\\])", r"\\\1", piece))
    return "".join(pieces)


def _chapter_links(text: str) -> str:
    """Chapters of this book become links; the comma before is how another book's are cited."""
    return re.sub(r"(?<!, )\bchapter (\d+)", lambda found: _chapter_link(found[0], int(found[1])), text)


@cache
def _chapter_link(text: str, number: int) -> str:
    pages = [script.stem for script in chapter_scripts() if int(script.stem[:2]) == number]
    return f":doc:`{text} </chapters/{pages[0]}>`" if pages else text


def modules() -> list[str]:
    """The public modules of the library by their names within book_utils, in the order of the chapters."""
    folder = ROOT / "book_utils"
    paths = [path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py")]
    names = [".".join(parts).removesuffix(".__init__") for parts in paths if parts[0] != "workbench"]
    return sorted((name for name in names if not name.startswith("_")), key=lambda name: (chapter(name), name))


def _summary(name: str) -> str:
    """The first paragraph of a module's docstring, on one line."""
    paragraph = import_module(f"book_utils.{name}").__doc__.partition("\n\n")[0]
    return " ".join(paragraph.split())


def chapter(name: str) -> int:
    """The chapter that a module belongs to: its summary names it; a package's does for all of it."""
    return int(re.search(r"\(chapter (\d+)\)", _summary(name.partition(".")[0]))[1])


def _member(name: str) -> str:
    tool = getattr(workbench, name)
    kind, options = ("class", "   :members:\n") if inspect.isclass(tool) else ("function", "")
    return f".. auto{kind}:: {tool.__module__}.{name}\n{options}"


def _write(site: Path, name: str, title: str, text: str) -> None:
    (site / FOLDER / f"{name}.rst").write_text(f"{title}\n{'=' * len(title)}\n\n{text}\n", "utf-8")
