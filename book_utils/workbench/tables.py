"""Numbers for the eye: rounded lists, and small tables that are rich in a notebook and aligned text elsewhere."""

from collections.abc import Sequence

from IPython.display import display
from torch import Tensor

from book_utils._tables import Table


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], format: str = "z.4f", int_format: str = ""
) -> None:
    """Show a table in a notebook, or print it from a script.

    header      the column names
    rows        one sequence of cells per row, as long as the header (ValueError otherwise)
    format      how each float is written; the z keeps a rounded zero from being written -0
    int_format  how each int is written, say "," for thousands
    """
    rows = [list(row) for row in rows]
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(header)}: {row}")
    display(Table(list(header), rows, format, int_format))


def rounded(x: Tensor, decimals: int = 4) -> list | float:
    """The values of `x` as (nested) lists, rounded, with no negative zero."""
    return (x.detach().double().round(decimals=decimals) + 0.0).tolist()  # -0.0 + 0.0 is 0.0
