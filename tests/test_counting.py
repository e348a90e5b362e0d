"""The ledger: against the closed formula, against models counted, and what its check names."""

import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llms_from_scratch import ch04 as upstream
from strategies import configs
from torch import nn

from book_utils import (
    GPTConfig,
    GPTModel,
    LayerNorm,
    TransformerBlock,
    count_buffers,
    count_parameters,
    get_config,
    ledger,
    parameter_formula,
)

some_configs = configs(context_length=st.integers(1, 30))
GPT2 = ["gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"]


def on_meta(build, cfg):
    with torch.device("meta"):
        return build(cfg)


def complaint(model, cfg):
    """The lines of the error with which the ledger of `cfg` refuses `model`."""
    with pytest.raises(ValueError, match="the model differs from the ledger") as caught:
        ledger(cfg).check(model)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


# the numbers


@given(
    st.builds(
        GPTConfig,
        vocab_size=st.integers(1, 10**6),
        context_length=st.integers(1, 10**6),
        emb_dim=st.integers(1, 10**5),
        n_heads=st.just(1),
        n_layers=st.integers(1, 10**3),
        qkv_bias=st.booleans(),
        tie_weights=st.booleans(),
    )
)
def test_the_lines_add_up_to_the_closed_formula_and_fit_their_own(cfg):
    book = ledger(cfg)
    assert book.total == sum(line.count * line.times for line in book.lines) == parameter_formula(cfg)
    letters = {"V": cfg.vocab_size, "C": cfg.context_length, "D": cfg.emb_dim}
    for line in book.lines:
        formula = line.formula.removesuffix(" (tied)").replace("·", "*").replace("²", "**2")
        assert eval(formula, letters) == line.count
        assert line.times == (cfg.n_layers if line.name.startswith("block: ") else 1)


@given(some_configs)
def test_every_model_has_the_predicted_parameters(cfg):
    for model in (GPTModel(cfg), on_meta(GPTModel, cfg), on_meta(upstream.GPTModel, replace(cfg, tie_weights=False))):
        if isinstance(model, upstream.GPTModel) and cfg.tie_weights:
            model.out_head.weight = model.tok_emb.weight
        assert count_parameters(model) == ledger(cfg).total == parameter_formula(cfg)
        ledger(cfg).check(model)
        masks = cfg.n_layers * cfg.context_length**2 if isinstance(model, upstream.GPTModel) else 0
        assert count_buffers(model) == masks


def test_the_small_numbers_worked_on_paper(cfg):
    assert ledger(cfg).total == 7264
    exercise = {"vocab_size": 20, "context_length": 10, "emb_dim": 8, "n_heads": 1, "n_layers": 1}
    assert [ledger(exercise | {"tie_weights": tied}).total for tied in (False, True)] == [1264, 1104]
    counts = [line.count for line in ledger(exercise | {"qkv_bias": True}).lines]
    assert counts == [160, 80, 16, 192 + 24, 72, 16, 288, 264, 16, 160]


@pytest.mark.parametrize(
    ("name", "untied", "tied", "released"),
    # tied with QKV bias: as in the released checkpoints
    [
        ("gpt2-small", 163_009_536, 124_412_160, 124_439_808),
        ("gpt2-medium", 406_212_608, 354_749_440, 354_823_168),
        ("gpt2-large", 838_220_800, 773_891_840, 774_030_080),
        ("gpt2-xl", 1_637_792_000, 1_557_380_800, 1_557_611_200),
    ],
)
def test_the_four_sizes_of_gpt2(name, untied, tied, released):
    cfg = get_config(name)
    variants = [cfg, replace(cfg, tie_weights=True), replace(cfg, tie_weights=True, qkv_bias=True)]
    assert [ledger(variant).total for variant in variants] == [untied, tied, released]
    for variant in variants:
        model = on_meta(GPTModel, variant)
        ledger(variant).check(model)
        assert count_parameters(model) == ledger(variant).total


def test_attention_and_feed_forward_of_one_gpt2_small_block():
    lines = {line.name: line.count for line in ledger(get_config("gpt2-small")).lines}
    assert lines["block: QKV projection"] + lines["block: attention output"] == 2_360_064
    assert lines["block: FFN expansion"] + lines["block: FFN contraction"] == 4_722_432


def test_upstreams_masks_are_buffers_and_the_book_has_none():
    cfg = get_config("gpt2-small")
    theirs, ours = on_meta(upstream.GPTModel, cfg), on_meta(GPTModel, cfg)
    assert count_buffers(theirs) == 12 * 1024**2 and count_buffers(ours) == 0
    assert count_parameters(theirs) == count_parameters(ours) == 163_009_536


def test_memory_is_the_count_times_the_bytes_of_the_type(cfg):
    assert ledger(cfg).memory() == 4 * 7264
    for dtype, size in [(torch.float64, 8), (torch.float32, 4), (torch.bfloat16, 2), (torch.float16, 2)]:
        model = GPTModel(cfg).to(dtype)
        stored = sum(p.untyped_storage().nbytes() for p in model.parameters())
        assert ledger(cfg).memory(dtype) == stored == size * 7264


def test_a_dictionary_is_a_configuration_and_heads_and_dropout_count_nothing(cfg):
    upstream_dict = {key: dict(cfg)[key] for key in ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers")}
    other = replace(cfg, n_heads=1, drop_rate=0.5)
    assert ledger(upstream_dict) == ledger(cfg) and ledger(other).lines == ledger(cfg).lines
    assert parameter_formula(upstream_dict) == parameter_formula(other) == 7264


def test_the_ledger_needs_no_time_and_no_tensor():
    class NoTensor(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, *_):
            raise AssertionError(f"{function} was called")

    cfg = get_config("gpt2-xl")
    times = []
    with NoTensor():
        for _ in range(20):
            start = time.perf_counter()
            ledger(cfg)
            times.append(time.perf_counter() - start)
    assert min(times) < 1e-3  # microseconds without the checked signatures of the test run


# the table


def test_the_ledger_is_aligned_text_and_a_markdown_table(cfg):
    text = str(ledger(replace(cfg, tie_weights=True))).splitlines()
    assert text == repr(ledger(replace(cfg, tie_weights=True))).splitlines()
    assert [line.split("  ")[0] for line in text] == [
        "line",
        "token embedding",
        "position embedding",
        "block: norm 1",
        "block: QKV projection",
        "block: attention output",
        "block: norm 2",
        "block: FFN expansion",
        "block: FFN contraction",
        "final norm",
        "output head",
        "total",
    ]
    assert len(set(map(len, text))) == 1 and text[-1].split() == ["total", "7,008"]
    assert text[7].split()[-1] == "2,176" and text[10].split()[2:] == ["0", "(tied)", "0", "1", "0"]
    markdown = ledger(cfg)._repr_markdown_().splitlines()
    assert markdown[4] == "| block: norm 1 | 2·D | 32 | 2 | 64 |" and markdown[-1] == "| total |  |  |  | 7,264 |"
    assert len(markdown) == len(text) + 1


# what the check names


def test_a_missing_norm_and_a_missing_bias_are_named_with_their_blocks(cfg):
    model = GPTModel(replace(cfg, n_layers=3))
    model.trf_blocks[0].norm1 = nn.Identity()
    model.trf_blocks[2].ff.layers[2].bias = None
    model.final_norm = nn.Identity()
    assert complaint(model, replace(cfg, n_layers=3)) == [
        "block 1: norm 1: 2·D = 32 predicted, 0 found",
        "block 3: FFN contraction: 4·D² + D = 1,040 predicted, 1,024 found (trf_blocks.2.ff.layers.2.weight 1,024)",
        "final norm: 2·D = 32 predicted, 0 found",
    ]


MODULES = {  # the one place each line stands for
    "token embedding": "tok_emb",
    "position embedding": "pos_emb",
    "block 2: norm 1": "trf_blocks.1.norm1",
    "block 2: QKV projection": "trf_blocks.1.att.qkv",
    "block 2: attention output": "trf_blocks.1.att.out_proj",
    "block 2: norm 2": "trf_blocks.1.norm2",
    "block 2: FFN expansion": "trf_blocks.1.ff.layers.0",
    "block 2: FFN contraction": "trf_blocks.1.ff.layers.2",
    "final norm": "final_norm",
    "output head": "out_head",
}


@given(cfg=some_configs, name=st.sampled_from(list(MODULES)))
def test_whatever_module_is_taken_away_its_line_is_named(cfg, name):
    cfg = replace(cfg, n_layers=cfg.n_layers + 1, tie_weights=False)
    model = on_meta(GPTModel, cfg)
    model.set_submodule(MODULES[name], nn.Identity())
    (line,) = complaint(model, cfg)
    assert line.startswith(f"{name}: ") and line.endswith(" predicted, 0 found")


@given(some_configs)
def test_a_block_less_a_block_more_and_a_block_replaced_are_named(cfg):
    block = 12 * cfg.emb_dim**2 + (13 if cfg.qkv_bias else 10) * cfg.emb_dim
    formula = f"12·D² + {13 if cfg.qkv_bias else 10}·D"
    L = cfg.n_layers
    for build in (GPTModel, upstream.GPTModel):
        model = on_meta(build, cfg)
        if cfg.tie_weights:
            model.out_head.weight = model.tok_emb.weight
        ledger(cfg).check(model)
        model.trf_blocks.append(model.trf_blocks[0].__class__(cfg))
        assert complaint(model, cfg) == [f"block {L + 1}: none predicted, {block:,} found"]
        del model.trf_blocks[0], model.trf_blocks[0]
        assert complaint(model, cfg) == [f"block {L}: {formula} = {block:,} predicted, 0 found"]
    model = GPTModel(cfg)
    model.trf_blocks[0] = nn.Identity()
    assert complaint(model, cfg) == [f"block 1: {formula} = {block:,} predicted, 0 found"]


def test_mistakes_that_cancel_in_the_total_are_both_named(cfg):
    model = GPTModel(cfg)
    model.final_norm = nn.Identity()
    model.emb_norm = LayerNorm(cfg.emb_dim)
    assert count_parameters(model) == ledger(cfg).total
    assert complaint(model, cfg) == [
        "final norm: 2·D = 32 predicted, 0 found",
        "emb_norm.scale: none predicted, 16 found",
        "emb_norm.shift: none predicted, 16 found",
    ]
    model = GPTModel(cfg)  # between two blocks, in one kind of line
    model.trf_blocks[0].norm1 = nn.Identity()
    model.trf_blocks[1].norm1 = nn.Sequential(LayerNorm(cfg.emb_dim), LayerNorm(cfg.emb_dim))
    assert count_parameters(model) == ledger(cfg).total
    assert len(complaint(model, cfg)) == 6  # two lines, and four parameters under names of no line


def test_parameters_that_no_line_predicts_are_named_and_an_alias_is_none(cfg):
    model = GPTModel(cfg)
    model.alias = model.tok_emb
    ledger(cfg).check(model)
    model.temperature = nn.Parameter(torch.ones(()))
    model.trf_blocks[1].gate = nn.Linear(2, 3)
    model.norm1 = LayerNorm(2)  # the name of a block's line, outside of the blocks
    assert complaint(model, cfg) == [
        "temperature: none predicted, 1 found",
        "trf_blocks.1.gate.weight: none predicted, 6 found",
        "trf_blocks.1.gate.bias: none predicted, 3 found",
        "norm1.scale: none predicted, 2 found",
        "norm1.shift: none predicted, 2 found",
    ]


def test_a_tie_is_one_parameter_and_a_subtraction_is_none(cfg):
    tied_cfg = replace(cfg, tie_weights=True)
    untied, tied = GPTModel(cfg), GPTModel(tied_cfg)
    with torch.no_grad():
        untied.out_head.weight.copy_(untied.tok_emb.weight)
    refused = complaint(untied, tied_cfg)
    assert refused == ["output head: 0 (tied) predicted, 256 found (out_head.weight 256)"]
    refused = complaint(tied, cfg)
    assert refused == ["output head: V·D = 256 predicted, 0 found (out_head.weight is tok_emb.weight)"]


def test_a_tied_model_that_registers_its_head_first_is_right(cfg):
    model, ordered = GPTModel(replace(cfg, tie_weights=True)), nn.Module()
    for name in ("out_head", "final_norm", "trf_blocks", "pos_emb", "tok_emb"):
        ordered.add_module(name, getattr(model, name))
    ledger(model.cfg).check(ordered)


def test_a_shared_norm_counts_once_and_is_named(cfg):
    model = GPTModel(cfg)
    model.trf_blocks[1].norm2 = model.trf_blocks[1].norm1
    (line,) = complaint(model, cfg)
    assert line.startswith(
        "block 2: norm 2: 2·D = 32 predicted, 0 found (trf_blocks.1.norm2.scale is trf_blocks.1.norm1"
    )


def test_a_forgotten_qkv_bias_is_named_in_every_block(cfg):
    biased = replace(cfg, qkv_bias=True)
    assert complaint(GPTModel(cfg), biased) == [
        f"block {n}: QKV projection: 3·D² + 3·D = 816 predicted, 768 found (trf_blocks.{n - 1}.att.qkv.weight 768)"
        for n in (1, 2)
    ]
    (head,) = complaint(_with_head_bias(cfg), cfg)
    assert head == "output head: V·D = 256 predicted, 272 found (out_head.weight 256, out_head.bias 16)"


def _with_head_bias(cfg):
    model = GPTModel(cfg)
    model.out_head = nn.Linear(cfg.emb_dim, cfg.vocab_size)
    return model


def test_a_single_block_is_no_model(cfg):
    named = complaint(TransformerBlock(cfg), cfg)
    assert [line.split(":")[0] for line in named[:4]] == [
        "token embedding",
        "position embedding",
        "block 1",
        "block 2",
    ]
    assert "norm1.scale: none predicted, 16 found" in named


# what they refuse


@pytest.mark.usefixtures("as_readers_see")
def test_what_is_no_module_no_configuration_or_no_type_is_refused(cfg):
    for take in (count_parameters, count_buffers, ledger(cfg).check):
        with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got dict"):
            take({})
    for predict in (ledger, parameter_formula):
        with pytest.raises(ValueError, match="lacks context_length"):
            predict({"vocab_size": 2, "emb_dim": 2, "n_heads": 1, "n_layers": 1})
    with pytest.raises(TypeError, match=r"dtype must be a torch.dtype, got 'float32' \(str\)"):
        ledger(cfg).memory("float32")
