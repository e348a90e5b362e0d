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
# # 12 · The key-value cache
#
# **What may a cache reuse, and what may it not?**
#
# At the end of this chapter you can
#
# - say which results of one step stay right in the next, and why keys and values are kept, but neither queries nor logits;
# - write a cache with the right positions and the right mask for chunks of any length, and recognise the slips that raise no error;
# - give a cache's size in bytes and its gain in positions and operations, and say why a window that moves loses that gain, and what absolute positions have to do with it.
#
# You need the loop of [chapter 11](11_generation.ipynb), the model of [chapter 7](07_gpt_model.ipynb), and attention with its masks from [chapter 5](05_attention.ipynb).

# %% tags=["parameters"]
vocab_size: int = 16  # V, number of token ids (2 to 1024)
context_length: int = 16  # C, the longest input in tokens (8 to 64)
emb_dim: int = 16  # D, features per position (4 to 64)
n_heads: int = 4  # H, attention heads; they divide emb_dim (1 to 16)
n_layers: int = 2  # L, transformer blocks (2 to 12)
batch_size: int = 2  # B, texts in the batch (1 to 4)
num_tokens: int = 6  # T, tokens of the prompt, at most context_length - 3 (2 to 61)
seed: int = 123  # of the random weights and ids (0 to 4294967295)
timing: bool = False  # also measure times, which differ from run to run

# %%
from copy import deepcopy
from dataclasses import replace

import torch
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel, KVCache, generate, get_config
from book_utils.parity import stir
from book_utils.workbench import check, check_parameters, figure, publish, show_table

check_parameters("12_kv_cache", globals())
if num_tokens > context_length - 3:
    raise ValueError(f"{num_tokens = } leaves less than 3 of {context_length = }")
torch.set_num_threads(1)  # a model this small gains nothing from more

# %% [markdown]
# The model of this chapter has random weights. `stir` (from [chapter 9](09_parity.ipynb)) moves every parameter a little, so that no scale is 1 and no shift is 0. Nothing is trained here, so no parameter asks for a gradient.

# %%
V, C, D, H, L = vocab_size, context_length, emb_dim, n_heads, n_layers
B, T = batch_size, num_tokens
cfg = GPTConfig(V, C, D, H, L)  # else as by default: no dropout, no QKV bias, untied


def build(cfg):
    """A stirred model in float64 and eval mode; its parameters ask for no gradients."""
    torch.manual_seed(seed)
    return stir(GPTModel(cfg).double(), seed).eval().requires_grad_(False)


# %% [markdown]
# The loop of chapter 11 gives the model all ids so far, reads the logits at the last position, appends one id, and begins again with one id more. A text of random ids stands for what it has written: which ids they are does not matter here, but one text must not be the same id all along. The *prompt* is its beginning.

# %%
model = build(cfg)
text = torch.randint(V, (B, C))  # [B, C], as many ids as the window holds
text[:, 1] = (text[:, 0] + 1) % V  # so two of them differ, whatever was drawn
prompt = text[:, :T]  # [B, T]
print("text", list(text.shape), "· prompt", list(prompt.shape))

# %% [markdown]
# ## What is computed twice
#
# Take two consecutive steps: one on the T ids of the prompt, the next on T + 1. In every layer `qkv` makes a query, a key and a value of each position. A hook ([chapter 1](01_shell.ipynb)) keeps them.


# %%
def projections(model, ids):
    """What `qkv` gives in each layer: L tensors [B, T, 3D]."""
    kept = []
    hooks = [
        block.att.qkv.register_forward_hook(lambda _layer, _args, y: kept.append(y))
        for block in model.trf_blocks
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    return kept


# %% [markdown]
# Two ways to the same number round in different orders. In float64 that touches the last digits alone, and a real difference is many orders larger. The limit between the two is 1e-10 throughout this chapter.


# %%
def difference(a, b):
    """The largest difference, or a remark where it is no more than rounding."""
    largest = (a - b).abs().max().item()
    return "below 1e-10" if largest < 1e-10 else largest


# %% [markdown]
# How much of the first step does the second compute again? For contrast a third run has another id at the very start.

# %%
longer = text[:, : T + 1]  # [B, T + 1]
other = prompt.clone()
other[:, 0] = (prompt[:, 0] + 1) % V
rows = []
runs = [projections(model, ids) for ids in (prompt, longer, other)]
for number, (first, second, third) in enumerate(zip(*runs, strict=True), 1):
    after_start = difference(first[:, 1:], third[:, 1:])
    rows.append([number, difference(first, second[:, :T]), after_start])
show_table(["layer", "one id more at the end", "another id at the start"], rows)
assert all(row[1] == "below 1e-10" for row in rows)
assert [row[2] == "below 1e-10" for row in rows] == [True] + [False] * (L - 1)
assert difference(model(prompt), model(longer)[:, :T]) == "below 1e-10"

# %% [markdown]
# The first column says that nothing at the T old positions has changed, in any layer. It is causality once more: no position depends on a later id ([chapter 7](07_gpt_model.ipynb) shows it for the logits). So of the T + 1 queries, keys and values only those of the new position are new.
#
# The second column looks at the positions *after* the replaced id. In layer 1 they are the same, because the first keys and values depend on nothing but a position's own id and place. From layer 2 on they differ: what enters there has been through attention and has seen the start. That will matter at the end of the window.
#
# Which of the old results does the new position need? Its own vector passes through embeddings, norms and the feed-forward network, which treat each position alone. The only place where it meets the others is attention,
#
# $$\mathrm{softmax}\!\left(\frac{q_t K^\top}{\sqrt{D/H}}\right) V,$$
#
# written for one head. It takes the query of position t alone, and the keys and values of the positions 0 to t, as the rows of K and V (here V is the matrix of values). That answers what to keep. **Keys and values** of every layer are asked for again by each later position. An old **query** served its own position, whose context is finished; nobody asks for it again. The old **logits** stay right too, but the loop reads those of the last position only, so keeping them saves nothing. (One could keep the vectors before `qkv`, D numbers in place of 2D, but would have to project all of them again at each step.)
#
# ## A plain cache
#
# Keys and values that are kept from step to step are a *key-value cache*. The plainest one is a list with two tensors for each layer, at first with no tokens in them.


# %%
def empty_cache():
    """For each layer the keys and values of no tokens: twice [B, H, 0, D/H]."""
    nothing = torch.empty(B, H, 0, D // H, dtype=torch.float64)
    return [[nothing, nothing] for _ in range(L)]


# %% [markdown]
# With it, attention for T new positions, with the model's own modules. One line is new: keys and values are joined to those of before. The queries are not.


# %%
def attend(att, x, layer, mask=None):
    """[B, T, D] -> [B, T, D]; the new keys and values are added to `layer`."""
    B, T, _ = x.shape
    qkv = att.qkv(x).view(B, T, 3, H, D // H)
    query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
    keys = torch.cat([layer[0], key], dim=2)  # [B, H, past + T, D/H]
    values = torch.cat([layer[1], value], dim=2)  # [B, H, past + T, D/H]
    layer[:] = keys, values
    scores = query @ keys.transpose(2, 3) / (D // H) ** 0.5  # [B, H, T, past + T]
    if mask is not None:  # True where a query may look
        scores = scores.masked_fill(~mask, -torch.inf)
    context = scores.softmax(dim=-1) @ values  # [B, H, T, D/H]
    return att.out_proj(context.transpose(1, 2).reshape(B, T, D))


# %% [markdown]
# The rest of the forward pass is the model's, with one more difference: the positions go on where the kept tokens end.


# %%
def plain_forward(model, ids, kept, start=None, mask=None):
    """Logits [B, T, V] of T new ids; their keys and values are added to `kept`."""
    T = ids.shape[1]
    assert T == 1 or mask is not None  # several ids would see each other's future
    past = kept[0][0].shape[2]  # the tokens so far
    positions = torch.arange(T) + (past if start is None else start)  # [T]
    x = model.tok_emb(ids) + model.pos_emb(positions)  # [B, T, D]
    for block, layer in zip(model.trf_blocks, kept, strict=True):
        x = x + attend(block.att, block.norm1(x), layer, mask)  # [B, T, D]
        x = x + block.ff(block.norm2(x))  # [B, T, D]
    return model.out_head(model.final_norm(x))  # [B, T, V]


# %% [markdown]
# One new id at a time needs no mask. A single query stands at the end, and everything that is kept lies before it. So this can be compared at every step with a full forward pass over the same ids.
#
# What the position of the new id must be is less visible. The model is given one id, and the position of a single id, counted as before, is 0. Two slips suggest themselves: to start again at 0 whenever ids come in, and to skip one position after the first call. Both are tried beside the right one.


# %%
def one_by_one(place):
    """Logits [B, C - 1, V], one id at a time; place(past) is its position."""
    kept, logits = empty_cache(), []
    for past in range(C - 1):
        new = text[:, past : past + 1]  # [B, 1]
        logits.append(plain_forward(model, new, kept, start=place(past)))
    return torch.cat(logits, dim=1)


full = model(text)  # [B, C, V], without a cache: every position at once

# %%
places = {
    "the number of tokens so far": lambda past: past,
    "0, as for any input": lambda past: 0,
    "one skipped after the first": lambda past: past + (past > 0),
}
rows = []
for name, place in places.items():
    logits = one_by_one(place)
    at_first = difference(logits[:, :1], full[:, :1])
    rows.append([name, at_first, difference(logits[:, 1:], full[:, 1:-1])])
show_table(["position of the new id", "first id", "all later ones"], rows)
assert [row[1] for row in rows] == ["below 1e-10"] * 3
assert [row[2] == "below 1e-10" for row in rows] == [True, False, False]

# %% [markdown]
# With the right position the step computes one position and gives the logits of the full pass. With a wrong one nothing is raised, the shapes fit, and the logits are others. (The number in the last column is the largest difference of a logit.) The second slip runs C − 1 steps without a complaint; only at the last place of the window it would ask the table for a row that is not there.
#
# Such slips are not invented. The GPT-2 of the library mlx-lm started the positions at 0 for every input, and left the position row out altogether where a single id came in, until its pull request 93 mended both. The text came out "distorted or repetitive", in the words of that request. No check of shapes finds this; a comparison with the full pass does, at the second id.
#
# ## A mask for a chunk
#
# A prompt arrives as a whole, and ids can come several at a time: a *chunk*. T new queries then meet past + T keys, and now a mask is needed, because the new ones must not see each other's future. Row t belongs to position past + t, so it may see past + t + 1 keys. That is a lower triangle whose diagonal is shifted to the right by `past`.
#
# PyTorch's `scaled_dot_product_attention` has `is_causal=True` for the square case. What does it do when there are more keys than queries? It can be asked. With equal scores the weights of a query are spread evenly over the keys that it may see, and with rows of the identity for values the output *is* the row of weights.


# %%
def seen(new, past, **options):
    """Which keys each query weighs: [new, past + new], asked of PyTorch's function."""
    S = past + new
    query, key = torch.zeros(1, 1, new, S), torch.zeros(1, 1, S, S)  # equal scores
    value = torch.eye(S)[None, None]  # [1, 1, S, S]
    weights = F.scaled_dot_product_attention(query, key, value, **options)[0, 0]
    return weights > 0


# %%
new, past = 3, min(T, 5)
right = torch.ones(new, past + new, dtype=torch.bool).tril(diagonal=past)  # [T, S]
patterns = {
    "tril(diagonal=past)": seen(new, past, attn_mask=right),
    "is_causal=True": seen(new, past, is_causal=True),
    "no mask": seen(new, past),
}
assert torch.equal(patterns["tril(diagonal=past)"], right)
assert torch.equal(patterns["is_causal=True"], torch.ones_like(right).tril())

# %% jupyter={"source_hidden": true} tags=["hide-input"]
drawn = {name: patterns[name] for name in ("tril(diagonal=past)", "is_causal=True")}
with figure(
    "chunk_mask",
    alt=f"Two grids of {new} queries and {past + new} keys: above, with the shifted diagonal, each new query sees all kept keys and the new ones up to its own; below, with is_causal=True, the triangle starts in the upper left corner.",
    words=[
        f"Each grid has {new} rows, the new queries at the positions {past} to {past + new - 1}, and {past + new} columns, the keys at the positions 0 to {past + new - 1}. A vertical line parts the {past} kept keys from the new. A cross on a grey ground marks a key that is seen.",
        *(
            f"{name}: the rows see {', '.join(map(str, mask.sum(1).tolist()))} keys."
            for name, mask in drawn.items()
        ),
        "Above, the mask that is needed: everything that is kept, and a triangle over the new keys.",
        "Below, the triangle starts at key 0, so the first query sees the first key alone, and no query sees its own key.",
    ],
    data={name: mask.int() for name, mask in drawn.items()},
    size=(5.2, 4.4),
    nrows=2,
    sharex=True,
) as axes:
    for ax, (name, mask) in zip(axes, drawn.items(), strict=True):
        ax.imshow(mask.int().tolist(), cmap="Greys", vmin=0, vmax=2.4)
        for t in range(new):
            for s in range(past + new):
                sign = "×" if mask[t, s] else "·"
                ax.text(s, t, sign, ha="center", va="center")
        ax.axvline(past - 0.5, color="black", linewidth=1.5)
        ax.set_title(name, fontsize=12)
        ax.set(xticks=range(past + new), ylabel="position of\nthe query")
        ax.set_yticks(range(new), [str(past + t) for t in range(new)])
        ax.grid(False)
        ax.tick_params(length=0)
    axes[-1].set_xlabel("position of the key")

# %% [markdown]
# A cross marks a key that is seen; the vertical line parts the kept keys from the new ones. `is_causal=True` counts from the upper left corner, as PyTorch's documentation says. (GPT-2's own code counts its mask "from the lower right corner", which is the right way here; PyTorch's name for that mask is `torch.nn.attention.bias.causal_lower_right`.) So after a prompt it lets the first new query see the very first key and nothing else. Now three ways in the plain cache, a prefix first and then the chunk: with each of the two masks, and with none.

# %%
chunk = text[:, past : past + new]  # [B, 3]
square = torch.ones(past, past, dtype=torch.bool).tril()  # for the prefix
rows = []
for name, mask in patterns.items():
    kept = empty_cache()
    plain_forward(model, text[:, :past], kept, mask=square)
    logits = plain_forward(model, chunk, kept, mask=mask)  # [B, 3, V]
    keys_seen = ", ".join(map(str, mask.sum(dim=1).tolist()))
    rows.append([name, keys_seen, difference(logits, full[:, past : past + new])])
show_table(["mask", "keys seen by the new queries", "logits differ by"], rows)
assert [row[2] == "below 1e-10" for row in rows] == [True, False, False]

# %% [markdown]
# Only the shifted triangle gives the logits of the full pass. With one new query its one row is all True, and no mask is needed. With nothing kept it is the square triangle, and there `is_causal=True` is right. Between these two cases lies the trap: code that is right for a prompt and right for single ids can be wrong for a chunk.
#
# ## The final form
#
# The plain cache joins tensors, and each `torch.cat` copies everything that is kept, for every new id. `KVCache`, which the module [book_utils/kv_cache.py](../book_utils/kv_cache.py) holds, makes room once, `[L, B, H, max_length, D/H]` for keys and the same for values, and writes into it. A number, `length`, says how many places count. The caller makes it and hands it to the model; the model keeps nothing of it.
#
# The first call, with the whole prompt, is often called *prefill*. Then come steps of one id, or chunks. However the text is cut, the logits should be those of the full pass, to 1e-10 for the reason given above.

# %%
growing = []  # chunks of 1, 2, 3, ... ids
while sum(growing) < C:
    growing.append(min(len(growing) + 1, C - sum(growing)))
splits = {
    "all at once": [C],
    "one by one": [1] * C,
    "the prompt, then one by one": [T] + [1] * (C - T),
    "the prompt, then the rest": [T, C - T],
    "1, 2, 3, … ids": growing,
}

# %%
rows = []
for name, sizes in splits.items():
    cache = KVCache(cfg, batch_size=B, dtype=torch.float64)
    logits = torch.cat([model(ids, cache) for ids in text.split(sizes, dim=1)], dim=1)
    rows.append([name, len(sizes), cache.length, difference(logits, full)])
show_table(["the text in chunks", "calls", "length", "logits differ by"], rows)
assert all(row[2:] == [C, "below 1e-10"] for row in rows)

# %% [markdown]
# What it holds is what the plain cache holds.

# %%
kept = empty_cache()
for past in range(C):
    plain_forward(model, text[:, past : past + 1], kept)
for number, (keys, values) in enumerate(kept):
    assert difference(cache.keys[number], keys) == "below 1e-10"
    assert difference(cache.values[number], values) == "below 1e-10"
print("keys, and values, in all layers:", list(cache.keys.shape))

# %% [markdown]
# And the model has no memory of any of this: no buffer, no other names in its state dict, and, besides the parameters, no tensor and no cache among the attributes of any module.

# %%
attributes = [value for module in model.modules() for value in vars(module).values()]
assert not any(isinstance(value, (torch.Tensor, KVCache)) for value in attributes)
assert list(model.state_dict()) == list(GPTModel(cfg).state_dict())
buffers = len(list(model.buffers()))
print("buffers of the model:", buffers, "· caches among its attributes: 0")
assert buffers == 0

# %% [markdown]
# Why outside? Other designs keep the cache in the attention layers (upstream's version with a cache does) and need a call that empties them. Whoever forgets the call continues an old text, and two texts cannot be written by turns. With an object that is passed, it is in plain sight which text the kept keys belong to.
#
# ### What is refused
#
# A refused call must not spoil what a cache holds. One cache here holds the prompt and meets five such calls. In the last of them a part of the last block is missing, so it fails when every layer has written its keys already. Two more caches do not fit the model at all.

# %%
held = KVCache(cfg, batch_size=B, dtype=torch.float64)
model(prompt, held)
rest = text[:, T:]  # [B, C - T]
trainable, broken = deepcopy(model).requires_grad_(True), deepcopy(model)
broken.trf_blocks[-1].ff = None
deeper = replace(cfg, n_layers=L + 1)

# %%
calls = {
    "too many tokens": (model, text[:, : C - T + 1], held),
    "another number of texts": (model, text[:1, :1].repeat(B + 1, 1), held),
    "an id outside": (model, prompt[:, :1] * 0 + V, held),
    "gradients wanted": (trainable, rest, held),
    "the last block fails": (broken, rest, held),
    "a cache in float32": (model, prompt, KVCache(cfg, B)),
    "a cache of more layers": (model, prompt, KVCache(deeper, B)),
}

# %%
rows = []
for name, (called, ids, cache) in calls.items():
    try:
        called(ids, cache)
    except (TypeError, ValueError) as error:
        rows.append([name, str(error), cache.length])
show_table(["call", "message", "length after it"], rows)
assert [row[2] for row in rows] == [T] * 5 + [0] * 2
with torch.no_grad():
    going_on = difference(trainable(rest, held), full[:, T:])
print("going on after these five, the logits differ by:", going_on)
assert going_on == "below 1e-10"
held.truncate(T)

# %% [markdown]
# The length moves last, when every layer is done. What a failed call has written lies behind it and does not count.
#
# The refused gradients have a reason. A cache is for writing, not for training: in training all positions are there at once, and a kept key would tie each step's gradient to all steps before. Under `torch.no_grad()` the same model goes on.
#
# ### Back to an earlier point
#
# `truncate(length)` forgets the later tokens. Nothing is erased; the places are written over. So one prompt can be computed once and continued in two ways, which should equal two fresh runs.

# %%
cache = KVCache(cfg, B, dtype=torch.float64)
model(prompt, cache)
for name, ids in [("the text's own end", rest), ("another one", (rest + 1) % V)]:
    cache.truncate(T)
    logits = model(ids, cache)
    fresh = model(torch.cat([prompt, ids], dim=1))[:, T:]
    print(f"{name}: logits differ by {difference(logits, fresh)}")
    assert difference(logits, fresh) == "below 1e-10"

# %% [markdown]
# ### What it cannot notice
#
# Kept keys and values belong to the weights that made them. When a weight changes, by training or by loading, they are *stale*. The cache knows sizes, not weights, so nothing is raised.

# %%
changed = deepcopy(model)
changed.trf_blocks[0].att.qkv.weight *= 1.1
cache.truncate(0)
model(prompt, cache)  # with the old weights
stale = difference(changed(rest, cache), changed(text)[:, T:])
cache.truncate(0)
changed(prompt, cache)  # filled again
renewed = difference(changed(rest, cache), changed(text)[:, T:])
show_table(["cache", "logits differ by"], [["kept", stale], ["filled again", renewed]])
assert stale != "below 1e-10" and renewed == "below 1e-10"

# %% [markdown]
# Dropout is a case of the same kind. In training mode each call draws its own mask, and the keys of different calls would come from different networks. Generation runs in eval mode, where it does nothing.
#
# So far the answer to the question is this. A cache may reuse the keys and values of a position as long as four things are what they were: its id, its place, all ids before it with their places, and the weights. Now one of them changes.
#
# ## When the window moves
#
# The position table has C rows. When the text is longer, the loop of chapter 11 crops it to the last C ids, and the id that stood at position 1 stands at position 0. A cache of a full window seems to need little for that: drop the oldest key and value of each layer, move the rest down, and put the new token at position C − 1. Here is that *slid* cache beside one that is filled afresh with the cropped text. A second model has zeros in its position table.


# %%
def filled(model, ids):
    """A cache that holds `ids` [B, T], and their logits."""
    cache = KVCache(model.cfg, len(ids), dtype=torch.float64)
    return cache, model(ids, cache)


def slid(model, ids, new):
    """The same for the window one id later, from the cache of the C ids before."""
    cache, _ = filled(model, ids)
    for kept in (cache.keys, cache.values):
        kept[..., :-1, :] = kept[..., 1:, :].clone()
    cache.truncate(C - 1)
    return cache, model(new, cache)  # [B, 1, V]


# %%
new = (text[:, :1] + 1) % V  # [B, 1], the id after the full window
window = torch.cat([text[:, 1:], new], dim=1)  # [B, C], what the loop crops to


# %%
def compared(model):
    """Slid against fresh: the moved keys layer by layer, then the logits of `new`."""
    (moved, logits), (fresh, wanted) = slid(model, text, new), filled(model, window)
    pairs = zip(moved.keys[..., :-1, :], fresh.keys[..., :-1, :], strict=True)
    return [*(difference(*pair) for pair in pairs), difference(logits, wanted[:, -1:])]


def without_positions(model):
    """A copy with zeros in its position table."""
    model = deepcopy(model)
    model.pos_emb.weight.zero_()
    return model


# %%
names = [*(f"moved keys of layer {number}" for number in range(1, L + 1)), "logits"]
columns = compared(model), compared(without_positions(model))
rows = [list(row) for row in zip(names, *columns, strict=True)]
show_table(["slid against fresh, difference of", "with positions", "without"], rows)
assert not any(row[1] == "below 1e-10" for row in rows)
assert [row[2] == "below 1e-10" for row in rows] == [True] + [False] * L

# %% [markdown]
# Two causes, and the two columns part them. With the position table the moved keys are wrong from layer 1 on: each was computed with the row of the table that belongs one place higher. With zeros in the table that cause is gone, and layer 1 agrees. The deeper layers still do not. Their keys were made of vectors that had looked at the dropped token (the second column of this chapter's first table), and a fresh run on the cropped text has never seen it.
#
# One case remains in which sliding is right: one layer, and no positions.

# %%
one_layer = build(replace(cfg, n_layers=1))
rows = [
    ["with positions", compared(one_layer)[-1]],
    ["without", compared(without_positions(one_layer))[-1]],
]
show_table(["a model of one layer", "logits of a slid cache differ by"], rows)
assert [row[1] == "below 1e-10" for row in rows] == [False, True]

# %% [markdown]
# So with absolute positions nothing can be kept once the window moves. A slid cache is not noise; it computes something else than the loop without a cache, and which of the two writes better is not settled by this comparison. What is settled is that they are not the same.
#
# Other models change the rules. With *relative* positions, such as rotary embeddings (Su et al., 2021), scores depend on positions only through the distance between query and key, so nothing changes when all positions move by the same amount, and the first cause goes away. The second stays. Models with *sliding-window attention*, such as Mistral 7B, are defined, and trained, with layers that look back a fixed number of positions. Dropping the oldest key is then part of the definition, and deeper layers know of older tokens on purpose.
#
# ## What it costs, counted in positions
#
# `generate(..., use_cache=True)` does the right thing the expensive way: when the window has moved, it empties the cache and fills it again with the last C ids, at every step. Count the positions that the model computes for each new id, with a hook that runs before each call and looks at the ids it is given.


# %%
def positions_computed(prompt, n, use_cache):
    """The ids of `generate`, and the positions of one text computed at each step."""
    counts = []
    hook = model.register_forward_pre_hook(
        lambda _model, args: counts.append(args[0].numel() // len(prompt))
    )
    ids = generate(model, prompt, n, use_cache=use_cache)  # [B, T + n]
    hook.remove()
    return ids, counts


# %%
fits = C - T + 1  # steps in which the text fits into the window
n = fits + C // 2  # new ids
ids_without, without = positions_computed(prompt, n, use_cache=False)
ids_with, kept = positions_computed(prompt, n, use_cache=True)
assert torch.equal(ids_with, ids_without)
lengths = range(T, T + n)  # of the text, before each new id
assert without == [min(length, C) for length in lengths]
assert kept == [T] + [1 if length <= C else C for length in lengths[1:]]

# %%
rows = []
for name, part in {
    "the text fits": slice(fits),
    "the window moves": slice(fits, n),
}.items():
    a, b = without[part], kept[part]
    rows.append([name, len(a), sum(a), sum(b), sum(a) / sum(b)])
header = ["while", "new ids", "positions without", "with the cache", "ratio"]
show_table(header, rows, format=".1f")
fitting, moving = rows

# %% [markdown]
# The ids are the same in both runs. While the text fits, the first step with the cache computes the T positions of the prompt and each later one a single position, $T + n - 1$ for n new ids; without it the sum is $nT + n(n-1)/2$. Beyond the window both compute C positions for each id, and the gain is gone.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
with figure(
    "cached_positions",
    alt="Positions computed for each new id: without a cache a line that rises to C and stays there, with a cache first the prompt, then one position for each id until the window moves, then C as well.",
    words=[
        f"The horizontal axis counts the new ids, 1 to {n}, after a prompt of T = {T}. The vertical axis is logarithmic and counts positions that the model computes.",
        f"Without a cache the line starts at {without[0]}, rises by one for each id and stays at C = {C} from id {fits} on.",
        f"With a cache the first id costs the {kept[0]} positions of the prompt, and the ids 2 to {fits} cost 1 each.",
        f"At id {fits + 1} the window has moved for the first time. From there both lines are the same: {C} positions for each id.",
    ],
    data={"new id": list(range(1, n + 1)), "without a cache": without, "cached": kept},
    size=(6.4, 3.4),
) as ax:
    steps = range(1, n + 1)
    ax.step(steps, without, where="mid", label="without a cache")
    ax.step(steps, kept, where="mid", label="with a cache")
    ax.axvline(fits + 0.5, color="#444444", linewidth=1, linestyle="-")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set(xlabel="new id", ylabel="positions computed")
    ax.set_ylim(0.8, 1.6 * C)
    style = {"textcoords": "offset points", "va": "center"}
    ax.annotate("the window moves", (fits + 0.5, 1), (8, 0), **style)
    ax.legend(loc="center right")

# %% [markdown]
# There is a cheaper way on: let the text jump, not slide. When the window is full, keep its last half and fill the cache with it, C/2 positions; then C/2 ids follow at one position each. That is about two positions for each id on average, in place of C. That is another loop with other results, because the model sees less of the text for a while, and whoever wants the ids of the cropping loop cannot have it.
#
# ## What it costs in memory
#
# In each of L layers, for each of B texts and each of C positions, a key and a value of D numbers (all heads together):
#
# $$2 \cdot L \cdot B \cdot C \cdot D \cdot \text{bytes of one number}.$$
#
# H does not appear. The formula is compared with what the storage of this chapter's cache really takes.


# %%
def cache_bytes(cfg, batch_size, bytes_per_number):
    """2 · L · B · C · D · bytes."""
    positions = batch_size * cfg.context_length
    return 2 * cfg.n_layers * positions * cfg.emb_dim * bytes_per_number


cache = KVCache(cfg, B, dtype=torch.float64)
stored = sum(x.untyped_storage().nbytes() for x in (cache.keys, cache.values))
print(f"this chapter's cache, float64, B = {B}: {stored:,} bytes")
assert stored == cache.nbytes == cache_bytes(cfg, B, 8)

# %% [markdown]
# For the tiny configuration and the four sizes of GPT-2 it is compared with caches on the meta device, where a tensor has a shape and takes no memory ([chapter 8](08_counting.ipynb)). One MiB is 2²⁰ bytes. The caches are for one full text; beside them stand the weights, counted as this book counts them, untied and without QKV bias.

# %%
from book_utils import parameter_formula

rows = []
for name in ("tiny", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"):
    sizes = get_config(name)
    types = (torch.bfloat16, torch.float32)
    half, single = (KVCache(sizes, 1, dtype=t, device="meta").nbytes for t in types)
    assert (half, single) == (cache_bytes(sizes, 1, 2), cache_bytes(sizes, 1, 4))
    weights = 4 * parameter_formula(sizes)  # bytes in float32
    texts = -(-weights // single)  # rounded up
    rows.append([name, half / 2**20, single / 2**20, weights / 2**20, texts])
header = ["cache in bfloat16, MiB", "cache in float32, MiB", "weights in float32, MiB"]
show_table(["model", *header, "texts as heavy as the weights"], rows, format=",.3f")

# %% [markdown]
# For one text the cache is smaller than the weights in each of these. But the weights are there once and serve all texts, whereas every text has a cache of its own. The last column says from how many full texts on the caches take as much memory as the weights, both in float32. (GPT-2's own weights are tied, and fewer texts outweigh them.) With many texts at once the caches can take more than the model. And they must be read again at every step; to make that cheaper, Shazeer (2019) lets all heads share one key and one value (*multi-query attention*), which divides the cache by H. That is another model, and has to be trained as one.
#
# The room is taken for `max_length` tokens, used or not. `generate` asks for T + n places, but never for more than the window has. One of them stays empty, since the last id is chosen and not fed.
#
# ## What it costs in operations
#
# Positions are not the whole work: a cached step still compares its query with every kept key. Count operations, a multiplication and an addition as two, in the matrix products alone, which are most of the arithmetic in models of GPT-2's size. For one text, T new positions and S = past + T keys:
#
# $$\underbrace{2T\,(12 L D^2 + V D)}_{\text{linear layers}} + \underbrace{4 L T S D}_{\text{attention}}$$
#
# The first term uses every weight of the linear layers once for each position; the second is the scores and the weighted sums, $2TSD$ each in a layer.


# %%
def operations(cfg, T, S):
    """The formula, for one text."""
    V, D, L = cfg.vocab_size, cfg.emb_dim, cfg.n_layers
    return 2 * T * (12 * L * D**2 + V * D) + 4 * L * T * S * D


# %% [markdown]
# PyTorch can count the same while a model runs. It is asked for attention's plain form here, whose products the counter sees, masked pairs included; a fused form may hide them or skip some.

# %%
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def counted(model, ids, cache=None):
    """Operations in the matrix products of one forward pass, as PyTorch counts."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids, cache)
    return counter.get_total_flops()


# %%
rows = []
for t in sorted({2, C // 2, C}):  # tokens, the new one included
    cache, _ = filled(model, text[:1, : t - 1])
    without = counted(model, text[:1, :t])
    kept = counted(model, text[:1, t - 1 : t], cache)
    assert (without, kept) == (operations(cfg, t, t), operations(cfg, 1, t))
    rows.append([t, without, kept, without / kept])
header = ["tokens so far", "operations without", "with the cache", "ratio"]
show_table(header, rows, format=".1f", int_format=",")

# %% [markdown]
# Formula and counter agree to the last operation. The ratio is the number of tokens exactly, since both terms have the factor T. (The loop reads the last logits alone, and a model could apply its head to the last position only. Then a step without a cache would be cheaper than is counted here, by the share that the head has in it, and the ratio smaller.) The figure applies the formula to GPT-2 small; the marks are counted, by running the model on the meta device, where shapes are enough.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
small = get_config("gpt2-small")
tokens = [1, *range(16, small.context_length + 1, 16)]
curves = {
    "without a cache": [operations(small, t, t) / 1e9 for t in tokens],
    "with a cache": [operations(small, 1, t) / 1e9 for t in tokens],
}
with torch.device("meta"):
    on_meta = GPTModel(small).eval().requires_grad_(False)
    zeros = torch.zeros(1, small.context_length, dtype=torch.long)
marks, marked = [1, 256, 512, 768, 1024], {name: [] for name in curves}
for t in marks:
    cache = KVCache(small, 1, device="meta")
    cache.advance(t - 1)  # shapes only: there is nothing to fill in
    marked["without a cache"].append(counted(on_meta, zeros[:, :t]) / 1e9)
    marked["with a cache"].append(counted(on_meta, zeros[:, :1], cache) / 1e9)
for name, curve in curves.items():
    at_marks = [curve[tokens.index(t)] for t in marks]
    assert marked[name] == at_marks
first, last = curves["with a cache"][0], curves["with a cache"][-1]
with figure(
    "cached_operations",
    alt="Operations for one new id of GPT-2 small against the tokens so far: without a cache a curve that climbs more than a thousandfold, with a cache a nearly flat line.",
    words=[
        f"The horizontal axis is the number of tokens so far, the new one included, from 1 to {small.context_length}. The vertical axis is logarithmic: operations for one new id in billions, in the matrix products alone.",
        f"Without a cache the curve climbs from {curves['without a cache'][0]:.2f} to {curves['without a cache'][-1]:.0f} billion.",
        f"With a cache it rises from {first:.2f} to {last:.2f} billion, because the one query meets more and more keys.",
        f"Marks at {', '.join(map(str, marks))} tokens were counted while the model ran on shapes alone; they lie on the curves.",
    ],
    data={"tokens so far": tokens, **curves, "marks": marks}
    | {f"counted {name}": values for name, values in marked.items()},
    size=(6.4, 3.4),
) as ax:
    for (name, curve), sign in zip(curves.items(), "os", strict=True):
        (line,) = ax.plot(tokens, curve, label=name)
        style = {"color": line.get_color(), "linestyle": "none", "markersize": 7}
        ax.plot(marks, marked[name], marker=sign, **style)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set(xlabel="tokens so far", ylabel="operations (billions)")
    ax.legend(loc="center right")

# %% [markdown]
# Operations are not seconds. A cached step reads the weights and the whole cache to compute one position, so it can wait for memory more than for arithmetic (Shazeer, 2019; Pope et al., 2022), and the time that is saved is not the ratio of the curves. It depends on the machine, so this page states none. `timing = True` measures a ratio on yours, on one thread and with a larger model, since in one as small as this chapter's the calls themselves take most of the time.

# %%
from statistics import median
from time import perf_counter


def seconds(model, use_cache):
    """How long it takes to write 255 ids."""
    before = perf_counter()
    generate(model, torch.zeros(1, 1, dtype=torch.long), 255, use_cache=use_cache)
    return perf_counter() - before


# %%
if timing:
    larger = GPTModel(GPTConfig(256, 256, 256, 4, 4))
    pairs = [
        (seconds(larger, False), seconds(larger, True)) for _ in range(5)
    ]  # by turns
    without, kept = (median(times) for times in zip(*pairs, strict=True))
    print(f"255 ids: {without / kept:.1f} times as long without the cache")
else:
    print("nothing was timed; set timing = True for a ratio of times")

# %% [markdown]
# ## The same ids, in every case
#
# The cache must change nothing of what is written. These are the cases at the edges: prompts below, at and above C, a smaller window, no new ids, rows that end early, and ids that are drawn. For a draw both runs get a generator in the same state, and since the logits agree, they draw the same.


# %%
def both(prompt, n, **options):
    """What `generate` writes without and with the cache."""
    for use_cache in (False, True):
        draws = torch.Generator().manual_seed(seed)
        options |= {"use_cache": use_cache, "generator": draws}
        yield generate(model, prompt, n, **options)


# %%
above = torch.cat([text, window[:, -3:]], dim=1)  # [B, C + 3]
eos_id = generate(model, prompt, 3)[0, -1].item()  # the first text writes it soon

# %%
cases = {
    "prompt of T, the window just full": (prompt, C - T, {}),
    "one id farther": (prompt, C - T + 1, {}),
    "prompt of C − 1": (text[:, :-1], 3, {}),
    "prompt of C": (text, 3, {}),
    "prompt of C + 3": (above, 3, {}),
    "one id, one text": (text[:1, :1], C + 3, {}),
    f"window of {C // 2}": (prompt, C // 2, {"context_size": C // 2}),
    "no new ids": (prompt, 0, {}),
    "rows that end": (prompt, C - T + 2, {"eos_id": eos_id, "pad_id": 0}),
    "drawn": (prompt, C - T + 2, {"temperature": 1.0}),
    "drawn among few": (prompt, 9, {"temperature": 0.8, "top_k": 4, "top_p": 0.9}),
}

# %%
rows = []
for name, (ids, n, options) in cases.items():
    without, kept = both(ids, n, **options)
    rows.append([name, ids.shape[1], n, torch.equal(without, kept)])
show_table(["case", "ids in the prompt", "new ids, at most", "same ids"], rows)
assert all(row[3] for row in rows)

# %% [markdown]
# What is refused without a cache is refused with it, in the same words.

# %%
for name, ids in {"no ids": prompt[:, :0], "an id outside": prompt * 0 + V}.items():
    messages = []
    for use_cache in (False, True):
        try:
            generate(model, ids, 1, use_cache=use_cache)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) == 2 and messages[0] == messages[1]
    print(f"{name}: {messages[0]}")

# %% [markdown]
# “The same ids” has a condition. The logits agree to rounding and not bit by bit, because products of other shapes add in other orders. Where the two largest logits are closer than that, the runs may choose differently, and from there on write different texts. A draw can part in the same way, where the random number falls beside the border of two ids, or where a cut by k or p does. In float64 such a tie is very unlikely; in bfloat16, with two to three decimal digits, it is far less so. Neither of the two is wrong then.
#
# ## The results of this run
#
# What the cache costs and gains for these sizes, and what sliding it would change. A rerun with other parameters gives these results again, under the same names. Positions and operations are counted, and say nothing of seconds.

# %%
publish(
    [
        ("positions_without_cache", fitting[2], "of a text while it fits the window"),
        ("positions_with_cache", fitting[3], "of the same steps"),
        ("positions_ratio", fitting[4], "the first by the second"),
        ("step_operations", operations(cfg, 1, C), "of a cached step at token C"),
        ("cache_bytes", stored, "all keys and values, in float64"),
        ("slid_difference", round(columns[0][-1], 4), "of a logit, to a fresh cache's"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | With a cache the first new id is right, then the text decays | positions start at 0 for each input | compare the logits of the second step with a full pass | count positions on from the number of kept tokens |
# | With a cache `index out of range` at the last place of the window | positions are off by one | compare the logits of the second step with a full pass | take the number of kept tokens before the new ones are added |
# | With a cache a prompt and single ids work, several ids at a time do not | `is_causal=True` whenever T > 1, which is right only with nothing kept | compare the logits of a chunk of 3 ids with a full pass | a triangle whose diagonal is shifted by the number of kept tokens |
# | With a cache the logits inside a chunk depend on later ids of the chunk | no mask | change the last id of the chunk and compare the positions before it | a triangle whose diagonal is shifted by the number of kept tokens |
# | A new text goes on with an old one | a cache inside the model was not emptied | run the same prompt twice and compare | one cache for each text, made by the caller |
# | Cached generation is right at first, wrong after a training step | the kept keys and values belong to old weights | fill the cache again and compare | a new cache when weights change |
# | With a cache other ids from token context_length + 1 on | the cache was slid: the oldest key dropped, the rest moved | compare with the cropped text, read afresh | empty the cache and fill it with the cropped text |
# | Cached generation is slow again after context_length tokens | the cache is filled again at each step | count the positions that the model computes | a larger context length, or a model made for a moving window |
# | Out of memory when generating many texts at once | the cache grows with the number of texts and of tokens | 2·L·B·C·D·bytes of one number | fewer or shorter texts, a smaller number type |
# | In a generating loop of your own the memory grows with every step | gradients are recorded, and the kept keys hold on to their graphs | print `requires_grad` of the keys | `torch.no_grad()` |
# | In bfloat16 the ids with a cache are not those without | a near tie of two logits, decided by rounding | look at the two largest logits; compare in float64 | nothing is wrong |
#
# ## Exercises
#
# ::::{admonition} Exercise 12.1 · The mask of a chunk
#
# `past` tokens are kept, and `new` come. Return the mask as Booleans `[new, past + new]`: `True` where a new query may look.
#
# ::::


# %% tags=["exercise"]
def chunk_mask(past, new):
    """Booleans [new, past + new]"""
    ...  # your line here


check("12.1", chunk_mask)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return torch.ones(new, past + new, dtype=torch.bool).tril(diagonal=past)
# ```
#
# Row t has past + t + 1 times True. With past = 0 it is the square triangle; with new = 1 it is one row of True.
#
# ::::
#
# ::::{admonition} Exercise 12.2 · What to feed
#
# A text has `num_ids` ids by now, the cache holds the first `cached` of them (fewer than all), and the window is `context_length`. Which ids must the model be given next, for the logits of the cropping loop? Return two numbers: the place in the text of the first id to feed (all after it follow), and the position that it gets in the model. Where nothing that is cached may be used, the cache is emptied.
#
# ::::


# %% tags=["exercise"]
def what_to_feed(num_ids, cached, context_length):
    """(place in the text, position in the model) of the first id to feed"""
    ...  # your lines here


check("12.2", what_to_feed)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# if num_ids > context_length:
#     return num_ids - context_length, 0
# return cached, cached
# ```
#
# While the text fits, the two numbers are the same. When it does not, the last C ids are fed from position 0, as if there had never been a cache. A text of exactly C ids still fits.
#
# ::::
#
# ::::{admonition} Exercise 12.3 · Bytes
#
# How many bytes does a cache for so many `texts` of so many `tokens` each take, in a model of these sizes? Not every argument is needed.
#
# ::::


# %% tags=["exercise"]
def bytes_of_a_cache(layers, texts, tokens, emb_dim, n_heads, bytes_per_number):
    """The bytes of all keys and values"""
    ...  # your line here


check("12.3", bytes_of_a_cache)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return 2 * layers * texts * tokens * emb_dim * bytes_per_number
# ```
#
# Twice, for keys and values. A head has D/H features and there are H of them, so H cancels. It grows with the tokens and not with their square: the scores, which do, are not kept.
#
# ::::
#
# ::::{admonition} Exercise 12.4 · Count the positions
#
# A prompt of `num_tokens` ids is continued by `new_tokens` ids in a window of `context_length`. How many positions does the model compute for one text, all steps together, as `generate` does it? `use_cache` says which loop. The prompt may be longer than the window, and `new_tokens` may be 0.
#
# ::::


# %% tags=["exercise"]
def count_positions(num_tokens, new_tokens, context_length, use_cache):
    """All positions of all steps"""
    ...  # your lines here


check("12.4", count_positions)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# total = 0
# for step in range(new_tokens):
#     length = num_tokens + step
#     reuse = use_cache and 0 < step and length <= context_length
#     total += 1 if reuse else min(length, context_length)
# return total
# ```
#
# The last id is chosen and not fed, so n new ids need n calls. The cache helps in the steps after the first, as long as the text fits.
#
# ::::
#
# ## What you have now
#
# - What stays right: keys and values of every layer, as long as ids, places, everything before, and the weights are the same. Queries and logits are not asked for again.
# - A cache that is passed and not kept, with positions that go on and a triangle shifted by what is there; and comparisons with the full pass that show each slip.
# - Its cost: 2·L·B·C·D numbers, one position for each new id, operations that hardly grow; and no gain once the window moves, for two reasons, of which removing positions removes one.
#
# The model writes, and it writes quickly, but nothing that it writes means anything yet: its weights are random numbers. Can it learn? [Chapter 13](13_training.ipynb) trains it.
#
# **Sources.** N. Shazeer, "Fast Transformer Decoding: One Write-Head is All You Need", 2019, arXiv:1911.02150, section 2.4 (attention one position at a time, and its memory traffic) and 3 (shared keys and values). R. Pope et al., "Efficiently Scaling Transformer Inference", 2022, arXiv:2211.05102, section 2. J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, arXiv:2104.09864. A. Q. Jiang et al., "Mistral 7B", 2023, arXiv:2310.06825, section 2 (sliding-window attention and its cache). A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; its reference code, openai/gpt-2, `src/model.py`, functions `attention_mask`, `attn` and `positions_for`, and `src/sample.py` (the argument `past`). S. Raschka, rasbt/LLMs-from-scratch, `ch04/03_kv-cache`. ml-explore/mlx-lm, pull request 93. PyTorch's documentation of `torch.nn.functional.scaled_dot_product_attention` and `torch.utils.flop_counter`.
