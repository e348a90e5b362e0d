"""JupyterLab for the book: an edit reaches the script, its undoing leaves no trace, sliders are there for readers only.

Here without a browser, through Lab's own way of saving; test_lab_browser.py opens it.
"""

import json
import os
import shutil
import warnings
from pathlib import Path

import nbformat
import pytest
import torch
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class
from nbclient import NotebookClient

from book_utils.workbench import explore_gradients
from book_utils.workbench.explorer import gradient_lines, gradients_explorer
from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.lab import OPTIONS, WIDGET, before_saving, start


@pytest.fixture
def lab(tmp_path):
    """A contents manager as `make lab` sets it up, over a copy of the chapters."""
    shutil.copytree(ROOT / "chapters", tmp_path / "chapters")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)
    return manager(root_dir=str(tmp_path), pre_save_hook=before_saving)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("[0-9]*")}


@pytest.mark.filterwarnings("ignore")  # the server's own deprecations
@pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)
def test_a_saved_edit_reaches_the_script_and_its_undoing_leaves_no_trace(lab, tmp_path, script):
    notebook = f"chapters/{script.stem}.ipynb"
    before = contents(tmp_path / "chapters")

    model = lab.get(notebook)
    model["content"]["metadata"]["language_info"]["version"] = "3.99"  # Lab asks the kernel and writes its answer
    for cell in model["content"]["cells"]:
        cell["metadata"].pop("trusted", None)
    lab.save(model, notebook)
    assert contents(tmp_path / "chapters") == before

    text = model["content"]["cells"][0]["source"]
    model["content"]["cells"][0]["source"] = text + "\n\nA reader's remark."
    lab.save(model, notebook)
    assert "# A reader's remark." in (tmp_path / "chapters" / script.name).read_text("utf-8")

    model["content"]["cells"][0]["source"] = text
    lab.save(model, notebook)
    assert contents(tmp_path / "chapters") == before


# The options of `make lab`, and what is left out of a saved chapter


def options_of(monkeypatch, *arguments):
    given = []
    monkeypatch.setattr("jupyterlab.labapp.LabApp.launch_instance", given.extend)
    with warnings.catch_warnings():
        start(arguments)
    return given


def test_lab_starts_on_this_machine_alone_and_a_reader_s_options_go_before(monkeypatch):
    usual = options_of(monkeypatch)
    assert "--ServerApp.ip=127.0.0.1" in usual and f"--ServerApp.root_dir={ROOT}" in usual
    for arguments in (["--ip=0.0.0.0"], ["--ip", "0.0.0.0"], ["--ServerApp.ip=0.0.0.0"]):
        ours = [option for option in usual if not option.startswith("--ServerApp.ip=")]
        assert options_of(monkeypatch, "--no-browser", *arguments) == [*ours, "--no-browser", *arguments]


def test_neither_news_nor_versions_are_looked_up_unless_a_reader_asks_for_them():
    overrides = Path(OPTIONS["--LabApp.app_settings_dir"], "overrides.json")
    expected = {"checkForUpdates": False, "fetchNews": "false"}
    assert json.loads(overrides.read_text("utf-8")) == {"@jupyterlab/apputils-extension:notification": expected}


def test_widgets_and_the_machine_are_left_out_and_all_else_is_kept():
    printed = {"output_type": "stream", "name": "stdout", "text": "kept\n"}
    table = {"output_type": "display_data", "data": {"text/html": "<table>", "text/plain": "kept"}, "metadata": {}}
    slider = {"output_type": "display_data", "data": {WIDGET: {"model_id": "1"}, "text/plain": "IntSlider()"}}
    code = {"cell_type": "code", "metadata": {"execution": {"iopub": "now"}}, "outputs": [printed, slider, table]}
    text = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}
    metadata = {"widgets": {"state": {}}, "language_info": {"name": "python", "version": "3.99"}}
    notebook = {"cells": [text, code], "metadata": metadata}
    before_saving({"type": "notebook", "content": notebook})
    assert notebook == {
        "cells": [text, {"cell_type": "code", "metadata": {}, "outputs": [printed, table]}],
        "metadata": {"language_info": {"name": "python"}},
    }


def test_other_files_are_saved_as_they_are():
    for model in ({"type": "file", "content": "text"}, {"type": "directory", "content": None}):
        before = dict(model)
        before_saving(model)
        assert model == before


# The explorer


EXPLORE = "from book_utils.workbench import explore_gradients\nexplore_gradients(5, 3, 123, True)"


def outputs_of(code, metadata=None, environment=None):
    """What a kernel sends when this code is executed, by a message with this metadata."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = NotebookClient(notebook)
    with client.setup_kernel(env={**os.environ, **(environment or {})}):
        message = client.kc.session.msg
        client.kc.session.msg = lambda *a, **k: message(
            *a, **{**k, "metadata": {**(k.get("metadata") or {}), **(metadata or {})}}
        )
        client.execute_cell(notebook.cells[0], 0)
    return notebook.cells[0].outputs


def test_the_explorer_shows_nothing_where_nobody_reads():
    inherited = {"JPY_SESSION_NAME": "a notebook"}  # a run that was started from a notebook in JupyterLab
    assert outputs_of(EXPLORE, environment=inherited) == []


def test_the_explorer_shows_widgets_where_a_front_end_sends_the_cell():
    outputs = outputs_of(EXPLORE, {"cellId": "abc"})
    assert [WIDGET in output.data for output in outputs] == [True]


def test_the_explorer_shows_nothing_in_a_script(capsys):
    explore_gradients(5, 3, 123, True)
    assert capsys.readouterr() == ("", "")


def test_the_explorer_draws_the_numbers_of_the_fixed_figure():
    kept = json.loads((ROOT / "figures" / "gradient_means.json").read_text("utf-8"))["data"]
    for name, means in gradient_lines(5, 3, 123).items():
        assert means == pytest.approx(kept[name], rel=1e-6)


def test_the_curve_and_its_words_follow_each_control_and_values_stay_in_range():
    box = gradients_explorer(depth=5, width=3, seed=123, use_shortcut=True)
    *controls, picture = box.children
    assert [control.description for control in controls] == ["depth", "width", "seed", "shortcuts"]
    seen = {picture.value}
    for control, value, words in [
        (controls[0], 6, "each of 6 layers"),
        (controls[1], 4, "with 4 features"),
        (controls[2], 7, "at seed 7,"),
        (controls[3], False, "The line without shortcuts is strong"),
    ]:
        control.value = value
        assert words in picture.value and picture.value not in seen
        seen.add(picture.value)
    for control, value, kept in [(controls[0], 65, 64), (controls[0], 1, 2), (controls[1], 0, 2), (controls[2], -1, 0)]:
        control.value = value
        assert control.value == kept
    assert "2 layers with 2 features at seed 0," in picture.value


def test_the_explorer_draws_where_every_gradient_is_zero():
    lines = gradient_lines(64, 64, 123)
    assert max(lines["with shortcuts"]) == 0  # its last GELU lets nothing back
    assert "with shortcuts, 0.0e+00 first" in gradients_explorer(64, 64, 123, True).children[-1].value


def test_the_explorer_leaves_the_notebook_s_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    gradients_explorer(5, 3, 123, True).children[0].value = 9
    assert torch.equal(torch.rand(3), expected)
