"""TransformerBlock against upstream and torch, and the wiring that makes it pre-norm."""

from dataclasses import replace

import pytest
import torch
from llms_from_scratch import ch04 as upstream
from torch import nn

from book_utils import TransformerBlock

CLOSE = {"rtol": 0, "atol": 1e-12}  # float64, values of size 1


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_an_upstream_state_dict_loads_and_computes_the_same(cfg, qkv_bias):
    cfg = replace(cfg, qkv_bias=qkv_bias)
    theirs, ours = upstream.TransformerBlock(cfg).double(), TransformerBlock(cfg).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 6, cfg.emb_dim, dtype=torch.float64)
    # upstream rounds the constant of GELU to float32: 4e-8 of it, on values of size 1
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-7)


def test_equals_torch_encoder_layer_in_its_pre_norm_form(cfg):
    cfg = replace(cfg, qkv_bias=True)
    ours = TransformerBlock(cfg).double().eval()
    theirs = nn.TransformerEncoderLayer(
        cfg.emb_dim, cfg.n_heads, 4 * cfg.emb_dim, 0.0, nn.GELU("tanh"), batch_first=True, norm_first=True
    )
    theirs = theirs.double().eval()
    names = {
        "self_attn.in_proj_weight": "att.qkv.weight",
        "self_attn.in_proj_bias": "att.qkv.bias",
        "self_attn.out_proj.weight": "att.out_proj.weight",
        "self_attn.out_proj.bias": "att.out_proj.bias",
        "linear1.weight": "ff.layers.0.weight",
        "linear1.bias": "ff.layers.0.bias",
        "linear2.weight": "ff.layers.2.weight",
        "linear2.bias": "ff.layers.2.bias",
        "norm1.weight": "norm1.scale",
        "norm1.bias": "norm1.shift",
        "norm2.weight": "norm2.scale",
        "norm2.bias": "norm2.shift",
    }
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # so that no scale is 1 and no shift 0
    state = ours.state_dict()
    theirs.load_state_dict({theirs_name: state[ours_name] for theirs_name, ours_name in names.items()})
    x = torch.randn(2, 6, cfg.emb_dim, dtype=torch.float64)
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)  # True: may not look
    torch.testing.assert_close(ours(x), theirs(x, src_mask=hidden), **CLOSE)


def test_the_second_shortcut_starts_from_the_updated_state(cfg):
    block = TransformerBlock(cfg).double()
    x = torch.randn(2, 6, cfg.emb_dim, dtype=torch.float64)
    u = x + block.att(block.norm1(x))
    torch.testing.assert_close(block(x), u + block.ff(block.norm2(u)), **CLOSE)
    assert (block(x) - (x + block.ff(block.norm2(u)))).abs().max() > 0.01


def test_the_norms_are_two_and_of_their_own(cfg):
    block = TransformerBlock(cfg)
    parameters = {id(p) for norm in (block.norm1, block.norm2) for p in norm.parameters()}
    assert len(parameters) == 4


def test_dropout_in_a_block_acts_on_both_branches_and_never_on_the_path(cfg):
    block = TransformerBlock(replace(cfg, drop_rate_shortcut=0.999999))
    x = torch.randn(2, 6, cfg.emb_dim)
    assert torch.equal(block(x), x)  # both branches are dropped, the direct path is not (chance of a survivor: 4e-4)
    block.eval()
    assert not torch.allclose(block(x), x, atol=0.01)
