"""The package: quick to import, without side effects, every public name at its top, the rooms in order."""

import re
import subprocess
import sys

import jaxtyping
import pytest
import torch

import book_utils
from book_utils.workbench.files import ROOT

MODULES = sorted(path.stem for path in (ROOT / "book_utils").glob("[a-z]*.py"))


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_every_public_name_imports_from_the_top():
    for name in book_utils.__all__:
        assert getattr(book_utils, name).__module__.startswith("book_utils.")
    assert set(book_utils.__all__) <= set(dir(book_utils))
    with pytest.raises(AttributeError, match="GPTModle"):
        book_utils.GPTModle  # noqa: B018


def test_importing_is_quick_and_has_no_side_effect():
    loaded = run("import sys, book_utils; print(sorted({m.split('.')[0] for m in sys.modules}))")
    assert not {"torch", "numpy", "matplotlib", "transformers", "papermill", "IPython", "jupytext"} & set(eval(loaded))
    loaded = run("from book_utils import *; import sys; print(sorted({m.split('.')[0] for m in sys.modules}))")
    assert not {"matplotlib", "transformers", "papermill", "IPython", "jupytext"} & set(eval(loaded))
    state = "(torch.initial_seed(), torch.get_num_threads(), torch.get_default_dtype(), os.environ.get('MPLBACKEND'))"
    assert run(f"import os, torch; a = {state}; from book_utils import *; print(a == {state})") == "True"


def test_the_command_line_starts_without_torch():
    loaded = run("import sys, book_utils.workbench.cli; print('torch' in sys.modules)")
    assert loaded == "False"


@pytest.mark.parametrize("module", MODULES)
def test_no_model_module_imports_the_workbench_or_a_later_chapter(module):
    text = (ROOT / "book_utils" / f"{module}.py").read_text("utf-8")
    imported = set(re.findall(r"^(?:from|import) book_utils\.(\w+)", text, re.MULTILINE))
    order = ["config", *(path.stem[3:] for path in sorted((ROOT / "chapters").glob("[0-9]*.py")))]
    if module in order:
        assert imported <= set(order[: order.index(module)])
    elif module != "__main__":
        assert "workbench" not in imported


def test_the_shapes_in_signatures_are_checked_in_this_test_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="B T D"):
        book_utils.DummyTransformerBlock(book_utils.get_config("tiny"))(torch.ones(2, 3))
