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
# # 9 · Parity
#
# **Does it compute the same?**
#
# At the end of this chapter you can
#
# - carry weights from one implementation to another, and say what must be aligned before two outputs may be compared;
# - compare two models stage by stage, name the stage where they part, and prove the cause instead of guessing it;
# - choose a tolerance with a reason, and say what it lets through.
#
# You need the model of [chapter 7](07_gpt_model.ipynb), its count from [chapter 8](08_counting.ipynb), GELU from [chapter 3](03_feed_forward.ipynb) and the masks of [chapter 5](05_attention.ipynb).

# %% tags=["parameters"]
vocab_size: int = 16  # V, number of token ids (2 to 512)
context_length: int = 16  # C, the longest input in tokens (2 to 64)
emb_dim: int = 16  # D, features per position (8 to 256)
n_heads: int = 4  # H, attention heads; they divide emb_dim (1 to 16)
n_layers: int = 2  # L, transformer blocks (1 to 4)
batch_size: int = 2  # B, texts in the batch (1 to 4)
num_tokens: int = 6  # T, tokens in each text, no more than context_length (2 to 64)
qkv_bias: bool = False  # whether query, key and value have a bias
seed: int = 123  # of the random weights and ids (0 to 4294967295)
checkpoint: str = ""  # a folder with GPT-2's weights; empty: a small one is made
dtype: str = "float64"  # precision of the published results (one of float32, float64)

# %%
import math
from copy import deepcopy
from dataclasses import replace
from functools import partial
from textwrap import fill

import numpy as np
import torch
from torch import nn

from book_utils import GPTConfig, GPTModel, get_config, load_model
from book_utils.parity import compare, compare_stages, stages, stir
from book_utils.workbench import check, check_parameters, figure, publish, show_table

# %% [markdown]
# The parameters are checked first, and the sizes get their letters.

# %%
check_parameters("09_parity", globals())
if num_tokens > context_length:
    raise ValueError(f"{num_tokens = } is more than {context_length = }")
if checkpoint:
    load_model(checkpoint)  # a wrong one is refused here, not at the end
sizes = (vocab_size, context_length, emb_dim, n_heads, n_layers)
cfg = GPTConfig(*sizes, qkv_bias=qkv_bias)
V, C, D, H, L = sizes

# %% [markdown]
# The model of this chapter is a fresh one, every parameter of which is then moved a little, at random. A section below says why.

# %%
torch.manual_seed(seed)
fresh = GPTModel(cfg).double().eval()
model = stir(deepcopy(fresh), seed)
ids = torch.randint(V, (batch_size, num_tokens))  # [B, T]
print("ids", list(ids.shape), "-> logits", list(model(ids).shape))

# %% [markdown]
# Two programs *compute the same* if the same weights and the same ids give the same logits, up to rounding. This is called *parity*. To show it one needs a second program, a *reference*, best one that somebody else wrote. This chapter has four: a rewrite in NumPy, made on the spot, and three by others: upstream (the code of S. Raschka's book), the package `transformers`, and PyTorch's own layers.
#
# Nearly everything is done in float64, where rounding is small. One helper puts a difference into words. A difference that rounding alone can make is called "rounding", without digits, since those are others on another processor; the section on tolerances says where the limit comes from. Both models are always in eval mode, so that dropout does nothing.


# %%
def difference(ours, theirs):
    """The largest difference, as text; "rounding" up to 1e-12 of the largest value."""
    if ours.shape != theirs.shape:
        raise ValueError(f"{list(ours.shape)} beside {list(theirs.shape)}")
    largest = (ours - theirs).abs().max().item()
    limit = 1e-12 * max(1.0, ours.abs().max().item())
    return "rounding" if largest <= limit else f"{largest:.1e}"


# %% [markdown]
# ## Equal counts, other logits
#
# Chapter 8 counted. What does a right count prove? Here is a copy of the model in which one function was exchanged: the exact GELU, the erf form of [chapter 3](03_feed_forward.ipynb), stands where GPT-2 has the tanh form. A function has no parameters.


# %%
def with_exact_gelu(model):
    """A copy of `model` with the exact GELU in every block."""
    model = deepcopy(model)
    for block in model.trf_blocks:
        block.ff.layers[1] = nn.GELU()  # without approximate="tanh"
    return model


# %% [markdown]
# It is loaded with the model's own *state dict*, PyTorch's dictionary from the name of each parameter and buffer to its tensor. Loading is *strict*: every name and every shape must fit, or an error is raised.

# %%
rows = []
with_erf = with_exact_gelu(model)
for name, candidate in [("the model", model), ("with the exact GELU", with_erf)]:
    candidate.load_state_dict(model.state_dict())  # strict unless told otherwise
    count = sum(p.numel() for p in candidate.parameters())
    moved = difference(model(ids), candidate(ids))
    rows.append([name, count, True, str(list(candidate(ids).shape)), moved])
header = ["candidate", "parameters", "loads?", "logits", "largest difference"]
show_table(header, rows)
assert rows[0][1:4] == rows[1][1:4] and rows[1][4] != "rounding"

# %% [markdown]
# The count is the same, the weights load by name and shape without a word. The logits are others. A count shows that no layer is missing; it does not show what the layers do with their numbers. Only values show that.
#
# ## What must be aligned
#
# Comparing values is useless as long as the inputs differ: the ids, the precision, the mode, settings such as eps, and above all the weights. Two programs rarely keep those in the same form. Four things must be aligned first:
#
# 1. the *names*: what is `trf_blocks.0.norm1.scale` here may be `transformer.h.0.ln_1.weight` there;
# 2. the *orientation*: a linear layer may be kept as `[out, in]`, as in `nn.Linear`, or as `[in, out]`;
# 3. *split or fused*: query, key and value as three matrices `[D, D]`, or as one `[3D, D]`;
# 4. the *order of rows* in what is fused: query first, then key, then value, and in each of them head after head.
#
# The third and the fourth are done by hand once. Our attention is fused, upstream's is split. The weight is stored `[out, in]`, so the three parts lie along axis 0, the output axis. The function below takes the way to cut as an argument.

# %%
from llms_from_scratch.ch04 import MultiHeadAttention as UpstreamAttention


def upstream_attention(ours, parts):
    """Upstream's attention with our weights; `parts(tensor)` -> query, key, value."""
    theirs = UpstreamAttention(D, D, C, 0.0, H, qkv_bias).double()
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    projections = (theirs.W_query, theirs.W_key, theirs.W_value)
    for name, fused in ours.qkv.named_parameters():  # weight [3D, D], bias [3D]
        for projection, part in zip(projections, parts(fused), strict=True):
            projection.get_parameter(name).data.copy_(part)
    return theirs


# %% [markdown]
# Three ways to cut are tried: in three parts one after the other, the same with query and key exchanged, and with every third row.

# %%
ways = {
    "along the output axis": lambda w: w.chunk(3, dim=0),  # three times [D, D]
    "query and key exchanged": lambda w: [w.chunk(3, dim=0)[i] for i in (1, 0, 2)],
    "every third row": lambda w: [w[i::3] for i in range(3)],
}

# %% [markdown]
# Both layers read what the first norm of the model returns. (How `stages` gets hold of that is told below.)

# %%
ours, rows = model.trf_blocks[0].att, []
x = stages(model, ids)["block 1: norm 1"]  # [B, T, D]
for name, parts in ways.items():
    shapes = {str(list(part.shape)) for part in parts(ours.qkv.weight)}
    theirs = upstream_attention(ours, parts)
    rows.append([name, " ".join(shapes), difference(ours(x), theirs(x))])
show_table(["cut", "each part", "largest difference"], rows)
assert [row[2] == "rounding" for row in rows] == [True, False, False]

# %% [markdown]
# All three fit, and one is right. A cut along the input axis would give `[3D, D/3]` and be refused by its shape; an exchange is refused by nothing. So the alignment itself has to be checked, and the comparison of outputs does that too: a mistake in the copying looks like a mistake in the model.
#
# The module `book_utils.layouts` holds these rules for a whole model. A `Layout` is one way to keep the weights: `from_ours` writes our state dict in that form, and `to_ours` reads it back. Here are some names of ours beside those of Hugging Face, where GPT-2's files come from.

# %%
from book_utils.layouts import HUGGING_FACE, TORCH, UPSTREAM

ours_state = model.state_dict()
gpt2_state = HUGGING_FACE.from_ours(ours_state, cfg)
pairs = {
    "tok_emb.weight": "transformer.wte.weight",
    "trf_blocks.0.norm1.scale": "transformer.h.0.ln_1.weight",
    "trf_blocks.0.att.qkv.weight": "transformer.h.0.attn.c_attn.weight",
    "trf_blocks.0.att.out_proj.weight": "transformer.h.0.attn.c_proj.weight",
    "trf_blocks.0.ff.layers.0.weight": "transformer.h.0.mlp.c_fc.weight",
}

# %% [markdown]
# And here are the shapes. In the table the names of the first block go without `trf_blocks.0` and `transformer.h.0`.

# %%
rows = []
for ours_name, theirs_name in pairs.items():
    a, b = ours_state[ours_name], gpt2_state[theirs_name]
    turned = b.ndim == 2 and torch.equal(b, a.T)
    short = ours_name.removeprefix("trf_blocks.0.")
    their_short = theirs_name.removeprefix("transformer.h.0.")
    rows.append([short, str(list(a.shape)), their_short, str(list(b.shape)), turned])
show_table(["ours", "shape", "Hugging Face", "shape", "transposed"], rows)
assert [row[4] for row in rows] == [False, False, True, True, True]

# %% [markdown]
# Each layout is tried there and back.

# %%
for layout in (UPSTREAM, HUGGING_FACE, TORCH):
    back = layout.to_ours(layout.from_ours(ours_state, cfg), cfg)
    assert back.keys() == ours_state.keys()
    assert all(torch.equal(back[name], ours_state[name]) for name in back)
    print(layout.name, "and back: every number as before")

# %% [markdown]
# Note the fourth row of the table. The output projection of attention is square, `[D, D]`, and must be transposed as well. Whoever transposes only what does not fit gets this one wrong, and no shape will complain.
#
# Going there and back proves little about the names: exchanging two of them on the way there and again on the way back would pass. It shows only that nothing is lost.
#
# ## Why every parameter is stirred
#
# To *stir* a model is to add a small random number to every parameter; `stir` did so above. The reason: a fresh LayerNorm multiplies by a scale of 1 and adds a shift of 0. It does not matter, then, which LayerNorm is used, nor whether it multiplies and adds at all. Take a copy in which the two norms of each block have changed places.


# %%
def with_norms_exchanged(model):
    """A copy whose blocks use norm1 and norm2 in each other's place."""
    model = deepcopy(model)
    for block in model.trf_blocks:
        block.norm1, block.norm2 = block.norm2, block.norm1
    return model


# %%
rows = []
for name, right in [("fresh", fresh), ("stirred", model)]:
    rows.append([name, difference(right(ids), with_norms_exchanged(right)(ids))])
show_table(["weights", "largest difference of the logits"], rows)
assert rows[0][1] == "rounding" and rows[1][1] != "rounding"

# %% [markdown]
# With fresh weights a wrong model passes; with stirred ones it is seen. Parity on fresh weights is parity of a part of the program. The same holds for a bias that starts at zero, and for any two tensors that start equal. Stirring cures that for parameters. It does not help where an *input* hides something, such as a text of one token, which cannot show that a mask is missing.
#
# ## Stage by stage, from outside
#
# When two models differ, the logits say that they do, not where. So the tensors on the way are compared too. They can be had without touching the code of either model: PyTorch lets one hang a *hook* on any module, a function that is called with the module, its inputs and its output each time it runs. This one keeps the output:


# %%
def keep(seen, name, module, inputs, output):
    """For `partial(keep, seen, name)`, a hook: the output goes to seen[name]."""
    seen[name] = output


# %% [markdown]
# It is hung on the modules that are asked for, the model runs once, and all hooks are taken off again.


# %%
def outputs_of(model, names, ids):
    """What the modules `names` return during model(ids), and the logits, by name."""
    seen = {}
    modules = [(name, model.get_submodule(name)) for name in names]
    hooks = [m.register_forward_hook(partial(keep, seen, name)) for name, m in modules]
    with torch.no_grad():
        seen["logits"] = model(ids)
    for hook in hooks:
        hook.remove()
    return seen


# %%
names = ["trf_blocks.0.norm1", "trf_blocks.0.att", "trf_blocks.0.ff", "final_norm"]
seen, kept = outputs_of(model, names, ids), stages(model, ids)
rows = [
    [stage, str(list(value.shape))]
    for stage, value in kept.items()
    if not stage.startswith("block") or stage.startswith("block 1")
]
show_table(["stage", "shape"], rows)
assert torch.equal(seen["trf_blocks.0.ff"], kept["block 1: feed-forward"])
print(len(kept), "stages in", L, "blocks")
assert len(kept) == 7 * L + 3

# %% [markdown]
# `book_utils.parity.stages` does this for a whole model and gives each tensor a name that does not depend on the program. Such a named tensor is called a *stage*: the embeddings, seven stages in each block, the final norm and the logits. "After attention" and "after feed-forward" are the two states that the stream of [chapter 6](06_transformer_block.ipynb), also called the *residual stream*, has in a block: the sums behind each shortcut.
#
# ## A rewrite in NumPy
#
# The first reference is written here, in plain functions, from the formulas of the earlier chapters. To be worth something it must be *independent*: if it repeated the steps of the model line by line, it would repeat their mistakes. So there is no PyTorch in it, no batch, no mask, and no split into heads by rearranging axes. It takes one text and one head at a time. Position t does not need a mask, since it is only ever handed the positions 0 to t.


# %%
EXACT = math.sqrt(2 / math.pi)  # the constant of the tanh form


def layer_norm(x, scale, shift):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)  # divided by D
    return scale * centred / np.sqrt(variance + 1e-5) + shift


def gelu(x, root=EXACT):
    return x / 2 * (1 + np.tanh(root * (x + 0.044715 * x**3)))


# %% [markdown]
# Attention goes head by head and position by position.


# %%
def attention(qkv, n_heads):
    """Causal attention of one text, before the output projection: [T, 3D] -> [T, D]."""
    T, D = qkv.shape[0], qkv.shape[1] // 3
    d = D // n_heads
    out = np.empty((T, D))
    for first in range(0, D, d):  # the first feature of each head
        q, k, v = (qkv[:, part + first :][:, :d] for part in (0, D, 2 * D))  # [T, d]
        for t in range(T):
            scores = k[: t + 1] @ q[t] / math.sqrt(d)  # [t + 1]
            weights = np.exp(scores - scores.max())
            out[t, first : first + d] = weights @ v[: t + 1] / weights.sum()
    return out


# %% [markdown]
# The two layers that have weights find them by name.


# %%
def norm(weights, name, x):
    return layer_norm(x, weights[f"{name}.scale"], weights[f"{name}.shift"])


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


# %% [markdown]
# Put together, they make a block with its seven stages.


# %%
def gpt_block(weights, name, x, n_heads, root):
    """The stages of one block on x [T, D]: name -> array."""
    out = {"norm 1": norm(weights, f"{name}.norm1", x)}  # [T, D]
    out["QKV"] = linear(weights, f"{name}.att.qkv", out["norm 1"])  # [T, 3D]
    heads = attention(out["QKV"], n_heads)  # [T, D]
    out["attention"] = linear(weights, f"{name}.att.out_proj", heads)
    out["after attention"] = x + out["attention"]
    out["norm 2"] = norm(weights, f"{name}.norm2", out["after attention"])
    wide = gelu(linear(weights, f"{name}.ff.layers.0", out["norm 2"]), root)  # [T, 4D]
    out["feed-forward"] = linear(weights, f"{name}.ff.layers.2", wide)  # [T, D]
    out["after feed-forward"] = out["after attention"] + out["feed-forward"]
    return out


# %% [markdown]
# The blocks follow each other, between the embeddings and the head.


# %%
def gpt(weights, ids, n_heads, n_layers, root=EXACT):
    """All stages of one text: ids [T] -> name -> array."""
    x = weights["tok_emb.weight"][ids] + weights["pos_emb.weight"][: len(ids)]
    out = {"embeddings": x}  # [T, D]
    for layer in range(n_layers):
        inside = gpt_block(weights, f"trf_blocks.{layer}", x, n_heads, root)
        out |= {f"block {layer + 1}: {stage}": value for stage, value in inside.items()}
        x = inside["after feed-forward"]
    out["final norm"] = norm(weights, "final_norm", x)
    out["logits"] = linear(weights, "out_head", out["final norm"])  # [T, V]
    return out


# %% [markdown]
# The weights are ours, as arrays. The texts are computed one by one and put on top of each other.


# %%
def numpy_stages(model, ids, root=EXACT):
    """The stages of gpt() for a whole batch, as tensors."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    texts = [gpt(weights, text, H, L, root) for text in ids.numpy()]
    stacked = {name: np.stack([text[name] for text in texts]) for name in texts[0]}
    return {name: torch.from_numpy(value) for name, value in stacked.items()}


# %% [markdown]
# `compare_stages` takes, for each precision, our stages and theirs. Its result has a line for each stage with the largest difference and with what rounding may make of it, and it counts the *greedy ids* that differ: the id with the largest logit at each position.

# %%
f64 = torch.float64
kept = stages(model, ids)
by_numpy = compare_stages("NumPy", {f64: (kept, numpy_stages(model, ids))})
for line in by_numpy.differences:
    assert line.difference <= line.rounding, line
print(len(by_numpy.differences), "stages agree with NumPy, up to rounding")
print("greedy ids that differ:", by_numpy.greedy[f64])
assert by_numpy.same

# %% [markdown]
# Two programs that share no line give the same numbers at every stage. This is strong evidence, and still of one kind only: both were written for this book, from one reading of the formulas. If that reading were wrong, both would be wrong together. The next references were written by others.
#
# ## Upstream, and where it parts
#
# Upstream's model is in the package `llms-from-scratch`. `compare` does the whole procedure: it copies our weights into the reference, runs both on the same ids in float32 and in float64, and lists the largest difference at every stage. `measured=False` gives limits in place of digits. Where "<" stands alone, the difference is no larger than rounding can make it at a stage with numbers of this size. For upstream `compare` accepts somewhat more, up to 1e-7 of the largest value at the stage (or of 1), and where that was needed the table gives both limits.

# %%
from book_utils.parity import torch_nn, transformers, upstream

by_upstream = compare(model, upstream(), ids)
table = by_upstream.table(measured=False)
show_table(table.header, table.rows)

# %% [markdown]
# In float32 nothing is to be seen. In float64 the table tells a story: up to a certain stage there is only rounding, and from there on there is more, at every stage. The first one is where to look.


# %%
def parts_at(comparison, dtype=torch.float64):
    """The first stage that differs by more than rounding, or None."""
    for line in comparison.differences:
        if line.dtype == dtype and not line.difference <= line.rounding:
            return line.stage
    return None


print("NumPy parts at:", parts_at(by_numpy) or "nowhere")
print("upstream parts at:", parts_at(by_upstream))
assert parts_at(by_numpy) is None
assert parts_at(by_upstream) == "block 1: feed-forward"

# %% [markdown]
# The condition is written `not … <= …`, and not `… > …`, because of NaN: every comparison with NaN is false, so with `>` a stage full of NaN would pass.
#
# Embeddings, both norms and attention agree. The first feed-forward network does not, although its input did. So the cause sits in there: two linear layers and a GELU.
#
# How large is the difference, and on what does it depend? The notes that this book grew from record one figure, for weights that are not at hand: 2.3896e-9 for the logits, with the sizes named "tiny", float64, no dropout and ids `[2, 6]`, where up to 1e-7 was accepted. The next cell measures it for sixty models of that size, twenty with weights of each of three kinds, and asks in which range all twenty lie. It does not use this chapter's parameters.


# %%
def with_small_matrices(model, seed):
    """Every matrix drawn anew with a standard deviation of 0.02."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
    return model


# %%
kinds = {  # how the weights are made, and the range
    "PyTorch's initial weights": (lambda model, seed: model, 1e-9, 1e-8),
    "the same, stirred": (stir, 1e-9, 1e-7),
    "matrices with spread 0.02": (with_small_matrices, 1e-11, 1e-9),
}


# %% [markdown]
# One measurement, with two texts of six ids:


# %%
def upstream_gap(model):
    """The largest difference between our logits and upstream's, in float64."""
    two_texts = torch.randint(model.cfg.vocab_size, (2, 6))  # [B, T]
    return compare(model, upstream(), two_texts, (f64,)).differences[-1].difference


# %% [markdown]
# And sixty of them:

# %%
rows, middle, tiny = [], [], get_config("tiny")
for name, (prepare, low, high) in kinds.items():
    gaps = []
    for number in range(20):
        torch.manual_seed(number)
        gaps.append(upstream_gap(prepare(GPTModel(tiny).double(), number)))
    rows.append([name, low, high, sum(low < gap < high for gap in gaps)])
    middle.append(np.median(gaps))
header = ["weights of the tiny model", "more than", "less than", "models of 20"]
show_table(header, rows, format=".0e")
assert all(row[3] == 20 for row in rows) and middle[1] > middle[0] > middle[2]

# %% [markdown]
# The order of magnitude of the record is reproduced: with PyTorch's initial weights all twenty differences lie between 1e-9 and 1e-8. The figure itself, 2.3896e-9, is not. It depends on the weights (the differences of the stirred models have a larger median, those of the small matrices a smaller one), and, as will be seen, on the machine. None of the sixty is near the 1e-16 of a rounding in float64, and none reaches 1e-7. Something real and small is behind it.
#
# ## The cause
#
# [Chapter 3](03_feed_forward.ipynb) has a suspect. Upstream's GELU makes its constant, the root of 2/π, in each forward pass, by `torch.sqrt(torch.tensor(2.0 / torch.pi))`. A tensor made of a Python float has the default type, float32, whatever type the model has. In a float64 model the constant is still a float32 number. Here are the exact one and the two float32 numbers around it.

# %%
constant = torch.sqrt(torch.tensor(2.0 / torch.pi))
inexact, above = constant.item(), torch.tensor(EXACT).item()
below = np.nextafter(np.float32(above), np.float32(0)).item()
roots = {
    "exact, in float64": EXACT,
    "in float32, the nearest, above it": above,
    "in float32, below it": below,
}
rows = [[name, f"{x:.12f}", f"{x / EXACT - 1:z.1e}"] for name, x in roots.items()]
show_table(["the root of 2/π", "value", "error, as a share"], rows)
print("upstream's is one of the two in float32:", inexact in (above, below))
assert constant.dtype == torch.float32 and inexact in (above, below)

# %% [markdown]
# Which of the two it is depends on the machine. Upstream rounds twice, once 2/π and once the root of that. Where the root is rounded correctly, the result is the lower number, which is not the nearest to the exact one; some mathematical libraries return the upper one. So no digit of upstream's difference is printed in this chapter: it would be another one elsewhere.
#
# That is a suspect, and not yet a proof. A proof takes two directions. If the constant is the cause, then an exact constant must make the difference vanish, and putting the inexact constant into an exact program must bring the same difference about. The constant can be made exact in two ways. The first is another GELU in upstream's model:

# %%
exact_reference = upstream().copy_of(model)
for block in exact_reference.trf_blocks:
    block.ff.layers[1] = nn.GELU(approximate="tanh")
their_stages = upstream().stages(exact_reference, ids, cfg)
other_gelu = compare_stages("upstream, other GELU", {f64: (kept, their_stages)})

# %% [markdown]
# The second is another default type, for as long as the model runs:

# %%
default = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
try:
    other_default = compare(model, upstream(), ids, (f64,))
finally:
    torch.set_default_dtype(default)

# %% [markdown]
# For the other direction the NumPy program gets upstream's constant:

# %%
their_stages = upstream().stages(upstream().copy_of(model), ids, cfg)
rounded_numpy = numpy_stages(model, ids, root=inexact)
imitated = compare_stages("NumPy", {f64: (their_stages, rounded_numpy)})

# %% [markdown]
# What came of it:

# %%
rows = []
for name, comparison in [
    ("upstream, and ours", by_upstream),
    ("upstream with PyTorch's GELU, and ours", other_gelu),
    ("upstream under default float64, and ours", other_default),
    ("upstream, and NumPy with its constant", imitated),
]:
    first = parts_at(comparison)
    told = "more than rounding" if first else "rounding"
    rows.append([name, told, first or "nowhere"])
show_table(["two programs", "largest difference", "they part at"], rows)
assert [row[2] == "nowhere" for row in rows] == [False, True, True, True]

# %% [markdown]
# In both directions the prediction holds. With an exact constant upstream's model agrees with ours to rounding at every stage, and our NumPy program, given the inexact constant, agrees with upstream. Nothing else above rounding is left that could hide behind the first difference, for these weights and ids. That is the point of looking for the cause: as long as a difference of 1e-8 is merely tolerated, a second mistake of that size could stand behind it.
#
# A third check predicts the *size*. To first order, a small error δ in the constant c changes GELU by δ times its derivative by c. With u = x + 0.044715 x³,
#
# $$\frac{\partial}{\partial c}\,\frac{x}{2}\bigl(1+\tanh(cu)\bigr)=\frac{x\,u}{2}\bigl(1-\tanh^2(cu)\bigr).$$
#
# The second linear layer then maps this to the output of the feed-forward network, where it can be compared with what was measured.

# %%
ff = model.trf_blocks[0].ff
with torch.no_grad():
    x = ff.layers[0](kept["block 1: norm 2"])  # [B, T, 4D]
    u = x + 0.044715 * x**3
    change = (inexact - EXACT) * x * u / 2 * (1 - torch.tanh(EXACT * u) ** 2)
    predicted = change @ ff.layers[2].weight.T  # [B, T, D]
found = their_stages["block 1: feed-forward"] - kept["block 1: feed-forward"]
largest = found.abs().max().item()
print(f"measured / predicted: {largest / predicted.abs().max().item():.3f}")
print("number by number, they agree to a thousandth of the largest")
assert (predicted - found).abs().max().item() < 1e-3 * largest

# %% [markdown]
# The thousandth leaves room for two things. What the first order leaves out is smaller by another factor of about δ; and rounding in a stage whose numbers are near 1 is some 1e-16, which is small against a difference of this size, but not nothing.
#
# The drawing shows the difference along the model, with both constants. Its unit is the error of the constant, as a share: a value of 0.5 says that a number at this stage moved by half as much as the constant did. In this unit the drawing is the same for either of the two float32 numbers, since to first order the difference is proportional to the error.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
FLOOR = 1e-4  # rounding is drawn here, whatever its digits
error = abs(inexact / EXACT - 1)
names = list(kept)
lines = {}
for label, comparison in [
    ("upstream as it is", by_upstream),
    ("with the exact constant", other_gelu),
]:
    told = [line for line in comparison.differences if line.dtype == f64]
    lines[label] = [
        round(line.difference / error, 5) if line.difference > line.rounding else FLOOR
        for line in told
    ]
first = names.index(parts_at(by_upstream))
after = lines["upstream as it is"][first:]
with figure(
    "parity_stages",
    alt=f"The largest difference to upstream at each of {len(names)} stages, in units of the constant's error, on a "
    f"logarithmic axis: only rounding before the first feed-forward network, then between {min(after):.2f} and "
    f"{max(after):.2f}; with the exact constant, only rounding at every stage.",
    words=[
        f"The vertical axis lists the {len(names)} stages, from the embeddings at the top to the logits at the bottom.",
        "The horizontal axis is the largest difference to our model in float64, divided by the error of the constant (as a share), on a logarithmic scale.",
        f"The grey band at the left, up to {FLOOR}, stands for rounding; a point at its edge differs by rounding or not at all.",
        f"Upstream as it is: {first} stages at the edge, then {after[0]:.2f} at “{names[first]}”, and {after[-1]:.2f} at the logits.",
        f"With the exact constant: all {len(names)} stages at the edge of the band.",
    ],
    data={"stage": names, **lines},
    size=(5.6, 1.4 + 0.26 * len(names)),
) as ax:
    places = range(len(names))
    for (label, values), marker, size in zip(lines.items(), "os", (11, 5), strict=True):
        ax.plot(values, places, marker=marker, ms=size, mfc="none", label=label)
    ax.axvspan(FLOOR / 10, FLOOR, color="#bbbbbb", alpha=0.5, zorder=0)
    ax.text(
        FLOOR / 3, len(names) - 4, "rounding", rotation=90, ha="center", va="bottom"
    )
    ax.set_xscale("log")
    ax.set_xlim(FLOOR / 10, 10 * max(after))
    ax.set_yticks(places, names, fontsize=11)
    ax.invert_yaxis()
    ax.set(xlabel="largest difference\n(in units of the constant's error)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.2, 1), ncols=2, fontsize=11)

# %% [markdown]
# Once it is there, the difference never leaves: the shortcut carries it on, each further feed-forward network adds its own, and later layers transform the sum. It need not grow from stage to stage.
#
# Is upstream wrong, then? For its purpose it is not. Its models compute in float32, where every number has an error of that kind. The difference says that this program, cast to float64, is not quite a float64 program.
#
# ## transformers
#
# The package `transformers` holds a GPT-2 that many programs use, `GPT2LMHeadModel`. It is built here with the chapter's sizes and random weights; nothing is downloaded. It keeps its matrices transposed (its layer is called `Conv1D`, a convolution of width 1), always has a bias for query, key and value, and ties the two tables unless told otherwise. All four combinations of bias and tie are compared. Where our model has no such bias, theirs gets zeros.

# %%
import warnings
from itertools import product

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress")  # no progress bars: fine
    from transformers import GPT2LMHeadModel
    from transformers.utils import logging

logging.set_verbosity_error()  # nor other messages
logging.disable_progress_bar()

# %%
rows = []
for bias, tie in product((False, True), repeat=2):
    torch.manual_seed(seed)
    changed = replace(cfg, qkv_bias=bias, tie_weights=tie)
    candidate = stir(GPTModel(changed), seed)
    comparison = compare(candidate, transformers(), ids)
    assert comparison.same and parts_at(comparison) is None
    verdict = "same" if comparison.same else "differs"
    rows.append([bias, tie, len(comparison.differences), verdict])
show_table(["QKV bias", "tied", "stages, both precisions", "verdict"], rows)

# %% [markdown]
# Zeros for a missing bias add nothing, so a model without it loses nothing. The other direction is not free: a model without a bias cannot take over one that is not zero. It is refused, and nothing is copied.

# %%
without_bias = GPTModel(replace(cfg, qkv_bias=False)).double()
reference = transformers()
theirs = reference.copy_of(without_bias)
reference.copy_to(without_bias, theirs)  # a bias of zeros: accepted
theirs.transformer.h[0].attn.c_attn.bias.data[0] = 0.5
try:
    reference.copy_to(without_bias, theirs)
except ValueError as error:
    print(fill(f"refused: {error}", 80))
else:
    raise AssertionError("a bias was dropped")

# %% [markdown]
# And the mistake that was announced above: everything is transposed but the square matrix. The weights load.

# %%
theirs = reference.copy_of(model)
for block in theirs.transformer.h:
    square = block.attn.c_proj.weight  # [D, D]
    square.data = square.data.T.clone()  # as if it had been left as it was
their_stages = reference.stages(theirs, ids, cfg)
not_transposed = compare_stages("transformers", {f64: (kept, their_stages)})
print("same:", not_transposed.same, "· parts at:", parts_at(not_transposed))
assert parts_at(not_transposed) == "block 1: attention"

# %% [markdown]
# The comparison names the stage, and the stage names the matrix, since QKV before it agrees.
#
# ## PyTorch's own layers
#
# PyTorch has every part of a block as a layer of its own. First they are compared one by one, each with the input that it gets in the model. `nn.MultiheadAttention` has one switch for all its biases. Our output projection has one, so query, key and value have one there too, with zeros where ours has none. `TORCH` is the layout; the weights of its first layer are picked out by their prefix.

# %%
options = {"batch_first": True, "norm_first": True}
tanh = nn.GELU(approximate="tanh")
layer = nn.TransformerEncoderLayer(D, H, 4 * D, 0.0, tanh, **options).double().eval()
first, state = "layers.0.", TORCH.from_ours(model.state_dict(), cfg)
layer.load_state_dict(
    {name[len(first) :]: state[name] for name in state if name.startswith(first)}
)
T = num_tokens
future = torch.ones(T, T, dtype=torch.bool).triu(1)  # [T, T], True = must not be seen

# %% [markdown]
# The causal mask has to be given, and the inputs are those of the model's first block.

# %%
block = model.trf_blocks[0]
x, normed = kept["embeddings"], kept["block 1: norm 1"]  # [B, T, D]
attended, _ = layer.self_attn(normed, normed, normed, attn_mask=future)
rows = [
    ["nn.LayerNorm", difference(block.norm1(x), layer.norm1(x))],
    ["nn.GELU, tanh", difference(block.ff.layers[1](x), layer.activation(x))],
    ["nn.MultiheadAttention", difference(block.att(normed), attended)],
    ["nn.TransformerEncoderLayer", difference(block(x), layer(x, src_mask=future))],
]
show_table(["layer", "largest difference"], rows)
assert all(told == "rounding" for _, told in rows)

# %% [markdown]
# Why an *encoder* layer for a GPT? A decoder layer in PyTorch has a second attention, to another text, which GPT-2 does not have. An encoder layer has the parts of a GPT block and lacks only the causal mask, which the caller can give. Some of its defaults are not GPT-2's: the norms come last (`norm_first=False`), the activation is ReLU, the inner width is 2048, and the batch is the second axis. Its dropout rate is 0.1, and here 0.
#
# ## What True means
#
# The mask was `future`, True where looking is forbidden. For `nn.MultiheadAttention` and the encoder layer True means "must not be seen". For `F.scaled_dot_product_attention`, which they may call inside, True means "may be seen". Both accept both, since a boolean square is a boolean square. What does the wrong sense give?

# %%
seen = ~future  # [T, T], True = may be seen
right = block.att(normed)
with_nan, _ = layer.self_attn(normed, normed, normed, attn_mask=seen)
without, _ = layer.self_attn(normed, normed, normed, attn_mask=seen, need_weights=False)

# %% [markdown]
# `need_weights=False` tells the layer to return the result alone, without the attention weights. That should change nothing about the result.

# %%
results = {"right": right, "wrong sense": with_nan}
results["wrong sense, need_weights=False"] = without
rows = []
for name, result in results.items():
    nan = result.isnan().any(dim=-1).any(dim=0)  # [T], in any of the texts
    places = ", ".join(str(t) for t in nan.nonzero().flatten().tolist()) or "nowhere"
    same = torch.allclose(result[:, 0], right[:, 0], rtol=0, atol=1e-9)
    rows.append([name, places, same])
show_table(["nn.MultiheadAttention", "NaN at position", "position 0 is right"], rows)
print("the last position is", num_tokens - 1)
assert rows[0][1:] == ["nowhere", True] and not rows[1][2] and not rows[2][2]

# %% [markdown]
# Turned over, the mask lets each position see what comes after it and nothing else. The last position has nothing after it: all of its scores are −∞. Every exponential is 0, and so is their sum; 0/0 is NaN. That is the honest result. It is also the lucky one, because NaN is loud.

# %%
from torch.nn import functional as F

scores = torch.full((num_tokens,), -torch.inf, dtype=f64)  # a row where all is masked
print("softmax of such a row is NaN:", scores.softmax(dim=0).isnan().all().item())
query = torch.ones(1, 1, num_tokens, 2, dtype=f64)  # [B, H, T, D/H]
result = F.scaled_dot_product_attention(query, query, query, attn_mask=future)
print("scaled_dot_product_attention makes of it:", result[0, 0, -1].tolist())

# %% [markdown]
# The fused function turns such a row into zeros (in this release of PyTorch; it has given NaN in others), and with `need_weights=False` the layer goes that way. So the same mistake gives NaN in one call and plausible numbers in the next. That no NaN appears proves nothing about a mask; a comparison of values at position 0 does.
#
# ## A reference with a trap
#
# One thing more about this layer, because it shows how a reference can mislead. The layer has a fast path, a single fused operation. It is taken when the layer is in eval mode, no gradient is needed, H is even, and no hook hangs on the layer or on a module in it; there are some further conditions, which this layer meets. The activation there is one of two, ReLU or GELU. Here the layer is called twice with the same input, once with gradients and once without.

# %%
erf_block = deepcopy(block)
erf_block.ff.layers[1] = nn.GELU()  # the exact GELU
results = {"gradients on": layer(x, src_mask=future)}
with torch.no_grad():
    results["torch.no_grad()"] = layer(x, src_mask=future)

# %% [markdown]
# Each result is compared with our block and with its copy that has the exact GELU.

# %%
rows = []
for name, result in results.items():
    to_tanh, to_erf = difference(block(x), result), difference(erf_block(x), result)
    assert "rounding" in (to_tanh, to_erf)
    rows.append([name, to_tanh, to_erf])
show_table(["the encoder layer", "to the tanh GELU", "to the exact GELU"], rows)
print("H is", "even: the fast path is open" if H % 2 == 0 else "odd: no fast path")
assert rows[0][1] == "rounding"

# %% [markdown]
# On the fast path the word `approximate="tanh"` is dropped without a message: the layer sees a GELU and computes the exact one. Nothing in its result looks wrong. A comparison made under `torch.no_grad()`, as one does, would report a mistake in *our* model. With an odd H the trap does not open, and both rows are alike.
#
# `stages` watches through hooks, which keep a layer off the fast path, so the comparison of the whole model is not touched by this. (`torch_nn()` takes no chance, and gives the layer a function of its own as its activation, which the layer does not recognize. QKV is not seen there: `nn.MultiheadAttention` projects inside, and `stages` makes the same product from its weights.) The rule for references: where two differ, either may be the one that is wrong. A third decides; `transformers`, above, agreed with the tanh form.

# %%
by_torch = compare(model, torch_nn(), ids)
print("stages compared in both precisions:", len(by_torch.differences))
print("same:", by_torch.same, "· parts at:", parts_at(by_torch) or "nowhere")
assert by_torch.same and parts_at(by_torch) is None

# %% [markdown]
# ## Tolerances
#
# Why is a difference of exactly zero not asked for? Because a sum of rounded numbers depends on the order in which it is added, and two right programs add in different orders.

# %%
left, right = (0.1 + 0.2) + 0.3, 0.1 + (0.2 + 0.3)
print("the same sum:", left == right, f"· they differ by {abs(left - right):.1e}")
assert 0 < abs(left - right) < 2e-16

# %% [markdown]
# A number is rounded with an error of at most a certain share of itself, the *unit roundoff*: half the distance between 1 and the next number. So the tolerance must be a share too, here of the largest value at the stage (of 1, if that is larger), since a sum is rounded on the scale of its largest terms. And there are many roundings: a stage adds as many as 4D products, in an order of its own, and LayerNorm divides by the spread of its input, which enlarges what differed before. How many units do the tolerances of `book_utils.parity` give?

# %%
from book_utils.parity import ROUNDING

rows = []
for precision, share in ROUNDING.items():
    unit, kind = torch.finfo(precision).eps / 2, str(precision)[6:]
    rows.append([kind, f"{unit:.1e}", f"{share:.0e}", round(share / unit)])
show_table(["type", "unit roundoff", "tolerance, as a share", "units"], rows)

# %% [markdown]
# Do the right programs stay within them?

# %%
by_transformers = compare(model, transformers(), ids)
used = [
    line.difference / line.rounding
    for comparison in (by_numpy, by_torch, by_transformers)
    for line in comparison.differences
]
print(f"{len(used)} comparisons; none uses half of its room:", max(used) < 0.5)
assert max(used) < 0.5

# %% [markdown]
# The tolerances are not tight, and they need not be. A tolerance should lie well above rounding and well below the smallest mistake worth finding. Where the room ends can be tried out. Ten tiny models, and for each of them three programs beside ours: one that is right (`transformers`), upstream with its rounded constant, and our own with the exact GELU in place of the tanh form. Which tolerance accepts which? Four are tried, two in each precision; one of the two is a plain number, the other a share of the largest logit.

# %%
rules = [  # the precision, the tolerance, and whether it is a share
    (torch.float32, 1e-3, False),
    (torch.float32, 2e-5, True),
    (torch.float64, 1e-7, False),
    (torch.float64, 1e-12, True),
]
programs = {
    "transformers": lambda model, ids: transformers().copy_of(model)(ids).logits,
    "upstream": lambda model, ids: upstream().copy_of(model)(ids),
    "exact GELU": lambda model, ids: with_exact_gelu(model)(ids),
}

# %% [markdown]
# First all differences are measured, each with the largest of our logits beside it.

# %%
measured = []  # precision, program, largest difference, largest logit
for number in range(10):
    torch.manual_seed(number)
    candidate = stir(GPTModel(tiny).double(), number).eval()
    two_texts = torch.randint(tiny.vocab_size, (2, 6))  # [B, T]
    for precision, (name, run) in product((torch.float32, f64), programs.items()):
        typed = deepcopy(candidate).to(precision)
        with torch.no_grad():
            logits, theirs = typed(two_texts), run(typed, two_texts)  # [B, T, V]
        gap = (theirs - logits).abs().max().item()
        measured.append((precision, name, gap, logits.abs().max().item()))

# %% [markdown]
# Then each tolerance is held against those of its precision. The last three columns say how many of ten it accepts.

# %%
rows = []
for precision, tolerance, is_share in rules:
    accepted = dict.fromkeys(programs, 0)
    for used, name, gap, largest in measured:
        limit = tolerance * max(1, largest) if is_share else tolerance
        accepted[name] += used == precision and gap <= limit
    rows.append([str(precision)[6:], tolerance, is_share, *accepted.values()])
show_table(["type", "tolerance", "a share?", *programs], rows, format=".0e")
assert [row[3:] for row in rows] == [[10] * 3, [10, 10, 0], [10, 10, 0], [10, 0, 0]]

# %%
moved = [gap for *kind, gap, _ in measured if kind == [f64, "exact GELU"]]
print(f"the exact GELU moves the logits by {min(moved):.1e} to {max(moved):.1e}")

# %% [markdown]
# With 1e-3 the wrong activation passes in all ten. It may look strict for float32, and in a model of this size it is wider than the mistake. With a share that has a reason, float32 does see it. 1e-7 in float64 sees it with a wide margin, and lets upstream's constant pass; the last row sees that too. None of the four is the right one for every purpose. But each of them lets through whatever is smaller than it is, and who chooses it should know what that may be.
#
# ## All references
#
# One table for the chapter's model. A difference that is accepted is put into words; for upstream's alone that may be more than rounding.


# %%
def in_words(line):
    """A difference that is accepted in words, another one in digits."""
    if line.difference <= line.rounding:
        return "rounding"
    return "more than rounding" if line.same else f"{line.difference:.1e}"


# %% [markdown]
# A comparison becomes a row: the logits in either precision, the greedy ids that differ, and the verdict, which looks at all stages.


# %%
def summary(comparison):
    """float32, float64, greedy ids that differ, verdict."""
    lines = [x for x in comparison.differences if x.stage == "logits"]
    told = {line.dtype: in_words(line) for line in lines}
    greedy = sum(comparison.greedy.values())
    verdict = "same" if comparison.same else "differs"
    return [told.get(torch.float32, "not made"), told[f64], greedy, verdict]


# %%
by_erf = compare_stages("", {f64: (kept, stages(with_erf, ids))})
rows = [
    ["NumPy, written here", *summary(by_numpy)],
    ["upstream", *summary(by_upstream)],
    ["upstream, exact constant", *summary(other_default)],
    ["transformers", *summary(by_transformers)],
    ["torch.nn", *summary(by_torch)],
    ["ours with the exact GELU", *summary(by_erf)],
]
header = ["reference", "logits, float32", "float64", "greedy", "verdict"]
show_table(header, rows)
assert [row[4] for row in rows] == ["same"] * 5 + ["differs"]

# %% [markdown]
# The last row is the wrong model from the beginning of the chapter. How many of its greedy ids differ is listed too, and they are a weak check: a small change of the logits seldom moves the largest one to another id. Three sets of logits show how little equal greedy ids say.

# %%
scores = torch.tensor([1.0, 2.0, 4.0], dtype=f64)  # one position, V = 3
rows = []
for name, other in [
    ("as they are", scores),
    ("doubled", 2 * scores),
    ("each larger by 100", scores + 100),
]:
    gap = (other - scores).abs().max().item()
    moved = (other.softmax(0) - scores.softmax(0)).abs().max().item()
    rows.append([name, other.argmax().item(), f"{gap:.0f}", f"{moved:.2f}"])
show_table(["logits", "greedy id", "logits differ by", "probabilities differ by"], rows)
assert len({row[1] for row in rows}) == 1

# %% [markdown]
# The doubled logits name the same id and mean other probabilities, so a program that draws its ids at random would write another text. The shifted ones even have the same probabilities, since softmax does not notice a constant that is added to all. Only logits show all of it, which is why they are compared, and not texts.
#
# ## Weights in a file
#
# Trained weights come in files, called *checkpoints*, and a file is one more place where weights have a form of their own. `save_model` writes a *safetensors* file: a header in JSON that lists name, type and shape of each tensor, followed by the bare numbers. A tied table is written once. The files of this section go to a temporary folder, which is gone at once.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import load_file, save_file

from book_utils import save_model


# %%
def saved_and_loaded(model):
    """The tensors in the file that save_model writes, and the model read from it."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_model(model, file)
        return load_file(file), load_model(file)  # the sizes are in the file too


# %%
rows = []
for tie in (False, True):
    candidate = stir(GPTModel(replace(cfg, tie_weights=tie)).double(), seed).eval()
    in_file, loaded = saved_and_loaded(candidate)
    is_tied = loaded.out_head.weight is loaded.tok_emb.weight
    assert difference(loaded(ids), candidate(ids)) == "rounding" and is_tied == tie
    for name, value in candidate.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    rows.append([tie, len(in_file), "out_head.weight" in in_file, is_tied])
header = ["tied", "tensors in the file", "head among them", "tied after loading"]
show_table(header, rows)

# %% [markdown]
# For the weights, exact equality is asked for: a copy of a number is that number. For the logits it is not, since how a sum is ordered may even depend on where a tensor lies in memory.
#
# A GPT-2 checkpoint in the form of Hugging Face is a folder with `model.safetensors` and `config.json`. With the parameter `checkpoint` this chapter reads a real one, from your disk; as it stands it makes a small one, with the package's own `save_pretrained`. `load_model` reads it, `from_pretrained` of `transformers` reads the same folder, and both get the same ids. No network is asked.

# %%
gpt2_cfg = replace(cfg, qkv_bias=True, tie_weights=True)  # as GPT-2 is
small = stir(GPTModel(gpt2_cfg).double(), seed).eval()


def both_loaded(folder):
    """The checkpoint in `folder`, read by this book and by transformers, in float64."""
    ours = load_model(folder).double()  # first: it refuses what it does not know
    theirs = GPT2LMHeadModel.from_pretrained(folder, local_files_only=True)
    return ours, theirs.double().eval()


# %%
if checkpoint:
    loaded, theirs = both_loaded(checkpoint)
else:
    with TemporaryDirectory() as folder:
        transformers().copy_of(small).save_pretrained(folder)
        loaded, theirs = both_loaded(folder)

# %% [markdown]
# The two are compared as before.

# %%
torch.manual_seed(seed)
length = min(num_tokens, loaded.cfg.context_length)
its_ids = torch.randint(loaded.cfg.vocab_size, (batch_size, length))  # [B, T]
pair = stages(loaded, its_ids), transformers().stages(theirs, its_ids, loaded.cfg)
from_file = compare_stages("transformers", {f64: pair})
print("sizes:", {key: loaded.cfg[key] for key in ("vocab_size", "emb_dim", "n_layers")})
print("stages:", len(from_file.differences), "· same:", from_file.same)
print("greedy ids that differ:", from_file.greedy[f64])
assert from_file.same
assert checkpoint or difference(small(ids), loaded(ids)) == "rounding"

# %% [markdown]
# The names in such files vary. Some tools leave out the prefix `transformer.`, older files carry the causal masks as `attn.bias` and `attn.masked_bias`, some repeat the head. Upstream's state dict has names of its own. One model, saved in four ways, must come back as one model.

# %%
own = small.state_dict()
gpt2 = HUGGING_FACE.from_ours(own, gpt2_cfg)
bare = {name.removeprefix("transformer."): value for name, value in gpt2.items()}
del bare["lm_head.weight"]
masks = {f"h.{i}.attn.bias": torch.ones(1, 1, C, C).tril() for i in range(L)}
forms = {
    "the book's": own,
    "GPT-2's, with its prefix and head": gpt2,
    "without prefix and head, with masks": {**bare, **masks},
    "upstream's": UPSTREAM.from_ours(own, gpt2_cfg),
}

# %% [markdown]
# Each is written to a file and read again.


# %%
def write(state, file):
    """A safetensors file with the tensors of `state`."""
    save_file({name: x.contiguous().clone() for name, x in state.items()}, file)


# %%
rows = []
for name, state in forms.items():
    with TemporaryDirectory() as folder:
        write(state, file := Path(folder) / "weights.safetensors")
        read = load_model(file, gpt2_cfg).state_dict()
    rows.append([name, len(state), all(torch.equal(read[k], own[k]) for k in own)])
show_table(["names in the file", "tensors", "every weight as before"], rows)
assert all(row[2] for row in rows)

# %% [markdown]
# ## What is refused
#
# A loader that takes what fits and passes over the rest leaves the rest at its random initial values, and the model runs. So `load_model` is strict, and names everything that is wrong at once. In the next file one tensor is missing, one has a name that nobody knows, and one has a row too many.

# %%
faulty = dict(gpt2)
del faulty["transformer.ln_f.bias"]
faulty["transformer.ln_f.offset"] = torch.zeros(D)
faulty["transformer.wte.weight"] = torch.zeros(V + 1, D)


# %%
def refusal(name, state, save):
    """What load_model says to the file that `save` writes; the folder is left out."""
    with TemporaryDirectory() as folder:
        save(state, file := Path(folder) / name)
        try:
            load_model(file, gpt2_cfg)
        except ValueError as error:
            return str(error).replace(str(file), name)
    raise AssertionError(f"{name} was accepted")


# %% [markdown]
# A second file holds the right weights, written by `torch.save`, which makes a pickle file.

# %%
said = refusal("faulty.safetensors", faulty, write)
print(said)
print(fill(refusal("old.bin", dict(own), torch.save), 80))
assert all(word in said for word in ("missing", "unknown", "another shape"))

# %% [markdown]
# Why are pickle files refused? Pickle, Python's own way to keep objects, does not describe an object. It describes how to *make* it, as a small program that may call functions. Any function that can be imported may be called, and reading the file calls it.


# %%
import pickle


class Harmless:
    def __reduce__(self):  # how pickle is told to rebuild this object
        return print, ("this line was printed by the bytes that were read",)


data = pickle.dumps(Harmless())
pickle.loads(data)

# %% [markdown]
# Here it was `print`. It could have been anything that the reader of the file may do. A safetensors file holds names, shapes and numbers, and there is nothing in it to call. (`torch.load` with `weights_only=True` reads a pickle with a short list of permitted calls, which must be as good as its authors' care; `load_model(…, allow_pickle=True)` uses it.)
#
# ## Your copy of upstream's file
#
# Somebody who works with upstream's book may have a `gpt.py` of their own, perhaps changed. It can be compared from the command line:
#
# ```
# python -m book_utils parity --upstream PATH
# ```
#
# PATH is the file, or a folder that holds one. Two configurations are compared: the tiny one, and one in which no two sizes are equal, with a bias, with dropout that eval mode must silence, and with T = C. (In the tiny one V, C and D are equal, so that one may stand for another and nobody sees it.) A table is printed, a `results.json` with configuration, versions, every stage's difference, threshold and verdict is written, and the exit status is the verdict: 0 for the same, 1 for a difference, 2 for a file that is refused or cannot be compared.
#
# Such a file is a program, so the warning about pickle holds here as well. The file is never run. It is parsed into a syntax tree; six class definitions are taken from it, each is checked against a list of what may occur in a model, and only what passes is executed. Here are the two files of the installed package, and a version of the second with one line put into a class.

# %%
from llms_from_scratch import ch04
from book_utils.parity.upstream_file import UpstreamFileError, upstream_classes

package = Path(ch04.__file__).parent
texts = {name: (package / name).read_text("utf-8") for name in ("ch03.py", "ch04.py")}
head = "class GELU(nn.Module):\n"
hostile = texts["ch04.py"].replace(head, head + "    print('run by the file')\n")
assert hostile != texts["ch04.py"]


# %%
def classes_in(texts):
    """The classes taken from a folder with these files."""
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, "utf-8")
        return upstream_classes(folder)


# %% [markdown]
# First the folder as it is, then with the changed file.

# %%
classes = classes_in(texts)
print("taken:", ", ".join(classes))
try:
    classes_in({**texts, "ch04.py": hostile})
except UpstreamFileError as error:
    print(fill(f"refused: {error}", 80))
else:
    raise AssertionError("a class that prints was accepted")
by_file = compare(model, upstream(classes["GPTModel"]), ids)
print("logits in float64:", summary(by_file)[1])
assert summary(by_file) == summary(by_upstream)

# %% [markdown]
# The refusal names file, line, class and what the class does, and the line did not print. The classes that were taken compute what the installed ones do.
#
# ## What parity does not show
#
# A verdict holds for what was tried: these weights, these ids, one length, eval mode, one machine. What does not follow from it?
#
# - *Other lengths.* A mistake that shows only at T = C, or at T = 1, is not seen at the length that was tried. The tests of the book vary it.
# - *Dropout and training.* In eval mode dropout does nothing. A rate at the wrong place, and anything about gradients, optimizers or loss, remains unseen.
# - *Being right.* Two programs can share a mistake. References by different authors make that less likely, and nothing makes it impossible. Above, a reference itself was wrong under one condition.
# - *The text.* Parity begins with ids. A tokenizer that cuts texts in another way gives other ids, and so other results from the same model.
# - *Quality.* The weights were random. Equal logits say that two models are one function, and nothing about whether it is a good one.
#
# ## The final form
#
# The package [book_utils/parity](../book_utils/parity/__init__.py) holds the references, the stages and the comparison; the module [book_utils/layouts.py](../book_utils/layouts.py) the forms of the weights, and [book_utils/checkpoints.py](../book_utils/checkpoints.py) the strict loader and the writer of files. `compare` is this chapter's procedure in one call. It is put beside the pieces above: the hooks of `outputs_of`, and largest differences taken by hand. Both are compared up to rounding, 1e-12 of the largest value (or of 1), since two runs need not add in the same order. First the modules that are looked at:

# %%
names = {"block 1: norm 1": "norm1", "block 1: attention": "att"}
names |= {"block 1: feed-forward": "ff", "block 1: after feed-forward": ""}
paths = {stage: f"trf_blocks.0.{end}".rstrip(".") for stage, end in names.items()}
paths["final norm"] = "final_norm"

# %%
their_model = upstream().copy_of(model)
ours_seen = outputs_of(model, paths.values(), ids)
theirs_seen = outputs_of(their_model, paths.values(), ids)  # upstream's names
told = {line.stage: line for line in by_upstream.differences if line.dtype == f64}
for stage, path in {**paths, "logits": "logits"}.items():
    assert difference(kept[stage], ours_seen[path]) == "rounding"
    by_hand = (ours_seen[path] - theirs_seen[path]).abs().max().item()
    assert abs(by_hand - told[stage].difference) <= told[stage].rounding
print(len(paths) + 1, "stages: by hand and by compare, the same")

# %% [markdown]
# ## The results of this run
#
# A few numbers of this chapter's model and ids, all of them in the precision that the parameter `dtype` names. Above, a difference that is accepted was put into words. Here it has its digits, which are others on another machine or under another release of PyTorch, so set it beside those of runs on one machine only. A 0 is possible, since PyTorch's layers call many of the functions that ours call. A rerun with other parameters gives these results again, under the same names.

# %%
precision = getattr(torch, dtype)


def gap(comparison):
    """The largest difference of the logits in the precision of this run."""
    lines = [x for x in comparison.differences if x.stage == "logits"]
    return next(line.difference for line in lines if line.dtype == precision)


by_others = (by_transformers, by_upstream, by_torch)
greedy = sum(comparison.greedy[precision] for comparison in by_others)
greedy_ids = len(by_others) * ids.numel()
our_logits = stages(deepcopy(model).to(precision), ids)["logits"]  # [B, T, V]

# %% tags=["nbval-ignore-output"]
first, what = parts_at(by_upstream, precision), "largest difference of the logits"
publish(
    [
        ("largest_logit", our_logits.abs().max(), "largest absolute value among ours"),
        ("transformers_difference", gap(by_transformers), f"{what} to transformers"),
        ("torch_difference", gap(by_torch), f"{what} to torch.nn"),
        ("upstream_difference", gap(by_upstream), f"{what} to upstream"),
        ("upstream_parts_at", first or "nowhere", "first stage beyond rounding"),
        ("greedy_differences", greedy, f"greedy ids that differ, of {greedy_ids}"),
    ]
)

# %% [markdown]
# ## A sweep: width and precision
#
# How does such a difference change with the width of the model, and with the precision? The command `python -m book_utils sweep chapters/09_parity.sweep.yml` ran this chapter many times, and the table that it made is kept with the chapter. The figure draws it: the largest difference of the logits to transformers, in each run. It was not computed just now, does not follow this notebook's parameters, and shows the digits of the machine where it was made.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench import show_sweep

runs = show_sweep("09_parity")

# %% [markdown]
# The two lines can be brought together. Divided by the unit roundoff of its precision and by the largest logit, a difference counts roundings. Here are the medians of the seeds:


# %%
def medians(quantity):
    """(dtype, width) -> the median of quantity(run) over the seeds."""
    found = {}
    for run in runs:
        found.setdefault((run["dtype"], run["emb_dim"]), []).append(quantity(run))
    return {place: np.median(values) for place, values in found.items()}


def in_roundings(run):
    unit = {"float32": 2**-24, "float64": 2**-53}[run["dtype"]]
    return run["transformers_difference"] / (unit * run["largest_logit"])


# %%
gaps, counts = (
    medians(lambda run: run["transformers_difference"]),
    medians(in_roundings),
)
rows = [[*place, f"{gaps[place]:.1e}", f"{counts[place]:.1f}"] for place in gaps]
show_table(["precision", "width D", "difference", "in roundings"], rows)
print("greedy ids that differ:", sum(run["greedy_differences"] for run in runs))

# %% [markdown]
# And by which factor do the differences shrink from float32 to float64? The table of the sweep has them for upstream, too.

# %%
widths = sorted({run["emb_dim"] for run in runs})
for name in ("transformers", "upstream"):
    gaps = medians(lambda run, name=name: run[f"{name}_difference"])
    ratios = [gaps["float32", size] / gaps["float64", size] for size in widths]
    print(f"{name}: between {min(ratios):.0e} and {max(ratios):.0e}")

# %% [markdown]
# What it shows: to transformers, the differences of the two precisions lie as far apart as the precisions themselves, and counted in roundings they are alike: a few for narrow models, some more for wide ones, since a wider model adds more products. That is how rounding behaves. The difference to upstream does not behave so. In float32 it hides among the roundings; in float64 these shrink and the constant of GELU stays, so the factor is small.
#
# What it does not show: anything about other depths, lengths or weights, or about models as large as those in use. A few seeds give no limit either; the limits of this chapter leave more room than any of these runs took.

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | GPT-2's weight `c_attn` has the shape `[D, 3D]` and `[3D, D]` is wanted | GPT-2's files keep linear layers as `[in, out]`. | Does the layer belong to a `Conv1D`? | Transpose the matrices of `c_attn`, `c_fc` and `c_proj`. |
# | GPT-2's weights load, and two models first differ at the result of attention | The square output projection was not transposed. | Query, key and value agree, the result of attention does not. | Transpose `attn.c_proj.weight` too. |
# | Two models first differ at query, key and value | They are fused in another order, or the rows of each head lie together. | Compare the three parts one by one. | Reorder the rows. |
# | Unexpected keys `attn.bias`, `attn.masked_bias` or `mask` in a state dict | Causal masks, and the number they put in, were kept as buffers. | Their shape is `[…, C, C]`, or none. | Pass over them, but not over `c_attn.bias`, which is a bias. |
# | Every key of a state dict is unexpected, and every one is missing | One side has a prefix such as `transformer.` | Print one name of each side. | Remove the prefix, or add it. |
# | `lm_head.weight` is missing in a GPT-2 file | The head is tied to the token table and kept once. | `tie_word_embeddings` in its configuration | Take the token table. |
# | Two models first differ at the feed-forward network, in float32 too | One has the exact GELU for the tanh form, perhaps on PyTorch's fast path. | Exchange the activation; call with gradients on. | `nn.GELU(approximate="tanh")` |
# | Two models first differ at the feed-forward network, in float64 only | A constant in GELU is rounded to float32. | Run under `torch.set_default_dtype(torch.float64)`. | Make the constant a Python number. |
# | Two models differ at the first LayerNorm already | Another eps, or a variance divided by D − 1 | Compute both by hand for one position. | eps = 1e-5, and divide by D. |
# | The result of attention is NaN at the last position only | The boolean mask has the other sense, so the last position sees nothing. | Compare the values at position 0. | `~mask` |
# | Each call of the comparison gives another difference | Dropout is active. | `model.training` is True. | Call `eval()` on both models. |
# | Two models differ a little in float32 | Rounding, if there is no mistake. | In float64 it shrinks by about eight orders of magnitude; a mistake does not. | Choose a tolerance with a reason. |
# | Two models agree with fresh weights, and not with trained ones | Scales of 1, or shifts and biases of 0, hid a mistake. | Stir every parameter and compare. | Find the first stage that differs. |
# | A comparison passes although one side is NaN | `difference > tolerance` is false for NaN. | Print the difference. | `not difference <= tolerance` |
#
# ## Exercises
#
# ::::{admonition} Exercise 9.1 · Split it
#
# Split the weight of a fused projection, `[3D, D]` as `nn.Linear` keeps it, into the weights of query, key and value, in this order.
#
# ::::


# %% tags=["exercise"]
def split_qkv(weight):
    """[3D, D] -> three tensors [D, D]"""
    ...  # your line here


check("9.1", split_qkv)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return weight.chunk(3, dim=0)
# ```
#
# The output axis of a stored linear layer is axis 0, and the first D outputs are the query. `weight.view(3, D, D)` gives the same three. In a file that keeps `[D, 3D]` the output axis is the last one.
#
# ::::
#
# ::::{admonition} Exercise 9.2 · Into GPT-2's form
#
# Given the name and the tensor of one parameter, in Hugging Face's names and in the orientation of `nn.Linear`, return the tensor as GPT-2's file keeps it. The matrices of the layers `c_attn`, `c_fc` and `c_proj` are kept transposed there, tables and vectors as they are.
#
# ::::


# %% tags=["exercise"]
def as_in_the_file(name, tensor):
    """Say ("h.0.mlp.c_fc.weight", [4D, D]) -> [D, 4D]"""
    ...  # your lines here


check("9.2", as_in_the_file)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# layer, kind = name.split(".")[-2:]
# return tensor.T if layer.startswith("c_") and kind == "weight" else tensor
# ```
#
# The name decides, not the shape. A rule by shape ("transpose where it does not fit") leaves the square `attn.c_proj.weight` as it is, and a rule by number of axes turns the tables `wte` and `wpe`, which are no linear layers.
#
# ::::
#
# ::::{admonition} Exercise 9.3 · The first stage
#
# Given the largest difference at each stage, in order, and a tolerance, return the name of the first stage that does not agree, or the text `"none"`. A difference equal to the tolerance agrees; NaN does not.
#
# ::::


# %% tags=["exercise"]
def first_to_part(differences, tolerance):
    """differences: dict, stage -> largest difference"""
    ...  # your lines here


check("9.3", first_to_part)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# for stage, difference in differences.items():
#     if not difference <= tolerance:
#         return stage
# return "none"
# ```
#
# The first, not the largest: a difference is carried along and may grow, so the largest one often stands far behind its cause.
#
# ::::
#
# ::::{admonition} Exercise 9.4 · The other sense
#
# A boolean mask was made for `F.scaled_dot_product_attention`, where True means "may be seen". Return the mask that makes `nn.MultiheadAttention` see the same. It need not be a causal mask.
#
# ::::


# %% tags=["exercise"]
def for_multihead(may_be_seen):
    """[T, T], True = may be seen -> [T, T], True = must not be seen"""
    ...  # your line here


check("9.4", for_multihead)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return ~may_be_seen
# ```
#
# For a causal mask this is the triangle above the diagonal; the diagonal itself is False. `may_be_seen.T` comes close and is not the same: its diagonal is True, so no position would see itself.
#
# ::::
#
# ::::{admonition} Exercise 9.5 · A comparison that does not pass on NaN
#
# Write the comparison itself: True if the two tensors have the same shape and no two numbers differ by more than the tolerance, False otherwise, also where either tensor holds a NaN.
#
# ::::


# %% tags=["exercise"]
def same(ours, theirs, tolerance):
    """Two tensors and a number -> True or False"""
    ...  # your lines here


check("9.5", same)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# if ours.shape != theirs.shape:
#     return False
# return ((ours - theirs).abs() <= tolerance).all().item()
# ```
#
# Without the first line a `[T, V]` and a `[V]` would be compared after one of them was spread over the other. Asking whether all differences are small enough says no to NaN; asking whether any is too large does not see it.
#
# ::::
#
# ## What you have now
#
# - Weights in the form of four programs and of GPT-2's files, with names, orientation, splitting and order aligned, and a strict loader that names all that does not fit.
# - A comparison stage by stage that found where upstream parts, and a cause proven in both directions: a constant in float32.
# - Tolerances as a share of the largest value, with room above rounding, and what each of them lets through.
#
# Parity sees what shapes and counts do not. It is not the only check, nor the cheapest. [Chapter 10](10_blind_spots.ipynb) makes one mistake after the other on purpose and asks which check sees which.
#
# **Sources.** S. Raschka, "Build a Large Language Model (From Scratch)", 2024, chapter 4; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/gpt.py` and the package `llms-from-scratch`, modules `ch03` and `ch04` (the six classes, the constant of GELU). A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; its reference code, `src/model.py` of openai/gpt-2, functions `conv1d`, `gelu`, `norm` and `attn`. D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units (GELUs)", 2016, arXiv:1606.08415, section 2 (both forms). `modeling_gpt2.py` and `pytorch_utils.py` of huggingface/transformers (the names in the files, `Conv1D`). N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, chapters 2 to 4 (unit roundoff, sums in different orders). PyTorch's documentation of `torch.nn.MultiheadAttention`, `torch.nn.TransformerEncoderLayer` (the conditions of its fast path) and `torch.nn.functional.scaled_dot_product_attention`; `torch/nn/modules/transformer.py` (a `GELU` module counts as the exact one on the fast path). Python's documentation of `pickle` (the warning at its top); the format's description in huggingface/safetensors.
