"""An edit saved in JupyterLab reaches the script, and undoing it leaves no trace. Through Lab's own way of saving."""

import shutil

import pytest
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.lab import before_saving


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
