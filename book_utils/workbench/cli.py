"""The command line of the book, `python -m book_utils`. Each command imports what it needs when it runs."""

import click

CELL_LIMIT = click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Seconds that one cell may take.",
)


@click.group()
def main():
    """Build, check and rerun the book."""


@main.command()
@CELL_LIMIT
def book(timeout):
    """Execute every chapter into _build/ and build the site from these runs."""
    from book_utils.workbench.build import build_book

    build_book(timeout)


@main.command()
def site():
    """Build the site from the committed outputs, in seconds."""
    from book_utils.workbench.build import build_site

    build_site()


@main.command()
@click.argument("names", nargs=-1)
@CELL_LIMIT
def chapters(names, timeout):
    """Execute chapters and replace the committed notebooks (all, or those named, say 02_layer_norm)."""
    from book_utils.workbench.build import build_chapters

    build_chapters(names, timeout)


@main.command()
def pairs():
    """Say whether each script and its notebook agree."""
    from book_utils.workbench.build import check_pairs

    check_pairs()
