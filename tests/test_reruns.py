"""Reruns: parameters checked before anything runs, runs that are kept and never overwritten, failures told apart."""

import json
import subprocess
import sys

import nbformat
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from small_book import CHAPTER, end, fill_the_disk, interrupt, kernels_of, wait_for

from book_utils.workbench import files
from book_utils.workbench.cli import main
from book_utils.workbench.results import MIME, published
from book_utils.workbench.runs import Run
from book_utils.workbench.sweep_results import read_table


def strict(path):
    """A notebook's JSON, read as JavaScript would: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(f"{path.name} holds {word}")

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


# one rerun


def test_a_rerun_is_named_after_its_parameters_and_holds_what_it_is(small_book):
    status, out, err = small_book.call(
        "rerun", "01_small", "-p", "n", "0", "-p", "scale", "-1e-3", "-p", "flag", "false"
    )
    name = "01_small,n=0,scale=-0.001,flag=False"
    assert (status, err) == (0, "") and f"runs/{name}.ipynb" in out and "not finite" in out
    notebook = strict(small_book.runs / f"{name}.ipynb")
    assert "0 -0.001 'a = b # c' None False fine" in notebook["cells"][3]["outputs"][0]["text"][0]
    injected = [cell for cell in notebook["cells"] if "injected-parameters" in cell["metadata"].get("tags", [])]
    assert ["".join(cell["source"]) for cell in injected] == ["# Parameters\nn = 0\nscale = -0.001\nflag = False"]
    about = notebook["metadata"]["assembling_gpt"]
    everything = {"n": 0, "scale": -0.001, "word": "a = b # c", "maybe": None, "flag": False, "mode": "fine"}
    assert (about["chapter"], about["parameters"], about["status"]) == ("01_small", everything, "complete")
    assert about["versions"]["torch"] and "jupytext" not in notebook["metadata"]
    assert published(notebook).values == {"square": 0, "share": 0.0, "inverse": None}
    assert [path.name for path in small_book.runs.iterdir()] == [f"{name}.ipynb"]


def test_a_run_that_exists_is_not_overwritten_without_a_word(small_book):
    small_book.runs.mkdir()
    path = small_book.runs / "01_small,n=1.ipynb"
    path.write_text("mine")
    status, _, err = small_book.call("rerun", "01_small", "-p", "n", "1", cwd=small_book.root.parent)
    assert status == 1 and err.startswith("Error: runs/01_small,n=1.ipynb exists; --replace writes over it")
    assert path.read_text() == "mine" and list(small_book.runs.iterdir()) == [path]
    assert small_book.call("rerun", "01_small", "-p", "n", "1", "--replace")[0] == 0
    assert published(strict(path)).values["square"] == 1
    before = path.read_bytes()  # a run that fails does not take the place of one that is complete
    status, _, err = small_book.call("rerun", "01_small", "-p", "mode", "fail", "--replace", "--output", path)
    assert status == 3 and "01_small,n=1.failed.ipynb" in err and path.read_bytes() == before
    assert small_book.read("01_small,n=1.failed.ipynb").cells[0].source.startswith("> [!CAUTION]")


BAD = [
    (["-p", "N", "1"], "no parameter 'N'"),
    (["-p", "flg", "true"], "no parameter 'flg'; did you mean flag? There are n, scale, word, maybe, flag, mode"),
    (["-p", "n", "2.0"], "n = '2.0' is not of type int (a number (0 to 1000))"),
    (["-p", "n", "true"], "n = 'true' is not of type int"),
    (["-p", "n", "1e2"], "n = '1e2' is not of type int"),
    (["-p", "n", "None"], "n = None is not of type int"),
    (["-p", "n", "many"], "n = 'many' is not of type int"),
    (["-p", "n", ""], "n = '' is not of type int"),
    (["-p", "n", "9" * 5000], "n = '999"),
    (["-p", "n", "-1"], "n = -1 is out of range: a number (0 to 1000)"),
    (["-p", "scale", "nan"], "scale = nan is not a finite number"),
    (["-p", "scale", "-inf"], "scale = -inf is not a finite number"),
    (["-p", "scale", "1e999"], "scale = inf is not a finite number"),
    (["-p", "scale", "-1e1"], "scale = -10.0 is out of range: another (more than -10)"),
    (["-p", "scale", "True"], "scale = 'True' is not of type float"),
    (["-p", "flag", "1"], "flag = '1' is not of type bool; write True or False"),
    (["-p", "maybe", "10"], "maybe = 10 is out of range: a number or none (at most 9)"),
    (["-p", "maybe", "1.5"], "maybe = '1.5' is not of type int | None"),
    (["-p", "word", "None"], "word = None is not of type str"),
    (["-p", "mode", "Fine"], "mode = 'Fine' is out of range"),
    (["-p", "n", "1", "-p", "n", "2"], "the parameter n is given twice"),
    (["-p", "n"], "Option '-p' requires 2 arguments"),
    (["--timeout", "0"], "--timeout"),
    (["-p", "word", "\udcff"], "has a character that cannot be written in UTF-8"),
    (["--output", "run.txt"], "whose name ends in .ipynb; got run.txt"),
    (["--output", f"{'x' * 240}.ipynb"], "the name has 246 bytes, more than 200"),
    (["--output", "chapters/01_small.ipynb", "--replace"], "among the chapters, where a run is never written"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments)[:30] for arguments, _ in BAD])
def test_a_wrong_parameter_is_one_clear_line_before_anything_runs(one_small_book, monkeypatch, arguments, message):
    monkeypatch.setattr(files, "chapter_scripts", lambda: [one_small_book / "chapters" / "01_small.py"])
    monkeypatch.setattr(files, "ROOT", one_small_book)
    monkeypatch.chdir(one_small_book)
    result = CliRunner().invoke(main, ["rerun", "01_small", *arguments])
    assert result.exit_code == 2 and message in result.stderr and result.stdout == ""
    assert len(result.stderr.splitlines()[-1]) < 300 and not (one_small_book / "runs").exists()


def test_an_unknown_chapter_is_named_with_the_nearest(small_book):
    status, _, err = small_book.call("rerun", "1_smal")
    assert status == 2 and "no chapter '1_smal'; did you mean 01_small? There are 01_small" in err
    for name in ("chapters/01_small.ipynb", "01_small.py"):
        assert small_book.call("rerun", name, "-p", "n", "x")[2].endswith("a number (0 to 1000))\n")


def test_values_are_read_by_the_type_of_their_parameter(small_book):
    arguments = ["-p", "word", "5", "-p", "maybe", "-3", "-p", "scale", "7", "--output", "elsewhere/x.ipynb"]
    assert small_book.call("rerun", "01_small", *arguments)[0] == 0
    text = strict(small_book.root / "elsewhere" / "x.ipynb")["cells"][3]["outputs"][0]["text"][0]
    assert "3 7.0 '5' -3 True" in text
    odd = "'\"\\\n{None} é 🌊 \u2028 $(touch hacked)"
    assert small_book.call("rerun", "01_small", "-r", "word", "None", "--output", "none.ipynb")[0] == 0
    assert "'None'" in (small_book.root / "none.ipynb").read_text("utf-8")
    assert small_book.call("rerun", "01_small", "-p", "word", odd)[0] == 0
    (run,) = small_book.runs.iterdir()
    assert repr(odd) in strict(run)["cells"][3]["outputs"][0]["text"][0] and not (small_book.root / "hacked").exists()


@pytest.mark.parametrize(
    ("mode", "status", "kind", "told"),
    [
        ("fail", 3, "cell error", "ValueError: it ```failed```\nin two lines"),
        ("slow", 4, "time-out", "it ran longer than its limit of 3 s"),
        ("die", 5, "dead kernel", "the kernel died"),
    ],
)
def test_each_kind_of_failure_has_its_exit_status_and_leaves_a_marked_notebook(small_book, mode, status, kind, told):
    found, _, err = small_book.call("rerun", "01_small", "-p", "mode", mode, "--timeout", "3")
    name = f"01_small,mode={mode}.ipynb"
    assert found == status and f'cell 5 (if mode == "fail":): {told}' in err and f"is in runs/{name}" in err
    notebook = small_book.read(name)
    nbformat.validate(notebook)
    about = notebook.metadata["assembling_gpt"]
    assert (about["status"], about["error"]) == (kind, told)
    assert (
        f"did not reach its end ({kind})" in notebook.cells[0].source
        and told.split("\n")[0] in notebook.cells[0].source
    )
    ended = [number for number, cell in enumerate(notebook.cells, 1) if "failed" in cell.metadata.get("tags", [])]
    assert ended == [7] and notebook.cells[5].source == "## Here the run ended"
    assert notebook.cells[4].outputs and not notebook.cells[7].outputs


@pytest.mark.parametrize("when", ["the kernel starts", "a cell runs"])
def test_ctrl_c_keeps_what_there_is(small_book, when):
    process = small_book.start("rerun", "01_small", "-p", "mode", "slow")
    try:
        wait_for(lambda: kernels_of(small_book.root))
        if when == "a cell runs":
            wait_for(lambda: (small_book.root / "reached").exists())
        interrupt(process)
        _, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 130 and "01_small,mode=slow.ipynb" in err and "interrupted" in err
    notebook = small_book.read("01_small,mode=slow.ipynb")
    assert notebook.metadata["assembling_gpt"]["status"] == "interrupted"
    assert [bool(cell.get("outputs")) for cell in notebook.cells].count(True) == (when == "a cell runs")


def test_two_reruns_of_one_name_do_not_meet(small_book):
    first = small_book.start("rerun", "01_small", "-p", "mode", "slow", "--timeout", "8")
    wait_for(lambda: (small_book.root / "reached").exists())
    status, _, err = small_book.call("rerun", "01_small", "-p", "mode", "slow")
    assert status == 1 and "another command is making runs/01_small,mode=slow.ipynb" in err
    first.communicate(timeout=60)
    assert first.returncode == 4


def test_a_folder_that_cannot_be_written_and_a_full_disk_are_one_line(small_book):
    (small_book.root / "file").touch()
    status, _, err = small_book.call("rerun", "01_small", "--output", "file/x.ipynb")
    assert status == 1 and err.startswith("Error: ") and len(err.splitlines()) == 1

    process = small_book.start("rerun", "01_small", "-p", "n", "5")
    wait_for(lambda: kernels_of(small_book.root))
    fill_the_disk(process)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and len(err.splitlines()) == 1
    assert err.startswith("Error: ") and "File too large" in err and "runs/01_small,n=5.ipynb" in err
    assert list(small_book.runs.iterdir()) == []


def test_the_python_that_runs_the_command_runs_the_chapter(small_book, tmp_path, monkeypatch):
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["/nowhere/python"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    assert small_book.call("rerun", "01_small")[0] == 0


def test_a_kernel_that_cannot_start_says_why(small_book):
    (small_book.root / "ipykernel_launcher.py").write_text("raise SystemExit('no kernel today')")
    status, _, err = small_book.call("rerun", "01_small")
    assert status == 5 and "the kernel did not start" in err and "(no kernel today)" in err
    assert small_book.read("01_small.ipynb").metadata["assembling_gpt"]["status"] == "dead kernel"


def test_papermill_runs_a_run_again_with_one_injected_cell(small_book):
    small_book.call("rerun", "01_small", "-p", "n", "4")
    command = [sys.executable, "-m", "papermill", "01_small,n=4.ipynb", "again.ipynb", "-p", "n", "6"]
    assert subprocess.run(command, cwd=small_book.runs, capture_output=True).returncode == 0
    notebook = strict(small_book.runs / "again.ipynb")
    injected = [cell for cell in notebook["cells"] if "injected-parameters" in cell["metadata"]["tags"]]
    assert len(injected) == 1 and published(notebook).values["square"] == 36


def test_a_run_becomes_a_page_also_when_it_failed(small_book):
    assert small_book.call("rerun", "01_small", "-p", "n", "9", "--html")[0] == 0
    status, out, _ = small_book.call("rerun", "01_small", "-p", "mode", "fail", "--html")
    assert status == 3 and "As a page: runs/html/01_small,mode=fail.html" in out
    pages = {path.stem: path.read_text("utf-8") for path in (small_book.runs / "html").glob("*.html")}
    assert set(pages) == {"01_small,n=9", "01_small,mode=fail"}
    assert "n squared" in pages["01_small,n=9"] and "Here the run ended" in pages["01_small,mode=fail"]
    assert all('href="_static/site.css' in page and "pst-search-dialog" not in page for page in pages.values())


BROKEN = [
    ("n: int = 3  # a", "n = 3  # a", "each line is `name: type = value  # meaning`"),
    ("n: int = 3  # a", "import os  # a", "each line is"),
    ("n: int = 3  # a", "n: int = (  # a", "each line is"),
    ("n: int = 3  # a", "n: int = 2**3  # a", "each line is"),
    ("n: int = 3  # a", "n: list = []  # a", "list is none of int, float, bool, str"),
    ("n: int = 3  # a", "n: int = 2000  # a", "n = 2000 is out of range"),
    ("n: int = 3  # a", "n: int = 3.5  # a", "n = 3.5 is not of type int"),
    ('tags=["parameters"]', "", "no parameter 'n'. There are none"),
]


@pytest.mark.parametrize(("right", "wrong", "message"), BROKEN, ids=[wrong[:12] for _, wrong, _ in BROKEN])
def test_a_broken_parameters_cell_is_one_clear_line(tmp_path, monkeypatch, right, wrong, message):
    script = tmp_path / "01_small.py"
    script.write_text(CHAPTER.replace(right, wrong), "utf-8")
    monkeypatch.setattr(files, "chapter_scripts", lambda: [script])
    for command in (["rerun", "01_small", "-p", "n", "1"], ["parameters"]):
        result = CliRunner().invoke(main, command)
        if command == ["parameters"] and "none" in message and "tags" in right:
            assert result.exit_code == 0 and "no parameters" in result.stdout
        else:
            assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1


# what was published

NAMES = [
    ('publish([("n", 1, "x")])', "the result n has the name of a parameter"),
    ('publish([("seconds", 1, "x")])', "the result seconds has the name of a parameter, or of a column"),
    ('publish([("a", 1, "x")]); publish([("b", 1, "x")])', "publishes results 2 times"),
    ('publish([("A", 1, "x")])', "small letters"),
    ('publish([("a", [1], "x")])', "the result a is a list"),
    (
        f'from IPython.display import display\ndisplay({{"{MIME}": {{"oops": 1}}}}, raw=True)',
        "have another form than `publish` gives them",
    ),
]


def test_what_cannot_be_gathered_is_a_failed_run_and_the_rest_go_on(small_book):
    script = small_book.root / "chapters" / "01_small.py"
    text = script.read_text("utf-8")
    head, _, last = text.rpartition("publish([")
    cases = "".join(f"    {number}: {code!r},\n" for number, (code, _) in enumerate(NAMES))
    publishing = f"if n < {len(NAMES)}:\n    exec({{\n{cases}}}[n])\nelse:\n    publish([{last}"
    script.write_text(head + publishing, "utf-8")
    sweep = small_book.root / "all.yml"
    sweep.write_text(f"chapter: 01_small\ngrid: {{n: {list(range(len(NAMES) + 1))}}}\nfigure: {{x: n, y: square}}\n")
    status, _, err = small_book.call("sweep", sweep)
    rows = read_table(small_book.runs / "all" / "results.csv")
    assert (status, err) == (3, "") and rows[-1]["square"] == len(NAMES) ** 2
    for row, (_, message) in zip(rows, NAMES, strict=False):
        assert row["status"] == "cell error" and message in row["error"] and row["square"] is None
    script.write_text(text, "utf-8")


# names


@given(st.text(max_size=300), st.text(max_size=300))
def test_every_text_gives_a_name_that_any_system_takes_and_no_two_share(one, other):
    script = files.chapter_scripts()[0]
    names = [Run(script, {"word": text, "n": 1}, {}).name for text in (one, other)]
    assert all(len(name) < 200 and name.isascii() and not set(name) & set('/\\:*?"<>| ') for name in names)
    assert (names[0].lower() == names[1].lower()) == (one == other)
