"""The runs of a sweep, carried out by Dask, several at a time.

Workers execute runs and send the notebooks back; only the process that was started writes. So a worker may stand on
another machine, if the same book_utils is installed there.
"""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import gettempdir

import nbformat

from book_utils.workbench.pairs import write_notebook
from book_utils.workbench.reruns import notebook_of, perform
from book_utils.workbench.results import read_notebook
from book_utils.workbench.runs import ABOUT, Run
from book_utils.workbench.sweeps import Sweep

# Dask keeps records of what its workers do, which grow with time and which nobody looks at here.
NO_RECORDS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.log-length": 60,
    "distributed.admin.log-length": 60,
}
AWAY = "the scheduler went away; started again, the sweep goes on where it was"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # workers stand side by side; torch in each would take all cores


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
        if not _threads(client):
            report(done, "no worker is there yet; waiting for one")
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
    import dask
    from distributed import Client, LocalCluster

    silent = logging.CRITICAL + 1  # what happens to workers is told in the results
    for logger in ("distributed", "distributed.client"):
        logging.getLogger(logger).setLevel(silent)
    if scheduler is None:
        # this machine alone can reach it, at whatever port is free
        local = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": silent}
        _block_ctrl_c()
        try:
            with dask.config.set(NO_RECORDS), LocalCluster(n_workers=workers, **local) as cluster:
                _unblock_ctrl_c()
                with Client(cluster, set_as_default=False) as client:
                    yield client
        finally:
            _unblock_ctrl_c()
        return
    try:
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no scheduler answers at {scheduler} ({_first_line(error)})") from None
    with client:
        yield client


def _block_ctrl_c() -> None:
    """Workers take over what is blocked, and so hear nothing of a key that a terminal sends to all (not on Windows).

    The tracker that multiprocessing starts with the first of them would unblock it again; so it is started before.
    """
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _unblock_ctrl_c() -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _finished(client, runs: list[Run], timeout: int) -> Iterator[tuple]:
    """Each run with its future, as they finish. Few are under way at once, so that memory does not grow with them."""
    from distributed import as_completed

    waiting, under_way = iter(runs), {}
    finished = as_completed(loop=client.loop)

    def fill() -> None:
        room = 2 * max(1, _threads(client)) - len(under_way)
        for run in islice(waiting, max(0, room)):
            source = nbformat.writes(notebook_of(run))
            future = client.submit(run_on_worker, source, run.name, str(Path.cwd()), timeout, pure=False)
            under_way[future] = run
            finished.add(future)

    fill()
    for future in finished:
        if future.status == "cancelled":
            raise ConnectionError(AWAY)
        yield under_way.pop(future), future
        fill()


def _threads(client) -> int:
    """How many runs the workers can make at once."""
    try:
        return sum(client.nthreads().values())
    except (OSError, ValueError):  # the connection closed, or the client noticed before
        raise ConnectionError(AWAY) from None


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
