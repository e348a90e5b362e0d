"""One chapter with many parameters: a plan from a YAML file, carried out by Dask, several runs at a time.

    chapter: 04_shortcuts
    grid:                                 # every combination; or `runs:`, a list of {name: value}
      depth: [2, 4, 8]
      use_shortcut: [false, true]
    figure: {x: depth, y: first_gradient, hue: use_shortcut}   # hue may be left out, and so may the figure

Workers execute runs and send the notebooks back; only the process that was started writes. So a worker may stand on
another machine, if the same book_utils is installed there.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from pathlib import Path
from tempfile import gettempdir

import nbformat
from filelock import FileLock, Timeout
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from book_utils.workbench.files import shown
from book_utils.workbench.nearest import unknown
from book_utils.workbench.pairs import write_notebook
from book_utils.workbench.reruns import ABOUT, Run, perform, plan
from book_utils.workbench.results import published, read_notebook

MOST = 10_000  # runs in one sweep
KEYS = ("chapter", "grid", "runs", "figure")
AXES = ("x", "y", "hue")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # workers stand side by side; torch in each would take all cores


@dataclass(frozen=True)
class Sweep:
    """What a sweep's file asks for."""

    chapter: str
    runs: list[Run]
    figure: Mapping[str, str]  # x, y and perhaps hue; empty for none


def read_sweep(path: Path) -> Sweep:
    """Read and check the file of a sweep. ValueError, with the file's name, for what it cannot mean."""
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
        return _sweep(content)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"{path.name}, line {line}: {error.problem}") from None


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
        if name not in known:
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


@contextmanager
def alone(folder: Path, chapter: str) -> Iterator[None]:
    """Hold a sweep's folder. OSError where another command does, where it has other runs, or cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            others = [path.name for path in folder.glob("*.ipynb") if path.stem.split(",")[0] != chapter]
            if others:
                raise FileExistsError(
                    f"{shown(folder)} holds other runs ({others[0]}); name another folder with --output"
                )
            yield
    except Timeout:
        raise BlockingIOError(f"another command is making the sweep in {shown(folder)}") from None


def carry_out(
    sweep: Sweep,
    folder: Path,
    scheduler: str | None,
    workers: int | None,
    timeout: int,
    report: Callable[[int, str], None],
    lost: dict[str, str],
) -> None:
    """Make each run of `sweep` that is not complete yet; a notebook for each goes to `folder`.

    scheduler  the address of a Dask scheduler; None: workers on this machine, which end with the sweep
    workers    how many of these; None: as many as cores
    timeout    seconds that one cell may take
    report     is called with the number of finished runs and a line, at first and for each run
    lost       gets the runs that gave no notebook, mostly since their worker died, name -> error

    ConnectionError where the scheduler is not there, or goes away.
    """
    missing = [run for run in sweep.runs if not run.is_complete(read_notebook(folder / f"{run.name}.ipynb"))]
    done = len(sweep.runs) - len(missing)
    report(done, "runs are complete already")
    if not missing:
        return
    with _client(scheduler, workers) as client:
        for run, future in _finished(client, missing, timeout):
            if future.status == "finished":
                notebook = nbformat.reads(future.result(), as_version=4)
                write_notebook(notebook, folder / f"{run.name}.ipynb")
                error = notebook.metadata[ABOUT]["error"]
            else:
                error = lost[run.name] = _reason(future.exception())
            done += 1
            report(done, f"{run.name}: {f'FAILED, {_first_line(error)}' if error else 'done'}")


@contextmanager
def _client(scheduler: str | None, workers: int | None) -> Iterator:
    """A client of the scheduler that is named, or of one on this machine; both end with the block."""
    from distributed import Client, LocalCluster

    silent = logging.CRITICAL + 1  # what happens to workers is told in the results
    for logger in ("distributed", "distributed.client"):
        logging.getLogger(logger).setLevel(silent)
    if scheduler is None:
        local = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": silent}
        with LocalCluster(n_workers=workers, **local) as cluster, Client(cluster, set_as_default=False) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no scheduler answers at {scheduler} ({_first_line(error)})") from None
    with client:
        yield client


def _finished(client, runs: list[Run], timeout: int) -> Iterator[tuple]:
    """Each run with its future, as they finish. Few are under way at once, so that memory does not grow with them."""
    from distributed import as_completed

    waiting, under_way = iter(runs), {}
    finished = as_completed(loop=client.loop)

    def fill() -> None:
        room = 2 * max(1, sum(client.nthreads().values())) - len(under_way)
        for run in islice(waiting, max(0, room)):
            source = nbformat.writes(run.notebook())
            future = client.submit(run_on_worker, source, run.name, str(Path.cwd()), timeout, pure=False)
            under_way[future] = run
            finished.add(future)

    fill()
    for future in finished:
        if future.status == "cancelled":
            raise ConnectionError("the scheduler went away; started again, the sweep goes on where it was")
        yield under_way.pop(future), future
        fill()


def run_on_worker(source: str, name: str, folder: str, timeout: int) -> str:
    """A worker's part: the notebook `source`, executed as far as it comes, noted and marked as `perform` does."""
    notebook = nbformat.reads(source, as_version=4)
    here = Path(folder) if Path(folder).is_dir() else Path(gettempdir())
    perform(notebook, name, here, timeout, ONE_THREAD)
    return nbformat.writes(notebook)


def _reason(error: BaseException) -> str:
    """Why a worker gave no notebook."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return "the worker died each time that it was tried"
    return _first_line(f"{type(error).__name__}: {error}")


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0]
