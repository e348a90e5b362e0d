"""The catalogue of wiring mistakes: every mistake is seen, the right model is clean, and the checks leave no trace."""

import math
from dataclasses import replace

import jaxtyping
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel, LayerNorm, MultiHeadAttention, TransformerBlock, mutations
from book_utils.feed_forward import GELU
from book_utils.mutations import (
    CHECKS,
    CONFIG,
    MUTATIONS,
    RIGHT,
    Mutation,
    SteppedAttention,
    example_ids,
    greedy_texts,
    measure,
    mutate,
    right_model,
    run_matrix,
    smallest_sets,
)

# One letter for each check that sees the mistake: Count, Statistics, causality Probe, Gradients, greedy Texts,
# logits in float32 (4) and float64 (8), Loss. No mistake here is seen by the shapes (H) or the strict load (R).
LETTERS = dict(zip(CHECKS, "HCRSPGT48L", strict=True))
EXPECTED = {
    "right model": "",
    "unbiased variance": "SGT48L",
    "eps outside the root": "8",
    "mean not subtracted": "SGT48L",
    "norm along the tokens": "SPGT48L",
    "scale and shift unused": "SGT48L",
    "exact GELU": "48",
    "ReLU": "SGT48L",
    "post-norm": "SGT48L",
    "one norm for both": "CSGT48L",
    "old shortcut": "SGT48L",
    "parallel branches": "SGT48L",
    "missing shortcut": "SGT48L",
    "detached shortcut": "GL",
    "no causal mask": "SPGT48L",
    "mask off by one": "SPGT48L",
    "mask turned round": "SPGT48L",
    "mask after softmax": "SPGT48L",
    "softmax over queries": "SPGT48L",
    "scores not scaled": "SGT48L",
    "scaled by the width": "SGT48L",
    "query and key swapped": "SGT48L",
    "QKV inside the heads": "SGT48L",
    "heads by view alone": "SPGT48L",
    "heads not put back": "SPGT48L",
    "no output projection": "SGT48L",
    "no positions": "SGT48L",
    "positions from 1": "SGT48L",
    "embedding times √D": "SGT48L",
    "first block repeated": "CSGT48L",
    "last block skipped": "SGT48L",
    "no final norm": "SGT48L",
    "softmax inside": "SG48L",
    "dropout in eval": "SPGT48L",
    "copied head": "CGL",
}
# With scales of 1 and shifts of 0, these rows are others.
EXPECTED_FRESH = EXPECTED | {
    "unbiased variance": "SG48L",
    "scale and shift unused": "GL",
    "ReLU": "SG48L",
    "one norm for both": "CGL",
    "scaled by the width": "SG48L",
}


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Thousands of tiny forward passes: one thread is enough, and checked signatures would take most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def measured(quick):
    return {spread: measure(spread=spread) for spread in (0.2, 0.0)}


def letters(distances):
    seen = {check for check, distance in distances.items() if distance > CHECKS[check].limit}
    return "".join(letter for check, letter in LETTERS.items() if check in seen)


# the matrix


def test_the_matrix_is_the_expected_one(measured):
    assert {name: letters(row) for name, row in measured[0.2].items()} == EXPECTED
    assert {name: letters(row) for name, row in measured[0.0].items()} == EXPECTED_FRESH


def test_nothing_in_the_matrix_hangs_on_a_last_digit(measured):
    for rows in measured.values():
        for name, row in rows.items():
            for check, distance in row.items():
                limit = CHECKS[check].limit
                assert distance <= limit / 2 or distance >= 2 * limit, (name, check, distance)


@pytest.mark.parametrize("spread", [0.2, 0.0])
def test_no_highest_logit_of_a_greedy_text_is_a_tie(spread):
    right = right_model(spread=spread)
    for name in MUTATIONS.keys() - {"dropout in eval"}:
        model = mutate(right, name).eval()
        text = greedy_texts(model)
        best, second = model(text).topk(2, dim=-1).values.unbind(dim=-1)  # twice [V, C - 1]
        if name not in ("norm along the tokens", *(n for n in MUTATIONS if "P" in EXPECTED[n])):  # they look ahead
            assert (best - second)[:, :-1].min() > 1e-9, name


def test_dropout_in_eval_is_seen_whatever_is_drawn():
    right, ids = right_model(), example_ids()
    for check in [check for name, check in CHECKS.items() if LETTERS[name] in EXPECTED["dropout in eval"]]:
        expected = check.look(right, right, ids)
        for seed in range(20):
            torch.manual_seed(seed)
            seen = check.observe(mutate(right, "dropout in eval"), right, ids)
            assert check.between(seen, expected) > 4 * check.limit, check.name


@pytest.mark.parametrize(
    ("cfg", "seed"),
    [
        (CONFIG, 2**32 - 1),
        (replace(CONFIG, emb_dim=8, vocab_size=5, context_length=8), 1),
        (replace(CONFIG, emb_dim=32, n_heads=8, n_layers=3, context_length=10), 2),
        (GPTConfig(7, 6, 9, 3, 3, drop_rate=0.3, tie_weights=True, qkv_bias=True), 4),
    ],
)
def test_every_mistake_is_seen_and_the_right_model_is_clean(cfg, seed):
    matrix = run_matrix(cfg, seed)
    assert not any(matrix.pop(RIGHT).values())
    assert [name for name, row in matrix.items() if not any(row.values())] == []
    assert matrix.keys() == MUTATIONS.keys() and len(matrix) >= 18


def test_a_mistake_that_nothing_sees_turns_the_matrix_red(monkeypatch):
    harmless = Mutation("harmless", "Nothing is wrong.", "nothing", lambda model: None)
    monkeypatch.setattr(mutations, "MUTATIONS", {"harmless": harmless})
    matrix = run_matrix()
    assert not any(matrix["harmless"].values())
    with pytest.raises(ValueError, match="no check sees harmless"):
        smallest_sets(matrix)


# a right model in other words passes: the checks do not compare bit by bit


class NormInWords(LayerNorm):
    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred * (centred.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt() * self.scale + self.shift


class GELUInWords(GELU):
    def forward(self, x):
        return x / (1 + torch.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class AttentionInWords(SteppedAttention):
    def attend(self, query, key, value):
        later = torch.ones(query.shape[-2], query.shape[-2], dtype=torch.bool).triu(1)
        return self.scores(query, key).masked_fill(later, -math.inf).softmax(dim=-1) @ value


WORDS = {LayerNorm: NormInWords, GELU: GELUInWords, MultiHeadAttention: AttentionInWords}


@pytest.mark.parametrize("seed", range(3))
def test_a_right_model_in_other_words_passes_every_check(seed):
    right, reworded, ids = right_model(seed=seed), right_model(seed=seed), example_ids(seed=seed)
    for module in reworded.modules():
        module.__class__ = WORDS.get(type(module), type(module))
    assert not torch.equal(reworded(ids), right(ids))
    assert [name for name, check in CHECKS.items() if not check(reworded, right, ids)] == []


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_attention_in_steps_is_multi_head_attention(qkv_bias):
    whole = MultiHeadAttention(16, 16, 8, 0.5, 4, qkv_bias).double()
    steps = SteppedAttention(16, 16, 8, 0.5, 4, qkv_bias).double()
    steps.load_state_dict(whole.state_dict())
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    for seed, mode in enumerate((True, False)):
        outputs = []
        for att in (whole.train(mode), steps.train(mode)):
            torch.manual_seed(seed)
            outputs.append(att(x))
        assert torch.equal(*outputs)


# what the mistakes are


def test_mistakes_that_are_another_known_function():
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    right = right_model()

    def block(name):
        return mutate(right, name).trf_blocks[0]

    norm = block("unbiased variance").norm1
    expected = norm.scale * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() + norm.shift
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-12)
    norm = block("mean not subtracted").norm1
    rms = F.rms_norm(x, (16,), norm.scale, eps=1e-5) + norm.shift
    torch.testing.assert_close(norm(x), rms, rtol=0, atol=1e-12)
    post = block("post-norm")
    u = post.norm1(x + post.att(x))
    assert torch.equal(post(x), post.norm2(u + post.ff(u)))
    for name, stream in [("old shortcut", lambda x, u: x), ("parallel branches", lambda x, u: u)]:
        wrong = block(name)
        u = x + wrong.att(wrong.norm1(x))
        assert torch.equal(wrong(x), stream(x, u) + wrong.ff(wrong.norm2(u if name == "old shortcut" else x)))
    shared = mutate(right, "one norm for both")
    assert all(b.norm1 is b.norm2 for b in shared.trf_blocks)
    assert len({id(b) for b in mutate(right, "first block repeated").trf_blocks}) == 1
    copied = mutate(right, "copied head")
    assert copied.out_head.weight is not copied.tok_emb.weight
    assert torch.equal(copied.out_head.weight, copied.tok_emb.weight)


def test_a_masks_mistake_lets_through_what_it_says():
    ids = example_ids()[:1]
    T = ids.shape[1]
    sees = {}
    for name in ("no causal mask", "mask off by one", "mask turned round"):
        block = mutate(right_model(), name).trf_blocks[0]
        x = torch.randn(1, T, CONFIG.emb_dim, dtype=torch.float64, requires_grad=True)
        out = block.att(x).sum(dim=-1)[0]  # [T]
        reached = torch.stack([torch.autograd.grad(y, x, retain_graph=True)[0][0].abs().sum(-1) for y in out])
        sees[name] = reached > 0  # [T, T]
    pairs = torch.ones(T, T, dtype=torch.bool)
    assert torch.equal(sees["no causal mask"], pairs)
    assert torch.equal(sees["mask off by one"], pairs.tril(1))
    assert torch.equal(sees["mask turned round"], pairs.triu())


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_keeps_names_shapes_weights_and_the_right_model(name):
    right, ids = right_model(), example_ids()
    logits, state = right(ids), {key: value.clone() for key, value in right.state_dict().items()}
    changed = mutate(right, name)
    assert changed(ids).shape == logits.shape
    assert {key: value.shape for key, value in changed.state_dict().items()} == {k: v.shape for k, v in state.items()}
    assert torch.equal(right(ids), logits) and all(torch.equal(right.state_dict()[key], state[key]) for key in state)
    assert type(right.trf_blocks[0]) is TransformerBlock and type(right.trf_blocks[0].norm1) is LayerNorm
    mutation = MUTATIONS[name]
    assert mutation.name == name and mutation.wrong.endswith(".") and mutation.right


def test_an_unknown_mistake_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown mistake 'postnorm'; did you mean 'post-norm'"):
        mutate(right_model(), "postnorm")
    with pytest.raises(ValueError, match=r"unknown mistake '7'; known names: unbiased variance, "):
        mutate(right_model(), "7")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tie_weights": False}, "the catalogue needs tie_weights"),
        ({"drop_rate_attn": 0.0}, "a drop_rate above 0"),
        ({"n_heads": 1}, "at least 2 heads of at least 2 features"),
        ({"n_heads": 16}, "at least 2 heads of at least 2 features"),
        ({"n_layers": 1, "context_length": 5}, "at least 2 layers, a context_length of at least 6"),
    ],
)
def test_a_configuration_in_which_some_mistake_is_none_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        run_matrix(replace(CONFIG, **change))


def test_the_right_model_is_stirred_everywhere():
    model, fresh = right_model(), right_model(spread=0)
    assert torch.equal(fresh.final_norm.scale, torch.ones_like(fresh.final_norm.scale))
    for (name, p), q in zip(model.named_parameters(), fresh.parameters(), strict=True):
        assert (p != q).all() and p.dtype == torch.float64, name
    assert not model.training and model.out_head.weight is model.tok_emb.weight


# the checks themselves


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_changes_neither_the_models_nor_the_random_state(name):
    right, ids = right_model(), example_ids()
    candidate = mutate(right, "dropout in eval").train()
    candidate(ids).sum().backward()
    kept = [(p.detach().clone(), None if p.grad is None else p.grad.clone()) for p in candidate.parameters()]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = CHECKS[name].distance(candidate, right, ids)
    assert torch.equal(torch.rand(3), expected)
    assert CHECKS[name].distance(candidate, right, ids) == first  # whatever was drawn before
    assert candidate.trf_blocks[0].ff.training and not right.training
    for p, (value, grad) in zip(candidate.parameters(), kept, strict=True):
        assert torch.equal(p, value) and torch.equal(p.grad, grad)
    assert all(p.grad is None for p in right.parameters())


def test_a_model_in_training_mode_is_checked_in_eval_mode():
    right, ids = right_model(), example_ids()
    assert [name for name, check in CHECKS.items() if not check(right_model().train(), right, ids)] == []


def test_the_causality_probe_sees_a_leak_of_one_position():
    model, ids = mutate(right_model(), "mask off by one"), example_ids()[:, :2]
    assert not CHECKS["causality"](model, right_model(), ids) and CHECKS["causality"](right_model(), model, ids)


def test_every_check_can_see_something():
    """No entry of the catalogue changes a shape or a name, so two checks see none of it. They are no blind eyes."""
    right, ids = right_model(), example_ids()
    wide = GPTModel(replace(CONFIG, vocab_size=17)).double()
    assert not CHECKS["shapes"](wide, right, ids) and not CHECKS["strict load"](wide, right, ids)
    nameless = right_model()
    nameless.final_norm = nn.Identity()
    assert not CHECKS["strict load"](nameless, right, ids) and not CHECKS["count"](nameless, right, ids)
    unseen = {LETTERS["shapes"], LETTERS["strict load"]}
    assert set("".join(EXPECTED.values())) == set(LETTERS.values()) - unseen


def test_an_error_and_a_nan_count_as_seen():
    right, ids = right_model(), example_ids()
    broken, nan = right_model(), right_model()
    broken.trf_blocks[0].att = nn.Linear(3, 3)
    with torch.no_grad():
        nan.trf_blocks[0].norm1.scale[0] = math.nan
    for name, check in CHECKS.items():
        if name not in ("shapes", "count", "strict load"):
            assert not check(nan, right, ids), name
        assert check.distance(broken, right, ids) == math.inf and not check(broken, right, ids), name


# the smallest sets


def test_the_smallest_sets_of_the_matrix(measured):
    matrix = {
        name: {check: distance > CHECKS[check].limit for check, distance in row.items()}
        for name, row in measured[0.2].items()
    }
    assert smallest_sets(matrix) == [("gradients", "float64 logits"), ("float64 logits", "loss")]


def test_smallest_sets_on_matrices_small_enough_to_do_by_hand():
    def matrix(**rows):
        return {name: {check: check in row for check in "ABCD"} for name, row in rows.items()}

    assert smallest_sets(matrix(m="A")) == [("A",)]
    assert smallest_sets(matrix(m="AB", n="BC")) == [("B",)]
    assert smallest_sets(matrix(m="AB", n="CD")) == [("A", "C"), ("A", "D"), ("B", "C"), ("B", "D")]
    assert smallest_sets(matrix(m="AB", n="BC", o="AC")) == [("A", "B"), ("A", "C"), ("B", "C")]
    assert smallest_sets({}) == [()]
    assert smallest_sets({RIGHT: {"A": False}}) == [()]
