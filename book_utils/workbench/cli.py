"""The command line of the book, `python -m book_utils`. Each command imports what it needs when it runs."""

import re
from pathlib import Path

import click

CELL_LIMIT = click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Seconds that one cell may take.",
)


class Book(click.Group):
    """What may end any command, Ctrl-C or the disk, is one line and a status of its own."""

    def invoke(self, context):
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            context.exit(130)
        except OSError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Book)
def main():
    """Build, check and rerun the book."""


@main.command(short_help="Execute every chapter and build the site.")
@CELL_LIMIT
def book(timeout):
    """Execute every chapter into _build/ and build the site from these runs."""
    from book_utils.workbench.build import build_book

    build_book(timeout)


@main.command(short_help="Build the site from the committed outputs.")
def site():
    """Build the site from the committed outputs, in seconds."""
    from book_utils.workbench.build import build_site

    build_site()


@main.command(context_settings={"ignore_unknown_options": True}, short_help="Open the chapters in JupyterLab.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF JUPYTERLAB]...")
def lab(arguments):
    """Open the chapters in JupyterLab. Its own options go through, say --no-browser."""
    from book_utils.workbench.lab import start

    start(arguments)


@main.command(short_help="Execute chapters; replace the committed ones.")
@click.argument("names", nargs=-1)
@CELL_LIMIT
def chapters(names, timeout):
    """Execute chapters and replace the committed notebooks (all, or those named, say 02_layer_norm)."""
    from book_utils.workbench.build import build_chapters

    build_chapters(names, timeout)


@main.command(short_help="Check that scripts and notebooks agree.")
def pairs():
    """Say whether each script and its notebook agree."""
    from book_utils.workbench.build import check_pairs

    check_pairs()


@main.command(short_help="List what a chapter can be run with.")
@click.argument("chapter", required=False)
def parameters(chapter):
    """List the parameters of CHAPTER, or of all chapters, and the results that are published.

    CHAPTER is a name such as 04_shortcuts.
    """
    from book_utils.workbench.commands import list_parameters

    try:
        list_parameters(chapter)
    except ValueError as error:
        _stop(error)


@main.command(short_help="Run a chapter with other parameters.")
@click.argument("chapter")
@click.option(
    "-p", "--parameter", "given", type=(str, str), multiple=True, metavar="NAME VALUE", help="As often as needed."
)
@click.option(
    "-r", "--raw", type=(str, str), multiple=True, metavar="NAME TEXT", help="The same, and a text whatever it is."
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="The notebook to write.  [default: in runs/, named after the run]"
)
@click.option("--replace", is_flag=True, help="Write over a run that exists.")
@click.option("--html", is_flag=True, help="Also write the run as a page with the look of the site.")
@CELL_LIMIT
@click.pass_context
def rerun(context, chapter, given, raw, output, replace, html, timeout):
    """Run CHAPTER with other parameters, and keep the run as a notebook in runs/.

    CHAPTER is a name such as 04_shortcuts. A value is written as in Python, a text without quotes: -p depth 24
    -p use_shortcut false. It is checked before anything runs; `python -m book_utils parameters CHAPTER` tells what is
    possible. The committed chapter is not touched. A run that fails is kept as far as it came, with the cell marked
    where it ended.

    Exit status: 0 done, 1 the run cannot be written there, 2 a wrong command or parameter, 3 a cell failed, 4 a cell
    ran longer than --timeout, 5 the kernel died, 130 interrupted.
    """
    from book_utils.workbench.commands import make_rerun

    try:
        status = make_rerun(chapter, given, raw, output, replace, html, timeout)
    except (ValueError, TypeError) as error:
        _stop(error)
    context.exit(status)


def _address(context, parameter, value):
    if value is not None and not re.fullmatch(r"tcp://\S+:\d+", value):
        raise click.BadParameter(f"{value!r} is no address such as tcp://127.0.0.1:8786")
    return value


@main.command(short_help="Run a chapter with many parameters.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    callback=_address,
    help="A Dask scheduler, tcp://HOST:PORT.  [default: workers on this machine]",
)
@click.option("--workers", type=click.IntRange(min=1), help="Runs at once, here.  [default: as many as cores]")
@click.option("--output", type=click.Path(path_type=Path), help="The folder to write.  [default: in runs/, as FILE]")
@CELL_LIMIT
@click.pass_context
def sweep(context, file, scheduler, workers, output, timeout):
    """Run a chapter with many parameters, several runs at a time, and gather the results.

    FILE is a YAML file; a short one:

    \b
        chapter: 04_shortcuts
        grid:                       # every combination
          depth: [2, 4, 8]
          use_shortcut: [false, true]
        figure: {x: depth, y: first_gradient, hue: use_shortcut}

    In place of `grid:`, `runs:` lists the parameters of each run. `figure:` may be left out, and so may its hue.

    A folder in runs/ gets a notebook for each run, the table results.csv (and results.parquet, where pyarrow is
    installed), and figure.svg. A run that fails is recorded, and the rest go on. Started again, the command makes only
    the runs that are missing, failed, or of another text of the chapter.

    Exit status: 0 every run is complete, 1 the folder cannot be written, or the scheduler is not there or went away,
    2 a wrong file or command, 3 some runs failed (the table says which), 130 interrupted.
    """
    from book_utils.workbench.commands import make_sweep

    try:
        status = make_sweep(file, scheduler, workers, output, timeout)
    except (ValueError, TypeError) as error:
        _stop(error)
    context.exit(status)


@main.command(short_help="Compare GPTModel with upstream's classes.")
@click.option(
    "--upstream",
    type=click.Path(exists=True, path_type=Path),
    help="A copy of upstream's gpt.py, or a folder that holds one. By default: the installed llms-from-scratch.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=123, show_default=True, help="Of weights and ids.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default="results.json",
    show_default=True,
    help="Where every difference and the verdict are written.",
)
@click.pass_context
def parity(context, upstream, seed, results):
    """Compare GPTModel with upstream's classes: same weights, same ids, every stage, in two configurations.

    Of a file only the definitions of upstream's six classes are read, checked, and run; nothing else of it runs.

    Start it in the book's folder: Python itself looks for modules in the current folder first.

    Exit status: 0 the same, 1 different, 2 no verdict (the file is refused, or cannot be compared).
    """
    from book_utils.parity import report

    try:
        report.check_place(results)
        comparisons = report.run(report.upstream_from(upstream), seed)
        content = report.results(comparisons, seed, from_package=upstream is None)
    except report.UpstreamFileError as error:
        report.write_results(
            results, report.no_verdict(upstream.resolve().name if upstream else report.PACKAGE, str(error))
        )
        _stop(error)
    except (ValueError, OSError) as error:
        _stop(error)
    report.write_results(results, content)
    for name, comparison in comparisons.items():
        same = report.is_same(comparison)
        click.echo(f"The {name} configuration: {'the same' if same else 'DIFFERENT'}")
        if name == "tiny" or not same:
            click.echo(f"{comparison}")
        click.echo(f"{comparison.summary()}; the threshold is {content['threshold']:.0e}\n")
    click.echo(f"written to {results}")
    context.exit(0 if content["verdict"] == "same" else 1)


@main.command(short_help="Train a small GPT, as chapter 13 does.")
@click.option("--steps", type=click.IntRange(min=1), default=800, show_default=True, help="Updates of the weights.")
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True, help="Texts in each step.")
@click.option("--learning-rate", type=click.FloatRange(min=0), default=8e-3, show_default=True, help="The largest one.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=26, show_default=True, help="Of all that is drawn.")
@click.option(
    "--every", type=click.IntRange(min=1), default=100, show_default=True, help="Steps between reports and checkpoints."
)
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Keep the training here, to go on with --resume.")
@click.option("--resume", is_flag=True, help="Go on where --checkpoint left off.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the trained model here, for load_model.")
def train(**options):
    """Train a small GPT to write couplets that hold a given keyword, as chapter 13 does.

    It takes about a quarter of a minute. To share the work of each step among two processes:

    torchrun --nproc-per-node 2 -m book_utils train
    """
    from book_utils.workbench.train import run

    try:
        run(**options)
    except (ValueError, OSError, FloatingPointError) as error:
        _stop(error)


def _stop(error):
    failure = click.ClickException(str(error))
    failure.exit_code = 2
    raise failure from None
