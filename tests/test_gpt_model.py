"""GPTModel: against upstream, tied, on every dtype and device at hand, and its errors; DummyGPTModel beside it."""

import copy
import pickle
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llms_from_scratch import ch04 as upstream
from strategies import configs

from book_utils import DummyGPTModel, DummyTransformerBlock, GPTModel, get_config


def ids(cfg, batch=2, tokens=6):
    return torch.randint(cfg.vocab_size, (batch, tokens))


some_configs = configs()


# the same computation as upstream


@given(cfg=some_configs, data=st.data())
def test_an_upstream_state_dict_loads_and_gives_the_same_logits(cfg, data):
    cfg = replace(cfg, tie_weights=False)
    tokens = data.draw(st.integers(1, cfg.context_length))
    torch.manual_seed(0)
    theirs, ours = upstream.GPTModel(cfg).double().eval(), GPTModel(asdict(cfg)).double().eval()
    ours.load_state_dict(theirs.state_dict())
    in_idx = ids(cfg, 2, tokens)
    # upstream rounds the constant of GELU to float32 (4e-8 of it). A LayerNorm over few features can enlarge what
    # differs, so the bound is wide; the tiny configuration below has the tight one.
    torch.testing.assert_close(ours(in_idx), theirs(in_idx), rtol=1e-4, atol=1e-5)


def test_the_tiny_model_agrees_with_upstream_to_the_seventh_digit(cfg):
    theirs, ours = upstream.GPTModel(cfg).double(), GPTModel(cfg).double()
    ours.load_state_dict(theirs.state_dict())
    in_idx = ids(cfg)
    difference = (ours(in_idx) - theirs(in_idx)).abs().max().item()
    assert 0 < difference < 1e-7  # not zero: the constant of upstream's GELU


def test_the_gradients_are_those_of_upstream(cfg):
    theirs, ours = upstream.GPTModel(cfg).double(), GPTModel(cfg).double()
    ours.load_state_dict(theirs.state_dict())
    in_idx = ids(cfg)
    for model in (theirs, ours):
        torch.nn.functional.cross_entropy(model(in_idx)[:, :-1].flatten(0, 1), in_idx[:, 1:].flatten()).backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        parts = ["W_query", "W_key", "W_value"] if "att.qkv" in name else [""]
        expected = torch.cat([gradients[name.replace("qkv", part) if part else name].grad for part in parts])
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=1e-7)  # the constant of upstream's GELU


def test_the_same_seed_gives_upstreams_initial_weights(cfg):
    torch.manual_seed(5)
    theirs = upstream.GPTModel(cfg).state_dict()
    torch.manual_seed(5)
    ours = GPTModel(cfg)
    loaded = GPTModel(cfg)
    loaded.load_state_dict(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), loaded.parameters(), strict=True))


def test_upstreams_code_around_a_model_runs_unchanged(cfg):
    model = GPTModel(cfg).eval()
    start = ids(cfg, 1, 4)
    out = upstream.generate_text_simple(model, start, max_new_tokens=20, context_size=model.pos_emb.weight.shape[0])
    assert out.shape == (1, 24) and torch.equal(out[:, :4], start)
    assert model.tok_emb.weight.shape == model.out_head.weight.shape == (cfg.vocab_size, cfg.emb_dim)
    assert len(model.trf_blocks) == cfg.n_layers and model.trf_blocks[0].att.out_proj.bias is not None
    assert sum(p.numel() for p in model.parameters()) == 7264


# shapes, causality, dtypes, devices


@given(cfg=some_configs, data=st.data(), batch=st.integers(0, 3))
def test_ids_become_logits_of_every_allowed_size(cfg, data, batch):
    tokens = data.draw(st.integers(1, cfg.context_length))
    for model in (GPTModel(cfg), DummyGPTModel(cfg)):
        assert model(ids(cfg, batch, tokens)).shape == (batch, tokens, cfg.vocab_size)


def test_a_later_id_never_changes_an_earlier_logit(cfg):
    model = GPTModel(cfg).double()
    in_idx = ids(cfg)
    for changed in range(6):
        other = in_idx.clone()
        other[:, changed] = (other[:, changed] + 1) % cfg.vocab_size
        assert torch.equal(model(in_idx)[:, :changed], model(other)[:, :changed])
        assert not torch.allclose(model(in_idx)[:, changed:], model(other)[:, changed:])


def test_the_tables_are_not_swapped(cfg):
    for model in (
        GPTModel(replace(cfg, vocab_size=11, context_length=7)),
        DummyGPTModel(replace(cfg, vocab_size=11, context_length=7)),
    ):
        assert model.tok_emb.weight.shape == (11, 16) and model.pos_emb.weight.shape == (7, 16)
        with pytest.raises(ValueError, match="8 tokens"):
            model(torch.zeros(1, 8, dtype=torch.long))
        model(torch.full((1, 7), 10))


@pytest.mark.parametrize("build", [GPTModel, DummyGPTModel])
def test_the_first_block_gets_the_dropped_sum_of_both_embeddings(cfg, build):
    model = build(replace(cfg, drop_rate_emb=0.999999))
    seen = []
    model.trf_blocks[0].register_forward_hook(lambda block, args, result: seen.append(args[0]))
    in_idx = ids(cfg)
    model.eval()(in_idx)
    model.train()(in_idx)
    assert torch.equal(seen[0], model.tok_emb.weight[in_idx] + model.pos_emb.weight[:6])
    assert seen[1].eq(0).all()  # token and position are dropped alike (chance of a survivor: 2e-4)


def test_the_shell_is_a_lookup_and_a_product(cfg):
    shell = DummyGPTModel(replace(cfg, n_layers=3)).double()
    in_idx = ids(cfg)
    vectors = shell.tok_emb.weight[in_idx] + shell.pos_emb.weight[:6]
    torch.testing.assert_close(shell(in_idx), vectors @ shell.out_head.weight.T, rtol=0, atol=1e-12)
    assert [type(block) for block in shell.trf_blocks] == [DummyTransformerBlock] * 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_floating_dtype_runs_forward_and_backward(cfg, dtype):
    model = GPTModel(replace(cfg, drop_rate=0.1)).to(dtype)
    logits = model(ids(cfg))
    assert logits.dtype == dtype
    logits.float().logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_float32_and_bfloat16_stay_near_float64(cfg):
    exact = GPTModel(cfg).double()
    in_idx = ids(cfg)
    # Two blocks on values of size 1: some tens of roundings of 6e-8 (float32) and of 4e-3 (bfloat16)
    for dtype, atol in [(torch.float32, 1e-5), (torch.bfloat16, 0.2)]:
        near = copy.deepcopy(exact).to(dtype)
        torch.testing.assert_close(near(in_idx).double(), exact(in_idx), rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_every_integer_dtype_of_ids_gives_the_same_logits(cfg, dtype):
    for model in (GPTModel(cfg), DummyGPTModel(cfg)):
        in_idx = ids(cfg)
        assert torch.equal(model(in_idx.to(dtype)), model(in_idx))


def test_train_differs_from_eval_only_with_dropout_and_returns(cfg):
    model = GPTModel(replace(cfg, drop_rate=0.5))
    in_idx = ids(cfg)
    assert not torch.equal(model(in_idx), model(in_idx))
    model.eval()
    assert torch.equal(model(in_idx), model(in_idx))
    model.train()
    assert not torch.equal(model(in_idx), model(in_idx))


def test_the_meta_device_allocates_nothing_and_gives_shapes():
    with torch.device("meta"):
        model = GPTModel(get_config("gpt2-xl"))
    assert sum(p.numel() for p in model.parameters()) == 1_637_792_000
    assert model(torch.zeros(1, 3, dtype=torch.long, device="meta")).shape == (1, 3, 50257)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_an_accelerator_gives_the_logits_of_the_cpu(cfg, device):
    if not getattr(torch, device).is_available():
        pytest.skip(f"no {device} on this machine")
    model, in_idx = GPTModel(cfg), ids(cfg)
    expected = model(in_idx)
    torch.testing.assert_close(model.to(device)(in_idx.to(device)).cpu(), expected, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=r"in_idx is on cpu, the model is on"):
        model(in_idx)


def test_the_model_compiles_into_one_graph():
    code = (
        "import torch; from book_utils import GPTModel, get_config\n"
        "model, ids = GPTModel(get_config('tiny')), torch.randint(16, (2, 6))\n"
        "compiled = torch.compile(model, backend='eager', fullgraph=True)\n"  # raises where the graph would break
        "torch.testing.assert_close(compiled(ids), model(ids), rtol=0, atol=1e-6)"
    )  # in a process of its own, since the compiler does not see through the checked signatures of this one
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# one Parameter or two


def is_tied(model):
    return model.out_head.weight is model.tok_emb.weight


def test_tied_means_one_parameter_and_stays_so(cfg, tmp_path):
    tied = replace(cfg, tie_weights=True)
    model = GPTModel(tied)
    assert is_tied(model) and not is_tied(GPTModel(cfg))
    assert sum(p.numel() for p in model.parameters()) == 7264 - 16 * 16
    assert is_tied(model.to(torch.bfloat16)) and is_tied(model.double()) and is_tied(model.to("cpu"))
    assert is_tied(copy.deepcopy(model)) and is_tied(pickle.loads(pickle.dumps(model)))
    model.load_state_dict(GPTModel(tied).double().state_dict(), assign=True)
    assert is_tied(model)
    with torch.device("meta"):
        empty = GPTModel(tied)
    empty.to_empty(device="cpu")
    assert is_tied(empty)
    empty.load_state_dict(model.state_dict())
    assert is_tied(empty) and torch.equal(empty.out_head.weight.double(), model.tok_emb.weight.float().double())


def test_tied_weights_move_together_and_gather_both_gradients(cfg):
    model = GPTModel(replace(cfg, tie_weights=True))
    torch.optim.SGD(model.parameters(), lr=0.1)
    model(ids(cfg)).square().mean().backward()
    unused = [row for row in range(cfg.vocab_size) if model.tok_emb.weight.grad[row].abs().sum() == 0]
    assert unused == []  # the head reaches every row, the embedding only those of the ids


def test_a_state_dict_with_two_heads_is_refused_before_anything_changes(cfg):
    model = GPTModel(replace(cfg, tie_weights=True))
    before = model.tok_emb.weight.clone()
    with pytest.raises(ValueError, match=r"tok_emb.weight and out_head.weight differ"):
        model.load_state_dict(GPTModel(cfg).state_dict())
    assert torch.equal(model.tok_emb.weight, before)


def test_one_name_stands_for_both_when_a_tied_model_is_loaded(cfg):
    source, model = (GPTModel(replace(cfg, tie_weights=True)) for _ in range(2))
    for name in ("tok_emb.weight", "out_head.weight"):
        state = source.state_dict()
        del state[name]
        for assign in (False, True):
            model.load_state_dict(state, assign=assign)  # strict
            assert is_tied(model) and torch.equal(model.tok_emb.weight, source.tok_emb.weight)
            assert name not in state
    with torch.no_grad():
        source.tok_emb.weight[0, 0] = torch.nan
    source.load_state_dict(source.state_dict())  # what it holds, it can load


def test_another_head_stays_in_its_place(cfg):
    model = GPTModel(replace(cfg, tie_weights=True))
    for head, features in [(torch.nn.Linear(cfg.emb_dim, 2), 2), (torch.nn.Identity(), cfg.emb_dim)]:
        model.out_head = head  # a classifier's, or none
        model.double().load_state_dict(model.state_dict())
        assert model(ids(cfg)).shape == (2, 6, features)


# what they refuse


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize("build", [GPTModel, DummyGPTModel])
@pytest.mark.parametrize(
    ("in_idx", "error", "words"),
    [
        (torch.ones(1, 3), TypeError, "integer token ids, got torch.float32"),
        (torch.ones(1, 3, dtype=torch.bool), TypeError, "integer token ids, got torch.bool"),
        (torch.ones(1, 3, dtype=torch.complex64), TypeError, "integer token ids, got torch.complex64"),
        ([[1, 2]], TypeError, "must be a tensor of token ids, got list"),
        (torch.tensor([[1, -1]]), ValueError, r"token id -1 is outside 0 .. 15 \(vocab_size = 16\)"),
        (torch.tensor([[1, 16]]), ValueError, "token id 16 is outside 0 .. 15"),
        (torch.zeros(1, 17, dtype=torch.long), ValueError, "17 tokens, more than context_length = 16"),
        (torch.zeros(1, 0, dtype=torch.long), ValueError, "no tokens"),
        (torch.zeros(3, dtype=torch.long), ValueError, r"\[B, T\], got \[3\]"),
        (torch.zeros(1, 1, 3, dtype=torch.long), ValueError, r"\[B, T\], got \[1, 1, 3\]"),
        (torch.zeros(1, 3, dtype=torch.long, device="meta"), ValueError, "in_idx is on meta, the model is on cpu"),
    ],
)
def test_bad_ids_get_one_clear_error(cfg, build, in_idx, error, words):
    with pytest.raises(error, match=words):
        build(cfg)(in_idx)
