"""Execute notebooks, each in a fresh kernel of the Python that runs this, several at a time."""

import asyncio
import atexit
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

from book_utils.workbench.pairs import read_source, write_notebook

# How a run can fail, and the exit status that says so.
EXIT = {"cell error": 3, "time-out": 4, "dead kernel": 5, "interrupted": 130}


@dataclass(frozen=True)
class Failure:
    """A notebook that did not run to its end."""

    notebook: str
    kind: str  # a key of EXIT
    cell: int  # counted from 1, over all cells; 0 where no cell was reached
    first_line: str  # of that cell
    error: str

    def __str__(self) -> str:
        place = f", cell {self.cell} ({self.first_line})" if self.cell else ""
        return f"{self.notebook}{place}: {self.error}"


class CurrentPython(AsyncKernelManager):
    """Starts this Python, whatever kernels are installed under its name."""

    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(**get_kernel_dict())


def execute(notebook: NotebookNode, name: str, folder: Path, timeout: int, environment: Mapping) -> Failure | None:
    """Execute `notebook` in place, as far as it comes, and return what ended it too early. Ctrl-C is a failure, too.

    name         of the notebook, in messages
    folder       where its kernel runs
    timeout      seconds that one cell may take
    environment  variables of the kernel, beside the ones of this process
    """
    return _to_its_end(_execute_one(notebook, name, folder, timeout, environment))


def execute_chapters(
    scripts: list[Path], folder: Path, figures: Path, timeout: int, report: Callable[[str], None]
) -> list[Failure]:
    """Execute each script's notebook in a fresh kernel, as many at once as there are cores.

    folder   where the executed notebooks are written (also a failed one, as far as it came) and where the kernels run
    figures  where the chapters keep their figures
    timeout  seconds that one cell may take
    report   is called with a line for each finished chapter
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures.mkdir(parents=True, exist_ok=True)
    return _to_its_end(_execute_all(scripts, folder, figures, timeout, report))


def _to_its_end(work: Coroutine) -> object:
    """Run `work` in a thread of its own.

    In the main thread every nbclient would put its own handler on Ctrl-C, each for its own kernel alone. Here one
    interruption cancels all, and each client shuts its kernel down on the way out.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    with closing(loop), ThreadPoolExecutor(max_workers=1) as thread:
        result = thread.submit(_run, loop, task)
        try:
            return result.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            try:
                return result.result()
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task) -> object:
    try:
        return loop.run_until_complete(task)
    finally:  # what a client left behind when it was interrupted
        left = asyncio.all_tasks(loop)
        for other in left:
            other.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))


async def _execute_all(scripts, folder, figures, timeout, report) -> list[Failure]:
    free = asyncio.Semaphore(os.cpu_count() or 1)
    done = 0

    async def run(script: Path) -> Failure | None:
        nonlocal done
        async with free:
            start = time.monotonic()
            notebook = read_source(script)
            environment = {"BOOK_FIGURES": str(figures)}
            try:
                failure = await _execute_one(notebook, f"{script.stem}.ipynb", folder, timeout, environment)
            finally:
                write_notebook(notebook, folder / f"{script.stem}.ipynb")
        done += 1
        verdict = "FAILED" if failure else "done"
        report(f"[{done}/{len(scripts)}] {script.stem}: {verdict}, {time.monotonic() - start:.0f} s")
        return failure

    async with asyncio.TaskGroup() as group:  # waits for every kernel's end, also when it is cancelled
        runs = [group.create_task(run(script)) for script in scripts]
    return [run.result() for run in runs if run.result()]


async def _execute_one(notebook, name, folder, timeout, environment) -> Failure | None:
    reached = 0

    def note_cell(cell: NotebookNode, cell_index: int) -> None:
        nonlocal reached
        reached = cell_index + 1

    def failure(kind: str, error: str) -> Failure:
        lines = notebook.cells[reached - 1].source.splitlines() if reached else []
        return Failure(name, kind, reached, lines[0] if lines else "", error)

    client = NotebookClient(
        notebook,
        timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        kernel_manager_class=CurrentPython,
        on_cell_start=note_cell,
        coalesce_streams=True,  # a busy machine cuts what a cell prints into pieces
        extra_arguments=["--IPKernelApp.log_level=50"],  # a kernel warns of its transport, and complains when stopped
    )
    try:
        # IPYTHONDIR: not the reader's own IPython settings, which can change what a cell prints. What a kernel itself
        # says goes to a file: at its end that is mostly noise, and else why it died.
        with TemporaryDirectory() as own, open(Path(own, "said"), "w+") as said:
            try:
                await client.async_execute(env={**os.environ, "IPYTHONDIR": own, **environment}, stderr=said)
            finally:
                said.seek(0)
                last_words = said.readline().strip()
    except CellExecutionError as error:
        return failure("cell error", f"{error.ename}: {error.evalue}")
    except CellTimeoutError:
        return failure("time-out", f"it ran longer than its limit of {timeout} s")
    except (RuntimeError, asyncio.CancelledError) as error:  # DeadKernelError is a RuntimeError
        if asyncio.current_task().cancelling():  # a kernel that is interrupted while it starts dies of it
            return failure("interrupted", "interrupted")
        # nbclient would clean up once more when Python ends, and stumble over a kernel that never was
        atexit.unregister(client._cleanup_kernel)
        happened = "the kernel died" if reached else f"the kernel did not start: {error}"
        return failure("dead kernel", f"{happened} ({last_words})" if last_words else happened)
    return None
