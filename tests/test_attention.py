"""MultiHeadAttention against torch and upstream, and what causality means."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llms_from_scratch import ch03 as upstream
from torch import nn

from book_utils import MultiHeadAttention

CLOSE = {"rtol": 0, "atol": 1e-12}  # float64, values of size 1


@given(
    heads=st.integers(1, 4),
    head_dim=st.integers(1, 5),
    d_in=st.integers(1, 9),
    tokens=st.integers(1, 8),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_an_upstream_state_dict_loads_and_computes_the_same(heads, head_dim, d_in, tokens, bias, seed):
    torch.manual_seed(seed)
    settings = (d_in, heads * head_dim, 8, 0.0, heads, bias)
    theirs, ours = upstream.MultiHeadAttention(*settings).double(), MultiHeadAttention(*settings).double()
    state = theirs.state_dict()
    ours.load_state_dict(state)  # strict
    assert "mask" in state and "W_query.weight" in state  # loading has not changed what it was given
    x = torch.randn(2, tokens, d_in, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)


def test_upstream_projections_of_the_wrong_size_are_named():
    att = MultiHeadAttention(8, 8, 4, 0.0, 2)
    before = att.qkv.weight.clone()
    state = upstream.MultiHeadAttention(8, 8, 4, 0.0, 2).state_dict()
    rows = {"W_query.weight": torch.ones(12, 8), "W_key.weight": torch.ones(4, 8)}  # 24 rows with W_value's 8
    with pytest.raises(RuntimeError, match=r"W_query.weight has the shape \[12, 8\], not \[8, 8\]"):
        att.load_state_dict({**state, **rows})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*W_query.weight"):
        att.load_state_dict({**state, "qkv.weight": before})
    assert torch.equal(att.qkv.weight, before)


@pytest.mark.parametrize("bias", [False, True])
def test_equals_torch_with_its_inverted_mask(bias):
    D, H, T = 12, 3, 5
    ours = MultiHeadAttention(D, D, T, 0.0, H, bias).double()
    theirs = nn.MultiheadAttention(D, H, bias=True, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias) if bias else theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(2, T, D, dtype=torch.float64)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)  # True: may not look
    torch.testing.assert_close(ours(x), theirs(x, x, x, attn_mask=hidden, need_weights=False)[0], **CLOSE)


@given(changed=st.integers(0, 6), seed=st.integers(0, 99))
def test_a_position_sees_itself_and_what_stands_before(changed, seed):
    torch.manual_seed(seed)
    att = MultiHeadAttention(8, 8, 7, 0.0, 2).double()
    x = torch.randn(1, 7, 8, dtype=torch.float64)
    other = x.clone()
    other[0, changed] += 1
    moved = (att(x) - att(other)).abs().amax(dim=-1)[0] > 1e-9
    assert moved.tolist() == [position >= changed for position in range(7)]


def test_dropout_acts_in_training_only_and_comes_back():
    att = MultiHeadAttention(8, 8, 6, 0.5, 2)
    x = torch.randn(2, 6, 8)
    assert not torch.equal(att(x), att(x))
    att.eval()
    assert torch.equal(att(x), att(x))
    att.train()
    assert not torch.equal(att(x), att(x))


def test_dropout_follows_its_own_mode():
    att = MultiHeadAttention(8, 8, 6, 0.5, 2).eval()
    att.dropout.train()  # as is done to sample from a model that is otherwise evaluated
    x = torch.randn(2, 6, 8)
    assert not torch.equal(att(x), att(x))


def test_gradients_are_finite_and_nothing_but_parameters_is_kept():
    att = MultiHeadAttention(8, 6, 6, 0.0, 2, True)
    att(torch.randn(2, 6, 8)).sum().backward()
    assert all(p.grad.isfinite().all() for p in att.parameters())
    assert list(att.buffers()) == [] and "mask" not in att.state_dict()


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: MultiHeadAttention(8, 6, 4, 0.0, 4),
            ValueError,
            r"d_out must be divisible by num_heads: 6 = 1 x 4 \+ 2",
        ),
        (
            lambda: MultiHeadAttention(8, 8, 4, 1.0, 4),
            ValueError,
            "dropout must be at least 0 and less than 1, got 1.0",
        ),
        (lambda: MultiHeadAttention(8, 8, 0, 0.0, 4), ValueError, "context_length must be at least 1"),
        (lambda: MultiHeadAttention(8, 8, 4, 0.0, 4, 1), TypeError, "qkv_bias"),
        (
            lambda: MultiHeadAttention(8, 8, 4, 0.0, 2)(torch.ones(1, 5, 8)),
            ValueError,
            "5 tokens, .* context_length = 4",
        ),
        (lambda: MultiHeadAttention(8, 8, 4, 0.0, 2)(torch.ones(1, 0, 8)), ValueError, "no tokens"),
        (lambda: MultiHeadAttention(8, 8, 4, 0.0, 2)(torch.ones(1, 2, 7)), ValueError, r"8 features .* \[1, 2, 7\]"),
        (lambda: MultiHeadAttention(8, 8, 4, 0.0, 2)(torch.ones(2, 8)), ValueError, r"\[B, T, 8\], got \[2, 8\]"),
    ],
)
def test_bad_input_gets_one_clear_error(call, error, words):
    with pytest.raises(error, match=words):
        call()
