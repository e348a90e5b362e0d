"""`python -m book_utils`: the command line of the book."""

from book_utils.workbench.cli import main

main(prog_name="python -m book_utils")
