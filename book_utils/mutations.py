"""A catalogue of wiring mistakes, each a small change to a right model, and the checks that may see them (chapter 10).

Every mistake runs and returns logits of the right shape. `MUTATIONS` lists them, `mutate` makes one, `CHECKS` are the
ways to look, and `run_matrix` tries every check on every mistake.
"""

import math
import operator
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import combinations
from types import MappingProxyType

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from book_utils.attention import MultiHeadAttention
from book_utils.config import GPTConfig, get_config
from book_utils.counting import ledger
from book_utils.feed_forward import GELU
from book_utils.gpt_model import GPTModel
from book_utils.layer_norm import LayerNorm
from book_utils.parity import ROUNDING, stir
from book_utils.transformer_block import TransformerBlock

CONFIG = replace(get_config("tiny"), tie_weights=True, drop_rate=0.1)  # of the catalogue's right model
SPREAD = 0.2  # by which every parameter of it is moved
RIGHT = "right model"  # the name of its row in a matrix


@dataclass(frozen=True)
class Mutation:
    """A wiring mistake.

    name    a short name
    wrong   what is wrong, in one sentence
    right   what would be right
    change  makes the mistake in a GPTModel, in place; the names and shapes in its state dict stay
    """

    name: str
    wrong: str
    right: str
    change: Callable[[GPTModel], None]


_MUTATIONS: dict[str, Mutation] = {}
MUTATIONS: Mapping[str, Mutation] = MappingProxyType(_MUTATIONS)


def mutate(model: GPTModel, name: str) -> GPTModel:
    """A copy of `model`, with the same weights, in which the mistake `name` was made; `model` stays as it is.

    ValueError for an unknown name, with the nearest known one.
    """
    if name not in MUTATIONS:
        close = get_close_matches(str(name), MUTATIONS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(MUTATIONS)}"
        raise ValueError(f"unknown mistake {name!r}; {hint}")
    changed = deepcopy(model)
    MUTATIONS[name].change(changed)
    return changed


def _mistake(name: str, right: str, place: type | str | None = None):
    """Enter a mistake in the catalogue; its docstring says what is wrong.

    It is a function that changes a model or, with a `place`, a class: every module of the class `place`, or the one
    module of that name, becomes an object of it and keeps its parameters.
    """

    def enter(wrong):
        change = wrong if place is None else partial(_turn, place=place, into=wrong)
        _MUTATIONS[name] = Mutation(name, wrong.__doc__, right, change)
        return wrong

    return enter


def _turn(model, place, into):
    modules = [model.get_submodule(place)] if isinstance(place, str) else model.modules()
    for module in modules:
        if isinstance(place, str) or type(module) is place:
            module.__class__ = into


# LayerNorm and GELU


@_mistake("unbiased variance", "they are divided by D", LayerNorm)
class UnbiasedLayerNorm(LayerNorm):
    """The squared distances in LayerNorm are divided by D − 1."""

    def forward(self, x):
        spread = (x.var(dim=-1, keepdim=True, unbiased=True) + self.eps).sqrt()
        return self.scale * (x - x.mean(dim=-1, keepdim=True)) / spread + self.shift


@_mistake("eps outside the root", "by the root of variance + eps", LayerNorm)
class EpsOutsideLayerNorm(LayerNorm):
    """LayerNorm divides by the sum of √variance and eps."""

    def forward(self, x):
        spread = x.std(dim=-1, keepdim=True, unbiased=False) + self.eps
        return self.scale * (x - x.mean(dim=-1, keepdim=True)) / spread + self.shift


@_mistake("mean not subtracted", "the mean is subtracted first", LayerNorm)
class UncentredLayerNorm(LayerNorm):
    """LayerNorm leaves the mean in and divides by the root of the mean square, as RMSNorm does."""

    def forward(self, x):
        return self.scale * x / (x.square().mean(dim=-1, keepdim=True) + self.eps).sqrt() + self.shift


@_mistake("norm along the tokens", "over the features of one position", LayerNorm)
class TokenAxisLayerNorm(LayerNorm):
    """LayerNorm takes mean and variance over the positions of a text."""

    def forward(self, x):
        mean, variance = x.mean(dim=1, keepdim=True), x.var(dim=1, keepdim=True, unbiased=False)  # [B, 1, D]
        return self.scale * (x - mean) / (variance + self.eps).sqrt() + self.shift


@_mistake("scale and shift unused", "both are applied", LayerNorm)
class BareLayerNorm(LayerNorm):
    """LayerNorm normalizes and leaves its scale and shift aside."""

    def forward(self, x):
        return F.layer_norm(x, self.scale.shape, eps=self.eps)


@_mistake("exact GELU", "the tanh form", GELU)
class ExactGELU(GELU):
    """GELU has its exact form, with the error function."""

    def forward(self, x):
        return F.gelu(x)


@_mistake("ReLU", "GELU, in its tanh form", GELU)
class ReLUForGELU(GELU):
    """ReLU stands in the place of GELU."""

    def forward(self, x):
        return F.relu(x)


# The block


@_mistake("post-norm", "before each sublayer, inside the branch", TransformerBlock)
class PostNormBlock(TransformerBlock):
    """Each norm comes after a sum, on the stream itself."""

    def forward(self, x):
        u = self.norm1(x + self.drop_shortcut(self.att(x)))
        return self.norm2(u + self.drop_shortcut(self.ff(u)))


@_mistake("one norm for both", "each has its own")
def _share_norm(model):
    """The two sublayers of a block share one norm."""
    for block in model.trf_blocks:
        block.norm2 = block.norm1


@_mistake("old shortcut", "it is added to u, the stream after attention", TransformerBlock)
class OldShortcutBlock(TransformerBlock):
    """The result of the feed-forward network is added to x, the input of the block."""

    def forward(self, x):
        u = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(u)))


@_mistake("parallel branches", "it reads u, the stream after attention", TransformerBlock)
class ParallelBlock(TransformerBlock):
    """The feed-forward network reads x, the input of the block."""

    def forward(self, x):
        u = x + self.drop_shortcut(self.att(self.norm1(x)))
        return u + self.drop_shortcut(self.ff(self.norm2(x)))


@_mistake("missing shortcut", "it is added to the stream", TransformerBlock)
class NoShortcutBlock(TransformerBlock):
    """The result of attention takes the place of the stream."""

    def forward(self, x):
        u = self.drop_shortcut(self.att(self.norm1(x)))
        return u + self.drop_shortcut(self.ff(self.norm2(u)))


@_mistake("detached shortcut", "both pass", TransformerBlock)
class DetachedShortcutBlock(TransformerBlock):
    """The shortcut around attention lets values through, and no gradient."""

    def forward(self, x):
        u = x.detach() + self.drop_shortcut(self.att(self.norm1(x)))
        return u + self.drop_shortcut(self.ff(self.norm2(u)))


# Attention


class SteppedAttention(MultiHeadAttention):
    """MultiHeadAttention, the same operations in the same order, cut into three steps that can be replaced alone."""

    def forward(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_out"]:
        query, key, value = self.split(self.qkv(x))  # three times [B, H, T, D/H]
        return self.merge(self.attend(query, key, value))  # [B, T, d_out]

    def split(self, qkv: Float[Tensor, "B T three_d_out"]) -> Float[Tensor, "3 B H T head_dim"]:
        return qkv.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)

    def attend(self, query, key, value, **changes) -> Float[Tensor, "B H T head_dim"]:
        rate = self.dropout.p if self.dropout.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, **{"dropout_p": rate, "is_causal": True, **changes})

    def merge(self, context: Float[Tensor, "B H T head_dim"]) -> Float[Tensor, "B T d_out"]:
        return self.out_proj(context.transpose(1, 2).flatten(-2))

    def scores(self, query, key) -> Float[Tensor, "B H T T"]:
        return query @ key.transpose(-2, -1) * self.head_dim**-0.5


def _all_pairs(query: Float[Tensor, "B H T head_dim"]) -> Tensor:
    """[T, T], True everywhere: position t (row) may look at position s (column)."""
    return torch.ones(query.shape[-2], query.shape[-2], dtype=torch.bool, device=query.device)


@_mistake("no causal mask", "itself and those before", MultiHeadAttention)
class UnmaskedAttention(SteppedAttention):
    """Every position sees every other."""

    def attend(self, query, key, value):
        return super().attend(query, key, value, is_causal=False)


@_mistake("mask off by one", "itself and those before", MultiHeadAttention)
class OffByOneAttention(SteppedAttention):
    """Every position also sees the next one."""

    def attend(self, query, key, value):
        return super().attend(query, key, value, is_causal=False, attn_mask=_all_pairs(query).tril(1))


@_mistake("mask turned round", "itself and those before", MultiHeadAttention)
class TurnedMaskAttention(SteppedAttention):
    """Every position sees itself and those after."""

    def attend(self, query, key, value):
        return super().attend(query, key, value, is_causal=False, attn_mask=_all_pairs(query).triu())


@_mistake("mask after softmax", "their scores become −∞ before it", MultiHeadAttention)
class LateMaskAttention(SteppedAttention):
    """The weights of later positions become 0 after the softmax, so that every row but the last sums to less than 1."""

    def attend(self, query, key, value):
        return self.scores(query, key).softmax(dim=-1).tril() @ value


@_mistake("softmax over queries", "along a row, over the keys", MultiHeadAttention)
class WrongAxisAttention(SteppedAttention):
    """The attention weights sum to 1 down a column."""

    def attend(self, query, key, value):
        return self.scores(query, key).masked_fill(~_all_pairs(query).tril(), -math.inf).softmax(dim=-2) @ value


@_mistake("scores not scaled", "they are multiplied by 1/√(D/H)", MultiHeadAttention)
class UnscaledAttention(SteppedAttention):
    """The attention scores are not scaled."""

    def attend(self, query, key, value):
        return super().attend(query, key, value, scale=1.0)


@_mistake("scaled by the width", "by 1/√(D/H), with the width of one head", MultiHeadAttention)
class FullWidthAttention(SteppedAttention):
    """The attention scores are multiplied by 1/√D."""

    def attend(self, query, key, value):
        return super().attend(query, key, value, scale=self.d_out**-0.5)


@_mistake("query and key swapped", "query, key, value", MultiHeadAttention)
class SwappedAttention(SteppedAttention):
    """The fused projection is split into key, query, value."""

    def split(self, qkv):
        return super().split(qkv)[[1, 0, 2]]


@_mistake("QKV inside the heads", "as [B, T, 3, H, D/H]", MultiHeadAttention)
class InterleavedAttention(SteppedAttention):
    """The fused projection is read as [B, T, H, 3, D/H]."""

    def split(self, qkv):
        return qkv.unflatten(-1, (self.num_heads, 3, self.head_dim)).permute(3, 0, 2, 1, 4)


@_mistake("heads by view alone", "a view as [B, T, H, D/H], then a transpose", MultiHeadAttention)
class ViewedHeadsAttention(SteppedAttention):
    """Query, key and value are viewed as [B, H, T, D/H], which cuts up the text and not the features."""

    def split(self, qkv):
        B, T, _ = qkv.shape
        return torch.stack([part.reshape(B, self.num_heads, T, self.head_dim) for part in qkv.chunk(3, dim=-1)])


@_mistake("heads not put back", "a transpose to [B, T, H, D/H] comes first", MultiHeadAttention)
class UntransposedAttention(SteppedAttention):
    """The heads, [B, H, T, D/H], are reshaped to [B, T, D] as they lie."""

    def merge(self, context):
        B, _, T, _ = context.shape
        return self.out_proj(context.reshape(B, T, self.d_out))


@_mistake("no output projection", "one more linear layer mixes them", MultiHeadAttention)
class UnprojectedAttention(SteppedAttention):
    """The joined heads leave attention as they are."""

    def merge(self, context):
        return context.transpose(1, 2).flatten(-2)


# The model


@_mistake("no positions", "it is added to the token embedding", "pos_emb")
class NoPositions(nn.Embedding):
    """The position embedding is not added."""

    def forward(self, places):
        return self.weight.new_zeros(*places.shape, self.embedding_dim)


@_mistake("positions from 1", "counted from 0", "pos_emb")
class PositionsFromOne(nn.Embedding):
    """The positions are counted from 1; the table starts at 0."""

    def forward(self, places):
        return super().forward(places + 1)


@_mistake("embedding times √D", "GPT-2 takes it as it is", "tok_emb")
class ScaledEmbedding(nn.Embedding):
    """The token embedding is multiplied by √D, as in the first Transformer."""

    def forward(self, ids):
        return super().forward(ids) * self.embedding_dim**0.5


@_mistake("first block repeated", "L blocks with parameters of their own")
def _repeat_first_block(model):
    """The list of blocks holds one and the same block L times."""
    model.trf_blocks = nn.ModuleList([model.trf_blocks[0]] * len(model.trf_blocks))


class SkippedBlock(TransformerBlock):
    def forward(self, x):
        return x


@_mistake("last block skipped", "it runs over all L")
def _skip_last_block(model):
    """The loop over the blocks ends one too early."""
    model.trf_blocks[-1].__class__ = SkippedBlock


@_mistake("no final norm", "it is normalized once more", "final_norm")
class SilentNorm(LayerNorm):
    """The stream goes to the head as it is."""

    def forward(self, x):
        return x


@_mistake("softmax inside", "it returns logits", "out_head")
class SoftmaxHead(nn.Linear):
    """The model returns probabilities."""

    def forward(self, x):
        return super().forward(x).softmax(dim=-1)


@_mistake("dropout in eval", "it acts in training only", nn.Dropout)
class WakefulDropout(nn.Dropout):
    """Dropout does not listen to eval()."""

    training = property(lambda self: True, lambda self, mode: None)


@_mistake("copied head", "one Parameter under both names")
def _copy_head(model):
    """The head has a copy of the token embedding's values."""
    model.cfg = replace(model.cfg, tie_weights=False)
    model.out_head.weight = nn.Parameter(model.tok_emb.weight.detach().clone())


# The checks. Each observes a model, measures how far that is from what the right model shows, and has a limit.


@dataclass(frozen=True)
class Check:
    """One way to look at a model: `check(candidate, right, ids)` is True where it finds nothing wrong.

    name      a short name
    looks_at  what must hold, in one sentence
    needs     what it must be given besides the candidate: "the configuration" or "a right model"
    limit     the largest distance that passes
    observe   (model, right model, ids [B, T]) -> what is seen of the model
    apart     (what was seen, what the right model shows) -> their distance, 0 or more

    Copies are observed, in eval mode and under random numbers of their own: a check changes nothing.
    """

    name: str
    looks_at: str
    needs: str
    limit: float
    observe: Callable[[GPTModel, GPTModel, Tensor], object]
    apart: Callable[[object, object], float]

    def look(self, model: GPTModel, right: GPTModel, ids: Integer[Tensor, "B T"]) -> object:
        """What is seen of `model`, or the error that it raises."""
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.default_generator.manual_seed(0)  # for dropout that should be silent
            try:
                return self.observe(deepcopy(model).eval().requires_grad_(True), right, ids)
            except Exception as error:  # whatever it is, something is wrong
                return error

    def between(self, seen: object, expected: object) -> float:
        """How far apart two looks are; infinite after an error of either, or where there is a NaN."""
        if isinstance(seen, Exception) or isinstance(expected, Exception):
            return math.inf
        distance = float(self.apart(seen, expected))
        return math.inf if math.isnan(distance) else distance

    def distance(self, candidate: GPTModel, right: GPTModel, ids: Integer[Tensor, "B T"]) -> float:
        """How far `candidate` is from right."""
        return self.between(self.look(candidate, right, ids), self.look(right, right, ids))

    def __call__(self, candidate: GPTModel, right: GPTModel, ids: Integer[Tensor, "B T"]) -> bool:
        return self.distance(candidate, right, ids) <= self.limit


_CHECKS: dict[str, Check] = {}
CHECKS: Mapping[str, Check] = MappingProxyType(_CHECKS)


def _check(name: str, needs: str, limit: float, apart: Callable, **settings):
    """Enter a check in the list: a function that observes, with its docstring for what it looks at."""

    def enter(observe):
        looks_at = observe.__doc__.format(limit=f"{limit:.0e}".replace("e-0", "e-"), percent=f"{100 * limit:g} %")
        _CHECKS[name] = Check(name, looks_at, needs, limit, partial(observe, **settings), apart)
        return observe

    return enter


def _largest_share(seen, expected):
    """The largest difference of two lists or dictionaries of numbers, each as a share of the expected number."""
    if isinstance(expected, dict):
        if seen.keys() != expected.keys():
            return math.inf
        seen, expected = [seen[name] for name in expected], list(expected.values())
    seen, expected = torch.tensor(seen), torch.tensor(expected)
    return ((seen - expected).abs() / expected.abs()).max()


def _largest_shift(seen, expected):
    """How far a mean or a standard deviation went, at most, in standard deviations: two lists of such pairs."""
    if len(seen) != len(expected):
        return math.inf
    seen, expected = torch.tensor(seen), torch.tensor(expected)  # [calls, 2]
    return ((seen - expected).abs() / expected[:, 1:]).max()


def _largest_difference(seen, expected):
    """As a share of the largest value."""
    return (seen - expected).abs().max() / expected.abs().max()


@_check("shapes", "the configuration", 0, operator.ne)
def _shapes(model, right, ids):
    """The logits have the shape [B, T, V]."""
    return model(ids).shape == (*ids.shape, right.cfg.vocab_size)


@_check("count", "the configuration", 0, operator.ne)
def _count(model, right, ids):
    """The parameters are those of the ledger, line by line."""
    return ledger(right.cfg).check(model)  # raises


@_check("strict load", "a right model", 0, operator.ne)
def _load(model, right, ids):
    """The right model's state dict loads, by name and shape."""
    return model.load_state_dict(right.state_dict())  # raises


@_check("statistics", "a right model", 0.01, _largest_shift)
@torch.no_grad()
def _statistics(model, right, ids):
    """Each module, called in the right order, returns the right mean and standard deviation, to {percent} of it."""
    seen = []
    for module in model.modules():
        module.register_forward_hook(lambda module, args, result: seen.append([result.mean(), result.std()]))
    model(ids)
    return seen


@_check("causality", "the configuration", 1e-9, lambda seen, expected: seen)
@torch.no_grad()
def _causality(model, right, ids):
    """Another id moves no logit at an earlier position by more than {limit}."""
    text = ids[0]  # [T]
    changed = (text + torch.eye(len(text), dtype=text.dtype, device=text.device)) % model.cfg.vocab_size  # [T, T]
    logits = model(torch.cat([text[None], changed]))  # [1 + T, T, V]: the text, then another id at each position
    return (logits[1:] - logits[0]).abs().amax(dim=-1).tril(-1).max()  # at positions before the changed one


def _loss(model, ids):
    """The logits at position t against the id at t + 1, averaged."""
    return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@_check("gradients", "a right model", 0.01, _largest_share)
def _gradients(model, right, ids):
    """The mean absolute gradient of every parameter is right, to {percent}."""
    _loss(model, ids).backward()
    return {name: 0.0 if p.grad is None else p.grad.abs().mean().item() for name, p in model.named_parameters()}


@_check("greedy string", "a right model", 0, lambda seen, expected: (seen != expected).sum())
def _strings(model, right, ids):
    """Taking the highest logit every time gives the right text from every first id."""
    return greedy_texts(model)


@torch.no_grad()
def greedy_texts(model: GPTModel) -> Integer[Tensor, "V length"]:
    """For each id, the text that begins with it and goes on with the highest logit every time.

    It has C - 1 ids: one fewer than the context, so that positions counted from 1 still fit the table.
    """
    text = torch.arange(model.cfg.vocab_size, device=model.tok_emb.weight.device)[:, None]  # [V, 1]
    while text.shape[1] < model.cfg.context_length - 1:
        text = torch.cat([text, model(text)[:, -1:].argmax(dim=-1)], dim=1)  # [V, t + 1]
    return text


@_check("float64 logits", "a right model", ROUNDING[torch.float64], _largest_difference, dtype=torch.float64)
@_check("float32 logits", "a right model", ROUNDING[torch.float32], _largest_difference, dtype=torch.float32)
@torch.no_grad()
def _logits(model, right, ids, dtype):
    """The logits are right, to {limit} of the largest."""
    return model.to(dtype)(ids)


@_check("loss", "a right model", 0.001, _largest_share)
def _losses(model, right, ids, steps=5, rate=0.1):
    """Through 5 steps of gradient descent the loss is right, to {percent}."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = [_loss(model, ids)]
    for _ in range(steps):
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
        losses.append(_loss(model, ids))
    return [loss.item() for loss in losses]


# The matrix: every check on every mistake.


def right_model(cfg: GPTConfig = CONFIG, seed: int = 26, spread: float = SPREAD) -> GPTModel:
    """The right model of the catalogue, in float64 and eval mode, with every parameter moved by noise of this spread.

    The two embedding tables start at half of PyTorch's values, so that the blocks have more of a say in the logits.
    With a spread of 0 all scales are 1 and all shifts 0. ValueError for a configuration in which some mistake is none.
    """
    wanted = {
        "tie_weights": cfg.tie_weights,
        "at least 2 ids": cfg.vocab_size > 1,
        "a drop_rate above 0": all(cfg.rate(place) > 0 for place in ("emb", "attn", "shortcut")),
        "at least 2 heads of at least 2 features": cfg.n_heads > 1 and cfg.head_dim > 1,
        "at least 2 layers": cfg.n_layers > 1,
        "a context_length of at least 6": cfg.context_length > 5,
    }
    if not all(wanted.values()):
        raise ValueError(f"the catalogue needs {', '.join(wish for wish, met in wanted.items() if not met)}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = GPTModel(cfg).double().eval()
    with torch.no_grad():
        for table in (model.tok_emb, model.pos_emb):
            table.weight /= 2
    return stir(model, seed, spread)


def example_ids(cfg: GPTConfig = CONFIG, seed: int = 26) -> Integer[Tensor, "4 T"]:
    """Four texts of random ids, half as long as the context."""
    noise = torch.Generator().manual_seed(seed)
    return torch.randint(cfg.vocab_size, (4, cfg.context_length // 2), generator=noise)


def measure(cfg: GPTConfig = CONFIG, seed: int = 26, spread: float = SPREAD) -> dict[str, dict[str, float]]:
    """Mistake -> check -> distance, with a row for the right model itself."""
    right, ids = right_model(cfg, seed, spread), example_ids(cfg, seed)
    expected = {name: check.look(right, right, ids) for name, check in CHECKS.items()}
    candidates = {RIGHT: right} | {name: mutate(right, name) for name in MUTATIONS}
    return {
        name: {
            check: CHECKS[check].between(CHECKS[check].look(candidate, right, ids), expected[check]) for check in CHECKS
        }
        for name, candidate in candidates.items()
    }


def run_matrix(cfg: GPTConfig = CONFIG, seed: int = 26, spread: float = SPREAD) -> dict[str, dict[str, bool]]:
    """Mistake -> check -> whether it sees the mistake, with a row for the right model itself."""
    return {
        name: {check: distance > CHECKS[check].limit for check, distance in row.items()}
        for name, row in measure(cfg, seed, spread).items()
    }


def smallest_sets(matrix: Mapping[str, Mapping[str, bool]]) -> list[tuple[str, ...]]:
    """All smallest sets of checks that together see every mistake of `matrix`; the right model's row does not count.

    Every set is tried: 2 to the number of checks. ValueError, naming them, where no check sees some mistakes.
    """
    rows = {name: {check for check, seen in row.items() if seen} for name, row in matrix.items() if name != RIGHT}
    unseen = [name for name, seen_by in rows.items() if not seen_by]
    if unseen:
        raise ValueError(f"no check sees {', '.join(unseen)}")
    checks = list(dict.fromkeys(check for row in matrix.values() for check in row))
    for size in range(len(checks) + 1):
        found = [chosen for chosen in combinations(checks, size) if all(row & set(chosen) for row in rows.values())]
        if found:
            return found
    raise AssertionError("unreachable: all checks together see every mistake")
