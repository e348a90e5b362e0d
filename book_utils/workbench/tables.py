"""Numbers for the eye: rounded lists, and small tables that are rich in a notebook and aligned text elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from IPython.display import display
from torch import Tensor


@dataclass(frozen=True)
class Table:
    """Rows under a header. Numbers stand on the right; `format` is applied to each float."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    format: str

    def _cells(self) -> list[list[str]]:
        return [
            [f"{cell:{self.format}}" if isinstance(cell, float) else str(cell) for cell in row] for row in self.rows
        ]

    def _right(self) -> list[bool]:
        """For each column, whether it holds numbers (and so is aligned to the right)."""
        columns = zip(*self.rows, strict=True)
        return [all(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in col) for col in columns]

    def __repr__(self) -> str:
        cells = [list(map(str, self.header)), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, self._right(), strict=True)
            ).rstrip()
            for row in cells
        )

    def _repr_html_(self) -> str:
        sides = ["right" if right else "left" for right in self._right()]

        def line(tag: str, row: Sequence[object]) -> str:
            cells = "".join(
                f'<{tag} style="text-align: {side}; padding: 0.2em 0.7em">{escape(str(cell))}</{tag}>'
                for cell, side in zip(row, sides, strict=True)
            )
            return f"<tr>{cells}</tr>"

        head = line("th", self.header)
        body = "\n".join(line("td", row) for row in self._cells())
        table = f"<table>\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'<div style="overflow-x: auto">\n{table}\n</div>'  # a wide table scrolls by itself on a narrow screen


def show_table(header: Sequence[str], rows: Sequence[Sequence[object]], format: str = "z.4f") -> None:
    """Show a table in a notebook, or print it from a script.

    header  the column names
    rows    one sequence of cells per row, as long as the header (ValueError otherwise)
    format  how each float is written; the z keeps a rounded zero from being written -0
    """
    rows = [list(row) for row in rows]
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(header)}: {row}")
    display(Table(list(header), rows, format))


def rounded(x: Tensor, decimals: int = 4) -> list | float:
    """The values of `x` as (nested) lists, rounded, with no negative zero."""
    return (x.detach().double().round(decimals=decimals) + 0.0).tolist()  # -0.0 + 0.0 is 0.0
