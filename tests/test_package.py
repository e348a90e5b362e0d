"""The package: quick to import, without side effects, every public name at its top, the rooms in order."""

import re
import subprocess
import sys

import click
import jaxtyping
import pytest
import torch
from click.testing import CliRunner

import book_utils
from book_utils.workbench.cli import main
from book_utils.workbench.files import ROOT

PACKAGE = ROOT / "book_utils"
MODULES = sorted(path.stem for path in PACKAGE.glob("[a-z]*") if path.stem != "workbench")


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


@pytest.mark.parametrize(
    "arguments", [["--help"], ["parameters"], ["rerun", "04_shortcuts", "-p", "depth", "0"], ["sweep", "--help"]]
)
def test_the_command_line_answers_before_anything_heavy_is_imported(arguments):
    heavy = {"torch", "nbformat", "jupytext", "nbclient", "papermill", "distributed", "matplotlib"}
    code = f"""import sys
from book_utils.workbench.cli import main
try:
    main({arguments})
finally:
    print(sorted({heavy} & {{*sys.modules}}))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.splitlines()[-1] == "[]", answer


@pytest.mark.parametrize("command", sorted(main.commands))
def test_each_command_says_what_it_does_and_what_each_option_is_for(command):
    answer = CliRunner().invoke(main, [command, "--help"], terminal_width=80)
    assert answer.exit_code == 0 and len(main.commands[command].help) > 40
    options = [p for p in main.commands[command].params if isinstance(p, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_model_module_imports_the_workbench_or_a_later_chapter(module):
    files = [PACKAGE / f"{module}.py"] if (PACKAGE / f"{module}.py").exists() else (PACKAGE / module).glob("*.py")
    text = "\n".join(path.read_text("utf-8") for path in files)
    imported = set(re.findall(r"^\s*(?:from|import) book_utils\.([a-z]\w*)", text, re.MULTILINE))
    assert not re.search(r"from book_utils import [^_]", text)  # which would hide the module
    order = ["config", *(path.stem[3:] for path in sorted((ROOT / "chapters").glob("[0-9]*.py")))]
    place = order.index("parity")
    order[place:place] = ["layouts", "checkpoints"]  # chapter 9's, too
    order.insert(order.index("training"), "couplets")  # chapter 13's, too
    order.remove("generation")
    order.insert(order.index("kv_cache") + 1, "generation")  # its final form has the next chapter's cache
    order = ["mutations" if name == "blind_spots" else name for name in order]
    assert module in order or module == "__main__"
    assert imported - {module} <= set(order[: order.index(module)] if module in order else ["workbench"])


def test_the_shapes_in_signatures_are_checked_in_this_test_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="B T D"):
        book_utils.DummyTransformerBlock(book_utils.get_config("tiny"))(torch.ones(2, 3))
