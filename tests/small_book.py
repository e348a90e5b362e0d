"""A book of one small chapter, which can fail in every way, and its commands as a reader starts them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest

from book_utils.workbench.files import ROOT

CHAPTER = """# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1 · Small

# %% tags=["parameters"]
n: int = 3  # a number (0 to 1000)
scale: float = 1.5  # another (more than -10)
word: str = "a = b # c"  # a word
maybe: int | None = None  # a number or none (at most 9)
flag: bool = True  # on or off
mode: str = "fine"  # what happens (one of fine, fail, slow, die, kill once, kill)

# %%
import os, pathlib, signal, time
print(n, scale, repr(word), maybe, flag, mode, os.environ.get("OMP_NUM_THREADS"))

# %%
if mode == "fail":
    raise ValueError("it ```failed```\\nin two lines")
if mode == "slow":
    pathlib.Path("reached").touch()
    time.sleep(100)
if mode == "die":
    os._exit(1)
if mode == "kill" or (mode == "kill once" and not pathlib.Path("killed").exists()):
    pathlib.Path("killed").touch()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(100)

# %%
from book_utils.workbench import publish

inverse = 1 / n if n else float("inf")
publish([("square", n * n, "n squared"), ("share", n / 7, "a seventh"), ("inverse", inverse, "1 / n")])
"""
TOC = "format: jb-book\nroot: chapters/index\nparts:\n- caption: Part\n  chapters: [{file: chapters/01_small}]\n"


@dataclass(frozen=True)
class SmallBook:
    root: Path

    @property
    def runs(self):
        return self.root / "runs"

    def start(self, *arguments, cwd=None, **options):
        """A command of the book, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "book_utils", *map(str, arguments)],
            cwd=cwd or self.root,
            env={**os.environ, "PYTHONPATH": str(self.root), "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )

    def call(self, *arguments, **options):
        """Exit status, standard output and errors of a command that ends."""
        process = self.start(*arguments, **options)
        try:
            out, err = process.communicate(timeout=240)
        finally:
            end(process)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def read(self, name):
        return nbformat.read(self.runs / name, as_version=4)


def fill_the_disk(process):
    """From now on the command, and not the kernels and workers that it has started, can write no file of any size."""
    psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (1000, 1000))


def kernels_of(root):
    return [process for process in processes_of(root) if "ipykernel_launcher" in process.cmdline()]


def interrupt(process):
    """Ctrl-C, as a terminal sends it: to the command and to all that it started in its group."""
    os.killpg(process.pid, signal.SIGINT)


def end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(condition, seconds=60):
    """The first true answer of `condition`; an error if it does not come."""
    for _ in range(10 * seconds):
        if answer := condition():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s in vain")


def processes_of(root):
    """Kernels and workers that were started from the copy in `root` and still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(root)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture(scope="session")
def one_small_book(tmp_path_factory):
    """Made once: the chapter is executed, so that its results are known."""
    root = tmp_path_factory.mktemp("a small book")
    shutil.copytree(ROOT / "book_utils", root / "book_utils", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "chapters").mkdir()
    (root / "chapters" / "01_small.py").write_text(CHAPTER, "utf-8")
    (root / "_toc.yml").write_text(TOC, "utf-8")
    shutil.copy(ROOT / "conf.py", root)
    status, _, errors = SmallBook(root).call("chapters")
    assert status == 0, errors
    return root


@pytest.fixture
def small_book(one_small_book, tmp_path):
    """A fresh copy for each test; afterwards the chapter is as it was, and no process is left."""
    book = SmallBook(tmp_path / "a book")
    shutil.copytree(one_small_book, book.root)
    before = {path: path.read_bytes() for path in (book.root / "chapters").iterdir()}
    yield book
    assert {path: path.read_bytes() for path in (book.root / "chapters").iterdir()} == before
    wait_for(lambda: not processes_of(book.root), 20)
