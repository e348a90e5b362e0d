"""Where the book's files are."""

import re
from pathlib import Path

import yaml

from book_utils.workbench.nearest import unknown

ROOT = Path(__file__).resolve().parents[2]


def chapter_scripts(root: Path = ROOT) -> list[Path]:
    """The chapters' scripts, in the order of `_toc.yml`, the one list of chapters."""
    return [root / f"{page}.py" for page in _pages(root) if page.name[0].isdigit()]


def find_chapter(name: str) -> Path:
    """The script of a chapter, by its name or by the path of its script or notebook. ValueError if there is none."""
    known = {script.stem: script for script in chapter_scripts()}
    stem = Path(name).stem if Path(name).suffix in (".py", ".ipynb") else name
    if stem not in known:
        raise ValueError(unknown("chapter", name, known))
    return known[stem]


def chapter_title(script: Path) -> str:
    """The title of a chapter with its number, "2 · Layer normalization"."""
    return re.search(r"^# # (.+)$", script.read_text("utf-8"), re.MULTILINE)[1]


def shown(path: Path) -> str:
    """A path for a message: from the book's folder on, if it is in there."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def other_pages(root: Path = ROOT) -> list[Path]:
    """The pages in `_toc.yml` that are no chapters, as it writes them: "chapters/glossary", say."""
    return [page for page in _pages(root) if not page.name[0].isdigit()]


def _pages(root: Path) -> list[Path]:
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    return [Path(page["file"]) for part in toc["parts"] for page in part["chapters"]]
