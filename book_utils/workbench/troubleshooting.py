"""The page that gathers the tables "When it goes wrong" of all chapters."""

import re
from pathlib import Path

from book_utils.workbench.files import chapter_scripts, chapter_title

HEADING = "## When it goes wrong"
INTRODUCTION = (
    "# When it goes wrong\n\n"
    "Every chapter has a table of what goes wrong in its part. Here they stand together, to be searched by symptom. "
    "The heading of each leads to its chapter.\n"
)


def gather() -> str:
    """The page as Markdown: a section for each chapter, with the chapter's own table."""
    sections = [
        f"## [{chapter_title(script)}]({script.stem}.ipynb)\n\n{_table(script)}\n" for script in chapter_scripts()
    ]
    return "\n".join([INTRODUCTION, *sections])


def _table(script: Path) -> str:
    """The lines of the pipe table in the section. ValueError where there is none."""
    _, found, section = script.read_text("utf-8").partition(f"# {HEADING}\n")
    table = re.search(r"(?:^# \|.*\n)+", section.partition("\n# ## ")[0], re.MULTILINE)
    if not found or not table:
        raise ValueError(f"{script.name} has no table under {HEADING!r}")
    return re.sub("^# ", "", table[0], flags=re.MULTILINE).rstrip()
