"""The named results of a chapter: published once, as data in its notebook, and read from there.

A published result stands in an output of the type `application/vnd.assembling-gpt.results+json`:

    {"results": [{"name": "first_gradient", "value": 0.0002, "meaning": "mean absolute gradient of layer 1"}, …]}

A result is a whole number, a floating-point number, a text, true or false. Floats have six significant digits, since
what follows differs between processors. A number that is not finite is null: JSON has no other word for it.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from book_utils._tables import Table

MIME = "application/vnd.assembling-gpt.results+json"
Value = int | float | str | bool | None


class Results:
    """Named results with their meanings: data for programs, a table for people."""

    def __init__(self, rows: Sequence[tuple[str, object, str]]):
        names = [name for name, _, _ in rows]
        for name in names:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise ValueError(f"a result's name has small letters, digits and _ alone, got {name!r}")
            if names.count(name) > 1:
                raise ValueError(f"two results have the name {name!r}")
        self.values = {name: _plain(name, value) for name, value, _ in rows}
        self.meanings = {name: meaning for name, _, meaning in rows}

    def _table(self) -> Table:
        rows = [[name, _shown(value), self.meanings[name]] for name, value in self.values.items()]
        return Table(["result", "value", "meaning"], rows)

    def _repr_mimebundle_(self, **_) -> dict:
        items = [{"name": name, "value": value, "meaning": self.meanings[name]} for name, value in self.values.items()]
        return {MIME: {"results": items}, "text/html": self._table()._repr_html_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return repr(self._table())


def publish(rows: Sequence[tuple[str, object, str]]) -> None:
    """Publish the results of a chapter: a name, a value and what it is, for each. A chapter calls this once.

    A value is a number, a text, True or False, or a tensor of one number. ValueError for a name that is no small word
    or comes twice, TypeError for any other value.
    """
    from IPython.display import display

    display(Results(rows))


def read_notebook(path: Path) -> dict:
    """A notebook as plain JSON, which is quicker; one without cells where there is none, or none that can be read."""
    try:
        notebook = json.loads(path.read_text("utf-8"))
        if all(isinstance(output, dict) for cell in notebook["cells"] for output in cell.get("outputs", [])):
            return {**notebook, "metadata": dict(notebook["metadata"])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # it is no notebook
    return {"metadata": {}, "cells": []}


def published(notebook: Mapping) -> Results:
    """What a notebook published; no results where it published nothing. ValueError where it did so more than once."""
    found = list(_outputs(notebook))
    if len(found) > 1:
        raise ValueError(f"the notebook publishes results {len(found)} times; once is wanted")
    try:
        items = found[0]["results"] if found else []
        return Results([(item["name"], item["value"], item["meaning"]) for item in items])
    except (KeyError, TypeError) as error:
        raise ValueError(f"the published results have another form than `publish` gives them ({error})") from None


def _outputs(notebook: Mapping) -> Iterator[dict]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if MIME in output.get("data", {}):
                yield output["data"][MIME]


def is_number(value: object) -> bool:
    """Whether a result is a number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(name: str, value: object) -> Value:
    value = value.item() if hasattr(value, "item") else value  # a tensor, or a number of NumPy
    if value is None:
        return None
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if not isinstance(value, (int, str)):
        raise TypeError(f"the result {name} is a {type(value).__name__}; a number, a text, True or False is wanted")
    return value


def _shown(value: Value) -> str:
    if value is None:
        return "not finite"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
