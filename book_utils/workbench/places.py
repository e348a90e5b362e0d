"""The places where runs are kept: held by one command at a time, and never written over unasked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout

from book_utils.workbench import files

LONGEST = 200  # bytes of a run's name; file systems take 255, and a file is written beside it first
TABLE = "results.csv"  # what makes a folder a sweep's


@contextmanager
def run_place(path: Path, replace: bool = False) -> Iterator[None]:
    """Hold the place of a run, from before it is computed until it is written.

    ValueError for a place that is no run's, OSError for a run that exists (unless it may be replaced), for one that
    another command is making, and where nothing can be written.
    """
    if path.suffix != ".ipynb" or path.is_dir():
        raise ValueError(f"a run is a notebook, a file whose name ends in .ipynb; got {path}")
    if len(path.name.encode()) > LONGEST:
        raise ValueError(f"the name has {len(path.name.encode())} bytes, more than {LONGEST}: {path.name}")
    _check_outside(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _held(path.with_name(f".{path.stem}.lock"), path):
        if path.exists() and not replace:
            raise FileExistsError(f"{files.shown(path)} exists; --replace writes over it, --output gives another name")
        yield


@contextmanager
def sweep_place(folder: Path, chapter: str) -> Iterator[None]:
    """Hold the folder of a sweep.

    ValueError for a folder that is no sweep's, OSError for one with runs of another chapter, for one that another
    command holds, and where nothing can be written.
    """
    _check_outside(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder / ".lock", folder):
        of_a_sweep = (folder / TABLE).exists()
        for path in folder.iterdir():
            other = path.suffix == ".ipynb" and not (of_a_sweep and path.stem.split(",")[0] == chapter)
            if other or path.is_symlink():  # a link may lead to what is not the sweep's
                raise FileExistsError(
                    f"{files.shown(folder)} has other files ({path.name}); --output names another folder"
                )
        yield


def _check_outside(path: Path) -> None:
    if path.resolve().is_relative_to((files.ROOT / "chapters").resolve()):
        raise ValueError(f"{files.shown(path)} is among the chapters, where a run is never written")


@contextmanager
def _held(lock: Path, place: Path) -> Iterator[None]:
    with TemporaryFile(dir=lock.parent):  # an error now, where nothing can be written
        pass
    try:
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
    except Timeout:
        raise BlockingIOError(f"another command is making {files.shown(place)}") from None
