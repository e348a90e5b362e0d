"""The committed chapters: pairs that agree, cells executed in order, scripts that run alone. nbval does the rest."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import click
import nbformat
import pytest
from nbval.plugin import coalesce_streams
from papermill.inspection import display_notebook_help

from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.pairs import differences, read_source, write_notebook
from book_utils.workbench.parameters import read_parameters

MEND = "edit the .py, then run `make chapters`"
each_chapter = pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)


def committed(script):
    return nbformat.read(script.with_suffix(".ipynb"), as_version=4)


@each_chapter
def test_the_script_and_its_notebook_agree(script):
    assert differences(script) == [], f"{script.name} and its notebook differ; to mend, {MEND}"


@each_chapter
def test_every_cell_was_executed_in_order_from_a_fresh_kernel(script):
    cells = [cell for cell in committed(script).cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1)), f"{script.stem}: cells out of order; to mend, {MEND}"


@each_chapter
def test_the_notebook_is_valid_and_names_no_machine(script):
    notebook = committed(script)
    nbformat.validate(notebook)
    text = script.with_suffix(".ipynb").read_text("utf-8")
    assert not re.search(r"/(home|root|tmp|Users|work)/|C:\\\\|iopub|\d{4}-\d\d-\d\dT", text)
    assert set(notebook.metadata) == {"jupytext", "kernelspec", "language_info"}
    assert not any(output.get("name") == "stderr" for cell in notebook.cells for output in cell.get("outputs", []))


@each_chapter
def test_every_drawing_in_the_notebook_is_the_kept_figure(script):
    outputs = [output for cell in committed(script).cells for output in cell.get("outputs", []) if "data" in output]
    drawings = {output.data["image/svg+xml"] for output in outputs if "image/svg+xml" in output.data}
    assert drawings <= {path.read_text("utf-8") for path in (ROOT / "figures").glob("*.svg")}
    assert len(drawings) == len(re.findall(r"(?:with figure|with diagram|show_sweep)\(", script.read_text("utf-8")))


@each_chapter
def test_cell_ids_and_parameters_tag_survive_every_conversion(script, tmp_path):
    first, second = ([cell.id for cell in read_source(script).cells] for _ in range(2))
    assert first == second and len(set(first)) == len(first) == len(committed(script).cells)
    tagged = [cell for cell in committed(script).cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    write_notebook(committed(script), tmp_path / "again.ipynb")
    assert (tmp_path / "again.ipynb").read_bytes() == script.with_suffix(".ipynb").read_bytes()


@each_chapter
def test_the_script_runs_headless_from_another_folder_and_draws_the_kept_figures(script, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    environment["BOOK_FIGURES"] = str(tmp_path / "figures")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-W", "error", str(script)]
    run = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "not attempted yet" in run.stdout and run.stderr == ""
    assert list(elsewhere.iterdir()) == []
    for drawn in (tmp_path / "figures").glob("*.json"):
        new, kept = (json.loads(path.read_text("utf-8")) for path in (drawn, ROOT / "figures" / drawn.name))
        tolerance = kept.get("tolerance", 0.0)
        assert new["alt"] == kept["alt"] and (tolerance or new["words"] == kept["words"])
        assert same_numbers(new["data"], kept["data"], tolerance), (
            f"{drawn.stem}: other numbers; to mend, run `make chapters`"
        )


def same_numbers(a, b, tolerance=0.0):
    """Equal in structure; floats to a millionth, since the last digits differ between processors, or to `tolerance`."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_numbers(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same_numbers(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=tolerance or 1e-12) or (math.isnan(a) and math.isnan(b))
    return a == b


def test_a_changed_number_behind_a_figure_is_seen():
    data = json.loads((ROOT / "figures" / "gradient_means.json").read_text("utf-8"))["data"]
    moved = {**data, "with shortcuts": [1.00001 * data["with shortcuts"][0], *data["with shortcuts"][1:]]}
    assert same_numbers(data, data) and not same_numbers(data, moved) and not same_numbers(data, {})
    assert same_numbers(data, moved, 0.1) and not same_numbers({"x": [1.0]}, {"x": [1.2]}, 0.1)


@each_chapter
def test_code_keeps_to_the_width_of_the_page(script):
    shown = [cell for cell in committed(script).cells if "hide-input" not in cell.metadata.get("tags", [])]
    code = [line for cell in shown if cell.cell_type == "code" for line in cell.source.splitlines()]
    assert [line for line in code if len(line) > 88] == []


@each_chapter
def test_a_hidden_input_is_hidden_on_the_site_and_in_jupyterlab(script):
    for cell in committed(script).cells:
        assert ("hide-input" in cell.metadata.get("tags", [])) == ("jupyter" in cell.metadata)
        assert cell.metadata.get("jupyter", {"source_hidden": True}) == {"source_hidden": True}


@each_chapter
def test_links_lead_to_chapters_that_exist(script):
    text = "\n".join(cell.source for cell in committed(script).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#]+\.(?:ipynb|svg))\)", text)
    assert [target for target in targets if not (ROOT / "chapters" / target).exists()] == []


def test_a_changed_text_tag_or_cell_is_seen(tmp_path):
    source = chapter_scripts()[1]
    script = tmp_path / source.name
    notebook = script.with_suffix(".ipynb")
    shutil.copy(source, script)
    assert differences(script) == [f"{notebook.name} is missing"]
    shutil.copy(source.with_suffix(".ipynb"), notebook)
    assert differences(script) == []
    content = json.loads(notebook.read_text("utf-8"))
    content["cells"][0]["source"][0] += "x"
    content["cells"][1]["metadata"] = {}
    content["cells"].pop()
    notebook.write_text(json.dumps(content), "utf-8")
    count = len(read_source(script).cells)
    assert differences(script) == [
        "cell 1: another text",
        "cell 2: another tag",
        f"the script has {count} cells, the notebook {count - 1}",
    ]


@pytest.mark.parametrize(
    ("chapter", "committed_text", "changed_text"),
    [
        ("02_layer_norm", "-1.3416, -0.4472", "-1.3416, -0.4473"),  # printed
        ("02_layer_norm", ">0.999201<", ">0.999202<"),  # in a table
        ("05_attention", "with weight 1.00.</li>", "with weight 1.01.</li>"),  # in the words of a figure
    ],
)
def test_nbval_turns_red_on_a_changed_digit(tmp_path, chapter, committed_text, changed_text):
    """The regression test itself: a digit in a committed output is changed, and nbval must see it."""
    notebook = tmp_path / f"{chapter}.ipynb"
    text = (ROOT / "chapters" / notebook.name).read_text("utf-8")
    assert committed_text in text
    notebook.write_text(text.replace(committed_text, changed_text, 1), "utf-8")
    sanitize = f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval_sanitize.cfg'}"
    command = [sys.executable, "-m", "pytest", "--nbval", sanitize, "-p", "no:cacheprovider", "-q", str(notebook)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout
    assert f"FAILED {notebook.name}::Cell" in run.stdout and "1 failed" in run.stdout


def test_papermill_reruns_a_chapter_from_any_folder_with_the_same_result(tmp_path):
    chapter = ROOT / "chapters" / "02_layer_norm.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar"]
    cells = []
    for number, folder in enumerate([tmp_path, ROOT, ROOT / "chapters"]):
        result = tmp_path / f"{number}.ipynb"
        arguments = [os.path.relpath(chapter, folder), str(result), "-p", "emb_dim", "8"]
        run = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        # A busy kernel may send a line in two pieces. nbval joins them before it compares, papermill does not.
        made = nbformat.read(result, as_version=4).cells
        cells.append([(cell.source, coalesce_streams(cell.get("outputs", []))) for cell in made])
    assert cells[0] == cells[1] == cells[2] and "x [2, 3, 8]" in str(cells[0])
    run = subprocess.run([*command, str(chapter), str(result), "-p", "emb_dim", "1"], capture_output=True, text=True)
    assert run.returncode != 0 and "emb_dim = 1 is out of range: D, features per position (2 to 1024)" in run.stderr


@each_chapter
def test_papermill_lists_every_parameter_with_its_type_default_and_meaning(script, capsys):
    context = click.Context(click.Command("papermill"), info_name="papermill")
    assert display_notebook_help(context, str(script.with_suffix(".ipynb")), None) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for parameter in read_parameters(script):
        default = re.search(rf"^{parameter.name}: \w+ = (.+?)  # ", script.read_text("utf-8"), re.MULTILINE)[1]
        assert f"{parameter.name}: {parameter.type} (default {default}) {parameter.meaning}" in shown
