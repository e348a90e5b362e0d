"""`python -m book_utils parity`: verdict, exit status and results.json, on right, wrong, hostile and broken files."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from book_utils.parity import Comparison, StageDifference, report
from book_utils.parity.upstream_file import UpstreamFileError
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
    assert (
        (run.returncode, run.stderr) == (0, "")
        and "The tiny configuration: the same" in run.stdout
        and "the threshold is 1e-07" in run.stdout
    )
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
    [  # in the tiny configuration
        ("unbiased=False", "unbiased=True", "block 1: norm 1"),
        ("torch.sqrt(var + self.eps)", "(torch.sqrt(var) + self.eps)", "block 1: norm 1"),
        ("0.044715", "0.0447", "block 1: feed-forward"),
        ("/ keys.shape[-1]**0.5", "/ keys.shape[-1]", "block 1: attention"),
        ("x = self.norm1(x)\n        x = self.att(x)", "x = self.att(x)\n        x = self.norm1(x)", "block 1: norm 1"),
        ("x = self.norm2(x)", "x = self.norm1(x)", "block 1: after attention"),
        ("diagonal=1", "diagonal=2", "block 1: attention"),
        ("tok_embeds + pos_embeds", "tok_embeds", "embeddings"),
        ("x = self.final_norm(x)", "pass", "final norm"),
        ("self.scale * norm_x + self.shift", "norm_x", "block 1: norm 1"),
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


@pytest.mark.parametrize(
    ("right", "wrong"),
    [  # in the tiny configuration these compute the same: sizes are equal, T < C, no bias, no dropout
        ("/ keys.shape[-1]**0.5", "/ self.num_heads**0.5"),
        (
            "keys.view(b, num_tokens, self.num_heads, self.head_dim)",
            "keys.view(b, num_tokens, self.head_dim, self.num_heads)",
        ),
        ('cfg["n_layers"]', 'cfg["n_heads"] // 2'),
        ("attn_weights = self.dropout(attn_weights)", "attn_weights = F.dropout(attn_weights, self.dropout.p)"),
        (
            "attn_scores.masked_fill_(mask_bool, -torch.inf)",
            "attn_scores = attn_scores if num_tokens > 6 else attn_scores.masked_fill(mask_bool, -torch.inf)",
        ),
        ("W_value = nn.Linear(d_in, d_out, bias=qkv_bias)", "W_value = nn.Linear(d_in, d_out, bias=False)"),
        ('nn.Embedding(cfg["context_length"]', 'nn.Embedding(cfg["vocab_size"]'),
        ('nn.Linear(cfg["emb_dim"], 4 * cfg["emb_dim"])', 'nn.Linear(cfg["emb_dim"], 4 * cfg["context_length"])'),
    ],
)
def test_what_the_tiny_configuration_cannot_see_the_uneven_one_does(here, right, wrong):
    assert right in one_file()
    (here / "gpt.py").write_text(one_file().replace(right, wrong))
    status, output = parity("--upstream", "gpt.py")
    if status == 2:  # what does not even fit
        assert re.search("missing: |another shape: |The size of tensor", output), output
        return
    results = strict(here / "results.json")
    assert status == 1 and results["verdict"] == results["uneven"]["verdict"] == "different"
    assert "The uneven configuration: DIFFERENT" in output and "they part at " in output
    assert results["largest_in_float64"] < results["threshold"] < results["uneven"]["largest_in_float64"]
    assert results["uneven"]["input"] == [2, 7] and results["uneven"]["configuration"]["qkv_bias"]


@pytest.mark.parametrize(
    "changes",
    [
        {"x = x + shortcut": "x += shortcut"},
        {"'mask'": "'causal_mask'", "self.mask": "self.causal_mask"},
        {
            "/ keys.shape[-1]**0.5": "",
            "attn_scores = queries @": "queries *= self.head_dim**-0.5; attn_scores = queries @",
        },
        {"drop_resid": "drop_shortcut", "class GELU(nn.Module):": "class GELU(torch.nn.Module):"},
    ],
    ids=["in place", "another mask", "scaled before", "another name"],
)
def test_a_right_file_written_otherwise_is_the_same(here, changes):
    text = one_file()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (here / "gpt.py").write_text(text)
    status, output = parity("--upstream", "gpt.py")
    assert status == 0, output


def test_a_file_under_the_packages_name_is_not_the_package(here):
    (here / "llms-from-scratch").write_text(one_file())
    assert parity("--upstream", "llms-from-scratch")[0] == 0
    assert "llms-from-scratch" not in strict(here / "results.json")["versions"]


def test_both_the_tolerance_and_the_threshold_decide():
    def comparison(*lines):
        return Comparison("x", lines, {torch.float32: 0, torch.float64: 0})

    fine = StageDifference("logits", torch.float64, 1e-9, 1e-12, 1e-6)
    assert report.is_same(comparison(fine))
    assert not report.is_same(comparison(StageDifference("logits", torch.float64, 5e-7, 1e-12, 1e-6)))
    assert not report.is_same(comparison(fine, StageDifference("logits", torch.float32, 1e-3, 1e-5, 1e-5)))


def test_classes_that_take_too_long_are_stopped(here):
    loop = "for i in range(100000):\n            for j in range(100000):\n                pass\n        "
    (here / "gpt.py").write_text(one_file().replace("return self.layers(x)", loop + "return self.layers(x)", 1))
    reference = report.upstream_from(here / "gpt.py")
    with pytest.raises(UpstreamFileError, match=r"gpt\.py cannot be compared: TimeoutError: it took more than 0\.5"):
        report.run(reference, 1, timeout=0.5)


def test_without_the_package_the_command_says_how_to_install_it(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "llms_from_scratch", None)
    status, output = parity()
    assert status == 2 and "pip install --no-deps -r tests/peers.txt" in output


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
def test_a_file_without_a_verdict_ends_in_status_2_and_leaves_no_earlier_verdict(here, right, wrong, words):
    assert right in one_file()
    (here / "gpt.py").write_text(one_file().replace(right, wrong))
    (here / "results.json").write_text('{"made_by": "python -m book_utils parity"}')
    status, output = parity("--upstream", "gpt.py")
    assert status == 2 and output.startswith("Error: ") and "Traceback" not in output
    assert re.search(words, output), output
    results = strict(here / "results.json")
    assert not (here / "canary").exists() and set(results) == {"made_by", "reference", "verdict", "reason"}
    assert (results["reference"], results["verdict"]) == ("gpt.py", "none") and results["reason"] in output


def test_what_is_not_its_own_is_not_overwritten(here):
    for text in ("{}", "[]", "no JSON", '{"made_by": "me"}', "[" * 100_000):
        (here / "results.json").write_text(text)
        status, output = parity()
        assert status == 2 and "results.json exists and was not written by this command" in output
        assert (here / "results.json").read_text() == text
    os.mkfifo(here / "pipe")
    for place, words in [("pipe", "it is no file"), ("a/b.json", "there is no folder a"), (here, "it is no file")]:
        status, output = parity("--results", place)
        assert status == 2 and words in output


def test_wrong_options_end_in_status_2(here):
    for options in (["--seed", "-1"], ["--seed", "x"], ["--upstream", "nowhere.py"]):
        status, output = parity(*options)
        assert status == 2 and "Error: " in output
    assert list(here.iterdir()) == []


def test_another_seed_draws_other_weights(here):
    differences = []
    for seed in (1, 2):
        assert parity("--seed", seed)[0] == 0
        differences.append(strict(here / "results.json")["stages"])
    assert differences[0] != differences[1]
