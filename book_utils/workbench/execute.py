"""Execute chapters, each in a fresh kernel, several at a time."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from book_utils.workbench.pairs import read_source, write_notebook


@dataclass(frozen=True)
class Failure:
    """A chapter that did not run to its end."""

    chapter: str
    cell: int  # counted from 1, over all cells; 0 where no cell was reached
    first_line: str  # of that cell
    error: str

    def __str__(self) -> str:
        return f"{self.chapter}, cell {self.cell} ({self.first_line}): {self.error}"


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
    # In a thread of its own: in the main thread every nbclient would put its own handler on Ctrl-C, each for its own
    # kernel alone. Here one interruption cancels all, and each client shuts its kernel down on the way out.
    loop = asyncio.new_event_loop()
    task = loop.create_task(_execute_all(scripts, folder, figures, timeout, report))
    with closing(loop), ThreadPoolExecutor(max_workers=1) as thread:
        result = thread.submit(loop.run_until_complete, task)
        try:
            return result.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(task.cancel)
            raise


async def _execute_all(scripts, folder, figures, timeout, report) -> list[Failure]:
    free = asyncio.Semaphore(os.cpu_count() or 1)
    done = 0

    async def run(script: Path) -> Failure | None:
        nonlocal done
        async with free:
            start = time.monotonic()
            failure = await _execute_one(script, folder, figures, timeout)
        done += 1
        verdict = "FAILED" if failure else "done"
        report(f"[{done}/{len(scripts)}] {script.stem}: {verdict}, {time.monotonic() - start:.0f} s")
        return failure

    async with asyncio.TaskGroup() as group:  # waits for every kernel's end, also when it is cancelled
        runs = [group.create_task(run(script)) for script in scripts]
    return [run.result() for run in runs if run.result()]


async def _execute_one(script: Path, folder: Path, figures: Path, timeout: int) -> Failure | None:
    notebook = read_source(script)
    reached = 0

    def note_cell(cell: NotebookNode, cell_index: int) -> None:
        nonlocal reached
        reached = cell_index + 1

    client = NotebookClient(
        notebook,
        timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=note_cell,
        coalesce_streams=True,  # a busy machine cuts what a cell prints into pieces
        extra_arguments=["--IPKernelApp.log_level=50"],  # a kernel warns of its transport, and complains when stopped
    )
    try:
        # IPYTHONDIR: not the reader's own IPython settings, which can change what a cell prints
        own = {"BOOK_FIGURES": str(figures), "IPYTHONDIR": str(folder / ".ipython")}
        await client.async_execute(env={**os.environ, **own})
    except CellExecutionError as error:
        return _failure(script, notebook, reached, f"{error.ename}: {error.evalue}")
    except CellTimeoutError:
        return _failure(script, notebook, reached, f"it ran longer than its limit of {timeout} s")
    except DeadKernelError:
        return _failure(script, notebook, reached, "the kernel died")
    finally:
        write_notebook(notebook, folder / f"{script.stem}.ipynb")
    return None


def _failure(script: Path, notebook: NotebookNode, reached: int, error: str) -> Failure:
    lines = notebook.cells[reached - 1].source.splitlines() if reached else []
    return Failure(f"{script.stem}.ipynb", reached, lines[0] if lines else "", error)
