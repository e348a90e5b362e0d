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
# # 5 · Attention
#
# **What is borrowed?**
#
# At the end of this chapter you can
#
# - compute causal attention by hand on a tiny example, and say why the scores are divided by a root and where the mask acts;
# - split the features into heads and join them again, and tell a wrong rearrangement from a right one although both return the same shape;
# - say of a boolean mask what True means to the function that reads it, and show that a layer does not look ahead.
#
# You need the product of two matrices, the variance of a sum, and the shapes `[B, T, D]` of [chapter 1](01_shell.ipynb).

# %% tags=["parameters"]
emb_dim: int = 16  # D, features per position (2 to 256)
n_heads: int = 4  # H, attention heads, more than one, a divisor of D (2 to 32)
num_tokens: int = 6  # T, tokens in each text, no more than context_length (2 to 64)
batch_size: int = 2  # B, texts in the batch (1 to 8)
context_length: int = 16  # C, the longest input (2 to 1024)
seed: int = 123  # of the random examples (0 to 4294967295)

# %%
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig
from book_utils.workbench import check, check_parameters, figure, publish
from book_utils.workbench import rounded, show_table

check_parameters("05_attention", globals())

# %% [markdown]
# LayerNorm, the feed-forward network and the shortcuts of the chapters before work on each position alone. One part of GPT-2 lets positions exchange what they hold: *attention*. This book takes the idea as known and builds the rest around it, so attention is borrowed. What is borrowed should still be understood, and checked, before it is built in. The chapter goes from one head on three tokens to the whole layer.
#
# Where two ways to compute the same are compared, it is done in float64, and `assert_agree` allows a difference of 1e-12. The numbers here are well below 100, float64 carries about 16 digits, and the two ways add up the same terms in different orders.

# %%
# No ids in this chapter, so V is 1. The configuration checks that H divides D.
cfg = GPTConfig(1, context_length, emb_dim, n_heads, n_layers=1)
if num_tokens > context_length:
    raise ValueError(f"num_tokens = {num_tokens} > context_length = {context_length}")
head_dim = cfg.head_dim  # D/H
assert_agree = partial(torch.testing.assert_close, rtol=0, atol=1e-12)
torch.manual_seed(seed)
x = torch.randn(batch_size, num_tokens, emb_dim, dtype=torch.float64)  # [B, T, D]
print("x", list(x.shape), "·", n_heads, "heads of", head_dim, "features")

# %% [markdown]
# ## One head, by hand
#
# Each position's vector is mapped three times. Its *query* says what the position looks for, its *key* what it can be found by, its *value* what it hands over. The maps, also called projections, are three trained matrices, the same for every position. One such set of maps makes a *head*. Here all is small and chosen by hand: three tokens with three features each, and queries, keys and values with two. A matrix is stored `[out, in]`, as in `nn.Linear`, so it stands transposed on the right of the product.

# %%
matrix = partial(torch.tensor, dtype=torch.float64)
tokens = matrix([[1, 0, 0], [0, 1, 0], [1, 1, 1]])  # [T, d_in]
query_map = matrix([[1, 0, 1], [0, 1, 0]])  # [d, d_in]
key_map = matrix([[0, 1, 0], [1, 0, 2]])  # [d, d_in]
value_map = matrix([[2, 0, 0], [0, 2, 1]])  # [d, d_in]
queries = tokens @ query_map.T  # [T, d]
keys = tokens @ key_map.T  # [T, d]
values = tokens @ value_map.T  # [T, d]
columns = [part.int().tolist() for part in (tokens, queries, keys, values)]
rows = [[t, *(str(column[t]) for column in columns)] for t in range(3)]
show_table(["position", "features", "query", "key", "value"], rows)

# %% [markdown]
# How well does a query fit a key? Their dot product is the *score*: q·k is large where both are large in the same features. All scores at once are one product, `[T, d]` times `[d, T]`, with a row for each position that looks and a column for each that is looked at.


# %%
def show_square(square, corner):
    """A [T, T] matrix as a table: rows look, columns are looked at."""
    header = [corner, *(f"at {s}" for s in range(len(square)))]
    rows = [[f"{t} looks", *row] for t, row in enumerate(square.tolist())]
    show_table(header, rows)


# %%
scores = queries @ keys.T  # [T, T]
show_square(scores.int(), "score")

# %% [markdown]
# The table is not symmetric: position 1 scores position 2 with 3, position 2 scores position 1 with 2. Looking for something and being found by it are two maps.
#
# The scores of a row become *weights* by the *softmax*: each score is put into the exponential function, and the results are divided by their sum. So all weights are positive and sum to 1, and a score that is larger by 1 gets a weight e times as large.
#
# ## Why the scores are divided
#
# Before the softmax the scores are divided by the root of d, the number of features in a query. The reason is their size. Let the features of q and k be independent, each with mean 0 and variance 1. Each product of two of them then has mean 0 and variance 1, and a sum of d independent terms has d times the variance:
#
# $$\mathrm{Var}(q\cdot k)=\sum_{i=1}^{d}\mathrm{E}[q_i^2]\,\mathrm{E}[k_i^2]=d.$$
#
# For features that are +1 or −1 with equal chance this can be counted out, with no sampling: take every query with every key.

# %%
signs = torch.tensor([-1.0, 1.0], dtype=torch.float64)
rows = []
for d in [2, 4, 8]:
    choices = [signs] * d  # one of two signs, d times
    every = torch.cartesian_prod(*choices)  # each vector of d signs: [2^d, d]
    products = every @ every.T  # each query with each key: [2^d, 2^d]
    variance = products.square().mean().item()  # the mean is 0
    divided = (products / d**0.5).square().mean().item()
    assert products.mean() == 0 and variance == d  # whole numbers: no rounding
    rows.append([d, products.numel(), variance, divided])
show_table(["d", "pairs", "variance of q·k", "of q·k / √d"], rows, ".1f", ",")

# %% [markdown]
# The division sets the variance back to 1, whatever d is. This matters because of what the softmax does with large numbers. Take two scores that are one standard deviation apart: √d without the division, 1 with it. The slope is the derivative of the larger weight w by its own score, w (1 − w); it is what lets training move the weight.

# %%
rows = []
for d in [4, 16, 64]:
    for name, gap in [("as they are", d**0.5), ("÷ √d", 1.0)]:
        pair = torch.tensor([gap, 0.0], dtype=torch.float64)  # two scores
        w = torch.softmax(pair, dim=-1)[0].item()
        rows.append([d, name, gap, w, w * (1 - w)])
show_table(["d", "scores", "gap", "larger weight w", "slope"], rows)

# %% [markdown]
# Under this assumption a head with more features would, without the division, start out nearly decided, and with hardly any slope to change its mind. GPT-2's heads have 64 features. The argument is about the start of training: nothing says that trained queries and keys keep variance 1, and a trained head may well need sharp weights.
#
# d is the width of *one head*, D/H, not D. With the wrong root the shapes are the same and the weights are others.
#
# ## The causal mask
#
# GPT-2 learns to predict the next token. A position that could look at the tokens after it would be shown the answer. So the scores above the diagonal, those of the future, are set to −∞ *before* the softmax: e to the power −∞ is 0, and what remains is shared out among the positions that may be seen. This is the *causal mask*. Equation 1 of Vaswani et al., with the mask M written into it, is
#
# $$\begin{aligned} &\mathrm{Attention}(Q,K,V) \\ &\quad = \mathrm{softmax}\!\left(\frac{QK^{\top}}{\sqrt{d}}+M\right)V, \end{aligned}$$
#
# $$M_{ts}=\begin{cases}0 & s\le t\\ -\infty & s>t.\end{cases}$$
#
# The paper describes the mask in words, in its section 3.2.3. The code is the formula, line by line.


# %%
def attend(query, key, value, causal=True):
    """Three times [..., T, d] -> context [..., T, d] and weights [..., T, T]."""
    T, d = query.shape[-2:]
    scores = query @ key.transpose(-2, -1) / d**0.5  # [..., T, T]
    if causal:
        future = torch.ones(T, T, dtype=torch.bool).triu(1)  # True above the diagonal
        scores = scores.masked_fill(future, -torch.inf)
    weights = torch.softmax(scores, dim=-1)  # each row sums to 1: [..., T, T]
    return weights @ value, weights  # [..., T, d], [..., T, T]


# %%
context, weights = attend(queries, keys, values)
show_square(weights, "weight")

# %% [markdown]
# Position 0 sees itself alone, so its weight there is 1. Every other row is shared out between the position itself and those before it. The rows sum to 1, the columns need not.
#
# What a position gathers, its *context*, is the average of the values with these weights: weights times values, `[T, T]` times `[T, d]`. (It has nothing to do with `context_length`, the longest input.)

# %%
assert weights[0].tolist() == [1, 0, 0] and weights.triu(1).eq(0).all()
assert_agree(weights.sum(dim=-1), torch.ones(3, dtype=torch.float64))
assert_agree(context[2], sum(weights[2, s] * values[s] for s in range(3)))  # [d]
own_values = values.int().tolist()
rows = [[t, str(own_values[t]), str(rounded(context[t]))] for t in range(3)]
show_table(["position", "own value", "context"], rows)

# %% [markdown]
# Position 0 gets its own value back. The others hold a mixture: a context lies between the values it is made of, since the weights are not negative and sum to 1.
#
# Setting the future's *weights* to 0 after the softmax is another thing. The future would still have taken its share of each row, and the rows would no longer sum to 1.
#
# ## A row with nothing to see
#
# Where all scores of a row are −∞, the softmax divides 0 by 0. The causal mask never comes to that, because the diagonal stays open. One wrong argument of `triu`, which says with which diagonal the blocking begins, closes it.

# %%
rows = []
for diagonal in [1, 0]:
    blocked = torch.ones(3, 3, dtype=torch.bool).triu(diagonal)  # [T, T]
    row = torch.softmax(scores.masked_fill(blocked, -torch.inf), dim=-1)[0]  # [T]
    assert row.isnan().all() == (diagonal == 0)
    rows.append([f"triu({diagonal})", blocked[0].sum().item(), str(rounded(row))])
show_table(["mask", "blocked in row 0", "weights of row 0"], rows)

# %% [markdown]
# NaN is not confined for long: a later layer that looks at the position is NaN as well. The same happens where a second mask, one that hides filling at the start of short texts, is laid over the causal one and leaves a row with nothing.
#
# Two ways around it hide the fault instead of mending it. Some of PyTorch's *fused* functions, which do several steps in one call, return zeros for such a row. GPT-2's own code puts −10¹⁰ in place of −∞; a row in which everything is blocked then becomes an even average over all positions, the blocked ones included. Neither is a meaningful answer, so count the open positions of each row when you make a mask.
#
# ## Does it look ahead?
#
# The mask is meant to keep the future out. That can be tested on any layer, from outside: change one token and see which positions notice. Three random maps give queries, keys and values for the whole input `x`; their entries are drawn with variance 1/D, so that queries and keys are about as large as `x`.

# %%
torch.manual_seed(seed + 1)
maps = torch.randn(3, emb_dim, emb_dim, dtype=torch.float64)  # [3, D, D]
maps = maps / emb_dim**0.5
query, key, value = (x @ m.T for m in maps)  # three times [B, T, D]
print("query, key, value: each", list(query.shape))

# %%
position = num_tokens // 2
changed = x.clone()
changed[:, position] += 1  # another token at this position
rows = []
for name, causal in [("with the mask", True), ("without a mask", False)]:
    before, _ = attend(query, key, value, causal)  # [B, T, D]
    after, _ = attend(*(changed @ m.T for m in maps), causal)  # [B, T, D]
    noticed = (before != after).any(dim=-1).any(dim=0)  # [T], in any of the texts
    early, late = noticed[:position].any().item(), noticed[position:].any().item()
    assert late and early != causal
    rows.append([name, str(early), str(late)])
show_table([f"position {position} changed", "noticed before it", "from it on"], rows)

# %% [markdown]
# With the mask the positions before the change are equal bit for bit: a weight of exactly 0 times a finite number adds exactly 0. Without it they move. Keep this probe: change one token, compare the positions before it. It needs no reference, and in a finished model too it finds a mask that lets the future through: missing, reversed, or shifted that way. A mask that hides too much passes it; the row of weights at position 0, and a comparison of values, find that one.
#
# ## It does not know the order
#
# Nothing in a score says how far apart two positions are. Without a mask, reversing the tokens only reverses the results.

# %%
rows = []
for name, causal in [("without a mask", False), ("with the mask", True)]:
    forward, _ = attend(query, key, value, causal)  # [B, T, D]
    backward, _ = attend(*(x.flip(1) @ m.T for m in maps), causal)  # [B, T, D]
    only_reversed = torch.allclose(forward, backward.flip(1), rtol=0, atol=1e-12)
    assert only_reversed != causal
    rows.append([name, only_reversed])
show_table(["tokens reversed", "results only reversed"], rows)

# %% [markdown]
# The mask brings in a part of the order, namely who comes before whom; within one layer, the positions that a token may see are a set to it. GPT-2 does not leave the order to this. It adds the position embeddings of [chapter 1](01_shell.ipynb).
#
# ## What does True mean?
#
# PyTorch has the same computation as one function, `scaled_dot_product_attention`. It takes queries, keys and values, and divides by √d by itself. With `is_causal=True` it makes its own mask.
#
# The function can also be given a mask. Then care is needed, because two conventions are in use, and they are opposite:
#
# | Where the boolean mask goes | True means |
# |---|---|
# | `scores.masked_fill(mask, -inf)` | blocked |
# | `nn.MultiheadAttention`: `attn_mask`, `key_padding_mask` | blocked |
# | `F.scaled_dot_product_attention`: `attn_mask` | may be looked at |
#
# A mask of the wrong sense is accepted without a word, since its shape and type are right. The cell tries the function's own mask and both senses of ours.

# %%
context, _ = attend(query, key, value)  # [B, T, D]
future = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)  # True = blocked
ways = {
    "is_causal=True": {"is_causal": True},
    "attn_mask=~future": {"attn_mask": ~future},
    "attn_mask=future": {"attn_mask": future},
}

# %%
rows = []
for name, options in ways.items():
    result = F.scaled_dot_product_attention(query, key, value, **options)  # [B, T, D]
    as_by_hand = torch.allclose(result, context, rtol=0, atol=1e-12)
    own_value = torch.allclose(result[:, 0], value[:, 0], rtol=0, atol=1e-12)
    rows.append([name, str(list(result.shape)), as_by_hand, own_value])
assert [row[2:] for row in rows] == [[True, True], [True, True], [False, False]]
show_table(["option", "shape", "as by hand", "own value at position 0"], rows)

# %% [markdown]
# The first two agree with the chapter's own `attend`. With the mask turned over, position 0 looks at the future alone, and the last position at nothing. The quickest test is at position 0: under a causal mask it must get its own value, whatever the maps are.
#
# ## Several heads
#
# One head gives each position one set of weights. To look for several things at once, the D features of queries, keys and values are cut into H *heads* of D/H features, and each head attends on its own: from `[B, T, D]` to `[B, H, T, D/H]`. With the heads as an axis of the batch, `attend` treats them all in one call.
#
# The cut takes two steps, and both are needed: `view` splits the last axis into `[H, D/H]`, `transpose` brings the heads in front of the tokens. A `view` straight to the wanted shape runs as well, and does something else. To see what it does, number the features: 21 is feature 1 of token 2.

# %%
numbered = 10 * torch.arange(3)[:, None] + torch.arange(4)  # T = 3, D = 4: [T, D]
right = numbered.view(3, 2, 2).transpose(0, 1)  # [T, H, D/H] -> [H, T, D/H]
wrong = numbered.view(2, 3, 2)  # [H, T, D/H] by shape alone
assert right.shape == wrong.shape and not torch.equal(right, wrong)
rows = []
for name, heads in [("view, transpose", right), ("view alone", wrong)]:
    for number, head in enumerate(heads.tolist()):
        rows.append([name, number, *map(str, head)])
show_table(["split", "head", "row 0", "row 1", "row 2"], rows)

# %% [markdown]
# In the right split head 0 holds features 0 and 1 of every token. With `view` alone it holds all features of token 0 and half of token 1: the tokens are torn apart, and nothing complains. So the heads are split by the two steps.


# %%
def split_heads(x, n_heads=n_heads):
    """[B, T, D] -> [B, H, T, D/H]"""
    B, T, D = x.shape
    x = x.view(B, T, n_heads, D // n_heads)  # [B, T, H, D/H]
    return x.transpose(1, 2)  # [B, H, T, D/H]


# %% [markdown]
# What is a head, seen from the maps? D/H rows of each. If the heads really work apart from each other, each can be computed alone, from its own rows.

# %%
context, weights = attend(split_heads(query), split_heads(key), split_heads(value))
print("context", list(context.shape), "· weights", list(weights.shape))
for head in range(n_heads):
    own = slice(head * head_dim, (head + 1) * head_dim)  # rows of the maps
    alone, _ = attend(*(x @ m[own].T for m in maps))  # [B, T, D/H]
    assert_agree(context[:, head], alone)
print(n_heads, "heads in one call equal", n_heads, "heads one by one")

# %% [markdown]
# Afterwards the heads are put side by side again, `[B, H, T, D/H]` back to `[B, T, D]`, by the same two steps in reverse. Leaving out the transpose gives the right shape and wrong values. The probe from above sees it too: change the last token, and look at the positions before it.


# %%
def merge_heads(context):
    """[B, H, T, D/H] -> [B, T, D]"""
    B, H, T, d = context.shape
    return context.transpose(1, 2).reshape(B, T, H * d)  # [B, T, H, D/H] -> [B, T, D]


def not_transposed(context):
    B, H, T, d = context.shape
    return context.reshape(B, T, H * d)  # [B, T, D] by shape alone


# %%
merged = merge_heads(context)  # [B, T, D]
assert not_transposed(context).shape == merged.shape
changed = x.clone()
changed[:, -1] += 1  # another last token
context_changed, _ = attend(*(split_heads(changed @ m.T) for m in maps))
rows = []
for merge in [merge_heads, not_transposed]:
    before, after = merge(context), merge(context_changed)  # [B, T, D]
    right = torch.equal(before, merged)
    ahead = (before != after)[:, :-1].any().item()
    assert right != ahead and right == (merge is merge_heads)
    rows.append([merge.__name__, str(list(before.shape)), right, ahead])
show_table(["function", "shape", "the right values", "looks ahead"], rows)

# %% [markdown]
# Without the transpose, what stands at a position comes from several positions, at the first one from later ones too, and no mask inside the heads can prevent it. `reshape` is used, and not `view`, because after a transpose the numbers of one position no longer lie side by side in memory: `reshape` copies them, `view` would refuse.
#
# ## Three projections or one
#
# The three maps read the same `x`. Stacked on top of each other along the *output* axis they are one matrix `[3D, D]`, and one product gives queries, keys and values side by side, `[B, T, 3D]`. This is the *fused projection*. GPT-2's files hold it so, under the name `c_attn`.

# %%
qkv_weight = torch.cat(list(maps), dim=0)  # [3D, D]
together = x @ qkv_weight.T  # [B, T, 3D]
parts = together.chunk(3, dim=-1)  # three times [B, T, D]
for part, alone in zip(parts, (query, key, value), strict=True):
    assert_agree(part, alone)
print("one product", list(together.shape), "equals three", list(query.shape))

# %% [markdown]
# Both directions are used: to load three projections into one they are joined along the output axis, and to compare one with three it is split there. Which axis is that? In `nn.Linear` the weight is `[out, in]`, so it is axis 0. GPT-2's files store `[in, out]`, after an axis of length 1 ([chapter 3](03_feed_forward.ipynb)), so it is the last.

# %%
stored = qkv_weight.T  # as in GPT-2's files: [D, 3D]
from_linear = qkv_weight.chunk(3, dim=0)  # three times [out, in]
from_file = stored.chunk(3, dim=-1)  # three times [in, out]
for a, b, m in zip(from_linear, from_file, maps, strict=True):
    assert torch.equal(a, m) and torch.equal(b.T, m)
rows = [["as in nn.Linear", str(list(qkv_weight.shape)), "axis 0", "three maps"]]
rows.append(["as in GPT-2's files", str(list(stored.shape)), "last axis", "their .T"])
show_table(["weight", "shape", "split along", "gives"], rows)

# %% [markdown]
# The split into three and the split into heads can be one `view`. The order of the axes in it is a convention about where each row of the weight belongs. Some models keep the three parts of each *head* together instead. Weights of one convention load into the other without an error.

# %%
B, T = x.shape[:2]
split_qkv = together.view(B, T, 3, n_heads, head_dim)  # [B, T, 3, H, D/H]
split_qkv = split_qkv.permute(2, 0, 3, 1, 4)  # [3, B, H, T, D/H]
by_head = together.view(B, T, n_heads, 3, head_dim)  # [B, T, H, 3, D/H]
by_head = by_head.permute(3, 0, 2, 1, 4)  # [3, B, H, T, D/H]
for part, alone in zip(split_qkv, (query, key, value), strict=True):
    assert_agree(part, split_heads(alone))
assert by_head.shape == split_qkv.shape and not torch.allclose(by_head, split_qkv)
rows = [["[3, H, D/H], as in GPT-2", str(list(split_qkv.shape)), "the right ones"]]
rows.append(["[H, 3, D/H], head by head", str(list(by_head.shape)), "others"])
show_table(["view of the last axis", "then permuted to", "values"], rows)

# %% [markdown]
# ## The output projection
#
# After merging, each feature comes from one head alone. A last matrix `[D, D]`, the *output projection*, mixes them. Multiplying the heads side by side by one matrix is the same as giving each head D/H columns of it and adding up what they contribute.

# %%
torch.manual_seed(seed + 2)
mix = torch.randn(emb_dim, emb_dim, dtype=torch.float64) / emb_dim**0.5  # [D, D]
columns = mix.split(head_dim, dim=1)  # H times [D, D/H]
by_heads = [context[:, head] @ columns[head].T for head in range(n_heads)]  # [B, T, D]
assert_agree(merged @ mix.T, sum(by_heads))
print("the projection of the heads side by side is the sum of their contributions")

# %% [markdown]
# So the layer's result is a sum over the heads, and each head has its own way of writing into the D features.
#
# ## The whole layer
#
# All steps are there; together they are *multi-head attention*. The class has three projections with the names of upstream (the code of S. Raschka's book), an output projection with a bias, dropout on the weights, and the mask. `d_in` and `d_out` may differ; in GPT-2 both are D. GPT-2's query, key and value have a bias as well, which `qkv_bias=True` adds; the small model of this book goes without. The mask is made once, for the longest input, and cut to the T tokens at hand. Filled with the maps from above, the layer should give what the steps gave.


# %%
class PlainMultiHeadAttention(nn.Module):
    """Causal multi-head attention, step by step: [B, T, d_in] -> [B, T, d_out]."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        if d_out % num_heads:
            raise ValueError(f"{num_heads} heads do not divide d_out = {d_out} evenly")
        self.num_heads = num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        mask = torch.ones(context_length, context_length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask)  # [C, C], True = blocked

    def attention_weights(self, x):
        """[B, T, d_in] -> [B, H, T, T]"""
        T, C = x.shape[1], len(self.mask)
        if T > C:
            raise ValueError(f"{T} tokens, more than context_length = {C}")
        query = split_heads(self.W_query(x), self.num_heads)  # [B, H, T, d_out/H]
        key = split_heads(self.W_key(x), self.num_heads)  # [B, H, T, d_out/H]
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5  # [B, H, T, T]
        scores = scores.masked_fill(self.mask[:T, :T], -torch.inf)
        return torch.softmax(scores, dim=-1)

    def forward(self, x):
        weights = self.dropout(self.attention_weights(x))  # [B, H, T, T]
        value = split_heads(self.W_value(x), self.num_heads)  # [B, H, T, d_out/H]
        return self.out_proj(merge_heads(weights @ value))  # [B, T, d_out]


# %%
torch.manual_seed(seed)
sizes = {"context_length": context_length, "num_heads": n_heads}
layer = PlainMultiHeadAttention(emb_dim, emb_dim, dropout=0.5, **sizes).double().eval()
with torch.no_grad():
    for name, m in zip(["W_query", "W_key", "W_value"], maps, strict=True):
        layer.get_submodule(name).weight.copy_(m)
    layer.out_proj.weight.copy_(mix)
assert_agree(layer(x), merged @ mix.T + layer.out_proj.bias)
print(list(x.shape), "->", list(layer(x).shape), "· equal to the steps above")

# %% [markdown]
# How many parameters is that, and does the number of heads matter? A head is a share of the rows, so it should not.

# %%
rows = []
for heads in [1, n_heads]:
    other = PlainMultiHeadAttention(emb_dim, emb_dim, context_length, 0.0, heads)
    count = sum(p.numel() for p in other.parameters())
    assert count == 4 * emb_dim**2 + emb_dim
    rows.append([heads, emb_dim // heads, count])
show_table(["heads", "features per head", "parameters"], rows, int_format=",")

# %% [markdown]
# Four matrices `[D, D]` and one bias of length D: 4D² + D, for any number of heads. [Chapter 8](08_counting.ipynb) counts the whole model this way.
#
# The figure shows the weights of the first head for the first text. Its maps were drawn at random, so it shows what the mask does and nothing that was learned.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
head_weights = layer.attention_weights(x)[0, 0].detach()  # [T, T]
last = head_weights[-1]  # [T]
hidden = num_tokens * (num_tokens - 1) // 2
with figure(
    "attention_weights",
    alt=f"A square of {num_tokens} by {num_tokens} cells, darker where the weight is larger; all above the diagonal is hatched.",
    words=[
        f"Each of the {num_tokens} rows is a position that looks; each column is a position that is looked at.",
        f"All cells above the diagonal, {hidden} in number, are hatched: they lie in the future, and their weight is exactly 0.",
        f"Row 0 has one open cell, position 0 itself, with weight {head_weights[0, 0].item():.2f}.",
        "The open cells of each row sum to 1: the more positions may be seen, the less there is for each on average.",
        f"In the last row, to two decimals, the largest weight is {last.max().item():.2f}, on position {last.argmax().item()}, "
        f"and the smallest is {last.min().item():.2f}, on position {last.argmin().item()}.",
    ],
    data={"weights": head_weights},
    size=(5.4, 4.6),
) as ax:
    ax.grid(False)
    edges = [t - 0.5 for t in range(num_tokens + 1)]
    shown = head_weights.masked_fill(future, torch.nan).numpy()
    cells = ax.pcolormesh(
        edges,
        edges,
        shown,
        cmap="Greys",
        vmin=0,
        vmax=1,
        edgecolor="#999999",
        linewidth=0.5 if num_tokens <= 16 else 0,
    )
    for t in range(num_tokens):
        right_of = [t + 0.5, num_tokens - 0.5]
        ax.fill_between(
            right_of,
            t - 0.5,
            t + 0.5,
            facecolor="none",
            edgecolor="#bbbbbb",
            hatch="///",
            linewidth=0,
        )
        for s in range(t + 1 if num_tokens <= 8 else 0):
            weight = head_weights[t, s].item()
            ax.text(
                s,
                t,
                f"{weight:.2f}",
                ha="center",
                va="center",
                color="white" if weight > 0.5 else "black",
            )
    step = -(-num_tokens // 8)
    ax.set(
        xlabel="position that is looked at",
        ylabel="position that looks",
        aspect="equal",
    )
    ax.set(xticks=range(0, num_tokens, step), yticks=range(0, num_tokens, step))
    ax.set_ylim(num_tokens - 0.5, -0.5)
    ax.figure.colorbar(
        cells,
        ax=ax,
        label="weight (no unit)",
        shrink=0.9,
        values=[0.05 + 0.1 * i for i in range(10)],
    )

# %% [markdown]
# The grey can be read row by row, as what one position does. It is tempting to read it as an explanation of a model's answer. The weights say how much of each *value* goes in; what the values hold, and what the later layers make of it, they do not say.
#
# ## Dropout on the weights
#
# In training, dropout sets some attention weights to 0 at random and divides the rest by 1 − p, so that each weight keeps its mean. It acts after the softmax, so a row does not, in general, sum to 1 while training. In evaluation it does nothing. The two modes must follow `train()` and `eval()` each time, back and forth; the layer has p = 0.5.


# %%
def varies():
    """Whether any of 20 further calls differs from the first."""
    first = layer(x[:1])  # [1, T, D]
    return any(not torch.equal(layer(x[:1]), first) for _ in range(20))


# %%
rows = []
for mode in ["eval", "train", "eval", "train"]:
    layer.train(mode == "train")
    differ = varies()
    assert differ == (mode == "train")
    rows.append([f"{mode}()", differ])
layer.eval()
show_table(["after", "repeated calls differ"], rows)

# %% [markdown]
# And what dropout leaves should be twice as large, since 1 / (1 − 0.5) is exactly 2.

# %%
dropped = F.dropout(weights, p=0.5)
assert ((dropped == 0) | (dropped == 2 * weights)).all()
print("each weight became 0 or twice itself")

# %% [markdown]
# No draw is printed, on purpose: which weights are dropped at a given seed depends on the system, and your numbers would differ from the page. `F.scaled_dot_product_attention` takes the rate as an argument and knows nothing of the mode, so a layer that uses it has to pass 0 in evaluation.
#
# ## The mask is a constant
#
# The layer holds the mask as a *buffer*: a tensor that belongs to the layer and is not trained.

# %%
rows = [[name, "parameter", str(list(p.shape))] for name, p in layer.named_parameters()]
rows += [[name, "buffer", str(list(b.shape))] for name, b in layer.named_buffers()]
assert rows[-1][:2] == ["mask", "buffer"] and not layer.mask.requires_grad
show_table(["name", "kind", "shape"], rows)

# %% [markdown]
# What is the use of registering it? A buffer moves with the layer, a plain attribute stays where it was made. The meta device of [chapter 1](01_shell.ipynb), which holds shapes and no numbers, shows this on any computer; on a GPU the second layer would end in an error about two devices.


# %%
class Forgetful(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.mask = mask  # [C, C], a plain attribute


registered = PlainMultiHeadAttention(emb_dim, emb_dim, dropout=0.0, **sizes)
forgetful = Forgetful(registered.mask)
for name, module in [("buffer", registered), ("plain attribute", forgetful)]:
    print(f"{name}: after .to('meta') the mask is on {module.to('meta').mask.device}")
assert registered.mask.is_meta and not forgetful.mask.is_meta

# %% [markdown]
# No parameter, and still memory: C × C entries in every layer. They are not counted when parameters are, and they are there. The last column is for 12 layers, as GPT-2 small has them.

# %%
rows = []
for C in sorted({context_length, 1024}):
    for dtype in [torch.bool, torch.float32]:
        size = torch.ones(1, dtype=dtype).nbytes * C * C  # in bytes
        rows.append([C, str(dtype), size, 12 * size])
show_table(["C", "type", "bytes a layer", "in 12 layers"], rows, int_format=",")

# %% [markdown]
# `context_length` is a capacity and nothing more. The T tokens at hand decide what is computed; a layer with room for more gives the same result. Only the mask has another size. It is part of the layer's *state dict*, the dictionary of its parameters and buffers by name, from which a layer is saved and loaded, and there it stands in the way.

# %%
longer = sizes | {"context_length": 2 * context_length}
roomy = PlainMultiHeadAttention(emb_dim, emb_dim, dropout=0.0, **longer).double()
try:
    roomy.load_state_dict(layer.state_dict())
except RuntimeError as error:
    assert "mask" in str(error)
    print("with the mask: refused, because of its size")
parameters = dict(layer.named_parameters())
missing = roomy.load_state_dict(parameters, strict=False).missing_keys
assert missing == ["mask"] and torch.equal(layer(x), roomy(x))
C = context_length
print(f"without it: loaded, and C = {C} and C = {2 * C} give the same result")

# %% [markdown]
# ## The final form
#
# The module [book_utils/attention.py](../book_utils/attention.py) holds `MultiHeadAttention`, which computes the same with one fused projection `qkv` and PyTorch's own function. It keeps no mask: `is_causal=True` says all there is to say, as long as there are as many queries as keys. The plain class has upstream's names, so its state dict is one of upstream's kind, mask included. It should load as it is, and the two should agree.

# %%
from book_utils import MultiHeadAttention

final = MultiHeadAttention(emb_dim, emb_dim, dropout=0.5, **sizes).double().eval()
final.load_state_dict(layer.state_dict())
assert torch.equal(final.qkv.weight, qkv_weight)
assert_agree(layer(x), final(x))
print("the plain class and book_utils.MultiHeadAttention agree to 1e-12")

# %%
loaded, kept = layer.state_dict(), final.state_dict()
rows = []
for name in loaded | kept:
    shapes = [list(d[name].shape) if name in d else "–" for d in (loaded, kept)]
    rows.append([name, *map(str, shapes)])
show_table(["tensor", "as loaded", "as kept"], rows)

# %% [markdown]
# On loading, the three weights were joined along the output axis and the mask was left out. Nothing else was renamed.
#
# PyTorch's own layer, `nn.MultiheadAttention`, is a reference from outside. Its `in_proj_weight` has the same fused layout. Two things need care. It takes its mask in the blocking sense. And its `bias` argument switches the bias of both projections, so the one that this layer lacks is set to 0.

# %%
reference = nn.MultiheadAttention(emb_dim, n_heads, batch_first=True).double()
state = {"in_proj_weight": final.qkv.weight, "in_proj_bias": torch.zeros(3 * emb_dim)}
state |= {f"out_proj.{name}": p for name, p in final.out_proj.named_parameters()}
reference.load_state_dict(state)
output, its_weights = reference(x, x, x, attn_mask=future, average_attn_weights=False)
assert_agree(final(x), output)  # [B, T, D]
assert_agree(layer.attention_weights(x), its_weights)  # [B, H, T, T]
print("torch.nn.MultiheadAttention agrees, in its output and its weights")
turned_over, _ = reference(x, x, x, attn_mask=~future)
assert not torch.allclose(turned_over[:, 0], output[:, 0])
print("with its mask turned over it does not, and raises nothing")

# %% [markdown]
# The widths `d_in` and `d_out` may differ. Here they do, and the projections have biases, which are joined like the weights. Two things are refused: a `d_out` that the heads do not divide, when the layer is built, and an input that is too long, when it is called. Each message names the numbers.

# %%
options = sizes | {"dropout": 0.0, "qkv_bias": True}
plain = PlainMultiHeadAttention(emb_dim + 3, emb_dim, **options).double()
other = MultiHeadAttention(emb_dim + 3, emb_dim, **options).double()
other.load_state_dict(plain.state_dict())
wide = F.pad(x, (0, 3), value=1.0)  # [B, T, D + 3]
assert_agree(plain(wide), other(wide))
widths = f"d_in = {emb_dim + 3}, d_out = {emb_dim}, with biases"
print(f"{widths}: {list(wide.shape)} -> {list(other(wide).shape)}")

# %%
too_long = torch.zeros(1, context_length + 1, emb_dim).double()  # [1, C + 1, D]
attempts = [lambda: MultiHeadAttention(8, 7, 4, 0.0, 2), lambda: final(too_long)]
messages = []
for attempt in attempts:
    try:
        attempt()
    except ValueError as error:
        messages.append(str(error))
show_table(["refused with the message"], [[message] for message in messages])
assert len(messages) == len(attempts)

# %% [markdown]
# ## The results of this run
#
# What the layer costs, and how sharp its weights are: the largest of each row, on average over texts, heads and rows, with the scores divided by √(D/H) and without. A rerun with other parameters gives these results again, under the same names. The maps are random, so the weights say nothing of a trained layer.

# %%
divided = layer.attention_weights(x)  # [B, H, T, T]
heads = map(split_heads, (query * head_dim**0.5, key, value))
_, undivided = attend(*heads)  # [B, H, T, T]
sharp, sharper = (w.amax(dim=-1).mean() for w in (divided, undivided))

# %%
publish(
    [
        ("parameters", sum(p.numel() for p in layer.parameters()), "4D² + D"),
        ("head_width", head_dim, "features of one head, D/H"),
        ("mask_bytes", layer.mask.nbytes, "of the mask of one layer, C × C"),
        ("open_pairs", (~future).sum(), "pairs of positions left open, T (T + 1) / 2"),
        ("largest_weight", sharp, "of a row, on average, scores ÷ √(D/H)"),
        ("largest_undivided", sharper, "the same, scores as they are"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | Attention returns NaN from the first call on | The mask blocks a row completely, so the softmax divides 0 by 0. | Count the open positions in each row of the mask. | Keep the diagonal open: `triu(diagonal=1)`. |
# | The training loss falls far too well, and generated text is poor | The causal mask is missing or turned over. | Change a later token and compare the results at earlier positions: they must stay. | Find out whether True blocks or allows in the function at hand. |
# | Position 0 does not get its own value under a causal mask | The mask is turned over or shifted. | Compare what attention gathers at position 0 with the value there. | Turn the mask over (`~mask`), or take the right diagonal. |
# | The attention weights of a row sum to less than 1 | Weights of the future were set to 0 after the softmax. | Sum the rows in eval mode. (In train mode dropout changes the sums too.) | Set the scores to −∞ before the softmax. |
# | The attention weights sum to 1 down the columns and not along the rows | The softmax runs along the wrong axis. | Sum along both axes. | `softmax(dim=-1)` |
# | Attention has the right shape and other values than a reference | The heads were not transposed, the scores were divided by the root of D and not of D/H, or query, key and value stand in another order. | Compare stage by stage: projections, weights, what is gathered, output. | `view`, then `transpose`; the width of one head; the reference's order. |
# | `view size is not compatible` when the heads are merged | After `transpose` the numbers no longer lie side by side in memory. | `is_contiguous()` | `reshape` |
# | In a fresh attention layer one position takes nearly all the weight | The scores are not divided. | Print the largest weight of each row. | Divide the scores by the root of the head's width. |
# | Two calls in eval mode differ | A dropout rate is passed to the attention function in evaluation too. | Call twice with the same input. | Pass 0 unless `self.training`. |
# | An error about two devices inside attention | The mask is a plain attribute and was left behind. | Look for it in `named_buffers()`. | `register_buffer` |
# | A state dict is refused because of `mask` | It was saved with another `context_length`. | Compare the shapes of the two masks. | Leave the mask out of the state dict. |
# | Long inputs end in an error about shapes at the mask | The input has more than `context_length` tokens. | Print T. | Check T first; shorten the input. |
# | With kept keys and values ([chapter 12](12_kv_cache.ipynb)), a single new query sees only the first key | `is_causal=True` with fewer queries than keys counts from the upper left corner. | Compare with a mask made by hand. | Give a mask of your own, or none for a single query. |
#
# ## Exercises
#
# ::::{admonition} Exercise 5.1 · From scores to weights
#
# Given scores `[..., T, T]` that are divided already, return the causal attention weights. The check tries one head, several heads, and a single token.
#
# ::::


# %% tags=["exercise"]
def causal_weights(scores):
    """[..., T, T] -> [..., T, T]"""
    ...  # your lines here


check("5.1", causal_weights)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# T = scores.shape[-1]
# future = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
# return torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)
# ```
#
# The mask has no batch and no head axis; `masked_fill` repeats it along them. `masked_fill` without the underscore leaves the scores of the caller alone.
#
# ::::
#
# ::::{admonition} Exercise 5.2 · Side by side again
#
# Put the heads of a context side by side, without looking at `merge_heads`. The heads stay in their order: the first D/H features of a position come from head 0.
#
# ::::


# %% tags=["exercise"]
def side_by_side(context):
    """[B, H, T, D/H] -> [B, T, D]"""
    ...  # your lines here


check("5.2", side_by_side)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# B, H, T, d = context.shape
# return context.transpose(1, 2).reshape(B, T, H * d)
# ```
#
# The token axis must stand before the head axis when the last two are joined. Every other order that ends in `reshape(B, T, H * d)` has the right shape too.
#
# ::::
#
# ::::{admonition} Exercise 5.3 · All of it, from one projection
#
# Write causal multi-head attention up to the merged context, without the output projection and without dropout. `qkv_weight` is `[3D, D]`: query, key and value in this order along the output axis. Use what you like, PyTorch's function included.
#
# ::::


# %% tags=["exercise"]
def attention_context(x, qkv_weight, num_heads):
    """[B, T, D] -> [B, T, D]"""
    ...  # your lines here


check("5.3", attention_context)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# B, T, D = x.shape
# qkv = (x @ qkv_weight.T).view(B, T, 3, num_heads, D // num_heads)
# query, key, value = qkv.permute(2, 0, 3, 1, 4)
# context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
# return context.transpose(1, 2).reshape(B, T, D)
# ```
#
# One `view` splits the last axis into three parts, and each part into heads; `permute` brings the three to the front, and the heads before the tokens. `F.scaled_dot_product_attention` divides by the root of the head's width by itself.
#
# ::::
#
# ::::{admonition} Exercise 5.4 · What the masks weigh
#
# A model with `n_layers` layers keeps a `context_length` × `context_length` mask in each of them, with `bytes_per_entry` bytes for an entry. How many bytes is that? Does doubling the context double it?
#
# ::::


# %% tags=["exercise"]
def mask_bytes(context_length, n_layers, bytes_per_entry):
    """The bytes of all masks together."""
    ...  # your line here


check("5.4", mask_bytes)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return n_layers * context_length**2 * bytes_per_entry
# ```
#
# Doubling the context makes it four times as much. The mask is triangular, but it is stored as a full square. All layers hold the same constant, so one mask for the model would do, and a function that knows the rule needs none.
#
# ::::
#
# ## What you have now
#
# - Causal attention from queries, keys and values: scores, the division by the root of the head's width, −∞ in the future, weights, context.
# - Heads as rows of the projections, the two steps that split and merge them, and checks that see through a right shape.
# - The two senses of a boolean mask, and a probe that shows from outside whether a layer looks ahead.
#
# All parts of a block are there: two norms, attention, the feed-forward network, two shortcuts. [In what order do they work?](06_transformer_block.ipynb)
#
# **Sources.** A. Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, equation 1 and section 3.2: 3.2.1 for the scaling, with the variance in a footnote, 3.2.2 for the heads, 3.2.3 for the mask. A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; its reference code, `src/model.py` of openai/gpt-2, function `attn`. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, chapter 3; its code, rasbt/LLMs-from-scratch, `ch03/01_main-chapter-code/ch03.ipynb`. PyTorch's documentation of `torch.nn.functional.scaled_dot_product_attention` and `torch.nn.MultiheadAttention`.
