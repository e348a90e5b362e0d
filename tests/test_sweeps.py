"""Sweeps: planned in YAML, carried out by several workers, gathered; what ends them early loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_book import end, fill_the_disk, interrupt, kernels_of, processes_of, wait_for

from book_utils.workbench import files
from book_utils.workbench.runs import plan
from book_utils.workbench.sweep_results import read_table
from book_utils.workbench.sweeps import read_sweep


def write(book, text, name="sweep.yml"):
    return write_to(book.root / name, text)


def write_to(path, text):
    path.write_text(text, "utf-8")
    return path


def table(folder):
    return read_table(folder / "results.csv")


def listening(root):
    """The addresses at which the processes of a sweep can be reached."""
    found = set()
    for process in processes_of(root):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):  # it has just ended
            found |= {c.laddr.ip for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    return found


# the plan


@pytest.fixture
def small_chapter(one_small_book, monkeypatch):
    monkeypatch.setattr(files, "chapter_scripts", lambda: [one_small_book / "chapters" / "01_small.py"])


def test_a_grid_is_every_combination_and_numbers_are_read_as_written(small_chapter, tmp_path):
    path = tmp_path / "sweep.yml"
    text = "chapter: 01_small\ngrid:\n  scale: [1e-5, -2, .5, 1E+3]\n  word: [no, 'on', 12:30, null_]\n  n: 7\n"
    sweep = read_sweep(write_to(path, text))
    assert len(sweep.runs) == 16 and {run.parameters["n"] for run in sweep.runs} == {7}
    assert [sweep.runs[4 * i].parameters["scale"] for i in range(4)] == [1e-5, -2.0, 0.5, 1000.0]
    assert [run.parameters["word"] for run in sweep.runs[:4]] == ["no", "on", "12:30", "null_"]
    text = "chapter: 01_small\nruns:\n- {n: 1}\n- {}\n- {maybe: null}\n- {maybe: 3, flag: false}\n"
    runs = read_sweep(write_to(path, text)).runs
    assert [run.parameters["maybe"] for run in runs] == [None, None, None, 3] and runs[1].given == {}


HEAD = "chapter: 01_small\n"
BAD = [
    ("", "the file holds no names with values, such as `chapter: …`"),
    ("- 1\n", "the file holds no names with values"),
    ("grid: {n: [1]}\n", "`chapter:` is missing"),
    ("chapter: 1_smal\ngrid: {n: [1]}\n", "no chapter '1_smal'; did you mean 01_small?"),
    (HEAD, "either `grid:` or `runs:` says what is run"),
    (HEAD + "grid: {n: [1]}\nruns: [{n: 1}]\n", "either `grid:` or `runs:`"),
    (HEAD + "gird: {n: [1]}\n", "no key 'gird'; did you mean grid?"),
    (HEAD + "grid: [1]\n", "`grid:` gives each parameter a list of values"),
    (HEAD + "grid: {n: []}\n", "0 runs; 1 to 10,000 can be made"),
    (HEAD + "grid: {m: [1]}\n", "no parameter 'm'"),
    (HEAD + "grid: {1: [1]}\n", "no parameter '1'"),
    (HEAD + "grid: {n: [1, 2.0]}\n", "n = 2.0 is not of type int"),
    (HEAD + "grid: {n: [true]}\n", "n = True is not of type int"),
    (HEAD + "grid: {n: ['1']}\n", "n = '1' is not of type int"),
    (HEAD + "grid: {n: [1, null]}\n", "n = None is not of type int"),
    (HEAD + "grid: {n: [2026-11-30]}\n", "n = datetime.date(2026, 11, 30) is not of type int"),
    (HEAD + "grid: {n: [[1]]}\n", "n = [1] is not of type int"),
    (HEAD + "grid: {word: [5]}\n", "word = 5 is not of type str"),
    (HEAD + "grid: {n: [1001]}\n", "n = 1001 is out of range: a number (0 to 1000)"),
    (HEAD + "grid: {scale: [.nan]}\n", "scale = nan is not a finite number"),
    (HEAD + "grid: {n: [1, 1]}\n", "the run 01_small,n=1 is asked for twice"),
    (HEAD + "grid: {scale: [1, 1.0]}\n", "is asked for twice"),
    (HEAD + "grid: {n: [1], n: [2]}\n", 'line 2: found duplicate key "n"'),
    (HEAD + "grid: {n: \x1f}\n", "this is no YAML (unacceptable character #x001f"),
    (HEAD + "grid: {n: [2026-99-99]}\n", "this is no YAML (month must be in 1..12"),
    (HEAD + "grid: {n: " + 3000 * "[" + "}\n", "this is no YAML ("),
    (HEAD + "grid: {n: [1\n", "line 3: expected ',' or ']'"),
    (HEAD + "grid: {n: !!python/object/apply:os.system [ls]}\n", "line 2: could not determine a constructor"),
    (HEAD + "grid: &a {n: *a}\n", "not of type int"),
    (
        HEAD
        + "grid:\n  n: ["
        + ",".join(map(str, range(200)))
        + "]\n  scale: ["
        + ",".join(map(str, range(200)))
        + "]\n",
        "the grid has 40,000 runs; at most 10,000 can be made",
    ),
    (HEAD + "runs: {n: 1}\n", "`runs:` is a list with parameters for each run"),
    (HEAD + "runs: [1]\n", "`runs:` is a list with parameters for each run"),
    (HEAD + "runs: []\n", "0 runs"),
    (HEAD + "grid: {n: [1]}\nfigure: {x: n}\n", "a figure needs x and y"),
    (HEAD + "grid: {n: [1]}\nfigure: n\n", "figure holds no names with values"),
    (
        HEAD + "grid: {n: [1]}\nfigure: {x: n, y: sqare}\n",
        "figure, y: no parameter or result 'sqare'; did you mean square?",
    ),
    (HEAD + 'grid: {word: ["\\ud800"]}\n', "has a character that cannot be written in UTF-8"),
    (HEAD + "grid: {n: [1]}\nfigure: {x: n, y: [n]}\n", "figure, y: no parameter or result"),
    (HEAD + "grid: {n: [1]}\nfigure: {x: n, y: 3}\n", "figure, y: no parameter or result '3'"),
    (HEAD + "grid: {n: [1]}\nfigure: {x: n, y: square, color: flag}\n", "no key 'color'"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_wrong_file_is_one_clear_line_before_anything_runs(small_chapter, tmp_path, text, message):
    with pytest.raises(ValueError) as error:
        read_sweep(write_to(tmp_path / "sweep.yml", text))
    assert str(error.value).startswith("sweep.yml") and message in str(error.value)
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 400


@given(st.text(max_size=200))
def test_any_text_is_a_plan_or_one_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"^any\.yml"):
        read_sweep(path)


def test_a_wrong_command_is_refused_at_once(small_book):
    path = write(small_book, HEAD + "grid: {n: [1]}\n")
    for arguments, message in [
        (["nowhere.yml"], "'nowhere.yml' does not exist"),
        ([path, "--workers", "0"], "--workers"),
        ([path, "--scheduler", "localhost"], "is no address such as tcp://127.0.0.1:8786"),
        ([path, "--output", "chapters/x"], "is among the chapters"),
        ([write(small_book, HEAD, "empty.yml")], "empty.yml: either `grid:`"),
    ]:
        status, _, err = small_book.call("sweep", *arguments)
        assert status == 2 and message in err and not small_book.runs.exists()


# carried out


def test_a_sweep_records_what_fails_goes_on_and_later_makes_only_what_is_missing(small_book):
    modes = "[{n: 2}, {mode: fail}, {mode: die}, {n: 0}, {mode: slow}, {n: 20, flag: false}, {n: 1, word: 'A/b'}]"
    path = write(small_book, f"{HEAD}runs: {modes}\nfigure: {{x: n, y: square, hue: flag}}\n", "ein Blatt, mit = é.yml")
    status, out, err = small_book.call("sweep", path, "--timeout", "3")
    folder = small_book.runs / "ein Blatt, mit = é"
    assert (status, err) == (3, "") and "4 of 7 runs are complete" in out and "[0/7] runs are complete already" in out
    rows = table(folder)
    assert [row["status"] for row in rows] == ["complete", "cell error", "dead kernel", "complete", "time-out"] + 2 * [
        "complete"
    ]
    assert rows[1]["error"] == "ValueError: it ```failed```\nin two lines" and rows[1]["square"] is None
    assert [row["square"] for row in rows] == [4, None, None, 0, None, 400, 1]
    assert rows[3]["inverse"] is None and rows[6]["word"] == "A/b" and rows[5]["flag"] is False
    assert list(rows[0])[:9] == ["n", "scale", "word", "maybe", "flag", "mode", "square", "share", "inverse"]
    assert all(row["torch"] and row["seconds"] > 0 for row in rows)
    from pyarrow import parquet

    columns = parquet.read_table(folder / "results.parquet").to_pydict()
    assert columns["square"] == [4, None, None, 0, None, 400, 1] and columns["share"][0] == rows[0]["share"]
    drawn = json.loads((folder / "figure.json").read_text("utf-8"))
    assert drawn["data"]["n"] == [0, 1, 2, 20] and (folder / "figure.svg").exists()
    assert "3 of 7 runs did not end" in drawn["words"][-1] and "flag = False" in drawn["alt"] and drawn["alt"] in out

    times = {notebook.name: notebook.stat().st_mtime_ns for notebook in folder.glob("*.ipynb")}
    torn = folder / "01_small,n=2.ipynb"
    torn.write_text(torn.read_text("utf-8")[:-100], "utf-8")
    (folder / "01_small,n=0.ipynb").write_text('{"metadata": {"assembling_gpt": 3}, "cells": [{"outputs": null}]}')
    status, out, _ = small_book.call("sweep", path, "--timeout", "3")
    assert status == 3 and "[2/7] runs are complete already" in out and "01_small,n=20" not in out
    kept = [name for name in times if (folder / name).stat().st_mtime_ns == times[name]]
    assert len(kept) == 2 and table(folder)[0]["square"] == 4


def test_a_run_of_another_text_of_the_chapter_is_made_again(small_book):
    path = write(small_book, HEAD + "grid: {n: [1, 2]}\n")
    assert small_book.call("sweep", path)[0] == 0
    assert "[2/2] runs are complete already" in small_book.call("sweep", path)[1]
    script = small_book.root / "chapters" / "01_small.py"
    text = script.read_text("utf-8")
    script.write_text(text.replace("n * n", "n * n + 1"), "utf-8")
    status, out, _ = small_book.call("sweep", path)
    assert status == 0 and "[0/2] runs are complete already" in out
    assert [row["square"] for row in table(small_book.runs / "sweep")] == [2, 5]
    script.write_text(text, "utf-8")


def test_a_killed_worker_costs_no_run_and_a_run_that_kills_is_recorded(small_book):
    path = write(small_book, HEAD + "runs: [{mode: kill once}, {n: 1}, {n: 2}, {mode: kill}]\n")
    status, out, err = small_book.call("sweep", path)
    rows = table(small_book.runs / "sweep")
    assert (status, err) == (3, "") and [row["status"] for row in rows] == 3 * ["complete"] + ["worker error"]
    assert rows[3]["error"] == "the worker died each time that it was tried" and "3 of 4 runs are complete" in out


def test_ctrl_c_keeps_what_is_complete_and_the_same_command_goes_on(small_book):
    path = write(small_book, HEAD + "grid: {n: [1, 2, 3, 4, 5, 6, 7, 8]}\n")
    process = small_book.start("sweep", path)
    folder = small_book.runs / "sweep"
    try:
        wait_for(lambda: len(list(folder.glob("*.ipynb"))) >= 2)
        interrupt(process)
        out, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130 and err.endswith("interrupted\n") and "Traceback" not in err
    wait_for(lambda: not processes_of(small_book.root), 20)
    done = sum(row["status"] == "complete" for row in table(folder))
    assert 2 <= done < 8 and f"{done} of 8 runs are complete" in out
    assert {row["status"] for row in table(folder)} == {"complete", "not run"}
    status, out, _ = small_book.call("sweep", path)
    assert status == 0 and f"[{done}/8] runs are complete already" in out and out.count(": done") == 8 - done


def test_a_killed_sweep_leaves_whole_notebooks_and_no_process(small_book):
    path = write(small_book, HEAD + "grid: {n: [1, 2, 3, 4, 5, 6]}\n")
    process = small_book.start("sweep", path)
    folder = small_book.runs / "sweep"
    wait_for(lambda: list(folder.glob("*.ipynb")))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not processes_of(small_book.root), 30)
    assert all(json.loads(notebook.read_text("utf-8")) for notebook in folder.glob("*.ipynb"))
    assert small_book.call("sweep", path)[0] == 0 and len(table(folder)) == 6


def test_two_sweeps_at_once_refuse_each_others_folder_alone(small_book):
    path = write(small_book, HEAD + "grid: {n: [1, 2, 3, 4, 5]}\n", "a.yml")
    other = write(small_book, HEAD + "grid: {n: [3]}\n", "b.yml")
    first, second = (small_book.start("sweep", file) for file in (path, other))
    wait_for(lambda: list((small_book.runs / "a").glob("*.ipynb")))
    assert wait_for(lambda: listening(small_book.root)) == {"127.0.0.1"}
    status, _, err = small_book.call("sweep", path)
    assert status == 1 and err == "Error: another command is making runs/a\n"
    for process in (first, second):
        assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    assert [len(table(small_book.runs / name)) for name in ("a", "b")] == [5, 1]


def test_a_folder_of_another_chapter_or_none_is_refused_in_one_line(small_book):
    path = write(small_book, HEAD + "grid: {n: [1]}\n")
    (small_book.runs / "sweep").mkdir(parents=True)
    mine = small_book.runs / "sweep" / "02_mine,depth=3.ipynb"
    mine.write_text("mine")
    status, _, err = small_book.call("sweep", path)
    refusal = "Error: runs/sweep has other files ({}); --output names another folder\n"
    assert status == 1 and err == refusal.format("02_mine,depth=3.ipynb") and mine.read_text() == "mine"
    of_a_rerun = mine.rename(mine.with_name("01_small,n=1.ipynb"))
    assert small_book.call("sweep", path)[2] == refusal.format("01_small,n=1.ipynb")
    of_a_rerun.unlink()
    assert small_book.call("sweep", path)[0] == 0
    of_a_rerun.unlink()
    of_a_rerun.symlink_to(small_book.root / "chapters" / "01_small.ipynb")
    assert small_book.call("sweep", path)[2] == refusal.format("01_small,n=1.ipynb")
    (small_book.root / "file").touch()
    status, _, err = small_book.call("sweep", path, "--output", "file/x")
    assert status == 1 and len(err.splitlines()) == 1


def test_a_full_disk_ends_the_sweep_in_one_line(small_book):
    path = write(small_book, HEAD + "grid: {n: [1, 2, 3]}\n")
    process = small_book.start("sweep", path)
    wait_for(lambda: kernels_of(small_book.root))
    fill_the_disk(process)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and len(err.splitlines()) == 1
    assert err.startswith("Error: ") and "File too large" in err and "runs/sweep/" in err
    assert not list((small_book.runs / "sweep").glob("*.ipynb"))
    assert small_book.call("sweep", path)[0] == 0


@pytest.fixture
def cluster(small_book):
    """A scheduler and a worker of its own, as somebody else would have started them."""
    port = 20_000 + os.getpid() % 20_000
    address = f"tcp://127.0.0.1:{port}"
    options = {
        "cwd": small_book.root,
        "env": {**os.environ, "PYTHONPATH": str(small_book.root)},
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "start_new_session": True,
    }

    def dask(*arguments):
        return subprocess.Popen([sys.executable, "-m", "dask", *arguments, "--no-dashboard"], **options)

    scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", str(port))
    worker = dask("worker", address, "--nthreads", "1", "--death-timeout", "60")
    yield address, scheduler
    end(worker)
    end(scheduler)


def test_an_existing_cluster_does_the_same_work_and_when_it_goes_away_nothing_is_lost(small_book, cluster):
    address, scheduler = cluster
    path = write(small_book, HEAD + "grid: {n: [1, 2]}\n")
    assert small_book.call("sweep", path, "--scheduler", address)[0] == 0
    assert [row["square"] for row in table(small_book.runs / "sweep")] == [1, 4]
    path = write(small_book, HEAD + "grid: {n: [1, 2, 3, 4, 5, 6, 7]}\n", "more.yml")
    process = small_book.start("sweep", path, "--scheduler", address)
    folder = small_book.runs / "more"
    wait_for(lambda: list(folder.glob("*.ipynb")))
    end(scheduler)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "Traceback" not in err
    assert err == "Error: the scheduler went away; started again, the sweep goes on where it was\n"
    done = len(list(folder.glob("*.ipynb")))
    assert f"{done} of 7 runs are complete" in out and len(table(folder)) == 7
    status, _, err = small_book.call("sweep", path, "--scheduler", address)
    assert status == 1 and err.startswith(f"Error: no scheduler answers at {address}") and len(err.splitlines()) == 1
    status, out, _ = small_book.call("sweep", path)
    assert status == 0 and f"[{done}/7] runs are complete already" in out


def test_each_run_has_one_thread_and_memory_does_not_grow_with_the_runs(small_book):
    path = write(small_book, HEAD + f"grid: {{n: {list(range(40))}}}\n")
    process, sizes = small_book.start("sweep", path), {}
    folder = small_book.runs / "sweep"
    parent = psutil.Process(process.pid)
    while process.poll() is None:
        done = len(list(folder.glob("*.ipynb")))
        sizes.setdefault(done, parent.memory_info().rss if parent.is_running() else 0)
        time.sleep(0.2)
    process.communicate()
    assert process.returncode == 0 and len(table(folder)) == 40
    cells = json.loads((folder / "01_small,n=7.ipynb").read_text("utf-8"))["cells"]
    assert cells[3]["outputs"][0]["text"][0].endswith(" fine 1\n")
    early, late = (max(sizes[n] for n in sizes if low <= n <= high) for low, high in [(8, 16), (30, 39)])
    assert late - early < 10e6, "the process that gathers grows with each run"


# the sweeps that ship


SHIPPED = sorted((files.ROOT / "chapters").glob("*.sweep.yml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_sweep_that_ships_is_whole_and_its_numbers_come_back(path, tmp_path):
    """The kept table has every run of the plan; the first and the last are made again, and agree."""
    sweep, rows = read_sweep(path), read_table(path.with_suffix(".csv"))
    as_in_a_table = [
        {name: None if value == "" else value for name, value in run.parameters.items()} for run in sweep.runs
    ]
    assert as_in_a_table == [{name: row[name] for name in sweep.runs[0].parameters} for row in rows]
    assert {row["status"] for row in rows} == {"complete"}
    some = [sweep.runs[0], sweep.runs[-1]]
    lines = [f"chapter: {sweep.chapter}", "runs:", *(f"- {json.dumps(dict(run.given))}" for run in some)]
    (tmp_path / "some.yml").write_text("\n".join(lines))
    command = [sys.executable, "-m", "book_utils", "sweep", "some.yml", "--output", "some"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    for row, kept in zip(table(tmp_path / "some"), (rows[0], rows[-1]), strict=True):
        for name in set(row) - {"seconds", "python", "torch", "numpy", "book_utils"}:
            # Weights are drawn in float32, whose last digits differ between processors and add up in a deep network;
            # of a difference that rounding makes, only the size is the same elsewhere.
            near = {"rel": 100} if "difference" in name else {"rel": 1e-3}
            assert row[name] == (pytest.approx(kept[name], **near) if isinstance(kept[name], float) else kept[name])


def test_no_parameter_or_result_has_the_name_of_another_column():
    assert {path.name.partition(".")[0] for path in SHIPPED} == {"04_shortcuts", "09_parity"}
    from book_utils.workbench.results import published, read_notebook

    others = {"status", "error", "seconds", "python", "torch", "numpy", "book_utils"}
    for script in files.chapter_scripts():
        results = published(read_notebook(script.with_suffix(".ipynb"))).values
        names = [*plan(script.stem, {}).parameters, *results]
        assert results and len(set(names)) == len(names) and not others & set(names)
