"""The catalogue of wiring mistakes: each is what it says and is seen, and no check leaves a trace."""

import math
from copy import deepcopy
from dataclasses import replace
from functools import partial

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
# No two of its sizes are equal: V = 7, C = 8, D = 12, H = 2, L = 3, D/H = 6.
UNEVEN = GPTConfig(7, 8, 12, 2, 3, drop_rate=0.3, tie_weights=True, qkv_bias=True)


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
        if "P" not in EXPECTED[name]:  # the others look ahead
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
        (CONFIG, 0),
        (CONFIG, 2**32 - 1),
        (replace(CONFIG, emb_dim=8, vocab_size=5, context_length=8), 2**32 - 1),
        (replace(CONFIG, emb_dim=32, n_heads=8, n_layers=3, vocab_size=24), 2),
        (GPTConfig(7, 6, 9, 3, 3, drop_rate=0.3, tie_weights=True, qkv_bias=True), 4),
    ],
)
def test_every_mistake_is_seen_and_the_right_model_is_clean(cfg, seed):
    matrix = run_matrix(cfg, seed)
    assert not any(matrix.pop(RIGHT).values())
    assert [name for name, row in matrix.items() if not any(row.values())] == []
    assert matrix.keys() == MUTATIONS.keys()


def test_the_matrix_of_fresh_norms_is_drawn_with_the_spread_given(monkeypatch):
    other = {name: MUTATIONS[name] for name in MUTATIONS if EXPECTED_FRESH[name] != EXPECTED[name]}
    monkeypatch.setattr(mutations, "MUTATIONS", other)
    rows = {name: "".join(LETTERS[check] for check in row if row[check]) for name, row in run_matrix(spread=0).items()}
    assert rows == {name: EXPECTED_FRESH[name] for name in (RIGHT, *other)}


def test_measure_takes_its_configuration_its_seed_and_its_spread(monkeypatch):
    check = CHECKS["float64 logits"]
    monkeypatch.setattr(mutations, "MUTATIONS", {"post-norm": MUTATIONS["post-norm"]})
    monkeypatch.setattr(mutations, "CHECKS", {check.name: check})
    distances = []
    for given in [(CONFIG, 1, 0.2), (CONFIG, 2, 0.2), (CONFIG, 1, 0.1), (UNEVEN, 1, 0.2)]:
        right, ids = right_model(*given), example_ids(*given[:2])
        distances.append(check.distance(mutate(right, "post-norm"), right, ids))
        assert measure(*given) == {RIGHT: {check.name: 0.0}, "post-norm": {check.name: distances[-1]}}
    assert len(set(distances)) == 4


def test_a_check_sees_what_is_above_its_limit(monkeypatch):
    given = (UNEVEN, 5, 0.1)

    def distances(cfg, seed, spread):
        return {"post-norm": {"loss": 0.001, "statistics": 0.011}} if (cfg, seed, spread) == given else {}

    monkeypatch.setattr(mutations, "measure", distances)
    assert run_matrix(*given) == {"post-norm": {"loss": False, "statistics": True}}


def test_a_mistake_that_nothing_sees_turns_the_matrix_red(monkeypatch):
    harmless = Mutation("harmless", "Nothing is wrong.", "nothing", lambda model: None)
    monkeypatch.setattr(mutations, "MUTATIONS", {"harmless": harmless})
    matrix = run_matrix()
    assert not any(matrix["harmless"].values())
    with pytest.raises(ValueError, match="no check sees harmless"):
        smallest_sets(matrix)


# the parts in other words: the checks do not compare bit by bit, and a mistake is one change of such a formula


def normed(x, axis=-1, lost=0):
    centred = x - x.mean(axis, keepdim=True)
    variance = centred.square().sum(axis, keepdim=True) / (x.shape[axis] - lost)
    return centred / (variance + 1e-5).sqrt()


def affine(norm, x):
    return norm.scale * x + norm.shift


def pieces_in_order(qkv, H):
    """q of every head, then k of every head, then v of every head: [B, T, 3D] -> three times [B, H, T, D/H]."""
    pieces = qkv.chunk(3 * H, dim=-1)  # of D/H features
    return [torch.stack(pieces[i * H : (i + 1) * H], dim=1) for i in range(3)]


def weights(query, key, sees=torch.tril, scale=None, axis=-1, after=lambda weights: weights):
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    allowed = sees(scores.exp())  # 0 for what is hidden
    return after(allowed / allowed.sum(axis, keepdim=True))


def side_by_side(context):
    return torch.cat(context.unbind(dim=1), dim=-1)  # [B, H, T, D/H] -> [B, T, D]


def attention(att, x, cut=pieces_in_order, join=side_by_side, project=True, **weighing):
    query, key, value = cut(att.qkv(x), att.num_heads)
    joined = join(weights(query, key, **weighing) @ value)
    return att.out_proj(joined) if project else joined


class NormInWords(LayerNorm):
    def forward(self, x):
        return affine(self, normed(x))


class GELUInWords(GELU):
    def forward(self, x):
        return x / (1 + torch.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class AttentionInWords(MultiHeadAttention):
    forward = attention


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


def att(block, x):
    return block.att(block.norm1(x))


def ff(block, x):
    return block.ff(block.norm2(x))


def post_norm(block, x):
    u = block.norm1(x + block.att(x))
    return block.norm2(u + block.ff(u))


def one_norm(block, x):
    u = x + att(block, x)
    return u + block.ff(block.norm1(u))


def pieces_swapped(qkv, H):
    key, query, value = pieces_in_order(qkv, H)
    return query, key, value


def pieces_by_head(qkv, H):
    """q, k, v of the first head, then of the second, and so on."""
    pieces = qkv.chunk(3 * H, dim=-1)
    return [torch.stack(pieces[i::3], dim=1) for i in range(3)]


def pieces_of_the_text(qkv, H):
    """A head has the H-th part of the positions, with all features, as if they were T positions of D/H features."""
    B, T, _ = qkv.shape
    return [torch.stack(part.flatten(1).chunk(H, dim=1), dim=1).view(B, H, T, -1) for part in qkv.chunk(3, dim=-1)]


def as_they_lie(context):
    B, _, T, _ = context.shape
    return context.flatten(1).view(B, T, -1)


def embedded(model, ids, factor=1.0, first=0):
    return factor * model.tok_emb.weight[ids] + model.pos_emb.weight[first : first + ids.shape[1]]


def logits(model, x, blocks=None, norm=True, head=None):
    """From the embedded text [B, T, D] to the logits, [B, T, V]."""
    for block in model.trf_blocks if blocks is None else blocks:
        x = block(x)
    return F.linear(model.final_norm(x) if norm else x, model.tok_emb.weight if head is None else head)


# For each mistake what every part of one kind returns: (the right part, its input) -> result.
FORMULAS = {
    LayerNorm: {
        "unbiased variance": lambda norm, x: affine(norm, normed(x, lost=1)),
        "eps outside the root": lambda norm, x: affine(norm, (x - x.mean(-1, True)) / (x.std(-1, False, True) + 1e-5)),
        "mean not subtracted": lambda norm, x: affine(norm, F.rms_norm(x, (12,), eps=1e-5)),
        "norm along the tokens": lambda norm, x: affine(norm, normed(x, axis=1)),
        "scale and shift unused": lambda norm, x: normed(x),
    },
    GELU: {
        "exact GELU": lambda _, x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
        "ReLU": lambda _, x: x * (x > 0),
    },
    TransformerBlock: {
        "post-norm": post_norm,
        "one norm for both": one_norm,
        "old shortcut": lambda block, x: x + ff(block, x + att(block, x)),
        "parallel branches": lambda block, x: x + att(block, x) + ff(block, x),
        "missing shortcut": lambda block, x: att(block, x) + ff(block, att(block, x)),
        "detached shortcut": lambda block, x: x.detach() + att(block, x) + ff(block, x.detach() + att(block, x)),
    },
    MultiHeadAttention: {
        "no causal mask": partial(attention, sees=lambda scores: scores),
        "mask off by one": partial(attention, sees=lambda scores: scores.tril(1)),
        "mask turned round": partial(attention, sees=torch.triu),
        "mask after softmax": partial(attention, sees=lambda scores: scores, after=torch.tril),
        "softmax over queries": partial(attention, axis=-2),
        "scores not scaled": partial(attention, scale=1.0),
        "scaled by the width": partial(attention, scale=1 / math.sqrt(12)),
        "query and key swapped": partial(attention, cut=pieces_swapped),
        "QKV inside the heads": partial(attention, cut=pieces_by_head),
        "heads by view alone": partial(attention, cut=pieces_of_the_text),
        "heads not put back": partial(attention, join=as_they_lie),
        "no output projection": partial(attention, project=False),
    },
    nn.Dropout: {"dropout in eval": lambda dropout, x: F.dropout(x, 0.3)},
    GPTModel: {
        "no positions": lambda model, ids: logits(model, model.tok_emb.weight[ids]),
        "positions from 1": lambda model, ids: logits(model, embedded(model, ids, first=1)),
        "embedding times √D": lambda model, ids: logits(model, embedded(model, ids, factor=math.sqrt(12))),
        "first block repeated": lambda model, ids: logits(model, embedded(model, ids), [model.trf_blocks[0]] * 3),
        "last block skipped": lambda model, ids: logits(model, embedded(model, ids), model.trf_blocks[:2]),
        "no final norm": lambda model, ids: logits(model, embedded(model, ids), norm=False),
        "softmax inside": lambda model, ids: logits(model, embedded(model, ids)).softmax(dim=-1),
        "copied head": lambda model, ids: logits(model, embedded(model, ids), head=model.tok_emb.weight.detach()),
    },
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_what_it_says(name):
    """In every part of its kind, the results and the gradient of the input; for a model that of the token table."""
    [(kind, formula)] = [(kind, formulas[name]) for kind, formulas in FORMULAS.items() if name in formulas]
    right = right_model(UNEVEN)
    changed = mutate(right, name).eval()
    parts = [(path, part) for path, part in right.named_modules() if type(part) is kind]
    assert parts
    for path, part in parts:
        ids, x = torch.randint(7, (4, 5)), torch.randn(4, 5, 12, dtype=torch.float64, requires_grad=True)
        seen = []
        for model, forward in (changed, changed.get_submodule(path)), (right, partial(formula, part)):
            torch.manual_seed(1)  # for dropout
            given, source = (ids, model.tok_emb.weight) if kind is GPTModel else (x, x)
            result = forward(given)
            seen.append([result, *torch.autograd.grad(result.square().sum(), source)])
        torch.testing.assert_close(*seen, rtol=1e-11, atol=1e-11)


def test_every_dropout_acts_in_eval():
    right, ids = right_model(UNEVEN), example_ids(UNEVEN)
    places = [path for path, module in right.named_modules() if isinstance(module, nn.Dropout)]
    assert len(places) == 1 + 2 * UNEVEN.n_layers
    for place in places:
        model = mutate(right, "dropout in eval").eval()
        for other in set(places) - {place}:
            model.get_submodule(other).p = 0.0
        assert not torch.equal(model(ids), model(ids)), place


def test_a_copied_head_is_and_stays_a_copy():
    copied = mutate(right_model(), "copied head")
    assert copied.cfg.tie_weights is False
    for model in (copied, deepcopy(copied).float().double()):
        assert model.out_head.weight is not model.tok_emb.weight
        assert torch.equal(model.out_head.weight, model.tok_emb.weight)


def test_a_repeated_block_is_one_block():
    assert len(set(mutate(right_model(UNEVEN), "first block repeated").trf_blocks)) == 1


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


@pytest.mark.parametrize("distance", [0.005, 0.02])
@pytest.mark.parametrize(
    "change",
    [
        lambda x, share: x + share * x.std(),  # moves the mean alone
        lambda x, share: x + share * (x - x.mean()),  # moves the standard deviation alone
    ],
)
def test_the_statistics_see_a_mean_and_a_standard_deviation(change, distance):
    right, candidate, ids = right_model(), right_model(), example_ids()
    candidate.out_head.register_forward_hook(lambda module, args, result: change(result, distance))
    assert CHECKS["statistics"].distance(candidate, right, ids) == pytest.approx(distance)
    assert CHECKS["statistics"](candidate, right, ids) == (distance < 0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", [(0, 0, 0), (-1, -1, -1)])
def test_every_logit_is_compared_in_the_precision_named(dtype, place):
    right, candidate, ids = right_model(), right_model(), example_ids()
    check = CHECKS[f"{str(dtype).removeprefix('torch.')} logits"]
    expected = right_model().to(dtype)(ids)  # [B, T, V]
    seen = check.look(right, right, ids)
    assert seen.dtype == dtype and torch.equal(seen, expected)
    other = torch.zeros_like(expected)
    other[place] = expected.abs().max() / 100
    candidate.register_forward_hook(lambda module, args, result: result + other)
    assert check.distance(candidate, right, ids) == pytest.approx(0.01, rel=1e-4)


def loss_in_words(model, ids):
    chosen = model(ids).log_softmax(dim=-1)[:, :-1].gather(-1, ids[:, 1:, None])  # [B, T - 1, 1]
    return -chosen.mean()


def test_the_gradients_and_losses_are_those_of_torch():
    right, model, ids = right_model(), right_model(), example_ids()
    names, parameters = zip(*model.named_parameters(), strict=True)
    losses = []
    for step in range(6):
        losses.append(loss_in_words(model, ids))
        gradients = torch.autograd.grad(losses[-1], parameters)
        if step == 0:
            means = {name: g.abs().mean().item() for name, g in zip(names, gradients, strict=True)}
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.1 * gradient
    assert CHECKS["gradients"].look(right, right, ids) == pytest.approx(means)
    assert CHECKS["loss"].look(right, right, ids) == pytest.approx([loss.item() for loss in losses])


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
