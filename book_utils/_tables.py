"""Small tables: aligned text, Markdown and HTML of the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Table:
    """Rows under a header. Numbers stand on the right; `format` is applied to floats, `int_format` to ints."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    format: str = "z.4f"
    int_format: str = ""

    def _cells(self) -> list[list[str]]:
        return [[self._text(cell) for cell in row] for row in self.rows]

    def _text(self, cell: object) -> str:
        if isinstance(cell, float):
            return f"{cell:{self.format}}"
        if isinstance(cell, int) and not isinstance(cell, bool):
            return f"{cell:{self.int_format}}"
        return str(cell)

    def _right(self) -> list[bool]:
        """For each column, whether it holds numbers (and so is aligned to the right)."""
        columns = zip(*self.rows, strict=True)
        return [any(map(_is_number, col)) and all(cell == "" or _is_number(cell) for cell in col) for col in columns]

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
                f'<{tag} style="text-align: {side}; padding: 0.2em 0.7em{_wrap(str(cell))}">{escape(str(cell))}</{tag}>'
                for cell, side in zip(row, sides, strict=True)
            )
            return f"<tr>{cells}</tr>"

        head = line("th", self.header)
        body = "\n".join(line("td", row) for row in self._cells())
        table = f"<table>\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'<div style="overflow-x: auto">\n{table}\n</div>'  # a wide table scrolls by itself on a narrow screen

    def markdown(self) -> str:
        """The table as a Markdown pipe table."""
        sides = ["---:" if right else ":---" for right in self._right()]
        return "\n".join(f"| {' | '.join(row)} |" for row in [list(map(str, self.header)), sides, *self._cells()])


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _wrap(text: str) -> str:
    """A number with its unit, a shape or a limit stays on one line."""
    return "; white-space: nowrap" if len(text) <= 16 and any(map(str.isdigit, text)) else ""
