"""One figure for a sweep: a result against a parameter, a line for each value of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from book_utils.workbench import files
from book_utils.workbench.figures import COLORS, figure
from book_utils.workbench.results import is_number
from book_utils.workbench.sweep_results import Row, read_table
from book_utils.workbench.sweeps import read_sweep

MARKERS, DASHES = "os^Dv<>P", ("-", "--", "-.", ":")
SPAN = 30  # an axis is logarithmic where its largest number is so many times its least, and none is negative


@dataclass(frozen=True)
class Line:
    """The runs with one value of the hue: at each place their results, and the median of these."""

    label: str
    runs: list[list[float]]

    @property
    def medians(self) -> list[float | None]:
        return [median(found) if found else None for found in self.runs]


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

    A sign is a run, a line goes through medians. The figure is shown, and kept as `figure` keeps it.
    """
    x, y, hue = (axes.get(axis) for axis in ("x", "y", "hue"))
    ended = _ended(rows, axes)
    places = sorted({row[x] for row in ended}, key=lambda place: (str(type(place)), place))
    lines = []
    for value in dict.fromkeys(row.get(hue) for row in ended):
        runs = [[row[y] for row in ended if (row.get(hue), row[x]) == (value, place)] for place in places]
        lines.append(Line(f"{hue} = {value}" if hue else y, runs))
    log = _is_wide([row[y] for row in ended])
    data = {x: places}
    for line in lines:
        data |= {f"{line.label}, runs": line.runs, f"{line.label}, median": line.medians}
    with figure(
        name,
        alt=f"{y} against {x} in {len(ended)} runs{', on a logarithmic axis' if log else ''}. Medians: "
        + "; ".join(f"{line.label}, {_ends(line.medians)}" for line in lines)
        + ".",
        words=_words(x, y, places, lines, log, len(rows)),
        data=data,
        folder=folder,
    ) as ax:
        numeric = all(map(is_number, places))
        at = places if numeric else list(range(len(places)))
        for number, line in enumerate(lines):
            _draw_line(ax, at, line, log, number)
        if log:
            ax.set_yscale("log")
        if numeric and _is_wide(places):
            ax.set_xscale("log", base=2)
        if not numeric or len(places) <= 8:
            ax.set_xticks(at, [f"{place:g}" if is_number(place) else str(place) for place in places])
            ax.minorticks_off()
        ax.set(xlabel=x, ylabel=y)
        if hue:
            ax.legend()


def can_draw(rows: Sequence[Row], axes: Mapping[str, str]) -> bool:
    """Whether there is anything that `draw` could draw."""
    return bool(_ended(rows, axes))


def _ended(rows: Sequence[Row], axes: Mapping[str, str]) -> list[Row]:
    """The runs with a number, or True or False, for y, and a value for x."""
    return [row for row in rows if isinstance(row.get(axes["y"]), (int, float)) and row.get(axes["x"]) is not None]


def _draw_line(ax, at: Sequence[float], line: Line, log: bool, number: int) -> None:
    style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
    runs = [(place, value) for place, found in zip(at, line.runs, strict=True) for value in found]
    medians = list(zip(at, line.medians, strict=True))
    for points, look in [
        (runs, {"linestyle": "", "mfc": "none", "ms": 4, "alpha": 0.6}),
        (medians, {"linestyle": DASHES[number % len(DASHES)], "label": line.label}),
    ]:
        # what cannot be drawn is left out, and the line has a gap there
        values = [float("nan") if value is None or (log and value <= 0) else value for _, value in points]
        ax.plot([place for place, _ in points], values, **style, **look)


def _is_wide(values: Sequence[object]) -> bool:
    """Whether numbers span orders of magnitude, zeros aside."""
    numbers = [value for value in values if is_number(value) and value != 0]
    return bool(numbers) and min(numbers) > 0 and max(numbers) >= SPAN * min(numbers)


def _ends(medians: Sequence) -> str:
    kept = [value for value in medians if value is not None]
    return f"{kept[0]:.2g} first and {kept[-1]:.2g} last"


def _words(x: str, y: str, places: Sequence, lines: Sequence[Line], log: bool, planned: int) -> list[str]:
    values = [value for line in lines for found in line.runs for value in found]
    words = [
        f"The horizontal axis is {x}: {', '.join(map(str, places))}.",
        f"The vertical axis is {y}{', on a logarithmic scale' if log else ''}.",
        "A small open sign is one run; a line goes through the median of the runs at each place.",
    ]
    for line in lines:
        told = [f"{m:.2g} at {place}" for place, m in zip(places, line.medians, strict=True) if m is not None]
        words.append(f"The medians of {line.label}, from {sum(map(len, line.runs))} runs: {', '.join(told)}.")
    if log and 0 in values:
        words.append(f"{y} is 0 in {values.count(0)} runs; a logarithmic scale has no place for them.")
    if len(values) < planned:
        words.append(f"{planned - len(values)} of {planned} runs did not end, or {y} is no finite number there.")
    return words
