"""Where the book's files are."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def chapter_scripts(root: Path = ROOT) -> list[Path]:
    """The chapters' scripts, in the order of `_toc.yml`, the one list of chapters."""
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    return [root / f"{chapter['file']}.py" for part in toc["parts"] for chapter in part["chapters"]]
