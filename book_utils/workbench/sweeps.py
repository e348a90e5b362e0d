"""A sweep: one chapter with many parameters, planned in a YAML file.

chapter: 04_shortcuts
grid:                                 # every combination; or `runs:`, a list of {name: value}
  depth: [2, 4, 8]
  use_shortcut: [false, true]
figure: {x: depth, y: first_gradient, hue: use_shortcut}   # hue may be left out, and so may the figure
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from book_utils.workbench.nearest import unknown
from book_utils.workbench.results import published, read_notebook
from book_utils.workbench.runs import Run, plan

MOST = 10_000  # runs in one sweep
KEYS = ("chapter", "grid", "runs", "figure")
AXES = ("x", "y", "hue")


@dataclass(frozen=True)
class Sweep:
    """What a sweep's file asks for."""

    chapter: str
    runs: list[Run]
    figure: Mapping[str, str]  # x, y and perhaps hue; empty for none


def read_sweep(path: Path) -> Sweep:
    """Read and check the file of a sweep. ValueError, with the file's name, for what it cannot mean."""
    try:
        return _sweep(_read_yaml(path))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def _read_yaml(path: Path) -> object:
    try:
        return YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line}: {error.problem}") from None
    except OSError:
        raise
    except Exception as error:  # a reader of YAML raises what its parts raise: for a character, a date, a depth
        raise ValueError(f"this is no YAML ({str(error).partition(chr(10))[0] or type(error).__name__})") from None


def _sweep(content: object) -> Sweep:
    content = _mapping("the file", content, KEYS)
    if not isinstance(content.get("chapter"), str):
        raise ValueError("`chapter:` is missing, say `chapter: 04_shortcuts`")
    if ("grid" in content) == ("runs" in content):
        raise ValueError("either `grid:` or `runs:` says what is run")
    sets = _grid(content["grid"]) if "grid" in content else _list(content["runs"])
    if not 0 < len(sets) <= MOST:
        raise ValueError(f"{len(sets):,} runs; 1 to {MOST:,} can be made")
    runs = {}
    for given in sets:
        run = plan(content["chapter"], given)
        if run.name in runs:
            raise ValueError(f"the run {run.name} is asked for twice")
        runs[run.name] = run
    return Sweep(run.chapter, list(runs.values()), _figure(content.get("figure"), run))


def _figure(axes: object, run: Run) -> Mapping[str, str]:
    """What is drawn. ValueError unless x and y are named, by parameters of the chapter or results it published."""
    if axes is None:
        return {}
    axes = _mapping("figure", axes, AXES)
    if not {"x", "y"} <= set(axes):
        raise ValueError("a figure needs x and y, say {x: depth, y: first_gradient, hue: use_shortcut}")
    known = {**run.parameters, **published(read_notebook(run.script.with_suffix(".ipynb"))).values}
    for axis, name in axes.items():
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"figure, {axis}: {unknown('parameter or result', name, known)}")
    return axes


def _mapping(what: str, content: object, known: tuple[str, ...]) -> Mapping:
    """`content`, if it maps known names. ValueError otherwise."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{what} holds no names with values, such as `{known[0]}: …`")
    for name in content:
        if name not in known:
            raise ValueError(unknown("key", name, known))
    return content


def _grid(grid: object) -> list[dict]:
    """Every combination of the values that are listed for each parameter."""
    if not isinstance(grid, Mapping) or not grid:
        raise ValueError("`grid:` gives each parameter a list of values, say `depth: [2, 4, 8]`")
    lists = {name: values if isinstance(values, list) else [values] for name, values in grid.items()}
    count = prod(map(len, lists.values()))
    if count > MOST:
        raise ValueError(f"the grid has {count:,} runs; at most {MOST:,} can be made")
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def _list(sets: object) -> list[dict]:
    if not isinstance(sets, list) or not all(isinstance(given, Mapping) for given in sets):
        raise ValueError("`runs:` is a list with parameters for each run, say `- {depth: 2, seed: 7}`")
    return [dict(given) for given in sets]
