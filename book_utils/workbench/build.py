"""The commands that build the book: `book`, `site` and `chapters`."""

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import nbformat
from filelock import FileLock, Timeout
from nbformat.v4 import new_markdown_cell

from book_utils._files import write_whole
from book_utils.workbench import api, chapter_map, troubleshooting
from book_utils.workbench.execute import Failure, execute_chapters
from book_utils.workbench.files import ROOT, chapter_scripts, other_pages, shown
from book_utils.workbench.pairs import differences, has_newer_edits, write_notebook
from book_utils.workbench.runs import about_of

BUILD = ROOT / "_build"
HOME = "chapters/index.html"
_LINK_INSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")  # a link to another page of the book
LIBRARY = Path(api.FOLDER, "index")
# what follows from the chapters' texts, and is kept in step by `chapters`
FOLLOWING = {"chapters/troubleshooting.md": troubleshooting.gather, "figures/map.svg": chapter_map.draw}


@contextmanager
def _alone():
    """Refuse to run beside another command that builds: they would empty each other's folders."""
    BUILD.mkdir(exist_ok=True)
    try:
        with FileLock(BUILD / "lock", timeout=0):
            yield
    except Timeout:
        raise click.ClickException("another command is building the book; wait for its end, then try again") from None


@_alone()
def build_book(timeout: int) -> None:
    """Execute every chapter afresh into _build/book, and build the site from these runs. Touches nothing else."""
    source = _fresh_folder("book")
    failures = execute_chapters(_select(()), source / "chapters", source / "figures", timeout, click.echo)
    _stop_at(failures, source / "chapters")
    _build_site(source)
    click.echo(f"\nTo read the book, open {shown(BUILD / 'html' / 'index.html')} in a browser.")
    click.echo("To run it, type `make lab`: JupyterLab opens the chapters.")


@_alone()
def build_site() -> None:
    """Build the site from the committed notebooks, without executing anything."""
    source = _fresh_folder("site")
    (source / "chapters").mkdir(parents=True)
    for script in _select(()):
        notebook = script.with_suffix(".ipynb")
        if not notebook.exists():
            raise click.ClickException(f"{shown(notebook)} is missing; `make chapters` makes it")
        shutil.copy(notebook, source / "chapters")
    shutil.copytree(ROOT / "figures", source / "figures")
    _build_site(source)
    click.echo(f"\nTo read the book, open {shown(BUILD / 'html' / 'index.html')} in a browser.")


@_alone()
def build_chapters(names: tuple[str, ...], timeout: int) -> None:
    """Execute chapters (all, or those named) and replace the committed notebooks and figures by the results."""
    scripts = _select(names)
    newer = [script for script in scripts if has_newer_edits(script)]
    if newer:
        raise click.ClickException("\n".join(_newer_edits(script) for script in newer))
    run = _fresh_folder("chapters")
    failures = execute_chapters(scripts, run / "chapters", run / "figures", timeout, click.echo)
    _stop_at(failures, run / "chapters")
    for result in sorted([*(run / "chapters").glob("*.ipynb"), *(run / "figures").iterdir()]):
        _keep(ROOT / result.parent.name / result.name, result.read_text("utf-8"))
    for path, follow in FOLLOWING.items():
        if (ROOT / path).exists():
            _keep(ROOT / path, follow())


def check_pairs() -> None:
    """Exit with 1 where a script and its notebook differ, saying where and how to mend it."""
    found = [f"{script.stem}: {line}" for script in _select(()) for line in differences(script)]
    if found:
        raise click.ClickException("\n".join([*found, "To mend, edit the .py, then run `make chapters`."]))
    click.echo("Every script and its notebook agree.")


def _keep(committed: Path, text: str) -> None:
    """Write what a run gave, where it is new."""
    if not committed.exists() or committed.read_text("utf-8") != text:
        write_whole(committed, text)
        click.echo(f"wrote {shown(committed)}")


def _fresh_folder(name: str) -> Path:
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _select(names: tuple[str, ...]) -> list[Path]:
    scripts = {script.stem: script for script in chapter_scripts()}
    unknown = [name for name in names if name not in scripts]
    if unknown:
        raise click.ClickException(f"no chapter {', '.join(unknown)}; there are {', '.join(scripts)}")
    chosen = [scripts[name] for name in names or scripts]
    for script in chosen:
        if not script.exists():
            raise click.ClickException(f"_toc.yml lists {shown(script)}, which does not exist")
    return chosen


def _stop_at(failures: list[Failure], folder: Path) -> None:
    if failures:
        lines = [*map(str, failures), f"As far as they came, the notebooks are in {shown(folder)}."]
        raise click.ClickException("\n".join(lines))


def _newer_edits(script: Path) -> str:
    return (
        f"chapters/{script.stem}.ipynb was saved after {script.name} and differs from it.\n"
        f"  to keep the notebook's text: {sys.executable} -m jupytext --sync chapters/{script.stem}.ipynb\n"
        f"  to keep the script's text:   touch chapters/{script.name}"
    )


def _build_site(source: Path) -> None:
    """Run Sphinx over `source`, which holds the chapters and figures to show; any warning is an error."""
    shutil.copy(ROOT / "_toc.yml", source)
    shutil.copy(ROOT / "chapters" / "index.md", source / "chapters")
    for page in other_pages(ROOT):
        if page == LIBRARY:
            api.write_pages(source)
        else:
            shutil.copy(ROOT / page.with_suffix(".md"), source / "chapters")
    for script in _select(()):
        shutil.copy(script, source / "chapters")  # to be downloaded
    html, new = BUILD / "html", _fresh_folder("html.new")
    if _sphinx(source, new, "-W", "--keep-going"):
        raise click.ClickException("the site could not be built; Sphinx says why, above")
    write_whole(new / "index.html", f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={HOME}">\n')
    shutil.rmtree(html, ignore_errors=True)  # the old site stays until the new one is whole
    new.rename(html)


def build_page(run: Path) -> Path:
    """Show a run as one page with the look of the site: html/NAME.html beside it, where all pages share their parts."""
    pages = run.parent / "html"
    page = pages / f"{run.stem}.html"
    with TemporaryDirectory() as folder:
        source, html = Path(folder, "source"), Path(folder, "html")
        source.mkdir()
        notebook = nbformat.read(run, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = _LINK_INSIDE.sub(r"\1", cell.source)
        told = ", ".join(f"{name} = {value!r}" for name, value in about_of(notebook)["parameters"].items())
        note = new_markdown_cell(f"> [!NOTE]\n> This page is a rerun, with `{told}`.")
        starts = [(cell.cell_type, cell.source[:2]) for cell in notebook.cells]
        notebook.cells.insert(starts.index(("markdown", "# ")) + 1, note)
        write_notebook(notebook, source / "run.ipynb")
        write_whole(source / "_toc.yml", "format: jb-book\nroot: run\n")
        if _sphinx(source, html, "-t", "page"):
            raise click.ClickException("the page could not be built; Sphinx says why, above")
        for parts in ("_static", "_images"):
            if (html / parts).exists():
                shutil.copytree(html / parts, pages / parts, dirs_exist_ok=True)
        shutil.copy(html / "searchindex.js", pages)  # loaded by every page of the theme, searched by none of these
        write_whole(page, (html / "run.html").read_text("utf-8"))
    return page


def _sphinx(source: Path, html: Path, *options: str) -> int:
    """Build the pages in `source` with the site's settings. Returns Sphinx's exit status."""
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-E", "-d", str(source / ".doctrees"), *options]
    return subprocess.run([*command, "-c", str(ROOT), str(source), str(html)]).returncode
