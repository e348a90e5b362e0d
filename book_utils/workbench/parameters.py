"""The parameters of a chapter: read from its own cell, and checked against it.

A chapter states each parameter once, in the cell tagged `parameters`:

    depth: int = 5  # number of layers (1 to 64)

Type, default, meaning and range all come from that line. The type is int, float, bool or str; with `| None` it may also
be None. A range is the last thing in the comment, in parentheses: `(A to B)`, `(at least A)`, `(at most B)`,
`(more than A)` or, for words, `(one of this, that)`.
"""

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import Repr

from book_utils.workbench.files import ROOT
from book_utils.workbench.nearest import unknown

NUMBER = r"(-?\d[\d.e+-]*)"
RANGES = {
    rf"\({NUMBER} to {NUMBER}\)$": lambda value, low, high: float(low) <= value <= float(high),
    rf"\(at least {NUMBER}\)$": lambda value, low: value >= float(low),
    rf"\(at most {NUMBER}\)$": lambda value, high: value <= float(high),
    rf"\(more than {NUMBER}\)$": lambda value, low: value > float(low),
    r"\(one of (.+)\)$": lambda value, words: value in words.split(", "),
}
TYPES = {"int": int, "float": float, "bool": bool, "str": str}
SHORT = Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 60

# How a value is written on a command line; what does not look like one stays a text, and is refused as such.
WRITTEN = {
    "int": (r"[+-]?[0-9]{1,1000}", int),
    "float": (r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|NaN|Inf)", float),
    "bool": (r"[Tt]rue|[Ff]alse", lambda text: text.lower() == "true"),
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter, as its cell states it."""

    name: str
    type: str
    default: object
    meaning: str  # the whole comment, range included

    @property
    def kind(self) -> str:
        """The type, without `| None`."""
        return self.type.removesuffix(" | None")

    @property
    def range(self) -> str:
        """The range as the comment gives it, "1 to 64", or an empty text."""
        return next((self.meaning[found.start() + 1 : -1] for found, _ in self._ranges()), "")

    def _ranges(self):
        for pattern, holds in RANGES.items():
            if found := re.search(pattern, self.meaning):
                yield found, holds

    def read(self, text: str) -> object:
        """The value that `text` stands for on a command line, by this parameter's type; `text` itself if it is none."""
        if text == "None":
            return None
        pattern, value = WRITTEN.get(self.kind, ("", str))
        return value(text) if re.fullmatch(pattern, text) else text

    def check(self, value: object) -> None:
        """TypeError where `value` has another type (a bool is no int, nor is 2.0), ValueError out of range."""
        if value is None and self.type != self.kind:
            return
        wanted = (int, float) if self.kind == "float" else TYPES[self.kind]
        shown = f"{self.name} = {SHORT.repr(value)}"
        if not isinstance(value, wanted) or (self.kind != "bool" and isinstance(value, bool)):
            hint = "; write True or False" if self.kind == "bool" else ""
            raise TypeError(f"{shown} is not of type {self.type}{hint} ({self.meaning})")
        if isinstance(value, str) and not value.isprintable() and re.search("[\ud800-\udfff]", value):
            raise ValueError(f"{shown} has a character that cannot be written in UTF-8 ({self.meaning})")
        if self.kind == "float" and not math.isfinite(value):
            raise ValueError(f"{shown} is not a finite number ({self.meaning})")
        for found, holds in self._ranges():
            if not holds(value, *found.groups()):
                raise ValueError(f"{shown} is out of range: {self.meaning}")


def read_parameters(script: Path) -> list[Parameter]:
    """The parameters of a chapter, from the `parameters` cell of its script. ValueError for a cell in another form."""
    cell = re.search(
        r'^# %%[^\n]*tags=\[[^\n]*"parameters"[^\n]*\]\n(.*?)(?=^# %%|\Z)',
        script.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    if cell is None:
        return []
    try:
        return [_parameter(node, cell[1].splitlines()) for node in ast.parse(cell[1]).body]
    except (SyntaxError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"{script.name}: in the parameters cell each line is `name: type = value  # meaning`, "
            f"with a value that its type and range allow ({error})"
        ) from None


def _parameter(node: ast.stmt, lines: list[str]) -> Parameter:
    parameter = Parameter(
        name=node.target.id,
        type=ast.unparse(node.annotation),
        default=ast.literal_eval(node.value),
        # what follows the value; ast counts columns in bytes
        meaning=lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip(" #"),
    )
    if parameter.kind not in TYPES:
        raise ValueError(f"{parameter.type} is none of {', '.join(TYPES)}")
    parameter.check(parameter.default)
    return parameter


def check_parameters(chapter: str, values: Mapping[str, object]) -> None:
    """Check the parameters of `chapter` (say "02_layer_norm") among `values`, against what its cell states.

    TypeError or ValueError for the first one that does not fit, with its name, its value and the range.
    """
    parameters = read_parameters(ROOT / "chapters" / f"{chapter}.py")
    if not parameters:
        raise ValueError(f"chapters/{chapter}.py has no cell that is tagged parameters")
    for parameter in parameters:
        parameter.check(values[parameter.name])


def checked(parameters: list[Parameter], given: Mapping) -> dict[str, object]:
    """The values in `given`, in the order of the parameters.

    ValueError for a name that is no parameter (the nearest one is named) and out of range, TypeError for another type.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for name in given:
        if name not in known:
            raise ValueError(unknown("parameter", name, known))
        known[name].check(given[name])
    return {
        name: float(given[name]) if parameter.kind == "float" and given[name] is not None else given[name]
        for name, parameter in known.items()
        if name in given
    }
