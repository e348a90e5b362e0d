"""The parameters of a chapter: read from its own cell, and checked against it.

A chapter states each parameter once, in the cell tagged `parameters`:

    depth: int = 5  # number of layers (1 to 64)

Type, default, meaning and range all come from that line. A range is the last thing in the comment, in parentheses:
`(A to B)`, `(at least A)` or `(more than A)`.
"""

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from book_utils.workbench.files import ROOT

NUMBER = r"(-?\d[\d.e+-]*)"
RANGES = {
    rf"\({NUMBER} to {NUMBER}\)$": lambda value, low, high: low <= value <= high,
    rf"\(at least {NUMBER}\)$": lambda value, low: value >= low,
    rf"\(more than {NUMBER}\)$": lambda value, low: value > low,
}
TYPES = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter, as its cell states it."""

    name: str
    type: str
    default: object
    meaning: str  # the whole comment, range included

    def check(self, value: object) -> None:
        """TypeError where `value` has another type (a bool is no int, nor is 2.0), ValueError out of range."""
        wanted = (int, float) if self.type == "float" else TYPES[self.type]
        if not isinstance(value, wanted) or (self.type != "bool" and isinstance(value, bool)):
            hint = "; write True or False" if self.type == "bool" else ""
            raise TypeError(f"{self.name} = {value!r} is not of type {self.type}{hint} ({self.meaning})")
        if self.type == "float" and not math.isfinite(value):
            raise ValueError(f"{self.name} = {value!r} is not a finite number ({self.meaning})")
        for pattern, holds in RANGES.items():
            match = re.search(pattern, self.meaning)
            if match and not holds(value, *map(float, match.groups())):
                raise ValueError(f"{self.name} = {value!r} is out of range: {self.meaning}")


def read_parameters(script: Path) -> list[Parameter]:
    """The parameters of a chapter, from the `parameters` cell of its script."""
    cell = re.search(
        r'^# %%[^\n]*tags=\[[^\n]*"parameters"[^\n]*\]\n(.*?)(?=^# %%|\Z)',
        script.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    if cell is None:
        return []
    lines = cell[1].splitlines()
    return [
        Parameter(
            name=node.target.id,
            type=ast.unparse(node.annotation),
            default=ast.literal_eval(node.value),
            # what follows the value; ast counts columns in bytes
            meaning=lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip(" #"),
        )
        for node in ast.parse(cell[1]).body
    ]


def check_parameters(chapter: str, values: Mapping[str, object]) -> None:
    """Check the parameters of `chapter` (say "02_layer_norm") among `values`, against what its cell states.

    TypeError or ValueError for the first one that does not fit, with its name, its value and the range.
    """
    parameters = read_parameters(ROOT / "chapters" / f"{chapter}.py")
    if not parameters:
        raise ValueError(f"chapters/{chapter}.py has no cell that is tagged parameters")
    for parameter in parameters:
        parameter.check(values[parameter.name])
