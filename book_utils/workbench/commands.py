"""The commands that rerun chapters: `parameters`, `rerun` and `sweep`."""

from collections.abc import Sequence
from pathlib import Path

import click
from tqdm import tqdm

from book_utils._tables import Table
from book_utils.workbench import files
from book_utils.workbench.parameters import read_parameters
from book_utils.workbench.results import published, read_notebook


def list_parameters(chapter: str | None) -> None:
    """Print what a chapter, or each, can be run with, and what it publishes. ValueError for an unknown chapter."""
    for script in [files.find_chapter(chapter)] if chapter else files.chapter_scripts():
        rows = [[p.name, p.type, repr(p.default), p.meaning] for p in read_parameters(script)]
        table = Table(["parameter", "type", "default", "meaning (range)"], rows) if rows else "no parameters"
        click.echo(f"{script.stem}\n{table}\n")
        if results := published(read_notebook(script.with_suffix(".ipynb"))).meanings:
            click.echo(f"{Table(['result', 'meaning'], list(map(list, results.items())))}\n")


def make_rerun(
    chapter: str,
    given: Sequence[tuple[str, str]],
    raw: Sequence[tuple[str, str]],
    output: Path | None,
    replace: bool,
    html: bool,
    timeout: int,
) -> int:
    """Make one run and say what came of it. Returns the exit status; ValueError or TypeError for what cannot be run."""
    from book_utils.workbench.places import run_place
    from book_utils.workbench.runs import plan, read_given

    run = plan(chapter, read_given(chapter, given, raw))
    path = output or files.ROOT / "runs" / f"{run.name}.ipynb"
    with run_place(path, replace):
        click.echo(f"running {files.shown(path)}")
        from book_utils.workbench.execute import EXIT
        from book_utils.workbench.reruns import rerun

        path, failure, results = rerun(run, path, timeout)
    if failure:
        click.echo(f"{failure}\nAs far as it came, the run is in {files.shown(path)}.", err=True)
    else:
        click.echo(f"{results}\n" if results.values else "it published no results")
        click.echo(f"The run is in {files.shown(path)}.")
    if html:
        from book_utils.workbench.build import build_page

        click.echo(f"As a page: {files.shown(build_page(path))}")
    return EXIT[failure.kind] if failure else 0


def make_sweep(file: Path, scheduler: str | None, workers: int | None, output: Path | None, timeout: int) -> int:
    """Make what is missing of a sweep, gather its results and draw its figure. Returns the exit status.

    ValueError for what the file cannot mean; OSError where nothing can be written, or no scheduler answers.
    """
    from book_utils.workbench.places import sweep_place
    from book_utils.workbench.sweeps import read_sweep

    sweep = read_sweep(file)
    folder = output or files.ROOT / "runs" / file.stem
    with sweep_place(folder, sweep.chapter):
        return _make_missing(sweep, folder, scheduler, workers, timeout)


def _make_missing(sweep, folder: Path, scheduler: str | None, workers: int | None, timeout: int) -> int:
    from book_utils.workbench import sweep_results
    from book_utils.workbench.runs import COMPLETE
    from book_utils.workbench.sweep_runs import carry_out

    total, lost = len(sweep.runs), {}
    sweep_results.write_table(sweep_results.gather(sweep, folder, lost), folder)
    with tqdm(total=total, unit="run", disable=None, leave=False) as bar:

        def report(done: int, line: str) -> None:
            bar.update(done - bar.n)
            tqdm.write(f"[{done}/{total}] {line}")

        try:
            carry_out(sweep, folder, scheduler, workers, timeout, report, lost)
        finally:  # also of what was made before Ctrl-C
            bar.close()
            rows = sweep_results.gather(sweep, folder, lost)
            for path in sweep_results.write_table(rows, folder):
                click.echo(f"wrote {files.shown(path)}")
            complete = sum(row["status"] == COMPLETE for row in rows)
            click.echo(f"{complete} of {total} runs are complete")
    if sweep.figure:
        from book_utils.workbench.sweep_figure import can_draw, draw

        if can_draw(rows, sweep.figure):
            draw(rows, sweep.figure, "figure", folder)
            click.echo(f"wrote {files.shown(folder / 'figure.svg')}")
        else:
            click.echo(f"no figure: no complete run has numbers for {sweep.figure['y']}")
    return 0 if complete == total else 3
