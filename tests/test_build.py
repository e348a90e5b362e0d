"""Executing chapters and the commands around it: what they write, what they leave alone, how they fail."""

import os
import shutil

import nbformat
import pytest
from click.testing import CliRunner
from filelock import FileLock

from book_utils.workbench import build, files
from book_utils.workbench.cli import main
from book_utils.workbench.execute import execute_chapters
from book_utils.workbench.files import ROOT

HEADER = """# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of one chapter, in a folder of its own; returns its script."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "figures").mkdir()
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: chapters/index\nparts:\n"
        "  - caption: Part\n    chapters:\n      - file: chapters/01_one\n"
    )
    (tmp_path / "chapters" / "index.md").write_text("# Home\n\n[One](01_one.ipynb)\n")
    shutil.copy(ROOT / "conf.py", tmp_path)
    script = tmp_path / "chapters" / "01_one.py"
    script.write_text(HEADER + "# %% [markdown]\n# # One\n\n# %%\nprint(1 + 1)\n\n# %%\nprint('second')\n")
    for module in (build, files):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(build, "BUILD", tmp_path / "_build")
    monkeypatch.setattr(build, "chapter_scripts", lambda: [script])
    return script


def call(*arguments):
    return CliRunner().invoke(main, arguments)


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "_build" not in path.parts}


def test_book_executes_into_build_and_touches_nothing_else(book):
    root = book.parent.parent
    before = snapshot(root)
    result = call("book")
    assert result.exit_code == 0, result.output
    assert "[1/1] 01_one: done" in result.output and "_build/html/index.html" in result.output
    assert snapshot(root) == before
    executed = nbformat.read(root / "_build/book/chapters/01_one.ipynb", as_version=4)
    assert [cell.get("execution_count") for cell in executed.cells] == [None, 1, 2]
    assert "second" in (root / "_build/html/chapters/01_one.html").read_text("utf-8")
    book.write_text(book.read_text().replace("second", "fresh"))
    assert call("book").exit_code == 0  # the site shows this run, not the one before, nor the committed notebook
    assert "fresh" in (root / "_build/html/chapters/01_one.html").read_text("utf-8")
    assert "chapters/index.html" in (root / "_build/html/index.html").read_text("utf-8")


def test_the_readers_ipython_settings_change_no_output(book, tmp_path, monkeypatch):
    profile = tmp_path / "settings" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text("get_config().InteractiveShell.ast_node_interactivity = 'all'\n")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "settings"))
    book.write_text(book.read_text().replace("print('second')", "1 + 1\nprint('second')"))
    call("chapters")
    outputs = nbformat.read(book.with_suffix(".ipynb"), as_version=4).cells[2].outputs
    assert [output.output_type for output in outputs] == ["stream"]


def test_chapters_writes_the_pair_once_and_then_leaves_it_alone(book):
    notebook = book.with_suffix(".ipynb")
    assert "wrote chapters/01_one.ipynb" in call("chapters").output
    first, time = notebook.read_bytes(), notebook.stat().st_mtime_ns
    result = call("chapters", "01_one")
    assert result.exit_code == 0 and "wrote" not in result.output
    assert (notebook.read_bytes(), notebook.stat().st_mtime_ns) == (first, time)
    assert "Every script and its notebook agree" in call("pairs").output
    assert call("site").exit_code == 0
    result = call("chapters", "02_two")
    assert result.exit_code == 1 and "no chapter 02_two; there are 01_one" in result.output


FIGURE = """from book_utils.workbench import figure
with figure("line", alt="A <rising> line", words=["It rises by 1 < 2."], data={"y": [0, 1]}) as ax:
    ax.plot([0, 1])"""


def test_figures_are_kept_by_chapters_alone_and_carry_their_words_to_the_site(book):
    root = book.parent.parent
    book.write_text(book.read_text().replace("print('second')", FIGURE))
    assert call("book").exit_code == 0
    assert list((root / "figures").iterdir()) == [] and (root / "_build/book/figures/line.svg").exists()
    assert "wrote figures/line.svg" in call("chapters").output
    kept = {path.name: path.read_bytes() for path in (root / "figures").iterdir()}
    assert set(kept) == {"line.svg", "line.json"}
    assert "wrote" not in call("chapters").output
    assert call("site").exit_code == 0
    page = (root / "_build/html/chapters/01_one.html").read_text("utf-8")
    assert 'alt="A &lt;rising&gt; line"' in page and "<li>It rises by 1 &lt; 2.</li>" in page


def test_a_warning_of_the_site_is_an_error_and_the_old_site_stays(book):
    root = book.parent.parent
    assert call("book").exit_code == 0
    before = (root / "_build/html/chapters/01_one.html").read_bytes()
    book.write_text(book.read_text().replace("# # One", "# # One\n#\n# [nowhere](02_two.ipynb)"))
    result = call("book")
    assert result.exit_code == 1 and "the site could not be built" in result.output
    assert (root / "_build/html/chapters/01_one.html").read_bytes() == before


def test_chapters_does_not_overwrite_an_edit_that_only_the_notebook_has(book):
    call("chapters")
    notebook = book.with_suffix(".ipynb")
    edited = notebook.read_text("utf-8").replace("print(1 + 1)", "print(1 + 2)")
    notebook.write_text(edited, "utf-8")
    later = book.stat().st_mtime + 10
    os.utime(notebook, (later, later))
    result = call("chapters")
    assert result.exit_code == 1 and "01_one.ipynb was saved after 01_one.py and differs" in result.output
    assert notebook.read_text("utf-8") == edited
    result = call("pairs")
    assert (
        result.exit_code == 1 and "01_one: cell 2: another text" in result.output and "make chapters" in result.output
    )
    os.utime(book, (later + 10, later + 10))
    assert call("chapters").exit_code == 0 and "print(1 + 1)" in notebook.read_text("utf-8")


def test_a_failing_cell_ends_the_build_and_is_named(book):
    root = book.parent.parent
    call("chapters")
    book.write_text(book.read_text().replace("print('second')", "# why\nraise KeyError('lost')"))
    before = snapshot(root)
    for command in ("book", "chapters"):
        result = call(command)
        assert result.exit_code == 1
        assert "01_one: FAILED" in result.output
        assert "01_one.ipynb, cell 3 (# why): KeyError: 'lost'" in result.output
        partial = nbformat.read(root / "_build" / command / "chapters/01_one.ipynb", as_version=4)
        assert partial.cells[1].outputs[0].text == "2\n" and partial.cells[2].outputs[0].ename == "KeyError"
    assert snapshot(root) == before


@pytest.mark.parametrize(
    ("code", "error"),
    [("import time; time.sleep(60)", "longer than its limit of 2 s"), ("import os; os._exit(1)", "the kernel died")],
)
def test_a_cell_without_end_and_a_dead_kernel_end_in_bounded_time(book, code, error):
    book.write_text(book.read_text().replace("print('second')", code))
    root = book.parent.parent
    failures = execute_chapters([book], root / "run", root / "figures", 2, lambda line: None)
    assert [str(failure) for failure in failures] == [f"01_one.ipynb, cell 3 ({code}): {failures[0].error}"]
    assert error in failures[0].error
    assert "2" in nbformat.read(root / "run/01_one.ipynb", as_version=4).cells[1].outputs[0].text


def test_what_a_cell_prints_in_pieces_is_kept_as_one_text(book):
    pieces = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.4)"
    book.write_text(book.read_text().replace("print('second')", pieces))
    call("chapters")
    outputs = nbformat.read(book.with_suffix(".ipynb"), as_version=4).cells[2].outputs
    assert [output.text for output in outputs] == ["0\n1\n2\n"]


def test_two_commands_at_once_do_not_empty_each_others_folders(book):
    build.BUILD.mkdir()
    with FileLock(build.BUILD / "lock"):
        for command in ("book", "site", "chapters"):
            result = call(command)
            assert result.exit_code == 1 and "another command is building the book" in result.output
    assert call("chapters").exit_code == 0


def test_a_site_without_a_notebook_says_how_to_get_it(book):
    result = call("site")
    assert result.exit_code == 1 and "chapters/01_one.ipynb is missing; `make chapters` makes it" in result.output


def test_a_limit_of_nothing_is_refused(book):
    for limit in ("0", "nan", "-1", "0.5"):
        assert call("book", "--timeout", limit).exit_code == 2


def test_a_missing_chapter_is_named(book):
    book.unlink()
    result = call("book")
    assert result.exit_code == 1 and "_toc.yml lists chapters/01_one.py, which does not exist" in result.output
