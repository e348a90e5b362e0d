"""`python -m book_utils parity`: verdict, exit status and results.json, on right, wrong, hostile and broken files."""

import ast
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from book_utils.workbench.cli import main

PACKAGE = Path(find_spec("llms_from_scratch").submodule_search_locations[0])


def one_file():
    """Upstream's classes in one text, with what such a file has around them."""
    attention = (PACKAGE / "ch03.py").read_text("utf-8")
    wanted = next(node for node in ast.parse(attention).body if getattr(node, "name", "") == "MultiHeadAttention")
    rest = (PACKAGE / "ch04.py").read_text("utf-8").replace("from .ch03 import", "# from .ch03 import")
    head = "import tiktoken_that_is_not_here\nimport torch\nimport torch.nn as nn\nopen('canary', 'w')\n"
    return head + ast.get_source_segment(attention, wanted) + "\n\n\n" + rest + "\nmain()\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parity(*arguments):
    result = CliRunner().invoke(main, ["parity", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def strict(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


def test_the_installed_package_in_a_process_of_its_own(here):
    command = [sys.executable, "-W", "error", "-m", "book_utils", "parity"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "") and "the same (threshold 1e-07 in float64)" in run.stdout
    results = strict(here / "results.json")
    assert results["verdict"] == "same" and results["threshold"] == 1e-7
    assert results["configuration"]["emb_dim"] == 16 and results["input"] == [2, 6]
    assert {"python", "torch", "llms-from-scratch"} <= set(results["versions"])
    assert len(results["stages"]) == 17 and set(results["stages"]["logits"]) == {"float32", "float64"}
    assert 1e-9 < results["stages"]["logits"]["float64"] < results["largest_in_float64"] < 1e-7


def test_the_packages_own_folder_and_a_file_of_all_classes(here):
    assert parity("--upstream", PACKAGE)[0] == 0
    first = strict(here / "results.json")
    (here / "gpt.py").write_text(one_file())
    for place in (here / "gpt.py", here):
        assert parity("--upstream", place, "--results", "other.json")[0] == 0
        assert strict(here / "other.json")["stages"] == first["stages"]
    assert sorted(path.name for path in here.iterdir()) == ["gpt.py", "other.json", "results.json"]  # no canary


@pytest.mark.parametrize(
    ("right", "wrong", "first"),
    [
        ("unbiased=False", "unbiased=True", "block 1: norm 1"),
        ("torch.sqrt(var + self.eps)", "(torch.sqrt(var) + self.eps)", "block 1: norm 1"),
        ("0.044715", "0.0447", "block 1: feed-forward"),
        ("/ keys.shape[-1]**0.5", "/ keys.shape[-1]", "block 1: attention"),
        ("x = self.norm1(x)\n        x = self.att(x)", "x = self.att(x)\n        x = self.norm1(x)", "block 1: norm 1"),
        ("x = self.norm2(x)", "x = self.norm1(x)", "block 1: after attention"),
        ("diagonal=1", "diagonal=2", "block 1: attention"),
        ("tok_embeds + pos_embeds", "tok_embeds", "embeddings"),
        ("x = self.final_norm(x)", "pass", "final norm"),
    ],
)
def test_a_wrong_file_is_told_with_the_stage_where_it_first_differs(here, right, wrong, first):
    assert right in one_file()
    (here / "gpt.py").write_text(one_file().replace(right, wrong))
    status, output = parity("--upstream", "gpt.py")
    assert status == 1 and "DIFFERENT" in output
    results = strict(here / "results.json")
    assert results["verdict"] == "different"
    over = [s for s, by in results["stages"].items() if by["float64"] is None or by["float64"] > results["threshold"]]
    assert over[0] == first


def test_nan_and_a_missing_stage_are_written_as_null(here):
    text = one_file().replace("self.scale * norm_x + self.shift", "torch.sqrt(norm_x)")
    (here / "gpt.py").write_text(text)
    assert parity("--upstream", "gpt.py")[0] == 1
    results = strict(here / "results.json")
    assert results["largest_in_float64"] is None and results["stages"]["block 1: norm 1"]["float64"] is None


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("def forward(self, x):", "def forward(self, x, y=print('canary')):", r"line \d+: class \w+ calls print"),
        ("norm2", "second", "missing: trf_blocks.0.norm2.scale"),
        ("4 * cfg", "3 * cfg", r"another shape: trf_blocks.0.ff.layers.0.weight"),
        ('cfg["n_layers"]', 'cfg["layers"]', "gpt.py cannot be compared: KeyError: 'layers'"),
        ("x = self.drop_emb(x)", "x = self.drop_emb(x, x, x)", "gpt.py cannot be compared: TypeError"),
        ("class GELU", "class Gelu", "GELU"),
        ("batch_size, seq_len = in_idx.shape", "batch_size, seq_len = in_idx.shape)", "line"),
    ],
)
def test_a_file_without_a_verdict_ends_in_status_2_and_writes_nothing(here, right, wrong, words):
    assert right in one_file()
    (here / "gpt.py").write_text(one_file().replace(right, wrong))
    (here / "results.json").write_text('{"made_by": "python -m book_utils parity"}')
    status, output = parity("--upstream", "gpt.py")
    assert status == 2 and output.startswith("Error: ") and "Traceback" not in output
    assert re.search(words, output), output
    assert not (here / "canary").exists() and (here / "results.json").read_text().count("\n") == 0


def test_what_is_not_its_own_is_not_overwritten(here):
    for text in ("{}", "[]", "no JSON", '{"made_by": "me"}'):
        (here / "results.json").write_text(text)
        status, output = parity()
        assert status == 2 and "results.json exists and was not written by this command" in output
        assert (here / "results.json").read_text() == text
    for place, words in [("a/b.json", "there is no folder a"), (here, "it is a folder")]:
        status, output = parity("--results", place)
        assert status == 2 and words in output


def test_wrong_options_end_in_status_2(here):
    for options in (["--seed", "-1"], ["--seed", "x"], ["--upstream", "nowhere.py"], ["--upstream", here]):
        status, output = parity(*options)
        assert status == 2 and "Error: " in output
    assert list(here.iterdir()) == []


def test_another_seed_draws_other_weights(here):
    differences = []
    for seed in (1, 2):
        assert parity("--seed", seed)[0] == 0
        differences.append(strict(here / "results.json")["stages"])
    assert differences[0] != differences[1]
