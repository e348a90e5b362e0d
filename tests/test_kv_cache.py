"""KVCache: equal to a full forward, whatever the chunks; explicit; whole after an error; its sizes and its refusals."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs

from book_utils import GPTModel, KVCache, get_config
from book_utils.parity import stir
from book_utils.parity.references import REFERENCES

CLOSE = {"rtol": 0, "atol": 1e-10}  # float64; rounding stays far below


def stirred(cfg):
    return stir(GPTModel(cfg).double(), seed=1).eval()


def ids(cfg, batch, tokens):
    return torch.randint(cfg.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(0))


def fed(model, in_idx, chunks, cache):
    with torch.no_grad():
        return torch.cat([model(chunk, cache) for chunk in in_idx.split(chunks, dim=1)], dim=1)


@st.composite
def cuts(draw, total):
    """`total` tokens, in chunks of any length."""
    chunks = []
    while sum(chunks) < total:
        chunks.append(draw(st.integers(1, total - sum(chunks))))
    return chunks


@given(cfg=configs(), batch=st.integers(0, 3), data=st.data())
def test_any_chunks_give_the_logits_of_a_full_forward(cfg, batch, data):
    torch.manual_seed(0)
    tokens = data.draw(st.integers(1, cfg.context_length))
    room = data.draw(st.integers(tokens, cfg.context_length))
    model, in_idx = stirred(cfg), ids(cfg, batch, tokens)
    cache = KVCache(cfg, batch, room, dtype=torch.float64)
    logits = fed(model, in_idx, data.draw(cuts(tokens)), cache)
    torch.testing.assert_close(logits, model(in_idx).detach(), **CLOSE)
    assert cache.length == tokens


def test_every_single_step_has_the_logits_of_a_full_forward(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 2, 16)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    with torch.no_grad():
        for end in range(1, 17):
            step = model(in_idx[:, end - 1 : end], cache)
            torch.testing.assert_close(step[:, 0], model(in_idx[:, :end])[:, -1], **CLOSE)


def test_transformers_has_the_same_keys_and_values():
    cfg = replace(get_config("tiny"), qkv_bias=True)
    model, in_idx = stirred(cfg), ids(cfg, 2, 7)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    fed(model, in_idx, [3, 1, 3], cache)
    theirs = REFERENCES["transformers"]().copy_of(model)(in_idx, use_cache=True).past_key_values
    for number in range(cfg.n_layers):
        torch.testing.assert_close(cache.keys[number, :, :, :7], theirs.layers[number].keys.detach(), **CLOSE)
        torch.testing.assert_close(cache.values[number, :, :, :7], theirs.layers[number].values.detach(), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(cfg, dtype):
    model, in_idx = stirred(cfg).to(dtype), ids(cfg, 2, 16)
    logits = fed(model, in_idx, [5, 1, 10], KVCache(cfg, 2, dtype=dtype))
    full = model(in_idx).detach()
    # the same sums in another order: a few units in the last place of values of size 10
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 0.3}[dtype]
    torch.testing.assert_close(logits, full, rtol=0, atol=tolerance)


def test_it_is_the_callers_and_not_the_models(cfg):
    model = stirred(cfg)
    state, held = list(model.state_dict()), set(vars(model))
    cache = KVCache(cfg, dtype=torch.float64)
    fed(model, ids(cfg, 1, 4), [4], cache)
    assert list(model.state_dict()) == state and set(vars(model)) == held and not list(model.buffers())
    assert not isinstance(cache, torch.nn.Module)
    model.cache = cache  # even if a caller puts it there
    assert list(model.state_dict()) == state


def test_truncate_goes_back_to_try_another_continuation(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 2, 12)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    fed(model, in_idx, [12], cache)
    cache.truncate(5)
    other = torch.cat([in_idx[:, :5], in_idx[:, 8:]], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(in_idx[:, 8:], cache), model(other)[:, 5:], **CLOSE)
    cache.truncate(0)
    torch.testing.assert_close(fed(model, in_idx, [12], cache), model(in_idx).detach(), **CLOSE)


@pytest.mark.usefixtures("as_readers_see")
def test_a_length_of_numpy_is_a_number_like_others(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 2, 12)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    fed(model, in_idx, [12], cache)
    cache.truncate(np.uint8(3))
    with torch.no_grad():
        torch.testing.assert_close(model(in_idx[:, 3:], cache), model(in_idx)[:, 3:], **CLOSE)


def test_a_copy_goes_its_own_way(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 1, 8)
    cache = KVCache(cfg, dtype=torch.float64)
    fed(model, in_idx[:, :4], [4], cache)
    twin = copy.deepcopy(cache)
    fed(model, in_idx[:, 4:], [4], twin)
    assert (cache.length, twin.length) == (4, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(in_idx[:, 4:5], cache), model(in_idx[:, :5])[:, 4:], **CLOSE)


def test_after_an_error_in_any_layer_it_holds_what_it_held(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 2, 8)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    fed(model, in_idx[:, :3], [3], cache)
    for module in (*model.trf_blocks, model.out_head):
        hook = module.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fed(model, in_idx[:, 3:5], [2], cache)
        hook.remove()
        assert cache.length == 3
    with torch.no_grad():
        torch.testing.assert_close(model(in_idx[:, 3:], cache), model(in_idx)[:, 3:], **CLOSE)


def test_what_is_not_counted_is_never_read(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 2, 8)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    assert fed(model, in_idx, [3, 1, 4], cache).isfinite().all()


def test_attention_alone_takes_a_layer(cfg):
    att = stirred(cfg).trf_blocks[0].att
    x = torch.randn(2, 6, cfg.emb_dim, dtype=torch.float64)
    cache = KVCache(cfg, 2, dtype=torch.float64)
    with torch.no_grad():
        first = att(x[:, :4], cache.layers[0])
        cache.advance(4)
        torch.testing.assert_close(torch.cat([first, att(x[:, 4:], cache.layers[0])], dim=1), att(x), **CLOSE)


def test_dropout_acts_in_training_with_a_cache_too(cfg):
    model, in_idx = GPTModel(replace(cfg, drop_rate=0.5)), ids(cfg, 1, 6)
    with torch.no_grad():
        assert not torch.equal(*(model(in_idx, KVCache(cfg)) for _ in range(2)))
        model.eval()
        assert torch.equal(*(model(in_idx, KVCache(cfg)) for _ in range(2)))


@pytest.mark.parametrize("name", ["gpt2-small", "gpt2-xl"])
def test_its_bytes_are_two_numbers_for_each_layer_token_and_feature(name):
    cfg = get_config(name)
    cache = KVCache(cfg, 3, 100, dtype=torch.bfloat16, device="meta")
    assert cache.nbytes == 2 * cfg.n_layers * 3 * 100 * cfg.emb_dim * 2
    assert cache.keys.shape == (cfg.n_layers, 3, cfg.n_heads, 100, cfg.emb_dim // cfg.n_heads)


def test_nbytes_is_what_torch_holds(cfg):
    cache = KVCache(cfg, 2)
    assert cache.nbytes == cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes()


# what it refuses


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"batch_size": -1}, ValueError, "batch_size must be at least 0, got -1"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be an integer, got 2.0"),
        ({"max_length": 0}, ValueError, "max_length must be at least 1, got 0"),
        ({"max_length": 17}, ValueError, "max_length = 17 is more than context_length = 16"),
        ({"max_length": True}, TypeError, "max_length must be an integer, got True"),
        ({"dtype": torch.int64}, TypeError, "dtype must be a floating-point torch.dtype, got torch.int64"),
        ({"dtype": "float32"}, TypeError, "dtype must be a floating-point torch.dtype, got 'float32'"),
    ],
)
def test_sizes_that_are_none_are_refused(cfg, settings, error, words):
    with pytest.raises(error, match=words):
        KVCache(cfg, **settings)


@pytest.mark.usefixtures("as_readers_see")
def test_a_cache_that_does_not_fit_is_refused_and_keeps_what_it_held(cfg):
    model, in_idx = stirred(cfg), ids(cfg, 2, 16)
    cache = KVCache(cfg, 2, 8, dtype=torch.float64)
    fed(model, in_idx[:, :5], [5], cache)
    calls = {
        "holds 5 tokens of max_length = 8; there is no room for 4 more": lambda: model(in_idx[:, :4], cache),
        "made for batch_size = 2, the input has 1 rows": lambda: model(in_idx[:1, :1], cache),
        "keeps no gradients; call the model under torch.no_grad": lambda: model(in_idx[:, :1], cache),
        "made for another model: emb_dim = 16, not 32": lambda: GPTModel(replace(cfg, emb_dim=32))(in_idx, cache),
        "made for another model: n_layers = 2, not 3": lambda: GPTModel(replace(cfg, n_layers=3))(in_idx, cache),
        "n_heads = 4, not 2": lambda: GPTModel(replace(cfg, n_heads=2))(in_idx, cache),
        "it cannot keep the first 6": lambda: cache.truncate(6),
        "length must be at least 0, got -1": lambda: cache.truncate(-1),
        r"\[1, 4, 2, 4\] do not fit into a cache of the shape \[2, 4, 8, 4\]": lambda: cache.layers[0].append(
            *torch.zeros(2, 1, 4, 2, 4).double()
        ),
        r"\[2, 4, 4, 4\] do not fit into .* behind the 5": lambda: cache.layers[0].append(
            *torch.zeros(2, 2, 4, 4, 4).double()
        ),
    }
    for words, call in calls.items():
        with pytest.raises(ValueError, match=words):
            call()
    with torch.no_grad(), pytest.raises(ValueError, match=r"keys are torch.float32 on cpu, the cache is torch.float64"):
        copy.deepcopy(model).float()(in_idx[:, :1], cache)
    with torch.no_grad(), pytest.raises(TypeError, match="cache must be a KVCache, got bool"):
        model(in_idx, True)
    assert cache.length == 5
    with torch.no_grad():
        torch.testing.assert_close(model(in_idx[:, 5:8], cache), model(in_idx[:, :8])[:, 5:], **CLOSE)


@pytest.mark.usefixtures("as_readers_see")
def test_attention_names_what_the_cache_holds_when_the_context_is_full(cfg):
    att = stirred(cfg).trf_blocks[0].att
    cache = KVCache(cfg, 1, dtype=torch.float64)
    cache.advance(15)
    with pytest.raises(ValueError, match="2 tokens, and the cache 15; together more than context_length = 16"):
        att(torch.zeros(1, 2, 16).double(), cache.layers[0])
