"""A run: a chapter and the parameters it is to be run with, checked before anything is started.

A run is kept as a notebook. Beside its outputs it holds, in its metadata under `assembling_gpt`, what it is:

    {"chapter": "04_shortcuts", "parameters": {"depth": 24, …}, "source": "3f2a…", "status": "complete", "error": "",
     "seconds": 12.3, "versions": {"python": "3.11.2", "torch": "2.13.0", …}}

`parameters` are all of them, defaults too; `source` is a digest of the chapter's text; `status` is "complete" or the
kind of failure (`execute.EXIT` has them), and `error` says what happened.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from book_utils.workbench import files
from book_utils.workbench.parameters import checked, read_parameters

ABOUT = "assembling_gpt"  # in a notebook's metadata
COMPLETE = "complete"
PACKAGES = ("torch", "numpy", "book_utils")  # whose versions are noted
COLUMNS = ("status", "error", "seconds", "python", *PACKAGES)  # of a sweep's table, beside parameters and results


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

    def is_complete(self, notebook: Mapping) -> bool:
        """Whether `notebook` is this very run, of the chapter as it is now, and came to its end."""
        about = about_of(notebook)
        return about.get("status") == COMPLETE and about | self.about() == about


def about_of(notebook: Mapping) -> dict:
    """What a notebook notes of itself; nothing, if it is no run."""
    about = notebook["metadata"].get(ABOUT)
    return about if isinstance(about, dict) else {}


def _tame(value: object) -> str:
    """As part of a file's name on any system."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", str(value))


def _is_told(value: object) -> bool:
    """Whether the file's name tells the value; capitals do not, where a system takes them for small letters."""
    return not isinstance(value, str) or value == _tame(value).lower()


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def plan(chapter: str, given: Mapping) -> Run:
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
