"""Where the book's files are, and how they are written: whole or not at all."""

import os
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def chapter_scripts(root: Path = ROOT) -> list[Path]:
    """The chapters' scripts, in the order of `_toc.yml`, the one list of chapters."""
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    return [root / f"{chapter['file']}.py" for part in toc["parts"] for chapter in part["chapters"]]


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader, or a power cut, finds the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, path.stat().st_mode if path.exists() else 0o644)  # mkstemp's own mode is private
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
