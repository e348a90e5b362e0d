"""Parity: weights under other names, every stage beside every reference, and a comparison that can fail."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import configs
from torch import nn

from book_utils import GPTModel, TransformerBlock
from book_utils.layouts import BOOK, HUGGING_FACE, TORCH, UPSTREAM, layout_of
from book_utils.parity import REFERENCES, Reference, compare, compare_stages, stages, stir, upstream
from book_utils.parity.stages import BOOK_PLACES

EXACT = torch.float64
each_reference = pytest.mark.parametrize("name", REFERENCES)

# Width 8 at least: with one or two features a LayerNorm divides by a spread that can come near 0, and enlarges any
# difference as much as it likes.
some_configs = configs(head_dim=st.sampled_from([8, 12]))


def stirred(cfg, seed=0):
    torch.manual_seed(seed)
    return stir(GPTModel(cfg).double(), seed)


def ids(cfg, batch=2, tokens=6):
    return torch.randint(cfg.vocab_size, (batch, tokens))


# the same at every stage


@each_reference
@settings(max_examples=15)
@given(cfg=some_configs, data=st.data())
def test_every_stage_of_every_reference_is_the_same(name, cfg, data):
    model = stirred(cfg)
    in_idx = ids(cfg, 2, data.draw(st.integers(1, cfg.context_length)))
    comparison = compare(model, REFERENCES[name](), in_idx)
    assert comparison.same, f"\n{comparison}"
    assert {line.stage for line in comparison.differences} == set(stages(model, in_idx))
    assert len(comparison.differences) == 2 * (3 + 7 * cfg.n_layers)


@each_reference
def test_the_weights_go_there_and_come_back(name, cfg):
    for switches in ({}, {"qkv_bias": True}, {"tie_weights": True}):
        model = stirred(replace(cfg, **switches))
        other = stirred(model.cfg, seed=1)
        reference = REFERENCES[name]()
        reference.copy_to(other, reference.copy_of(model))
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@each_reference
def test_without_hooks_too_the_logits_are_the_same(name, cfg):
    # torch.nn takes a shorter path through an encoder layer where no hook listens and no gradient is wanted
    model, in_idx = stirred(cfg), ids(cfg)
    theirs = REFERENCES[name]().copy_of(model)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            out = theirs(in_idx)
            torch.testing.assert_close(getattr(out, "logits", out), model(in_idx), rtol=0, atol=1e-7)


def test_the_difference_to_upstream_is_the_constant_of_gelu_and_nothing_else(cfg):
    torch.manual_seed(123)
    model, in_idx = GPTModel(cfg).double(), ids(cfg)
    before = compare(model, upstream(), in_idx, (EXACT,))
    by_stage = {line.stage: line for line in before.differences}
    assert all(by_stage[f"block 1: {s}"].difference < 1e-14 for s in ("norm 1", "QKV", "attention", "norm 2"))
    assert by_stage["block 1: feed-forward"].difference > 1e-10  # here it enters
    assert 1e-9 < by_stage["logits"].difference < 1e-8  # the record of the seeds is 2.3896e-9
    torch.set_default_dtype(EXACT)  # in which upstream makes the constant
    try:
        after = compare(model, upstream(), in_idx, (EXACT,))
    finally:
        torch.set_default_dtype(torch.float32)
    assert after.largest(EXACT) < 1e-14


def test_stages_are_seen_in_order_and_leave_the_model_as_it_was(cfg):
    model, in_idx = stirred(cfg), ids(cfg)
    seen = stages(model.train(), in_idx)
    assert list(seen)[:4] == ["embeddings", "block 1: norm 1", "block 1: QKV", "block 1: attention"]
    assert list(seen)[-2:] == ["final norm", "logits"] and len(seen) == 17
    assert model.training and not any(module._forward_hooks for module in model.modules())
    assert seen["block 1: QKV"].shape == (2, 6, 48) and seen["logits"].shape == (2, 6, 16)
    first = model.trf_blocks[0]
    torch.testing.assert_close(seen["block 1: after attention"], seen["embeddings"] + seen["block 1: attention"])
    torch.testing.assert_close(seen["block 1: feed-forward"], first.ff(seen["block 1: norm 2"]))
    torch.testing.assert_close(seen["block 2: norm 1"], model.trf_blocks[1].norm1(seen["block 1: after feed-forward"]))


def test_dropout_and_train_mode_change_nothing_and_are_given_back(cfg):
    for name in ("upstream", "transformers"):
        model = stirred(replace(cfg, drop_rate=0.5)).float().train()
        before, in_idx = deepcopy(model), ids(cfg)
        kept = in_idx.clone()
        assert compare(model, REFERENCES[name](), in_idx).same
        assert model.training and model.tok_emb.weight.dtype == torch.float32
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before.parameters(), strict=True))
        assert torch.equal(in_idx, kept)
    assert not stages(model, in_idx)["logits"].requires_grad


def test_each_dropout_rate_goes_to_its_place(cfg):
    model = GPTModel(replace(cfg, drop_rate_emb=0.1, drop_rate_attn=0.2, drop_rate_shortcut=0.3))
    theirs = REFERENCES["transformers"]().copy_of(model).transformer
    block = theirs.h[0]
    assert (theirs.drop.p, block.attn.attn_dropout.p, block.attn.resid_dropout.p, block.mlp.dropout.p) == (
        0.1,
        0.2,
        0.3,
        0.3,
    )
    seen = []

    class Noting(GPTModel):
        def __init__(self, settings):
            seen.append(settings)
            super().__init__(model.cfg)

    upstream(Noting).build(replace(cfg, drop_rate=0.4, drop_rate_emb=0.1))
    assert [seen[0][f"drop_rate_{place}"] for place in ("emb", "attn", "shortcut")] == [0.1, 0.4, 0.4]


def test_a_reference_may_spoil_its_ids_and_no_one_elses(cfg):
    class Spoiling(GPTModel):
        def forward(self, in_idx):
            logits = super().forward(in_idx)
            in_idx.zero_()
            return logits

    in_idx = ids(cfg)
    kept = in_idx.clone()
    assert compare(stirred(cfg), Reference("spoiling", Spoiling, BOOK, BOOK_PLACES), in_idx).same
    assert torch.equal(in_idx, kept)


def test_an_operation_in_place_hides_no_stage(cfg):
    class InPlace(TransformerBlock):
        def forward(self, x):
            x += self.att(self.norm1(x))
            x += self.ff(self.norm2(x))
            return x

    model, in_idx = stirred(cfg), ids(cfg)
    other = deepcopy(model)
    for block in other.trf_blocks:
        block.__class__ = InPlace
    assert compare_stages("in place", {EXACT: (stages(model, in_idx), stages(other, in_idx))}).same


def test_a_stage_of_three_projections_needs_all_three(cfg):
    reference = upstream()
    theirs = reference.copy_of(stirred(cfg))
    theirs.trf_blocks[0].att.W_value.forward = None
    theirs.trf_blocks[0].att.forward = lambda x: theirs.trf_blocks[0].att.W_query(x)
    seen = reference.stages(theirs, ids(cfg), cfg)
    assert "block 1: QKV" not in seen and "block 2: QKV" in seen


# a comparison that can fail


def test_a_limit_is_wider_only_where_a_reference_is_inexact(cfg):
    for name in REFERENCES:
        for line in compare(stirred(cfg), REFERENCES[name](), ids(cfg)).differences:
            size = line.rounding / {torch.float32: 2e-5, EXACT: 1e-12}[line.dtype]
            expected = 1e-7 * size if name == "upstream" and line.dtype == EXACT else line.rounding
            assert size >= 1 and line.tolerance == pytest.approx(expected, rel=1e-9)
    ours = stages(stirred(cfg).float(), ids(cfg))
    theirs = {**ours, "logits": ours["logits"] + 3e-4}
    assert not compare_stages("float32", {torch.float32: (ours, theirs)}).same


@pytest.mark.usefixtures("as_readers_see")
def test_what_cannot_be_compared_is_refused(cfg):
    model, reference = stirred(cfg), upstream()
    ours = stages(model, ids(cfg))
    with pytest.raises(ValueError, match="nothing to compare"):
        compare(model, reference, ids(cfg), ())
    with pytest.raises(ValueError, match=r"one of torch.float32, torch.float64, got torch.bfloat16"):
        compare(model, reference, ids(cfg), (torch.bfloat16,))
    with pytest.raises(ValueError, match=r"in_idx holds no ids: its shape is \[0, 3\]"):
        compare(model, reference, torch.zeros(0, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="meta device"):
        compare(GPTModel(cfg).to("meta"), reference, ids(cfg))
    for incomplete in ({}, {"embeddings": ours["embeddings"]}):
        with pytest.raises(ValueError, match="our stages hold no logits"):
            compare_stages("x", {EXACT: (incomplete, ours)})
    with pytest.raises(ValueError, match=r"nothing was compared in torch.float32"):
        compare_stages("x", {EXACT: (ours, ours)}).largest(torch.float32)
    without = {stage: value for stage, value in ours.items() if stage not in ("final norm", "logits")}
    assert not compare_stages("x", {EXACT: (ours, without)}).same
    fewer = {stage: value for stage, value in ours.items() if stage != "final norm"}
    assert not compare_stages("x", {EXACT: (fewer, ours)}).same


def spoil(model, where):
    """One number of one parameter, moved by a millionth."""
    with torch.no_grad():
        model.get_parameter(where).view(-1)[0] += 1e-6


@pytest.mark.parametrize(
    ("where", "first"),
    [
        ("pos_emb.weight", "embeddings"),
        ("trf_blocks.0.norm1.shift", "block 1: norm 1"),
        ("trf_blocks.1.att.qkv.weight", "block 2: QKV"),
        ("trf_blocks.1.att.out_proj.bias", "block 2: attention"),
        ("trf_blocks.0.norm2.scale", "block 1: norm 2"),
        ("trf_blocks.0.ff.layers.2.bias", "block 1: feed-forward"),
        ("final_norm.shift", "final norm"),
        ("out_head.weight", "logits"),
    ],
)
def test_a_millionth_is_seen_first_where_it_is(cfg, where, first):
    model, in_idx = stirred(cfg), ids(cfg)
    spoiled = deepcopy(model)
    spoil(spoiled, where)
    comparison = compare_stages("spoiled", {EXACT: (stages(model, in_idx), stages(spoiled, in_idx))})
    assert not comparison.same
    assert next(line.stage for line in comparison.differences if not line.same) == first


def test_a_missing_stage_another_shape_and_nan_are_never_the_same(cfg):
    ours = stages(stirred(cfg), ids(cfg))
    wrong = {"gone": {k: v for k, v in ours.items() if k != "final norm"}}
    wrong["cut"] = {**ours, "logits": ours["logits"][:, :3]}
    wrong["nan"] = {**ours, "final norm": ours["final norm"] * torch.nan}
    assert compare_stages("itself", {EXACT: (ours, ours)}).same
    for name, theirs in wrong.items():
        comparison = compare_stages(name, {EXACT: (ours, theirs)})
        assert not comparison.same
        assert "more than" in repr(comparison)
    assert compare_stages("cut", {EXACT: (ours, wrong["cut"])}).greedy[EXACT] == 12


def test_other_greedy_ids_alone_are_a_difference(cfg):
    ours = stages(stirred(cfg), ids(cfg))
    ours["logits"] = ours["logits"] * 1e-14  # so small that every difference is rounding
    theirs = {**ours, "logits": -ours["logits"]}
    comparison = compare_stages("negated", {EXACT: (ours, theirs)})
    assert all(line.same for line in comparison.differences) and not comparison.same


def test_rounding_is_written_as_a_limit_where_digits_would_differ(cfg):
    comparison = compare(stirred(cfg), REFERENCES["transformers"](), ids(cfg))
    assert "< " in repr(comparison.table(measured=False)) and "e-16" not in repr(comparison.table(measured=False))
    assert repr(comparison) == repr(comparison.table())


def test_stir_moves_every_number_and_is_the_same_for_one_seed(cfg):
    torch.manual_seed(1)
    model = GPTModel(cfg)
    before = deepcopy(model)
    assert stir(model, 5) is model
    assert all((p != q).all() for p, q in zip(model.parameters(), before.parameters(), strict=True))
    again = stir(before, 5)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


# layouts and their errors


@pytest.mark.parametrize("layout", [BOOK, UPSTREAM, HUGGING_FACE, TORCH], ids=lambda layout: layout.name)
@settings(max_examples=10)
@given(cfg=some_configs)
def test_a_layout_loses_nothing(layout, cfg):
    state = GPTModel(cfg).state_dict()
    back = layout.to_ours(layout.from_ours(state, cfg), cfg)
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)
    if layout is not TORCH:
        assert layout_of(layout.from_ours(state, cfg)) is layout


def test_a_bias_is_refused_by_a_model_without_one(cfg):
    biased = stirred(replace(cfg, qkv_bias=True))
    state = HUGGING_FACE.from_ours(biased.state_dict(), biased.cfg)
    with pytest.raises(ValueError, match=r"not zero: transformer\.h\.0\.attn\.c_attn\.bias, transformer\.h\.1"):
        HUGGING_FACE.to_ours(state, cfg)


def test_a_bias_whose_sum_is_zero_is_no_zero_bias(cfg):
    state = HUGGING_FACE.from_ours(GPTModel(cfg).state_dict(), cfg)
    state["transformer.h.1.attn.c_attn.bias"][:2] = torch.tensor([1.0, -1.0])
    with pytest.raises(ValueError, match=r"not zero: transformer\.h\.1\.attn\.c_attn\.bias$"):
        HUGGING_FACE.to_ours(state, cfg)


@pytest.mark.parametrize("layout", [BOOK, UPSTREAM, HUGGING_FACE, TORCH], ids=lambda layout: layout.name)
def test_the_head_may_be_left_out_where_the_table_stands_for_it(layout, cfg):
    for tied in (False, True):
        sizes = replace(cfg, tie_weights=tied)
        state = GPTModel(sizes).state_dict()
        theirs = {key: v for key, v in layout.from_ours(state, sizes).items() if "head" not in key}
        headless = {key: v for key, v in state.items() if key != "out_head.weight"}
        if tied:
            assert torch.equal(layout.to_ours(theirs, sizes)["out_head.weight"], state["tok_emb.weight"])
            assert any("head" in key for key in layout.from_ours(headless, sizes))
        else:
            with pytest.raises(ValueError, match=r"missing: out_head\.weight"):
                layout.from_ours(headless, sizes)
            if layout is not HUGGING_FACE:
                with pytest.raises(ValueError, match=r"missing: .*head\.weight"):
                    layout.to_ours(theirs, sizes)


def test_weights_are_contiguous_and_constants_are_known_by_their_whole_name(cfg):
    state = {k: v.contiguous() for k, v in HUGGING_FACE.from_ours(GPTModel(cfg).state_dict(), cfg).items()}
    assert all(value.is_contiguous() for value in HUGGING_FACE.to_ours(state, cfg).values())
    for layout, constant in [(HUGGING_FACE, "transformer.h.0.attn.bias"), (UPSTREAM, "trf_blocks.0.att.mask")]:
        state = layout.from_ours(GPTModel(cfg).state_dict(), cfg)
        layout.to_ours({**state, constant: torch.ones(1)}, cfg)
        with pytest.raises(ValueError, match=f"unknown: {constant}_more"):
            layout.to_ours({**state, f"{constant}_more": torch.ones(1)}, cfg)
    for key in ("wte.weight", "transformer.wpe.weight", "ln_f.bias", "h.11.ln_1.weight"):
        assert layout_of([key]) is HUGGING_FACE


def test_a_state_dict_of_another_size_names_every_key(cfg):
    state = GPTModel(replace(cfg, vocab_size=20)).state_dict()
    del state["final_norm.scale"]
    with pytest.raises(ValueError, match="do not fit") as error:
        HUGGING_FACE.from_ours({**state, "extra": torch.ones(1), "pos_emb.weight": torch.ones(16, 16).long()}, cfg)
    assert str(error.value).splitlines()[1:] == [
        "  missing: final_norm.scale",
        "  unknown: extra",
        "  another shape: tok_emb.weight is [20, 16], not [16, 16]",
        "  no floating-point tensor: pos_emb.weight is torch.int64",
        "  another shape: out_head.weight is [20, 16], not [16, 16]",
    ]


def test_a_reference_with_other_weights_is_refused(cfg):
    reference = upstream()

    def one_more(config):
        model = reference.build(config)
        model.extra = nn.Linear(2, 2)
        return model

    with pytest.raises(ValueError, match=r"unknown: extra\.weight"):
        replace(reference, build=one_more).copy_of(stirred(cfg))


def test_other_names_are_no_layout():
    with pytest.raises(ValueError, match=r"not the weights of a GPT-2: model\.layers\.0\.q_proj"):
        layout_of(["model.layers.0.q_proj"])
    with pytest.raises(ValueError, match="there are none"):
        layout_of([])
