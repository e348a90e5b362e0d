"""One figure for a sweep: a result against a parameter, a line for each value of another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from book_utils.workbench import files
from book_utils.workbench.figures import COLORS, figure
from book_utils.workbench.results import is_number
from book_utils.workbench.sweep_results import Row, read_table
from book_utils.workbench.sweeps import read_sweep

MARKERS, DASHES = "os^Dv<>P", ("-", "--", "-.", ":")
SPAN = 30  # an axis is logarithmic where its largest number is so many times its least, and none is negative


def show_sweep(chapter: str) -> list[dict]:
    """Show the figure of the sweep that is kept with `chapter` (say "04_shortcuts"), and return the sweep's rows.

    The sweep is not made now: its table, chapters/NAME.sweep.csv, was, by `python -m book_utils sweep`.
    """
    plan = files.ROOT / "chapters" / f"{chapter}.sweep.yml"
    rows = read_table(plan.with_suffix(".csv"))
    draw(rows, read_sweep(plan).figure, f"{chapter[3:]}_sweep")
    return rows


def draw(rows: Sequence[Row], axes: Mapping[str, str], name: str, folder: Path | None = None) -> None:
    """Draw the result `axes["y"]` against `axes["x"]`, with a line for each value of `axes["hue"]` where one is named.

    A point is a run, a line goes through medians. The figure is shown, and kept as `figure` keeps it.
    """
    x, y, hue = (axes.get(axis) for axis in ("x", "y", "hue"))
    log_y = _is_wide([row[y] for row in rows])
    drawn = [row for row in rows if _is_drawn(row[y], log_y) and row[x] is not None]
    places = sorted({row[x] for row in drawn}, key=lambda place: (str(type(place)), place))
    numeric = all(map(is_number, places))
    lines = {value: _line(drawn, x, y, hue, value, places) for value in dict.fromkeys(row.get(hue) for row in drawn)}
    label = {value: f"{hue} = {value}" if hue else y for value in lines}
    with figure(
        name,
        alt=f"{y} against {x} in {len(drawn)} runs{', on a logarithmic axis' if log_y else ''}: "
        + "; ".join(f"{label[value]}, {_ends(medians)}" for value, (_, medians) in lines.items())
        + ".",
        words=_words(rows, drawn, x, y, log_y, {label[value]: line for value, line in lines.items()}, places),
        data={x: places} | {f"{label[v]}, {part}": line[i] for v, line in lines.items() for i, part in PARTS},
        folder=folder,
    ) as ax:
        for number, (value, (runs, medians)) in enumerate(lines.items()):
            color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
            at = places if numeric else range(len(places))
            for place, found in zip(at, runs, strict=True):
                ax.plot([place] * len(found), found, marker, color=color, mfc="none", ms=4, alpha=0.5)
            kept = [(p, m) for p, m in zip(at, medians, strict=True) if m is not None]
            dashes = DASHES[number % len(DASHES)]
            ax.plot(*zip(*kept, strict=True), linestyle=dashes, marker=marker, color=color, label=label[value])
        if log_y:
            ax.set_yscale("log")
        if numeric and _is_wide(places):
            ax.set_xscale("log", base=2)
        if not (numeric and len(places) > 8):
            ax.set_xticks(at, [f"{place:g}" if is_number(place) else str(place) for place in places])
            ax.minorticks_off()
        ax.set(xlabel=x, ylabel=y)
        if hue:
            ax.legend()


PARTS = ((0, "runs"), (1, "median"))


def _line(rows, x: str, y: str, hue: str | None, value: object, places: Sequence) -> tuple[list, list]:
    """At each place: the results of the runs whose hue has this value, and their median."""
    runs = [[row[y] for row in rows if row.get(hue) == value and row[x] == place] for place in places]
    return runs, [median(found) if found else None for found in runs]


def _is_wide(values: Sequence[object]) -> bool:
    """Whether numbers span orders of magnitude, zeros aside."""
    numbers = [value for value in values if is_number(value) and value != 0]
    return bool(numbers) and min(numbers) > 0 and max(numbers) >= SPAN * min(numbers)


def _is_drawn(value: object, log: bool) -> bool:
    return isinstance(value, (int, float)) and not (log and value <= 0)


def _ends(medians: Sequence) -> str:
    kept = [value for value in medians if value is not None]
    return f"{kept[0]:.2g} first and {kept[-1]:.2g} last"


def _words(rows, drawn, x: str, y: str, log_y: bool, lines: Mapping, places: Sequence) -> list[str]:
    words = [
        f"The horizontal axis is {x}: {', '.join(map(str, places))}.",
        f"The vertical axis is {y}{', on a logarithmic scale' if log_y else ''}.",
        "A small open sign is one run; a line goes through the median of the runs at each place.",
    ]
    for label, (runs, medians) in lines.items():
        told = [f"{m:.2g} at {place}" for place, m in zip(places, medians, strict=True) if m is not None]
        words.append(f"The line {label}, from {sum(map(len, runs))} runs: {', '.join(told)}.")
    if len(drawn) < len(rows):
        why = f"{y} is 0 or no number there" if log_y else f"{y} is no number there"
        words.append(f"Of {len(rows)} runs {len(rows) - len(drawn)} are not drawn: {why}, or they did not end.")
    return words
