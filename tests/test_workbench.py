"""Parameters, tables and files of the workbench."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from book_utils._files import write_whole
from book_utils.workbench import Progress, check_parameters, get_tokenizer, rounded, show_table
from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.parameters import Parameter, read_parameters
from book_utils.workbench.tokenizers import ByteTokenizer

SCRIPT = """# %% [markdown]
# Text with a number: size: int = 3

# %% tags=["parameters"]
depth: int = 5  # number of layers (1 to 64)
scale: float = -1e-3  # größer; a = b, # and ( signs (more than -0.5)
name: str = "a = b # c"  # any text
flag: bool = True  # on or off
bare: int = 0

# %%
later: int = 7  # not a parameter
"""


def test_parameters_are_read_from_the_cell_alone(tmp_path):
    script = tmp_path / "x.py"
    script.write_text(SCRIPT, "utf-8")
    found = {p.name: (p.type, p.default, p.meaning) for p in read_parameters(script)}
    assert found == {
        "depth": ("int", 5, "number of layers (1 to 64)"),
        "scale": ("float", -1e-3, "größer; a = b, # and ( signs (more than -0.5)"),
        "name": ("str", "a = b # c", "any text"),
        "flag": ("bool", True, "on or off"),
        "bare": ("int", 0, ""),
    }


def test_the_cell_is_found_whatever_else_its_header_says(tmp_path):
    script = tmp_path / "x.py"
    header = '# %% editable=true slideshow={"slide_type": ""} tags=["x", "parameters"]'
    script.write_text(SCRIPT.replace('# %% tags=["parameters"]', header), "utf-8")
    assert len(read_parameters(script)) == 5
    script.write_text(SCRIPT.replace('# %% tags=["parameters"]', "# %%"), "utf-8")
    assert read_parameters(script) == []


@pytest.mark.parametrize(
    ("type", "meaning", "good", "bad"),
    [
        ("int", "depth (1 to 64)", [1, 64], [0, 65, True, 2.0, "3", None]),
        ("int", "depth (at least 0)", [0, 10**9], [-1]),
        ("float", "eps (more than 0)", [1e-9, 3], [0, -1.0, float("nan"), float("inf"), True, "1"]),
        ("float", "shift (-1e6 to 1e6)", [-1e6, 0, 1e6], [-1.1e6, 2e6]),
        ("bool", "on (or off)", [True, False], [0, 1, "true", None]),
        ("str", "text (1 to 2)"[:4], ["", "x"], [1, None]),
        ("int", "a number (it may be what it likes)", [-5, 5], [0.5]),
    ],
)
def test_a_parameter_accepts_its_range_and_names_itself_otherwise(type, meaning, good, bad):
    parameter = Parameter("thing", type, good[0], meaning)
    for value in good:
        parameter.check(value)
    for value in bad:
        with pytest.raises((TypeError, ValueError), match="thing = ") as error:
            parameter.check(value)
        assert repr(value) in str(error.value) and meaning in str(error.value)


@pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)
def test_every_chapter_has_parameters_with_meanings_and_valid_defaults(script):
    parameters = read_parameters(script)
    assert parameters
    for parameter in parameters:
        assert parameter.meaning
        parameter.check(parameter.default)
    check_parameters(script.stem, {parameter.name: parameter.default for parameter in parameters})
    with pytest.raises(TypeError, match=parameters[0].name):
        check_parameters(script.stem, {**{p.name: p.default for p in parameters}, parameters[0].name: object()})


def test_chapters_come_in_the_order_of_the_one_list():
    names = [script.name for script in chapter_scripts()]
    assert names == sorted(names) == sorted(path.name for path in (ROOT / "chapters").glob("[0-9]*.py"))


def test_the_order_of_the_list_is_the_order_of_the_chapters(tmp_path):
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: chapters/index\nparts:\n- caption: One\n  chapters: [{file: chapters/02_b}]\n"
        "- caption: Two\n  chapters:\n  - file: 'chapters/01_a'  # a remark\n"
    )
    assert chapter_scripts(tmp_path) == [tmp_path / "chapters/02_b.py", tmp_path / "chapters/01_a.py"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "kept.txt"
    write_whole(path, "old\n")
    path.chmod(0o600)
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old\n" and [entry.name for entry in path.parent.iterdir()] == ["kept.txt"]
    write_whole(path, "new\n")
    assert path.read_text() == "new\n" and path.stat().st_mode & 0o777 == 0o600
    assert isinstance(path, Path)


def test_a_table_is_text_in_a_script_and_rich_in_a_notebook(capsys):
    show_table(["name", "count", "value"], [["a <b>", 10, 1.23456], ["c", 2, -0.000001]])
    assert capsys.readouterr().out == "name   count   value\na <b>     10  1.2346\nc          2  0.0000\n"
    from book_utils.workbench.tables import Table

    html = Table(["name", "value"], [["a <b>", 1.0]], ".1f")._repr_html_()
    assert '<td style="text-align: left; padding: 0.2em 0.7em">a &lt;b&gt;</td>' in html
    assert '<td style="text-align: right; padding: 0.2em 0.7em; white-space: nowrap">1.0</td>' in html
    with pytest.raises(ValueError, match="a row of 1 cells under a header of 2"):
        show_table(["a", "b"], [["x"]])


def test_rounding_leaves_no_negative_zero():
    assert str(rounded(torch.tensor([-0.00001, 1.23456]))) == "[0.0, 1.2346]"
    assert rounded(torch.tensor(2.0)) == 2.0


# words


@given(text=st.text())
def test_bytes_come_back_as_the_text_they_were(text):
    text = text.encode("utf-8", "ignore").decode()  # without lone surrogates, which have no UTF-8 form
    tokenizer = get_tokenizer("bytes")
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and all(0 <= i < tokenizer.n_vocab for i in ids)


def test_half_a_character_becomes_a_sign_and_other_vocabularies_are_named():
    assert get_tokenizer("bytes").decode([0xC3]) == "�"
    with pytest.raises(ValueError, match="tokenizer = 'words' is neither 'bytes' nor 'gpt2'"):
        get_tokenizer("words")


def test_gpt2s_vocabulary_is_tiktokens_or_its_absence_is_one_line(monkeypatch):
    import tiktoken

    stub = ByteTokenizer()
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: stub if name == "gpt2" else None)
    assert get_tokenizer("gpt2") is stub

    def offline(name):
        raise OSError("no route\nto the host")

    monkeypatch.setattr(tiktoken, "get_encoding", offline)
    with pytest.raises(RuntimeError, match=r"cannot be had here \(OSError: no route\); use tokenizer = 'bytes'"):
        get_tokenizer("gpt2")


# progress


def test_a_bar_leaves_nothing_in_a_script(capsys):
    assert list(Progress(range(3), "training")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_bar_in_a_notebook_ends_as_it_began(monkeypatch):
    from types import SimpleNamespace

    from book_utils.workbench import progress

    shown = []
    monkeypatch.setattr(progress, "get_ipython", lambda: SimpleNamespace(kernel=1))
    monkeypatch.setattr(progress, "display", lambda bar, **_: shown.append(bar) or SimpleNamespace(update=shown.append))
    with pytest.raises(ZeroDivisionError):
        for step in Progress(range(200), "training"):
            1 / (150 - step)
    forms = [bar._repr_html_() for bar in shown]
    assert forms[0] == forms[-1] == "training" and {repr(bar) for bar in shown} == {"training"}
    assert 30 < len(forms) < 60 and 'value="100" max="200"' in "".join(forms)
