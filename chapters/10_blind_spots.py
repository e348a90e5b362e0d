# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 · Blind spots
#
# **Which check sees which mistake?**
#
# At the end of this chapter you can
#
# - break a right model on purpose, in one place at a time, and so find out what a check is worth;
# - say for each of ten checks which wiring mistakes it cannot see, and why;
# - choose the smallest set of checks that together see every mistake of a catalogue, and name what lies outside it.
#
# You need the whole model of [chapter 7](07_gpt_model.ipynb), the ledger of [chapter 8](08_counting.ipynb), and the idea of comparing two models with the same weights from [chapter 9](09_parity.ipynb).

# %% tags=["parameters"]
vocab_size: int = 16  # V, number of token ids (4 to 64)
num_tokens: int = 8  # T, tokens in each text; the context is twice as long (4 to 16)
emb_dim: int = 16  # D, features per position, at least 2 for each head (8 to 64)
n_heads: int = 4  # H, attention heads; they divide emb_dim (2 to 8)
n_layers: int = 2  # L, transformer blocks (2 to 4)
seed: int = 26  # of the random weights and ids (0 to 4294967295)

# %%
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GELU, FeedForward, GPTConfig, LayerNorm, TransformerBlock
from book_utils import count_parameters
from book_utils.mutations import CHECKS, MUTATIONS, RIGHT, example_ids, measure, mutate
from book_utils.workbench import check, check_parameters, figure, publish, show_table

# %% [markdown]
# The context is twice as long as the texts, so that positions are left over.

# %%
check_parameters("10_blind_spots", globals())
if emb_dim < 2 * n_heads:
    raise ValueError(f"{emb_dim = } is less than 2 features for each of {n_heads = }")
torch.set_num_threads(1)  # a model this small gains nothing from more
sizes = (vocab_size, 2 * num_tokens, emb_dim, n_heads, n_layers)  # C = 2T
cfg = GPTConfig(*sizes, drop_rate=0.1, tie_weights=True)
print(f"V {vocab_size} · C {2 * num_tokens} · D {emb_dim} · H {n_heads} · L {n_layers}")

# %% [markdown]
# The chapters before this one warned of many mistakes that change no shape. Each time a check was at hand that sees the mistake. But the reader of such a warning knows where to look, and somebody who writes a model does not. Which checks should be made when nobody knows what is wrong, or whether anything is?
#
# This chapter puts the checks themselves to the test. It takes a right model, makes one known mistake in it, runs every check, and writes down which of them notice. Then it takes the next mistake. In software this is called *mutation testing* (DeMillo, Lipton and Sayward, 1978): a test is judged by the faults it finds when faults are put in. A mistake that a check lets pass is one of its *blind spots*.
#
# ## A right model to spoil
#
# The right model is the `GPTModel` of this book, whose agreement with other implementations was shown in [chapter 9](09_parity.ipynb). It is tied ([chapter 7](07_gpt_model.ipynb)) and has a dropout rate above 0, so that mistakes about tying and dropout can be made at all. It computes in float64. All its parameters are moved by random noise, scales, shifts and biases too, that is, they are stirred as in chapter 9; a later section shows what that is good for.

# %%
from book_utils.mutations import right_model

right = right_model(cfg, seed)
ids = example_ids(cfg, seed)  # [B, T]
logits = right(ids).detach()  # [B, T, V]
print("ids", list(ids.shape), "-> logits", list(logits.shape))
assert logits.shape == (*ids.shape, vocab_size)
assert not right.training and right.out_head.weight is right.tok_emb.weight

# %% [markdown]
# ## Three mistakes by hand
#
# A mistake should be one small change and nothing besides. So the wrong model starts as a copy of the right one, with the same weights, and one thing is changed in it. For two of the three mistakes below a module is given another class. Its parameters stay, with their names and values; only what `forward` does with them is another. The first is a LayerNorm with the wrong variance.


# %%
class UnbiasedNorm(LayerNorm):
    """Wrong on purpose: the variance is divided by D - 1."""

    def forward(self, x):
        variance = x.var(dim=-1, keepdim=True, unbiased=True)  # [B, T, 1]
        x = (x - x.mean(dim=-1, keepdim=True)) / (variance + self.eps).sqrt()
        return self.scale * x + self.shift  # [B, T, D]


# %% [markdown]
# The second is a block that forgets what its attention has added.


# %%
class OldShortcut(TransformerBlock):
    """Wrong on purpose: the second sum starts from x, not from u."""

    def forward(self, x):
        u = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(u)))


# %% [markdown]
# This function puts either in the place of the right class.


# %%
def with_class(old, new):
    """A copy of the right model; its modules of class `old` have the class `new`."""
    model = deepcopy(right)
    for module in model.modules():
        if type(module) is old:
            module.__class__ = new
    return model


# %% [markdown]
# The third is the copied head of [chapter 7](07_gpt_model.ipynb): the model was configured as untied, and the values of the embedding were copied into the head.

# %%
copied = deepcopy(right)
copied.cfg = replace(cfg, tie_weights=False)  # or the model would tie itself again
copied.out_head.weight = nn.Parameter(right.tok_emb.weight.detach().clone())

# %% [markdown]
# What do the three look like from outside?

# %%
by_hand = {
    "variance divided by D − 1": with_class(LayerNorm, UnbiasedNorm),
    "second sum from x": with_class(TransformerBlock, OldShortcut),
    "copied head": copied,
}

# %%
rows = []
for name, model in by_hand.items():
    model.load_state_dict(right.state_dict())  # strict
    difference = (model(ids) - logits).abs().max().item()
    shape = list(model(ids).shape)
    rows.append([name, str(shape), count_parameters(model), f"{difference:.3f}"])
header = ["mistake", "logits", "parameters", "largest difference"]
show_table(header, rows)
print("parameters of the right model:", count_parameters(right))
assert all(model(ids).shape == logits.shape for model in by_hand.values())
assert torch.equal(copied(ids), logits)

# %% [markdown]
# All three return logits of the right shape, and all three load the right model's state dict in strict mode, without a word. Counting parameters sees the third and not the first two. Comparing logits sees the first two and not the third, whose logits are the right ones to the last bit. Neither check is better; each is blind where the other sees.
#
# ## Ten checks
#
# Here is one check in full, the *causality probe*. It changes one id at a time and asks whether any logit at an earlier position moves. It needs no right model to compare with.


# %%
@torch.no_grad()
def earlier_moves(model):
    """How far a logit moves, at most, when an id at a later position is another."""
    largest = 0.0
    for t in range(1, num_tokens):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % vocab_size
        difference = model(changed)[:, :t] - model(ids)[:, :t]  # [B, t, V]
        largest = max(largest, difference.abs().max().item())
    return largest


# %% [markdown]
# It should find nothing in the right model, and something in one without a causal mask. `mutate` makes such a mistake by its name.

# %%
unmasked = mutate(right, "no causal mask")
for name, model in [("right model", right), ("no causal mask", unmasked)]:
    moves = earlier_moves(model)
    print(f"{name}: {'below 1e-9' if moves < 1e-9 else f'{moves:.3f}'}")
assert earlier_moves(right) < 1e-9 < earlier_moves(unmasked)

# %% [markdown]
# A check of this kind has two parts: a *distance* from what is right, and a *limit*. What lies within the limit passes. `book_utils.mutations` has ten of them.

# %%
rows = [[name, one.looks_at, one.needs] for name, one in CHECKS.items()]
show_table(["check", "what must hold", "needs"], rows)

# %% [markdown]
# Where do the limits come from? The two for logits are the shares of [chapter 9](09_parity.ipynb): what two right programs may differ by, because they round in different orders, here as a share of the largest logit. The causality probe compares a program with itself, and 1e-9 is far above what rounding adds up to in float64. The percentages are a choice, and a section below looks at what another choice would do.
#
# The statistics compare a model module by module, in the order of the calls. So they need more than a right model: one that is built of the same modules. The other checks do not care how a model is built inside.
#
# A check must not disturb what it looks at. Each of these works on a copy in eval mode and draws its random numbers, if a mistake makes it draw any, from a state of its own. A model that raises an error, or gives NaN where numbers are compared, does not pass.
#
# A check can also see too much. If the limits were so tight that a right model fails when it is written in other words, they would be useless. So the first test is a model that computes the same by other operations in the same modules: LayerNorm and GELU from their formulas. No check may complain.


# %%
class NormInWords(LayerNorm):
    def forward(self, x):
        x = x - x.mean(dim=-1, keepdim=True)
        variance = x.square().mean(dim=-1, keepdim=True)  # [B, T, 1]
        return x * (variance + self.eps).rsqrt() * self.scale + self.shift


class GELUInWords(GELU):
    def forward(self, x):
        inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))


# %%
reworded = with_class(LayerNorm, NormInWords)
for block in reworded.trf_blocks:
    block.ff.layers[1].__class__ = GELUInWords
complaints = [name for name, one in CHECKS.items() if not one(reworded, right, ids)]
print("checks that complain about the right model in other words:", len(complaints))
assert complaints == []

# %% [markdown]
# ## The catalogue
#
# The mistakes are classics: each has been made, or is easily made, by somebody who writes a GPT. `mutate(model, name)` returns a copy with that mistake in it. The last column says what would be right.

# %%
rows = [[name, one.wrong, one.right] for name, one in MUTATIONS.items()]
show_table(["mistake", "what is wrong", "what would be right"], rows)

# %% [markdown]
# Some of these are right elsewhere. Dividing by the root of the mean square is RMSNorm (Zhang and Sennrich, 2019); post-norm and the factor √D at the embedding are the first Transformer's (Vaswani et al., 2017); parallel branches were chosen on purpose for PaLM (Chowdhery et al., 2022). They are mistakes here because the model is to compute what GPT-2 computes, with GPT-2's weights.
#
# ## Every check on every mistake
#
# `measure` makes the right model for a configuration and a seed, makes every mistake in it, and returns the distance for each check. What exceeds the limit is seen.


# %%
def verdicts(distances):
    """mistake -> check -> whether the check sees it."""
    return {
        name: {one: distance > CHECKS[one].limit for one, distance in row.items()}
        for name, row in distances.items()
    }


# %% [markdown]
# The result is a matrix of yes and no, with a row for the right model and one for each mistake, and a column for each check.

# %%
distances = measure(cfg, seed)
matrix = verdicts(distances)
assert not any(matrix[RIGHT].values())
assert all(any(matrix[name].values()) for name in MUTATIONS)
total = len(MUTATIONS)
print(total, "mistakes, each of them seen by at least one of", len(CHECKS), "checks")

# %% [markdown]
# The two assertions are what the matrix is kept for: the right model passes every check, and every mistake is seen by at least one. To look at it closer, it is read by columns first.

# %%
seen_by, blind_to = {}, {}  # check -> names of mistakes
for one in CHECKS:
    seen_by[one] = [name for name in MUTATIONS if matrix[name][one]]
    blind_to[one] = [name for name in MUTATIONS if not matrix[name][one]]


def listed(names):
    """Up to five names, or how many there are."""
    return ", ".join(names) if len(names) <= 5 else f"{len(names)} of the mistakes"


# %% [markdown]
# Here is the whole matrix as a picture: a grey cell with a cross where a check sees a mistake, a white one with a dot where it does not.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
words = [
    f"There are {total + 1} rows, the right model and {total} mistakes, and {len(CHECKS)} columns, one for each check."
]
for one in CHECKS:
    if not seen_by[one]:
        words.append(f"The column “{one}” is empty: it sees none of the mistakes.")
    elif len(seen_by[one]) <= len(blind_to[one]):
        words.append(f"“{one}” sees {len(seen_by[one])}: {', '.join(seen_by[one])}.")
    else:
        words.append(
            f"“{one}” sees {len(seen_by[one])} and is blind to {listed(blind_to[one])}."
        )
words.append("The row of the right model is empty, and no other row is.")
grid = [[int(seen) for seen in row.values()] for row in matrix.values()]
with figure(
    "blind_spots",
    alt=f"A grid of {total + 1} rows, the right model and the mistakes, and {len(CHECKS)} columns, the checks: "
    "a grey cell with a cross where a check sees a mistake, a white cell with a dot where it does not.",
    words=words,
    data={"rows": list(matrix), "checks": list(CHECKS), "seen": grid},
    size=(5, 9),
) as ax:
    ax.imshow(grid, cmap="Greys", vmin=0, vmax=3, aspect="auto")
    for sign, kind, size in [("x", 1, 7), (".", 0, 4)]:
        points = [(x, y) for y, row in enumerate(grid) for x, seen in enumerate(row)]
        xs, ys = zip(*((x, y) for x, y in points if grid[y][x] == kind), strict=True)
        ax.plot(xs, ys, sign, color="black", ms=size, mew=1.6)
    ax.set_xticks(range(len(CHECKS)), list(CHECKS), rotation=90)
    ax.set_yticks(range(len(matrix)), list(matrix))
    ax.set_xticks([x - 0.5 for x in range(1, len(CHECKS))], minor=True)
    ax.set_yticks([y - 0.5 for y in range(1, len(matrix))], minor=True)
    ax.grid(False)
    ax.grid(which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="both", length=0, top=False, labeltop=True, labelbottom=False)

# %% [markdown]
# A row says which checks see a mistake, and which do not: it is the mistake's *fingerprint*. Many fingerprints are alike. In the next table each stands once, with the names of its mistakes, or their number.

# %%
alike = {}  # fingerprint -> names
for name, row in matrix.items():
    alike.setdefault(tuple(row.values()), []).append(name)
rows = []
for row, names in alike.items():
    seen = [one for one, sees in zip(CHECKS, row, strict=True) if sees]
    rows.append([listed(names), ", ".join(seen) or "none"])
show_table(["mistakes", "seen by"], rows)

# %% [markdown]
# ## What each check is blind to
#
# How many mistakes does each check see, and which does it miss? Where the list is long, its length stands for it.

# %%
rows = [
    [one, f"{len(seen_by[one])} of {total}", listed(blind_to[one])] for one in CHECKS
]
show_table(["check", "sees", "is blind to"], rows)

# %% [markdown]
# Some of this depends on the weights and on the limits, and some must be so, whatever they are. Three groups of mistakes stand out: those that leave the values as they are, those with a Parameter too few or too many, and those by which a position looks ahead.

# %%
values_equal = {"detached shortcut", "copied head"}
fewer_or_more = {"one norm for both", "first block repeated", "copied head"}
looks_ahead = {
    *("norm along the tokens", "no causal mask", "mask off by one"),
    *("mask turned round", "mask after softmax", "softmax over queries"),
    *("heads by view alone", "heads not put back", "dropout in eval"),
}

# %% [markdown]
# The next cell asserts what holds for stirred weights and these limits at every size that this chapter allows; the paragraphs after it give the reasons.

# %%
assert seen_by["shapes"] == seen_by["strict load"] == []
assert set(seen_by["count"]) == fewer_or_more
assert set(seen_by["causality"]) == looks_ahead
assert set(blind_to["float64 logits"]) == values_equal
assert {*values_equal, "softmax inside"} <= set(blind_to["greedy string"])
assert values_equal <= set(blind_to["statistics"])
assert set(seen_by["float32 logits"]) <= set(seen_by["float64 logits"])
print("count sees", len(fewer_or_more), "mistakes, causality", len(looks_ahead))

# %% [markdown]
# **Shapes** see nothing in this catalogue, which was made of mistakes that keep them. They see another kind, early and cheaply: a dimension that does not fit, an output head of the wrong width.
#
# **Counting** sees a module that is used twice, and two Parameters that should be one. It is blind to everything that a right set of parameters can be used for wrongly: order, masks, axes, constants, activations. Equal counts do not prove equal models.
#
# **Strict loading** compares names and shapes. Two names for one Parameter are no obstacle: with a shared norm, or a repeated block, the values are written twice into one place, and the last ones stay. It would see a missing layer or a layer under another name.
#
# **Statistics** see what changes the size or the offset of the numbers somewhere on the way, and a part that is not called. They are blind to a change that is smaller than their limit, and to one that gives the right values with a wrong gradient. Averages also forget *which* number stands where: a change that only exchanges values among positions or features can leave them near the right ones.
#
# **The causality probe** sees the mistakes that let a later id act on an earlier position. Some have nothing to do with the mask: a norm over the tokens; a softmax over the queries, whose sums run down a column and so through later positions; and heads that were cut or joined along the wrong axis, so that numbers of different positions meet. Besides them it sees dropout that should be silent, because the texts that it compares draw different masks. To everything else that stays causal it is blind. In return it needs no right model.
#
# **Gradients** see what passes values on and stops the gradient, and Parameters that are one too many or one too few. A cut gradient and a copied head are invisible in the logits. Gradients are blind to small changes, as the statistics are.
#
# **The greedy string** looks at the place of the largest logit and forgets the rest. A softmax keeps that place, so a model with a softmax inside writes the same text. Any mistake that is small beside the gap between the largest and the second logit can go unseen.
#
# **Logits in float32** are compared with room for rounding, and a mistake that is smaller than that room hides in it. **Logits in float64** leave far less room. What stays unseen there has the right logits: a gradient that is cut, a head that is a copy. They are the right function with the wrong training.
#
# **The loss after a few steps** sees what changes the descent, by its values or by its gradients (with dropout off, as in all these checks). A few steps on one batch are little, and a limit is needed here too, so a small mistake passes.
#
# ## Fresh weights hide mistakes
#
# A fresh LayerNorm has the scale 1 and the shift 0. What happens if the right model is left like that? Run the matrix again with no noise on the parameters (they are PyTorch's initial ones, but that both embedding tables are halved, as in the stirred model) and list the rows that change.

# %%
fresh = verdicts(measure(cfg, seed, spread=0))


def gained(name, now, before):
    """The checks that see a mistake in one matrix and not in the other."""
    new = [one for one in CHECKS if now[name][one] and not before[name][one]]
    return ", ".join(new) or "none"


# %%
changed = [name for name in MUTATIONS if fresh[name] != matrix[name]]
rows = [
    [name, gained(name, matrix, fresh), gained(name, fresh, matrix)] for name in changed
]
show_table(["mistake", "seen only when stirred", "seen only when fresh"], rows)
assert {"one norm for both", "scale and shift unused"} <= set(changed)
for name in ("one norm for both", "scale and shift unused"):
    assert matrix[name]["float64 logits"] and not fresh[name]["float64 logits"]

# %% [markdown]
# Two mistakes more leave the logits as they are when the model is fresh. Two norms that are both at 1 and 0 are one function, so it does not matter which of them is used; and a norm that leaves aside a scale of 1 and a shift of 0 leaves aside nothing. Both would show as soon as trained weights are loaded. Other rows may change as well, because the fresh model has other values. A comparison of two models is worth more when no parameter has a value, such as 1 or 0, that changes nothing when it is used.
#
# ## Equal strings
#
# To compare what two models write is tempting: the result is text, and equal text looks like proof. Which mistakes write the same text from every first id, although their logits are others?

# %%
same_text = [
    name for name in blind_to["greedy string"] if matrix[name]["float64 logits"]
]
rows = [[name, distances[name]["float64 logits"]] for name in same_text]
header = ["same text, other logits", "difference, as a share of the largest"]
show_table(header, rows, format=".0e")
assert "softmax inside" in same_text

# %% [markdown]
# And this check asked for V texts, one from each first id (each of C − 1 ids, so that positions counted from 1 still fit the table). Usually one is compared. How many of the mistakes does a single text see, with the best and with the worst choice of its first id? Dropout in eval is left out here, since it writes another text each time.

# %%
from book_utils.mutations import greedy_texts

expected = greedy_texts(right)  # [V, C - 1]
differs = []
for name in MUTATIONS:
    if name != "dropout in eval":
        texts = greedy_texts(mutate(right, name))
        differs.append((texts != expected).any(dim=1))  # [V]
differs = torch.stack(differs)  # [mistakes, V]

# %%
per_text = differs.sum(dim=0)  # [V], the mistakes that each text sees
print("of", len(differs), "mistakes")
print("all texts together see", differs.any(dim=1).sum().item())
print("one text sees from", per_text.min().item(), "to", per_text.max().item())
distinct = sum(len(text.unique()) for text in expected) / vocab_size
print(f"different ids in a text of {expected.shape[1]}, on average: {distinct:.1f}")

# %% [markdown]
# Each step uses one row of logits, and of it only the place of the largest. And the last line says how many different ids a text has: where it has run into a repetition, its rest says little more. What the numbers are for trained weights is not shown here. That an equal string is no proof holds for them as well.
#
# ## A check is as sharp as its limit
#
# The statistics and the gradients have a limit of 1 %. What would they see with another?

# %%
rows = []
for limit in (0.5, 0.1, 0.01, 0.0001):
    row = [f"{100 * limit:g} %"]
    for one in ("statistics", "gradients"):
        row.append(sum(distances[name][one] > limit for name in MUTATIONS))
    rows.append(row)
show_table(["limit", "seen by statistics", "seen by gradients"], rows)

# %% [markdown]
# With a wide limit statistics see gross mistakes only. A narrow one misses less, but it presupposes that the right numbers are known so exactly: the same weights, the same ids, a right model that has computed them. Whoever has that can compare the logits as well. Where no right model is at hand, and all one knows is that the numbers should be "about 1", only a wide limit can be had.
#
# ## The smallest set
#
# Ten checks are many. Which of them could be left out? Try every set of one check, then every set of two, and so on, until some set sees all mistakes.


# %%
def sees_all(chosen):
    """Whether every mistake is seen by at least one of the chosen checks."""
    return all(any(matrix[name][one] for one in chosen) for name in MUTATIONS)


# %%
from itertools import combinations

from book_utils.mutations import smallest_sets

for size in range(1, len(CHECKS) + 1):
    found = [chosen for chosen in combinations(CHECKS, size) if sees_all(chosen)]
    if found:
        break
for chosen in found:
    print(" + ".join(chosen))
assert found == smallest_sets(matrix)
assert size == 2 and ("gradients", "float64 logits") in found

# %% [markdown]
# No single check is enough, and two are. The logits in float64 with the gradients are one of the answers at every size tried: the first misses only what has the right logits, and the second sees that. (Where a second answer is printed, the loss after a few steps does the gradients' work; for other weights it can miss the copied head, whose first steps are nearly the right ones.) This is the practical result of the chapter: *compare values in double precision, and gradients besides*.
#
# Trying all sets is feasible for ten checks, since there are only $2^{10}$. For many it is not: this is the set-covering problem, which is NP-hard (its yes-or-no form is one of Karp's 21, 1972).
#
# The smallest set presupposes a right model with the same weights. What is left for someone who has none?

# %%
alone = [one for one in CHECKS if CHECKS[one].needs != "a right model"]
without = [name for name in MUTATIONS if any(matrix[name][one] for one in alone)]
print("checks that need no right model:", ", ".join(alone))
print(f"together they see {len(without)} of {total} mistakes")
assert set(without) == fewer_or_more | looks_ahead

# %% [markdown]
# ## What no check here can see
#
# The catalogue is finite, and so is the list of checks. Five kinds of mistake can pass all ten.
#
# **What acts in training only.** All checks run in eval mode. A second dropout at the end of the feed-forward network, on top of the one on the branch, is not active there. It is a classic as well: upstream (the code of S. Raschka's book) had such a dropout once, and took it out (pull request 105).


# %%
class DroppingFeedForward(FeedForward):
    """Wrong on purpose: the block drops on its branch already."""

    def forward(self, x):
        return F.dropout(super().forward(x), cfg.drop_rate, self.training)


# %%
dropping_twice = with_class(FeedForward, DroppingFeedForward)
still = [one for one, by in CHECKS.items() if not by(dropping_twice, right, ids)]
print("seen by:", ", ".join(still) or "none")
x = torch.ones(*ids.shape, emb_dim, dtype=torch.float64)  # [B, T, D]
for name, model in [("right", right), ("dropping twice", dropping_twice)]:
    ff = deepcopy(model.trf_blocks[0].ff).train()
    print(f"{name}: zeros in training? {bool((ff(x) == 0).any())}")
assert still == []

# %% [markdown]
# No check sees it. It takes another look, in training mode: in this book, where the block drops on the branch, a feed-forward network by itself should not return zeros.
#
# **What the reference has too.** If both models have the mistake, comparing finds no difference. Only a check that needs no right model can still see it.

# %%
rows = []
for name in ("unbiased variance", "no causal mask", "one norm for both"):
    wrong = mutate(right, name)
    still = [
        one for one, by in CHECKS.items() if not by(mutate(right, name), wrong, ids)
    ]
    rows.append([name, ", ".join(still) or "none"])
show_table(["mistake, made in both models", "seen by"], rows)
assert [row[1] for row in rows] == ["none", "causality", "count"]

# %% [markdown]
# That is why [chapter 9](09_parity.ipynb) compares with programs that other people wrote: the more independent the reference, the less likely it shares the mistake. Checks against a formula or a property, such as causality, are independent of every program.
#
# **A wrong configuration.** The number of heads is in no shape and in no count. A model with another number loads the same weights. Comparing sees it, as long as the reference was given the right number.

# %%
one_head = deepcopy(right)
for block in one_head.trf_blocks:
    block.att.num_heads, block.att.head_dim = 1, emb_dim
still = [one for one, by in CHECKS.items() if not by(one_head, right, ids)]
print(f"1 head in place of {n_heads}, seen by:\n  {', '.join(still)}")
both = [one for one, by in CHECKS.items() if not by(one_head, one_head, ids)]
print("the same in both models, seen by:", ", ".join(both) or "none")
assert "float64 logits" in still and both == []
assert not {"shapes", "count", "strict load", "causality"} & set(still)

# %% [markdown]
# **Other lengths.** The logits are compared for texts of T ids, half as long as the context, and the greedy texts end before it is full. What goes wrong at T = C only is not seen.


# %%
class RefusesAFullContext(type(right)):
    """Wrong on purpose: the limit on the length is off by one."""

    def forward(self, in_idx):
        if in_idx.shape[1] >= self.cfg.context_length:
            raise ValueError("the text is too long")
        return super().forward(in_idx)


# %%
full = with_class(type(right), RefusesAFullContext)
still = [one for one, by in CHECKS.items() if not by(full, right, ids)]
print("seen by:", ", ".join(still) or "none")
try:
    full(ids.repeat(1, 2))  # [B, C]
except ValueError as error:
    print("T = C:", error)
assert still == [] and right(ids.repeat(1, 2)).shape[1] == cfg.context_length

# %% [markdown]
# **What is outside the model.** Ids that another tokenizer made, texts cut in the wrong place, targets that are not shifted: every check here starts with ids and takes them as given.
#
# So a model that passes has none of the listed mistakes alone, on these ids and with these weights. Several at once were not tried. (That checks which see single faults also see most combinations is the *coupling* hypothesis of mutation testing, a hypothesis.) It is not thereby right.
#
# ## The final form
#
# The module [book_utils/mutations.py](../book_utils/mutations.py) holds the catalogue, the checks and the search. Its first mistake and its old shortcut should be the two classes written by hand above: the same formula, so only rounding may differ, and 1e-12 of the largest logit is far above it.

# %%
pairs = {
    "unbiased variance": by_hand["variance divided by D − 1"],
    "old shortcut": by_hand["second sum from x"],
    "copied head": by_hand["copied head"],
}
for name, model in pairs.items():
    limit = 1e-12 * logits.abs().max().item()
    torch.testing.assert_close(mutate(right, name)(ids), model(ids), rtol=0, atol=limit)
print("the same logits, for", len(pairs), "mistakes")

# %% [markdown]
# Its probe should agree with the one written above about every mistake that draws no random numbers.

# %%
for name in MUTATIONS:
    if name != "dropout in eval":
        moves = earlier_moves(mutate(right, name)) > 1e-9
        assert moves == matrix[name]["causality"]
print("the same verdicts, for", len(MUTATIONS) - 1, "mistakes")

# %% [markdown]
# A name that is not in the catalogue is refused.

# %%
try:
    mutate(right, "postnorm")
except ValueError as error:
    print(error)

# %% [markdown]
# A test of this book compares the whole matrix of the default sizes with a kept one, and fails when a listed mistake is seen by no check, or when the right model is accused. Whoever adds a mistake that nothing sees has found a blind spot, and the test says so.
#
# ## The results of this run
#
# What the checks that depend on the weights saw. Counting, strict loading, the causality probe and the logits in float64 see the same mistakes at every size and seed, as asserted above. A rerun with other parameters gives these results again, under the same names.

# %%
seen_of_all = {one: len(names) for one, names in seen_by.items()}
publish(
    [
        ("seen_by_statistics", seen_of_all["statistics"], f"of {total} mistakes"),
        ("seen_by_gradients", seen_of_all["gradients"], f"of {total}"),
        ("seen_by_greedy_texts", seen_of_all["greedy string"], f"of {total}"),
        ("seen_by_worst_text", per_text.min(), f"of {len(differs)}, one greedy text"),
        ("seen_by_float32_logits", seen_of_all["float32 logits"], f"of {total}"),
        ("seen_by_loss", seen_of_all["loss"], f"of {total}"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | All shapes fit, all weights load, and the text of a trained model is odd | A wiring mistake that changes no shape | Compare the logits with a reference, in float64. | Go stage by stage to the first that differs. |
# | The greedy text is right, the probabilities are not | A softmax inside the model, or a small difference in the logits | Compare the logits. | Return the logits, without a softmax; compare values, not texts. |
# | Two models agree when fresh and differ with trained weights | Scales of 1 and shifts of 0 hid a mistake in a LayerNorm. | Add noise to all parameters of both and compare again. | Mend the first stage that differs. |
# | Two models have equal logits and train differently | A gradient is cut, or the head is a copy of the embedding. | Compare the gradients, and count the Parameters. | No `detach` on the stream; assign the Parameter instead of its values. |
# | In float32 the logits differ by about 1e-5 of the largest | A small mistake, such as eps outside the root; rounding in a large model | Compare in float64: a mistake stays. | For a mistake, go stage by stage; for rounding, nothing. |
# | A later id moves earlier logits, although the causal mask is right | A wrong axis, in the heads, the softmax or the LayerNorm | Change a later input of each layer, and look at earlier outputs. | Cut heads with `view`, then `transpose`; normalize along the last axis. |
# | Two calls of a model in eval mode differ | Dropout that does not follow the mode | Call the model twice with the same ids. | Use `nn.Dropout`, or pass `self.training` to `F.dropout`. |
# | Every check passes, and the model is still wrong | The reference shares the mistake, or it lies in ids, tokenizer or configuration. | Compare with a second reference; look at the ids. | Check against a property, such as causality. |
#
# ## Exercises
#
# ::::{admonition} Exercise 10.1 · A probe of your own
#
# Write a check that tells whether a model looks ahead, without a right model. `model` takes ids `[B, T]` and returns logits `[B, T, V]`. Return `True` where some logit moves by more than 1e-9 although all ids up to its position stayed the same. Among the models it is tried on is one whose mask is off by one.
#
# ::::


# %% tags=["exercise"]
def looks_into_the_future(model, ids, vocab_size):
    """True or False"""
    ...  # your lines here


check("10.1", looks_into_the_future)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# for t in range(1, ids.shape[1]):
#     changed = ids.clone()
#     changed[:, t] = (changed[:, t] + 1) % vocab_size
#     if (model(changed) - model(ids))[:, :t].abs().max() > 1e-9:
#         return True
# return False
# ```
#
# It is not enough to change the last id and look at the first logit: with a mask that is off by one, and one block, the last id is seen from one position earlier and from no other. Nor is it enough to change one id only, since a leak may be anywhere.
#
# ::::
#
# ::::{admonition} Exercise 10.2 · From the fingerprint to the name
#
# A row of the matrix is the fingerprint of its mistake. Somebody has run all checks on a model and hands you the row. Return the names of all mistakes in `matrix` that have exactly this row, in the order of the matrix. `matrix` is a dictionary, name -> row, and a row is a dictionary, check -> True or False.
#
# ::::


# %% tags=["exercise"]
def suspects(matrix, row):
    """A list of names"""
    ...  # your lines here


check("10.2", suspects)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return [name for name, seen in matrix.items() if seen == row]
# ```
#
# Try it on the matrix of this chapter, `suspects(matrix, matrix["exact GELU"])`, and on a commoner row. Many mistakes share a fingerprint, so the checks tell *that* something is wrong better than *what*. To find the place, compare stage by stage.
#
# ::::
#
# ::::{admonition} Exercise 10.3 · Cover by hand
#
# Six mistakes and five checks. A sees the mistakes 1, 2, 3, 4. B sees 1, 2, 5. C sees 3, 4, 6. D sees 5 alone, E sees 6 alone. Which smallest set of checks sees all six? Write its letters in order of the alphabet, as one string such as `"ABD"`.
#
# ::::

# %% tags=["exercise"]
smallest_cover = ...  # your string here

check("10.3", smallest_cover)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# smallest_cover = "BC"
# ```
#
# B sees 1, 2, 5 and C sees 3, 4, 6. The obvious method, to take the check that sees most and then the one that sees most of what is left, begins with A and ends with three. It is quick and often good, and it is no proof of the minimum.
#
# ::::
#
# ::::{admonition} Exercise 10.4 · How small is a small mistake?
#
# With eps outside the root LayerNorm divides by √variance + eps; right is √(variance + eps). By which share is the normalized output off? Write (wrong − right) / right as a function of the variance and eps. Then try it with eps = 1e-5 and the variances 1, 0.01 and 0.0001.
#
# ::::


# %% tags=["exercise"]
def share_off(variance, eps):
    """(wrong - right) / right"""
    ...  # your line here


check("10.4", share_off)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return (variance + eps) ** 0.5 / (variance**0.5 + eps) - 1
# ```
#
# The outputs are in the inverse ratio of the divisors. For a variance near 1 the share is about −eps/2, which float32 comparisons cannot tell from rounding. For a small variance it is larger by orders of magnitude, and changes its sign. How visible a mistake is depends on the numbers that run through it, so the matrix belongs to its weights as much as to its checks.
#
# ::::
#
# ## What you have now
#
# - A way to judge checks: break a right model in one place, and see who notices. It takes a copy and one changed class.
# - For each of ten checks its blind spots with their reasons: what it averages, rounds, or never looks at.
# - A smallest set, found by trying all: logits in float64 together with gradients. And five kinds of mistake that can lie outside it.
#
# The model is built, counted, compared, and its checks are checked. What it wrote so far served as a check alone. How is a text written, and where does the loop stand? [Chapter 11](11_generation.ipynb) writes one.
#
# **Sources.** R. DeMillo, R. Lipton, F. Sayward, "Hints on Test Data Selection: Help for the Practicing Programmer", IEEE Computer 11(4), 1978 (judging tests by mutations). R. Karp, "Reducibility Among Combinatorial Problems", 1972 (set covering). J. L. Ba, J. R. Kiros, G. Hinton, "Layer Normalization", 2016, arXiv:1607.06450, equation 4. B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467. D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units (GELUs)", 2016, arXiv:1606.08415, section 2. A. Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, sections 3.1 (post-norm), 3.2.1 (the scale 1/√d) and 3.4 (the embedding times √D). A. Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, arXiv:2204.02311, section 2 (parallel layers). O. Press, L. Wolf, "Using the Output Embedding to Improve Language Models", 2017, arXiv:1608.05859. A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3; its reference code, `src/model.py` of openai/gpt-2. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, chapter 4; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code`.
