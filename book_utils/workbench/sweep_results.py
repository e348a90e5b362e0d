"""What came of a sweep: one table, and one figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from book_utils._files import replacing, write_whole
from book_utils.workbench.places import TABLE
from book_utils.workbench.results import published, read_notebook
from book_utils.workbench.runs import COMPLETE, about_of
from book_utils.workbench.sweeps import Sweep

NOT_RUN = "not run"
WORKER_ERROR = "worker error"
Row = Mapping[str, object]


def gather(sweep: Sweep, folder: Path, lost: Mapping[str, str]) -> list[dict]:
    """A row for each run of `sweep`, from the notebooks in `folder`: parameters, results, status, seconds, versions.

    lost  the runs that gave no notebook, name -> error
    """
    rows = [_row(run, read_notebook(folder / f"{run.name}.ipynb"), lost.get(run.name)) for run in sweep.runs]
    columns = dict.fromkeys(name for part in range(3) for row in rows for name in row[part])
    return [{name: (row[0] | row[1] | row[2]).get(name) for name in columns} for row in rows]


def _row(run, notebook: Mapping, lost: str | None) -> tuple[dict, dict, dict]:
    """Parameters, results, and how it went."""
    about = about_of(notebook)
    if about | run.about() != about:  # of another text of the chapter
        about, notebook = {}, {"cells": []}
    if lost is not None:
        about, notebook = {"status": WORKER_ERROR, "error": lost}, {"cells": []}
    ended = {"status": about.get("status", NOT_RUN), "error": about.get("error"), "seconds": about.get("seconds")}
    results = published(notebook).values if about.get("status") == COMPLETE else {}
    return dict(run.parameters), results, ended | about.get("versions", {})


def write_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write `results.csv`, and `results.parquet` where pyarrow is installed. Returns the files."""
    files = [folder / TABLE]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(files[0], text.getvalue())
    if find_spec("pyarrow"):
        files.append(folder / "results.parquet")
        _write_parquet(rows, files[1])
    return files


def _write_parquet(rows: Sequence[Row], path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in columns.items():
        kinds = {type(value) for value in values if value is not None}
        wide = any(isinstance(value, int) and abs(value) >= 2**63 for value in values)
        if len(kinds) > 1 or wide:  # a column has one type
            kind = float if kinds == {int, float} else str
            columns[name] = [None if value is None else kind(value) for value in values]
    with replacing(path) as new:
        parquet.write_table(pyarrow.table(columns), new)


def read_table(path: Path) -> list[dict]:
    """The rows of a `results.csv`. What looks like a number, True or False becomes one, an empty cell None."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> object:
    if text in ("True", "False", ""):
        return {"True": True, "False": False}.get(text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
