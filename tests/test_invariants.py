"""Every chapter under other parameters: it runs, says so, and what must hold for any parameters holds.

For a chapter NN_name, tests/invariants/NN_name.py has parameter sets far from the defaults, and `holds(p, r, text)`:
assertions on the parameters `p`, the published results `r` and the `text` that the chapter prints and shows.
"""

import importlib.util

import pytest

from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.pairs import read_source
from book_utils.workbench.reruns import notebook_of, perform
from book_utils.workbench.results import published, read_notebook
from book_utils.workbench.runs import plan


def invariants(script):
    path = ROOT / "tests" / "invariants" / script.name
    spec = importlib.util.spec_from_file_location(f"invariants_{script.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts_of(notebook):
    """What each cell printed and showed, as text."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            text = output.get("text", output.get("data", {}).get("text/plain", ""))
            yield text if isinstance(text, str) else "".join(text)


RERUNS = [(script, values) for script in chapter_scripts() for values in invariants(script).SETS]
each_chapter = pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)


@pytest.mark.parametrize(("script", "values"), RERUNS, ids=lambda x: getattr(x, "stem", None))
def test_what_must_hold_holds_under_other_parameters(script, values, tmp_path):
    run = plan(script.stem, values)
    notebook = notebook_of(run)
    failure = perform(notebook, script.stem, tmp_path, 900, {"OMP_NUM_THREADS": "1"})
    assert failure is None, failure
    assert list(tmp_path.iterdir()) == [] and not any(
        output.get("name") == "stderr" for cell in notebook.cells for output in cell.get("outputs", [])
    )
    text = "\n".join(texts_of(notebook))
    exercises = sum("exercise" in cell.metadata.get("tags", []) for cell in notebook.cells)
    assert text.count(": not attempted yet.") == exercises > 0
    invariants(script).holds(run.parameters, published(notebook).values, text)


@each_chapter
def test_the_defaults_are_no_exception_and_other_parameters_would_be_seen(script):
    notebook = read_notebook(script.with_suffix(".ipynb"))
    holds = invariants(script).holds
    results, text = published(notebook).values, "\n".join(texts_of(notebook))
    holds(plan(script.stem, {}).parameters, results, text)
    for values in invariants(script).SETS:
        with pytest.raises(AssertionError):
            holds(plan(script.stem, values).parameters, results, text)


@each_chapter
def test_results_are_published_by_one_cell(script):
    publishing = [cell for cell in read_source(script).cells if "publish(" in cell.source and cell.cell_type == "code"]
    assert len(publishing) == 1
