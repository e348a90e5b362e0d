"""GPTConfig and get_config: what they accept, and the words with which they refuse."""

from dataclasses import FrozenInstanceError, asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from book_utils import DummyGPTModel, GPTConfig, GPTModel, get_config
from book_utils.config import CONFIGS

UPSTREAM = {
    "vocab_size": 50257,
    "context_length": 1024,
    "emb_dim": 768,
    "n_heads": 12,
    "n_layers": 12,
    "drop_rate": 0.1,
    "qkv_bias": False,
}


def test_the_tiny_configuration(cfg):
    assert (cfg.vocab_size, cfg.context_length, cfg.emb_dim, cfg.n_heads, cfg.n_layers) == (16, 16, 16, 4, 2)
    assert (cfg.drop_rate, cfg.qkv_bias, cfg.tie_weights) == (0.0, False, False)


@pytest.mark.parametrize(
    ("name", "emb_dim", "n_layers", "n_heads"),
    # layers and widths: Radford et al. 2019, table 2; heads: 64 features each
    [
        ("gpt2-small", 768, 12, 12),
        ("gpt2-medium", 1024, 24, 16),
        ("gpt2-large", 1280, 36, 20),
        ("gpt2-xl", 1600, 48, 25),
    ],
)
def test_the_sizes_of_gpt2(name, emb_dim, n_layers, n_heads):
    cfg = get_config(name)
    assert (cfg.emb_dim, cfg.n_layers, cfg.n_heads, cfg.head_dim) == (emb_dim, n_layers, n_heads, 64)
    assert (cfg.vocab_size, cfg.context_length) == (50257, 1024)


def test_the_named_configurations_cannot_be_replaced():
    with pytest.raises(TypeError):
        CONFIGS["tiny"] = CONFIGS["gpt2-xl"]


def test_an_upstream_dictionary_is_accepted_and_read_like_one():
    cfg = GPTConfig.from_dict(UPSTREAM)
    assert cfg == get_config("gpt2-small")
    assert {key: cfg[key] for key in UPSTREAM} == UPSTREAM
    assert {key: dict(cfg)[key] for key in UPSTREAM} == UPSTREAM
    assert GPTConfig.from_dict(cfg) is cfg
    assert GPTConfig(**cfg) == cfg
    assert GPTConfig.from_dict({**cfg, "drop_rate": 0.5}).rate("attn") == 0.5  # a rate that nobody set stays unset


def test_get_config_as_upstream_calls_it_never_changes_the_base():
    base = dict(UPSTREAM, vocab_size=99, drop_rate=0.3)
    before = dict(base)
    cfg = get_config(base, model_name="gpt2-xl")
    assert base == before
    assert cfg == replace(get_config("gpt2-xl"), vocab_size=99, drop_rate=0.3)
    assert get_config("gpt2-small").emb_dim == 768
    assert get_config(base) == get_config(base, "gpt2-small")  # upstream's default


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize("name", ["gpt2", "GPT2-small", "", 3, ["tiny"]])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match="tiny, gpt2-small, gpt2-medium, gpt2-large, gpt2-xl") as error:
        get_config(UPSTREAM, name)
    assert repr(name) in str(error.value)


def test_a_configuration_is_frozen(cfg):
    with pytest.raises(FrozenInstanceError):
        cfg.emb_dim = 32


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize("size", ["vocab_size", "context_length", "emb_dim", "n_heads", "n_layers"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-4, ValueError), (True, TypeError), (2.0, TypeError), ("8", TypeError), (None, TypeError)],
)
def test_every_size_is_a_positive_integer(cfg, size, value, error):
    with pytest.raises(error, match=size) as caught:
        replace(cfg, **{size: value})
    assert str(value) in str(caught.value)


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize("rate", ["drop_rate", "drop_rate_emb", "drop_rate_attn", "drop_rate_shortcut"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1.0, ValueError),
        (10**400, ValueError),
        (-0.1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (True, TypeError),
    ],
)
def test_every_rate_is_in_zero_to_one(cfg, rate, value, error):
    with pytest.raises(error, match=f"^{rate} "):
        replace(cfg, **{rate: value})


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize("flag", ["qkv_bias", "tie_weights"])
def test_a_flag_is_a_bool(cfg, flag):
    with pytest.raises(TypeError, match=flag):
        replace(cfg, **{flag: 1})


def test_heads_that_do_not_divide_the_width_are_named_with_the_remainder(cfg):
    with pytest.raises(ValueError, match=r"emb_dim must be divisible by n_heads: 17 = 4 x 4 \+ 1"):
        replace(cfg, emb_dim=17)


@pytest.mark.usefixtures("as_readers_see")
def test_numpys_integers_are_integers_and_become_pythons(cfg):
    wide = replace(cfg, emb_dim=np.int64(32))
    assert wide == replace(cfg, emb_dim=32) and type(wide.emb_dim) is int


@pytest.mark.usefixtures("as_readers_see")
def test_unknown_and_missing_keys_are_named():
    with pytest.raises(ValueError, match="unknown configuration key 'emb_dims'; did you mean 'emb_dim'"):
        GPTConfig.from_dict({**UPSTREAM, "emb_dims": 8})
    with pytest.raises(ValueError, match="lacks context_length, n_heads"):
        GPTConfig.from_dict({"vocab_size": 5, "emb_dim": 4, "n_layers": 1})
    with pytest.raises(TypeError, match="list"):
        GPTConfig.from_dict([1, 2])
    with pytest.raises(TypeError, match="a GPTConfig or a dictionary, got int"):
        get_config(3)
    with pytest.raises(KeyError, match="emb_dims"):
        get_config("tiny")["emb_dims"]


def test_each_dropout_rate_is_read_where_it_belongs(cfg):
    one = GPTModel(replace(cfg, drop_rate=0.4))
    three = GPTModel(replace(cfg, drop_rate=0.9, drop_rate_emb=0.1, drop_rate_attn=0.2, drop_rate_shortcut=0.3))
    upstream = dict(UPSTREAM, vocab_size=8, emb_dim=12, n_layers=1, context_length=4)
    del upstream["drop_rate"]
    keys = GPTModel({**upstream, "drop_rate_emb": 0.1, "drop_rate_attn": 0.2, "drop_rate_shortcut": 0.3})
    spared = GPTModel(replace(cfg, drop_rate=0.4, drop_rate_emb=0.0))  # a rate of 0 is a rate
    assert DummyGPTModel(replace(cfg, drop_rate=0.4, drop_rate_emb=0.1)).drop_emb.p == 0.1
    expected = [[0.4, 0.4, 0.4], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.0, 0.4, 0.4]]
    for model, rates in zip([one, three, keys, spared], expected, strict=True):
        block = model.trf_blocks[-1]
        assert [model.drop_emb.p, block.att.dropout.p, block.drop_shortcut.p] == rates
        assert model.cfg["drop_rate_attn"] == rates[1]


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_width_is_accepted_exactly_if_the_heads_divide_it(emb_dim, n_heads):
    settings = {"vocab_size": 5, "context_length": 5, "emb_dim": emb_dim, "n_heads": n_heads, "n_layers": 1}
    if emb_dim % n_heads:
        with pytest.raises(ValueError, match=str(emb_dim % n_heads)):
            GPTConfig(**settings)
    else:
        cfg = GPTConfig(**settings)
        assert cfg.head_dim * n_heads == emb_dim
        assert GPTConfig.from_dict(asdict(cfg)) == cfg
