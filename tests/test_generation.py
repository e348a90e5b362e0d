"""The loop: against upstream and transformers, cached and not, choices, ends, errors, the caller's state."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llms_from_scratch import ch04, ch05
from strategies import configs
from transformers import GPT2LMHeadModel, TopPLogitsWarper

from book_utils import DummyGPTModel, GPTModel, choose, evaluating, generate, generate_text_simple, get_config
from book_utils.parity import stir
from book_utils.parity.references import REFERENCES


def stirred(cfg):
    """A model whose parameters all matter, in float64."""
    return stir(GPTModel(cfg).double(), seed=1)


def prompt(cfg, batch=2, tokens=6, seed=0):
    return torch.randint(cfg.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def by_hand(model, idx, n, window):
    """The specification: crop, forward, last position, largest, append."""
    model = copy.deepcopy(model).eval()
    for _ in range(n):
        idx = torch.cat([idx, model(idx[:, -window:])[:, -1].argmax(dim=-1)[:, None]], dim=1)
    return idx


# the same ids, whoever runs the loop


@given(
    cfg=configs(vocab_size=st.integers(2, 20)),
    batch=st.integers(1, 3),
    tokens=st.integers(1, 12),
    new=st.integers(0, 12),
    data=st.data(),
)
def test_cached_uncached_simple_and_by_hand_write_the_same(cfg, batch, tokens, new, data):
    torch.manual_seed(0)
    model, idx = stirred(cfg), prompt(cfg, batch, tokens)
    window = data.draw(st.integers(1, cfg.context_length))
    expected = by_hand(model, idx, new, window)
    assert expected.shape == (batch, tokens + new)
    for result in (
        generate(model, idx, new, context_size=window),
        generate(model, idx, new, context_size=window, use_cache=False),
        generate_text_simple(model, idx, new, window),
    ):
        assert torch.equal(result, expected)


@given(cfg=configs(vocab_size=st.integers(2, 20)), tokens=st.integers(1, 12), new=st.integers(1, 12))
def test_drawing_from_one_seed_gives_the_same_with_and_without_the_cache(cfg, tokens, new):
    torch.manual_seed(0)
    model, idx = stirred(cfg), prompt(cfg, 2, tokens)
    settings = {"temperature": 1.3, "top_k": 5, "top_p": 0.9}
    results = [
        generate(model, idx, new, use_cache=use_cache, generator=torch.Generator().manual_seed(7), **settings)
        for use_cache in (True, False)
    ]
    assert torch.equal(*results)


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 40])  # below, at and above the context of 16
@pytest.mark.parametrize("new", [0, 1, 20])
def test_upstreams_loops_write_the_same(cfg, tokens, new):
    model, idx = stirred(cfg), prompt(cfg, 2, tokens)
    ours = generate(model, idx, new)
    model.eval()
    assert torch.equal(ours, ch04.generate_text_simple(model, idx, new, 16))
    assert torch.equal(ours, ch05.generate(model, idx, new, 16))
    assert torch.equal(ours[:, :tokens], idx) and ours.dtype == torch.int64


def test_transformers_writes_the_same(cfg):
    cfg = replace(cfg, qkv_bias=True, context_length=32)
    model = stirred(cfg)
    theirs = REFERENCES["transformers"]().copy_of(model)
    assert isinstance(theirs, GPT2LMHeadModel)
    idx = prompt(cfg, 2, 5)
    expected = theirs.generate(
        idx, attention_mask=torch.ones_like(idx), max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert torch.equal(generate(model, idx, 20), expected)


def test_a_model_of_another_make_runs_without_the_cache(cfg):
    theirs = ch04.GPTModel(cfg).eval()
    idx = prompt(cfg)
    expected = ch04.generate_text_simple(theirs, idx, 12, 16)
    assert torch.equal(generate(theirs, idx, 12, use_cache=False, context_size=16), expected)
    assert torch.equal(generate_text_simple(theirs, idx, 12, 16), expected)
    dummy = DummyGPTModel(cfg)
    assert torch.equal(generate(dummy, idx, 12, use_cache=False), generate_text_simple(dummy, idx, 12, 16))


@given(batch=st.integers(1, 4))
def test_a_row_of_a_batch_is_written_as_it_is_alone(batch):
    cfg = get_config("tiny")
    model, idx = stirred(cfg), prompt(cfg, batch, 5)
    together = generate(model, idx, 20)
    for row in range(batch):
        assert torch.equal(together[row : row + 1], generate(model, idx[row : row + 1], 20))


def test_an_empty_batch_and_other_integer_types_are_accepted(cfg):
    model = stirred(cfg)
    assert generate(model, prompt(cfg, 0, 3), 4).shape == (0, 7)
    for dtype in (torch.uint8, torch.int32):
        result = generate(model, prompt(cfg).to(dtype), 4)
        assert result.dtype == torch.int64 and torch.equal(result, generate(model, prompt(cfg), 4))


def test_the_prompt_itself_is_not_changed(cfg):
    idx = prompt(cfg)
    before = idx.clone()
    result = generate(stirred(cfg), idx, 3)
    result.zero_()
    assert torch.equal(idx, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_precision_completes_the_loop(cfg, dtype):
    model = GPTModel(cfg).to(dtype)
    for use_cache in (True, False):
        drawn = generate(model, prompt(cfg), 20, use_cache=use_cache, temperature=0.8, top_k=3, top_p=0.9)
        assert drawn.shape == (2, 26) and drawn.min() >= 0 and drawn.max() < 16


# state


class BrokenError(Exception):
    pass


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("write", [lambda m, i: generate_text_simple(m, i, 4, 16), lambda m, i: generate(m, i, 4)])
def test_the_callers_modes_and_gradients_come_back_also_after_an_error(cfg, write, fails):
    model = GPTModel(replace(cfg, drop_rate=0.5))
    model.trf_blocks[1].eval()  # a caller may have frozen a part
    model.trf_blocks[1].drop_shortcut.train()
    before = modes(model)
    seen = []

    def spy(module, *_):
        seen.append((module.training, torch.is_grad_enabled()))
        if fails and len(seen) == 3:
            raise BrokenError

    model.trf_blocks[0].ff.register_forward_hook(spy)
    if fails:
        with pytest.raises(BrokenError):
            write(model, prompt(cfg))
    else:
        write(model, prompt(cfg))
    assert set(seen) == {(False, False)} and modes(model) == before and torch.is_grad_enabled()
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_an_error_in_the_stream_gives_the_modes_back(cfg):
    model = GPTModel(cfg)

    def stop(ids):
        raise BrokenError

    with pytest.raises(BrokenError):
        generate(model, prompt(cfg), 4, stream=stop)
    assert all(modes(model)) and torch.is_grad_enabled()


def test_evaluating_ends_dropout_for_its_block_only(cfg):
    model, idx = GPTModel(replace(cfg, drop_rate=0.5)), prompt(cfg)
    with evaluating(model):
        assert torch.equal(model(idx), model(idx)) and not model(idx).requires_grad
    assert not torch.equal(model(idx), model(idx)) and model(idx).requires_grad


def test_the_global_random_state_is_left_alone_by_greedy_and_by_a_generator_of_ones_own(cfg):
    model, idx = stirred(cfg), prompt(cfg)
    before = torch.get_rng_state()
    generate(model, idx, 5)
    generate(model, idx, 5, temperature=1.0, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), before)
    generate(model, idx, 5, temperature=1.0)
    assert not torch.equal(torch.get_rng_state(), before)


# choosing


def test_greedy_takes_the_first_of_the_largest_in_each_row():
    logits = torch.tensor([[1.0, 5.0, 5.0], [-torch.inf, -3.0, -4.0]])
    assert choose(logits).tolist() == [[1], [1]]
    assert choose(logits).tolist() == logits.softmax(-1).argmax(-1, keepdim=True).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_leave_no_choice_are_refused(bad, temperature):
    logits = torch.zeros(3, 4)
    logits[1, 2] = bad
    with pytest.raises(ValueError, match=f"largest logit of row 1 is {bad}"):
        choose(logits, temperature)
    with pytest.raises(ValueError, match="row 0 is -inf"):
        choose(torch.full((1, 4), -torch.inf), temperature)


def frequencies(logits, draws=20_000, **settings):
    drawn = choose(logits.expand(draws, -1), generator=torch.Generator().manual_seed(3), **settings)
    return torch.bincount(drawn.flatten(), minlength=logits.shape[-1]) / draws


LOGITS = torch.tensor([[0.0, 2.0, 1.0, -torch.inf, 1.5]], dtype=torch.float64)


def close(measured, expected):
    # five standard deviations of a share of 20,000 draws are at most 0.018; and what is impossible never comes
    assert ((measured - expected).abs() < 0.018).all() and (measured[expected == 0] == 0).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_ids_come_as_often_as_softmax_of_logits_over_temperature_says(temperature):
    close(frequencies(LOGITS, temperature=temperature), (LOGITS / temperature).softmax(-1)[0])


@pytest.mark.parametrize("top_k", [1, 2, 3, 99])
def test_top_k_keeps_the_k_likeliest(top_k):
    kept = LOGITS[0].sort(descending=True).indices[:top_k]
    expected = torch.zeros(5, dtype=torch.float64)
    expected[kept] = LOGITS[0, kept].softmax(-1)
    close(frequencies(LOGITS, temperature=1.0, top_k=top_k), expected)


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.5, 0.51, 0.75, 0.9, 0.999, 1.0])
def test_top_p_keeps_the_fewest_that_reach_p(top_p):
    expected = TopPLogitsWarper(top_p)(None, LOGITS)[0].softmax(-1) if top_p < 1 else LOGITS[0].softmax(-1)
    close(frequencies(LOGITS, temperature=1.0, top_p=top_p), expected)


def test_top_p_counts_within_the_top_k():
    close(frequencies(LOGITS, temperature=1.0, top_k=2, top_p=0.6), torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]))


def test_extreme_temperatures_are_a_limit_and_not_an_error():
    limits = torch.finfo(torch.float32)
    close(frequencies(LOGITS.float(), temperature=limits.tiny), torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]))
    close(frequencies(LOGITS.float(), temperature=limits.max), torch.tensor([0.25, 0.25, 0.25, 0.0, 0.25]))


@given(logits=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_the_likeliest_alone_is_the_greedy_id(logits, seed):
    logits = torch.tensor([logits])
    largest = logits[0, choose(logits)[0, 0]]
    for settings in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-6}):
        drawn = choose(logits, **{"temperature": 1.0, **settings}, generator=torch.Generator().manual_seed(seed))
        # of equal ones any may come, and at 1e-6 also one that differs by less than that
        assert logits[0, drawn[0, 0]] == largest or largest - logits[0, drawn[0, 0]] < 1e-4


def test_half_precision_draws_what_its_logits_say():
    logits = torch.tensor([[8.0, 0.0625, 0.0664]], dtype=torch.bfloat16)  # 8 less the others is 8 twice in bfloat16
    drawn = choose(logits.expand(300, -1), 1000.0, 2, generator=torch.Generator().manual_seed(0))
    assert set(drawn.flatten().tolist()) == {0, 2}


def test_two_near_equal_logits_that_change_places_do_not_change_the_draw():
    logits = torch.tensor([[0.0, 1.0, 1.0 + 1e-12, 0.5]], dtype=torch.float64)
    swapped = logits[:, [0, 2, 1, 3]]
    settings = {"temperature": 1.0, "top_k": 3, "top_p": 0.99}
    for seed in range(50):
        a, b = (choose(x, **settings, generator=torch.Generator().manual_seed(seed)) for x in (logits, swapped))
        assert torch.equal(a, b)


def test_the_temperature_comes_before_top_p():
    expected = TopPLogitsWarper(0.85)(None, LOGITS / 3)[0].softmax(-1)
    assert (expected > 0).sum() > (TopPLogitsWarper(0.85)(None, LOGITS)[0] > -torch.inf).sum()
    close(frequencies(LOGITS, temperature=3.0, top_p=0.85), expected)


# ends


class Scripted(torch.nn.Module):
    """Writes the given ids, row by row, after a prompt of one id."""

    def __init__(self, rows):
        super().__init__()
        self.rows = torch.tensor(rows)  # [B, n]

    def forward(self, ids):
        return torch.nn.functional.one_hot(self.rows[:, ids.shape[1] - 1], 8)[:, None].double()  # [B, 1, V]


@pytest.mark.parametrize(("eos", "pad"), [(0, 5), (5, 0), (0, None)])
def test_an_end_or_padding_of_id_0_is_an_id_like_any_other(eos, pad):
    rows, seen = [[3, eos, 4, 4, 4, 4], [2, 2, 2, eos, 1, 1]], []
    result = generate(
        Scripted(rows),
        torch.ones(2, 1, dtype=torch.long),
        6,
        use_cache=False,
        context_size=9,
        eos_id=eos,
        pad_id=pad,
        stream=seen.append,
    )
    fill = eos if pad is None else pad
    assert result[:, 1:].tolist() == [[3, eos, fill, fill], [2, 2, 2, eos]]
    assert torch.equal(torch.cat(seen, dim=1), result[:, 1:])  # the last ids are streamed too


@pytest.mark.usefixtures("as_readers_see")
def test_small_integers_of_numpy_are_numbers_like_others(cfg):
    model, idx = stirred(cfg), prompt(cfg)
    expected = generate(model, idx, 12, context_size=4)
    for number in (np.uint8, np.int64):
        assert torch.equal(generate(model, idx, number(12), context_size=number(4)), expected)
        assert torch.equal(generate_text_simple(model, idx, number(12), number(4)), expected)


def test_a_row_that_has_ended_is_filled_and_the_other_goes_on(cfg):
    model, idx = stirred(cfg), prompt(cfg, 2, 5)
    free = generate(model, idx, 12)
    eos = next(i for i in free[0, 5:].tolist() if i not in free[1, 5:].tolist())
    place = 5 + free[0, 5:].tolist().index(eos)
    for use_cache in (True, False):
        result = generate(model, idx, 12, eos_id=eos, pad_id=7, use_cache=use_cache)
        assert torch.equal(result[1], free[1])
        assert torch.equal(result[0, : place + 1], free[0, : place + 1])
        assert (result[0, place + 1 :] == 7).all() and result.shape == free.shape
        assert (generate(model, idx, 12, eos_id=eos, use_cache=use_cache)[0, place:] == eos).all()


def test_the_loop_ends_when_every_row_has_ended(cfg):
    model, idx = stirred(cfg), prompt(cfg, 1, 5)
    free = generate(model, idx, 12)
    eos = free[0, 7].item()
    end = 5 + free[0, 5:].tolist().index(eos) + 1
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(generate(model, idx, 12, eos_id=eos), free[:, :end]) and len(calls) == end - 5


def test_an_end_token_in_the_prompt_does_not_count(cfg):
    model, idx = stirred(cfg), prompt(cfg, 2, 5)
    free = generate(model, idx, 6)
    eos = next(i for i in range(16) if i not in free[:, 5:])
    idx[:, 2] = idx[:, -1] = eos
    free = generate(model, idx, 6)
    if eos not in free[:, 5:]:
        assert torch.equal(generate(model, idx, 6, eos_id=eos), free)
    assert generate(model, idx, 6, eos_id=eos).shape[1] > 5


def test_the_stream_has_every_step_in_order(cfg):
    model, idx = stirred(cfg), prompt(cfg)
    steps = []
    result = generate(model, idx, 8, stream=steps.append)
    assert [step.shape for step in steps] == [(2, 1)] * 8
    assert torch.equal(torch.cat([idx, *steps], dim=1), result)


# what it refuses


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"idx": torch.zeros(1, 0, dtype=torch.long)}, ValueError, r"idx has no tokens \(T = 0\)"),
        ({"idx": [[1, 2], [3]]}, TypeError, "idx must be a tensor of token ids, got list"),
        ({"idx": torch.ones(1, 3)}, TypeError, "idx must hold integer token ids, got torch.float32"),
        ({"idx": torch.tensor([1, 2])}, ValueError, r"idx must have the shape \[B, T\], got \[2\]"),
        ({"idx": torch.tensor([[16] + [1] * 20])}, ValueError, "token id 16 is outside 0 .. 15"),  # before the window
        ({"idx": torch.tensor([[-1]])}, ValueError, "token id -1 is outside"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens must be at least 0, got -1"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens must be an integer, got 2.0"),
        ({"max_new_tokens": True}, TypeError, "max_new_tokens must be an integer, got True"),
        ({"context_size": 0}, ValueError, "context_size must be at least 1, got 0"),
        ({"context_size": 17}, ValueError, "context_size = 17 is more than context_length = 16"),
        ({"temperature": -0.5}, ValueError, "temperature must be 0 or a number from .* got -0.5"),
        ({"temperature": math.nan}, ValueError, "temperature must be 0 or .* got nan"),
        ({"temperature": math.inf}, ValueError, "temperature must be 0 or .* got inf"),
        ({"temperature": "1"}, TypeError, "temperature must be a number, got '1'"),
        ({"top_k": 0, "temperature": 1.0}, ValueError, "top_k must be at least 1, got 0"),
        ({"top_k": 2.5, "temperature": 1.0}, TypeError, "top_k must be an integer, got 2.5"),
        ({"top_p": 0.0}, ValueError, "top_p must be more than 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, ValueError, "top_p must be more than 0 and at most 1, got 1.1"),
        ({"top_p": math.nan}, ValueError, "top_p must be .* got nan"),
        ({"eos_id": 16}, ValueError, r"eos_id = 16 is outside 0 .. 15 \(vocab_size = 16\)"),
        ({"eos_id": -1}, ValueError, "eos_id must be at least 0, got -1"),
        ({"eos_id": 1, "pad_id": 99}, ValueError, "pad_id = 99 is outside"),
        ({"pad_id": 1}, ValueError, "pad_id = 1 fills rows that have ended, which needs an eos_id"),
        ({"generator": 5}, TypeError, "generator must be a torch.Generator, got int"),
        ({"use_cache": 1}, TypeError, "use_cache must be True or False"),
        ({"stream": 3}, TypeError, "stream must be callable, got int"),
        ({"model": torch.nn.Identity()}, TypeError, "the cache needs a GPTModel, got Identity; pass use_cache=False"),
        ({"model": torch.nn.Identity(), "use_cache": False}, TypeError, "context_size must be an integer, got None"),
        ({"model": 3, "use_cache": False}, TypeError, "model must be a torch.nn.Module, got int"),
    ],
)
def test_a_bad_argument_gets_one_clear_error_before_the_model_is_called(cfg, change, error, words):
    model = GPTModel(cfg)
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model was called"))
    with pytest.raises(error, match=words):
        generate(**{"model": model, "idx": prompt(cfg), "max_new_tokens": 3, **change})


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize("new", [0, 3])
def test_the_simple_loop_refuses_the_same(cfg, new):
    model, idx = GPTModel(cfg), prompt(cfg)
    with pytest.raises(ValueError, match="no tokens"):
        generate_text_simple(model, idx[:, :0], new, 16)
    with pytest.raises(ValueError, match="context_size must be at least 1, got 0"):
        generate_text_simple(model, idx, new, 0)
    with pytest.raises(ValueError, match="context_size = 17 is more"):
        generate_text_simple(model, idx, new, 17)
    with pytest.raises(TypeError, match="context_size must be an integer, got None"):
        generate_text_simple(model, idx, new, None)
