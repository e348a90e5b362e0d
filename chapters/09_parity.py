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
emb_dim: int = 16  # D, features per position (8 to 64)
n_heads: int = 4  # H, attention heads; they divide emb_dim (1 to 16)
n_layers: int = 2  # L, transformer blocks (1 to 4)
batch_size: int = 2  # B, texts in the batch (1 to 4)
num_tokens: int = 6  # T, tokens in each text, no more than context_length (2 to 64)
qkv_bias: bool = False  # whether query, key and value have a bias
seed: int = 123  # of the random weights and ids (0 to 4294967295)
checkpoint: str = ""  # a folder with GPT-2's weights; empty: a small one is made

# %%
import math
import pickle
import tempfile
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel, get_config, load_model, save_model
from book_utils.layouts import HUGGING_FACE, TORCH, UPSTREAM
from book_utils.parity import compare, compare_stages, stages, stir
from book_utils.parity import torch_nn, transformers, upstream
from book_utils.workbench import check, check_parameters, figure, show_table

check_parameters("09_parity", globals())
if num_tokens > context_length:
    raise ValueError(f"{num_tokens = } is more than {context_length = }")
if checkpoint:
    load_model(checkpoint)  # a wrong one is refused here, not at the end
cfg = GPTConfig(
    vocab_size, context_length, emb_dim, n_heads, n_layers, qkv_bias=qkv_bias
)
V, C, D, H, L = vocab_size, context_length, emb_dim, n_heads, n_layers
torch.manual_seed(seed)
fresh = GPTModel(cfg).double().eval()
model = stir(deepcopy(fresh), seed)  # every parameter moved a little; see below why
ids = torch.randint(V, (batch_size, num_tokens))  # [B, T]
print("ids", list(ids.shape), "-> logits", list(model(ids).shape))

# %% [markdown]
# Two programs *compute the same* if the same weights and the same ids give the same logits, up to rounding. This is called parity. To show it one needs a second program, a *reference*, best one that somebody else wrote. This chapter has four: a rewrite in NumPy, made on the spot, and three by others: upstream (the code of S. Raschka's book), the package `transformers`, and PyTorch's own layers.
#
# Nearly everything is done in float64, where rounding is small. One helper puts a difference into print. What rounding alone can make is not told in digits, since those are others on another processor; the section on tolerances says where the limit comes from. Both models are always in eval mode, so that dropout does nothing.


# %%
def difference(ours, theirs):
    """The largest difference in print; "rounding" up to 1e-12 of the largest value."""
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


rows = []
with_erf = with_exact_gelu(model)
for name, candidate in [("the model", model), ("with the exact GELU", with_erf)]:
    candidate.load_state_dict(model.state_dict())  # strict: every name and shape
    count = sum(p.numel() for p in candidate.parameters())
    moved = difference(model(ids), candidate(ids))
    rows.append([name, count, True, str(list(candidate(ids).shape)), moved])
header = ["", "parameters", "loads our weights", "logits", "largest difference"]
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
# The third and the fourth are done by hand once. Our attention is fused, upstream's is split. The weight is stored `[out, in]`, so the three parts lie along axis 0, the output axis. Two other ways to cut are tried beside it: with query and key exchanged, and with every third row.

# %%
from llms_from_scratch.ch04 import MultiHeadAttention as UpstreamAttention

ours = model.trf_blocks[0].att
x = stages(model, ids)["block 1: norm 1"]  # its input (how: see below): [B, T, D]


def upstream_attention(parts):
    """Upstream's attention with the weights `parts(tensor)` -> query, key, value."""
    theirs = UpstreamAttention(D, D, C, 0.0, H, qkv_bias).double()
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    projections = (theirs.W_query, theirs.W_key, theirs.W_value)
    for name, fused in ours.qkv.named_parameters():  # weight [3D, D], bias [3D]
        for projection, part in zip(projections, parts(fused), strict=True):
            projection.get_parameter(name).data.copy_(part)
    return theirs


# %%
ways = {
    "along the output axis": lambda w: w.chunk(3, dim=0),  # three times [D, D]
    "query and key exchanged": lambda w: [w.chunk(3, dim=0)[i] for i in (1, 0, 2)],
    "every third row": lambda w: [w[i::3] for i in range(3)],
}
rows = []
for name, parts in ways.items():
    shapes = {str(list(part.shape)) for part in parts(ours.qkv.weight)}
    theirs = upstream_attention(parts)
    rows.append([name, " ".join(shapes), difference(ours(x), theirs(x))])
show_table(["cut", "each part", "largest difference"], rows)
assert [row[2] == "rounding" for row in rows] == [True, False, False]

# %% [markdown]
# All three fit, and one is right. A cut along the input axis would give `[3D, D/3]` and be refused by its shape; an exchange is refused by nothing. So the alignment itself has to be checked, and the comparison of outputs does that too: a mistake in the copying looks like a mistake in the model.
#
# `book_utils.layouts` holds these rules for a whole model, one `Layout` for each way to keep it. `from_ours` writes our state dict in their form, `to_ours` reads theirs. Some parameters in the form of Hugging Face, where GPT-2's files come from; in the table the names of the first block go without `trf_blocks.0` and `transformer.h.0`:

# %%
ours_state = model.state_dict()
gpt2_state = HUGGING_FACE.from_ours(ours_state, cfg)
pairs = {
    "tok_emb.weight": "transformer.wte.weight",
    "trf_blocks.0.norm1.scale": "transformer.h.0.ln_1.weight",
    "trf_blocks.0.att.qkv.weight": "transformer.h.0.attn.c_attn.weight",
    "trf_blocks.0.att.out_proj.weight": "transformer.h.0.attn.c_proj.weight",
    "trf_blocks.0.ff.layers.0.weight": "transformer.h.0.mlp.c_fc.weight",
}
rows = []
for a, b in pairs.items():
    forms = [
        str(list(state[name].shape))
        for state, name in [(ours_state, a), (gpt2_state, b)]
    ]
    turned = gpt2_state[b].ndim == 2 and torch.equal(gpt2_state[b], ours_state[a].T)
    short = a.removeprefix("trf_blocks.0."), b.removeprefix("transformer.h.0.")
    rows.append([short[0], forms[0], short[1], forms[1], turned])
show_table(["ours", "shape", "Hugging Face", "shape", "transposed"], rows)
assert [row[4] for row in rows] == [False, False, True, True, True]

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
# `stir` added a small random number to every parameter of the model. The reason: a fresh LayerNorm multiplies by a scale of 1 and adds a shift of 0. It does not matter, then, which LayerNorm is used, nor whether it multiplies and adds at all. Take a copy in which the two norms of each block have changed places.


# %%
def with_norms_exchanged(model):
    """A copy whose blocks use norm1 and norm2 in each other's place."""
    model = deepcopy(model)
    for block in model.trf_blocks:
        block.norm1, block.norm2 = block.norm2, block.norm1
    return model


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
# When two models differ, the logits say that they do, not where. So the tensors on the way are compared too. They can be had without touching the code of either model: PyTorch lets one hang a *hook* on any module, a function that is called with the module's output each time it runs.


# %%
def outputs_of(model, names, ids):
    """What the modules `names` return during model(ids), and the logits, by name."""
    seen = {}

    def keep(name, module, inputs, output):
        seen[name] = output

    hooks = [
        model.get_submodule(name).register_forward_hook(partial(keep, name))
        for name in names
    ]
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
# `book_utils.parity.stages` does this for a whole model and gives each tensor a name that does not depend on the program: the embeddings, seven stages in each block, the final norm and the logits. "After attention" and "after feed-forward" are the two states of the residual stream, the sums behind each shortcut.
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


def attention(qkv, n_heads):
    """Causal attention of one text, before the output projection: [T, 3D] -> [T, D]."""
    T, D = qkv.shape[0], qkv.shape[1] // 3
    d = D // n_heads
    out = np.empty((T, D))
    for first in range(0, D, d):  # the first feature of each head
        q, k, v = (
            qkv[:, start : start + d] for start in (first, D + first, 2 * D + first)
        )
        for t in range(T):
            scores = k[: t + 1] @ q[t] / math.sqrt(d)  # [t + 1]
            weights = np.exp(scores - scores.max())
            out[t, first : first + d] = weights @ v[: t + 1] / weights.sum()
    return out


# %%
def gpt(weights, ids, n_heads, n_layers, root=EXACT):
    """All stages of one text: ids [T] -> name -> array."""

    def norm(x, name):
        return layer_norm(x, weights[f"{name}.scale"], weights[f"{name}.shift"])

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    out = {}
    x = weights["tok_emb.weight"][ids] + weights["pos_emb.weight"][: len(ids)]
    out["embeddings"] = x  # [T, D]
    for layer in range(n_layers):
        block, stage = f"trf_blocks.{layer}", f"block {layer + 1}"
        h = out[f"{stage}: norm 1"] = norm(x, f"{block}.norm1")  # [T, D]
        h = out[f"{stage}: QKV"] = linear(h, f"{block}.att.qkv")  # [T, 3D]
        h = linear(attention(h, n_heads), f"{block}.att.out_proj")  # [T, D]
        out[f"{stage}: attention"] = h
        x = out[f"{stage}: after attention"] = x + h
        h = out[f"{stage}: norm 2"] = norm(x, f"{block}.norm2")
        h = gelu(linear(h, f"{block}.ff.layers.0"), root)  # [T, 4D]
        h = out[f"{stage}: feed-forward"] = linear(h, f"{block}.ff.layers.2")  # [T, D]
        x = out[f"{stage}: after feed-forward"] = x + h
    x = out["final norm"] = norm(x, "final_norm")
    out["logits"] = linear(x, "out_head")  # [T, V]
    return out


# %% [markdown]
# The weights are ours, as arrays. The texts are computed one by one and put on top of each other. `compare_stages` then takes, for each precision, our stages and theirs.


# %%
def numpy_stages(model, ids, root=EXACT):
    """The stages of gpt() for a whole batch, as tensors."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    texts = [gpt(weights, text, H, L, root) for text in ids.numpy()]
    stacked = {name: np.stack([text[name] for text in texts]) for name in texts[0]}
    return {name: torch.from_numpy(value) for name, value in stacked.items()}


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
# How large is the difference, and on what does it depend? One figure was recorded elsewhere, for weights that are not at hand: 2.3896e-9 for the logits, with the sizes named "tiny", float64, no dropout and ids `[2, 6]`, where up to 1e-7 was accepted. The next cell measures it for sixty models of that size, twenty with weights of each of three kinds, and asks in which range all twenty lie. It does not use this chapter's parameters.


# %%
def with_small_matrices(model):
    """Every matrix drawn anew with a standard deviation of 0.02."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
    return model


def upstream_gap(model):
    """The largest difference between our logits and upstream's, in float64."""
    two_texts = torch.randint(model.cfg.vocab_size, (2, 6))  # [B, T]
    return compare(model, upstream(), two_texts, (f64,)).differences[-1].difference


def as_drawn(model, number):
    return model


kinds = {  # how the weights are made, and the range
    "PyTorch's initial weights": (as_drawn, 1e-9, 1e-8),
    "the same, stirred": (stir, 1e-9, 1e-7),
    "matrices with spread 0.02": (lambda m, _: with_small_matrices(m), 1e-11, 1e-9),
}
rows, middle, tiny = [], [], get_config("tiny")
for name, (prepare, low, high) in kinds.items():
    gaps = []
    for number in range(20):
        torch.manual_seed(number)
        gaps.append(upstream_gap(prepare(GPTModel(tiny).double(), number)))
    within = sum(low < gap < high for gap in gaps)
    rows.append([name, f"{low:.0e}", f"{high:.0e}", within])
    middle.append(median(gaps))
show_table(["weights of the tiny model", "more than", "less than", "models"], rows)
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
rows = []
for name, value in [
    ("exact, in float64", EXACT),
    ("in float32, the nearest, above it", above),
    ("in float32, below it", below),
]:
    rows.append([name, f"{value:.12f}", f"{value / EXACT - 1:z.1e}"])
show_table(["the root of 2/π", "", "error, as a share"], rows)
print("upstream's is one of the two in float32:", inexact in (above, below))
assert constant.dtype == torch.float32 and inexact in (above, below)

# %% [markdown]
# Which of the two it is depends on the machine. Upstream rounds twice, once 2/π and once the root of that. Where the root is rounded correctly, the result is the lower number, which is not the nearest to the exact one; some mathematical libraries return the upper one. So no digit of upstream's difference is printed in this chapter: it would be another one elsewhere.
#
# That is a suspect, and not yet a proof. A proof takes two directions. If the constant is the cause, then an exact constant must make the difference vanish, and putting the inexact constant into an exact program must bring the same difference about. The constant can be made exact in two ways: by another default type for as long as the model runs, or by another GELU in upstream's model.

# %%
exact_reference = upstream().copy_of(model)
for block in exact_reference.trf_blocks:
    block.ff.layers[1] = nn.GELU(approximate="tanh")
their_stages = upstream().stages(exact_reference, ids, cfg)
other_gelu = compare_stages("upstream, other GELU", {f64: (kept, their_stages)})

default = torch.get_default_dtype()
torch.set_default_dtype(torch.float64)
try:
    other_default = compare(model, upstream(), ids, (f64,))
finally:
    torch.set_default_dtype(default)

their_stages = upstream().stages(upstream().copy_of(model), ids, cfg)
rounded_numpy = numpy_stages(model, ids, root=inexact)  # upstream's constant in NumPy
imitated = compare_stages("NumPy", {f64: (their_stages, rounded_numpy)})

# %%
rows = []
for name, comparison in [
    ("upstream as it is, and ours", by_upstream),
    ("upstream with PyTorch's GELU, and ours", other_gelu),
    ("upstream under a default of float64, and ours", other_default),
    ("upstream as it is, and NumPy with upstream's constant", imitated),
]:
    first = parts_at(comparison)
    told = "more than rounding" if first else "rounding"
    rows.append([name, told, first or "nowhere"])
show_table(["float64", "largest difference", "they part at"], rows)
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
        line.difference / error if line.difference > line.rounding else FLOOR
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
    for (label, values), marker in zip(lines.items(), "os", strict=True):
        ax.plot(values, places, marker=marker, label=label)
    ax.axvspan(FLOOR / 10, FLOOR, color="#bbbbbb", alpha=0.5, zorder=0)
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

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress")  # no progress bars: fine
    from transformers import GPT2LMHeadModel
    from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
rows = []
for bias in (False, True):
    for tie in (False, True):
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
    print("refused:", error)
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
# PyTorch has every part of a block as a layer of its own. First they are compared one by one, each with the input that it gets in the model. `nn.MultiheadAttention` has one switch for all its biases. Our output projection has one, so query, key and value have one there too, with zeros where ours has none. `TORCH` is the layout.

# %%
state = TORCH.from_ours(model.state_dict(), cfg)
own = {
    name.removeprefix("layers.0."): value
    for name, value in state.items()
    if name.startswith("layers.0.")
}
layer = nn.TransformerEncoderLayer(
    D, H, 4 * D, 0.0, nn.GELU(approximate="tanh"), batch_first=True, norm_first=True
)
layer.double().eval().load_state_dict(own)
T = num_tokens
future = torch.ones(T, T, dtype=torch.bool).triu(1)  # [T, T], True = must not be seen
block = model.trf_blocks[0]
x, normed = kept["embeddings"], kept["block 1: norm 1"]  # [B, T, D]

# %%
rows = [
    ["nn.LayerNorm", difference(block.norm1(x), layer.norm1(x))],
    ["nn.GELU, tanh", difference(block.ff.layers[1](x), layer.activation(x))],
    [
        "nn.MultiheadAttention",
        difference(
            block.att(normed),
            layer.self_attn(normed, normed, normed, attn_mask=future)[0],
        ),
    ],
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
rows = []
for name, result in [
    ("right", right),
    ("wrong sense", with_nan),
    ("wrong sense, need_weights=False", without),
]:
    nan = result.isnan().any(dim=-1).any(dim=0)  # [T], in any of the texts
    places = ", ".join(str(t) for t in nan.nonzero().flatten().tolist()) or "nowhere"
    same = torch.allclose(result[:, 0], right[:, 0], rtol=0, atol=1e-9)
    rows.append([name, places, same])
show_table(["nn.MultiheadAttention", "NaN at position", "position 0 is right"], rows)
print("the last position is", num_tokens - 1)
assert rows[0][1:] == ["nowhere", True] and not rows[1][2] and not rows[2][2]

# %% [markdown]
# Turned over, the mask lets each position see what comes after it and nothing else. The last position has nothing after it: all of its scores are −∞. Softmax then divides a sum of zeros by itself, and 0/0 is NaN. That is the honest result. It is also the lucky one, because NaN is loud.

# %%
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
with torch.no_grad():
    without_gradients = layer(x, src_mask=future)
rows = []
for name, result in [
    ("gradients on", layer(x, src_mask=future)),
    ("torch.no_grad()", without_gradients),
]:
    to_tanh, to_erf = difference(block(x), result), difference(erf_block(x), result)
    assert "rounding" in (to_tanh, to_erf)
    rows.append([name, to_tanh, to_erf])
show_table(["the encoder layer", "to the tanh GELU", "to the exact GELU"], rows)
print("H is", "even: the fast path is open" if H % 2 == 0 else "odd: no fast path")
assert rows[0][1] == "rounding"

# %% [markdown]
# On the fast path the word `approximate="tanh"` is dropped without a message: the layer sees a GELU and computes the exact one. Nothing in its result looks wrong. A comparison made under `torch.no_grad()`, as one does, would report a mistake in *our* model. With an odd H the trap does not open, and both rows are alike.
#
# `stages` watches through hooks, which keep a layer off the fast path, so the comparison of the whole model is not touched by this. (`torch_nn()` takes no chance, and gives the layer a function as its activation, which has no fast path. QKV is not seen there: `nn.MultiheadAttention` projects inside, and `stages` makes the same product from its weights.) The rule for references: where two differ, either may be the one that is wrong. A third decides; `transformers`, above, agreed with the tanh form.

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
for dtype, share in ROUNDING.items():
    unit = torch.finfo(dtype).eps / 2
    rows.append([str(dtype), f"{unit:.1e}", f"{share:.0e}", round(share / unit)])
show_table(["", "unit roundoff", "tolerance, as a share", "units"], rows)

by_transformers = compare(model, transformers(), ids)
used = [
    line.difference / line.rounding
    for comparison in (by_numpy, by_torch, by_transformers)
    for line in comparison.differences
]
print(f"{len(used)} comparisons; none uses a tenth of its room:", max(used) < 0.1)
assert max(used) < 0.1

# %% [markdown]
# The tolerances are not tight, and they need not be. A tolerance should lie well above rounding and well below the smallest mistake worth finding. Where the room ends can be tried out. Ten tiny models, and for each of them three programs beside ours: one that is right (`transformers`), upstream with its rounded constant, and our own with the exact GELU in place of the tanh form. Which tolerance accepts which?

# %%
rules = [  # the precision, the tolerance for logits up to `largest`, and its name
    (torch.float32, lambda largest: 1e-3, "float32: 1e-3"),
    (torch.float32, lambda largest: 2e-5 * max(1, largest), "float32: 2e-5, a share"),
    (torch.float64, lambda largest: 1e-7, "float64: 1e-7"),
    (torch.float64, lambda largest: 1e-12 * max(1, largest), "float64: 1e-12, a share"),
]
programs = {
    "transformers": lambda model, ids: transformers().copy_of(model)(ids).logits,
    "upstream": lambda model, ids: upstream().copy_of(model)(ids),
    "exact GELU": lambda model, ids: with_exact_gelu(model)(ids),
}
accepted = {name: dict.fromkeys(programs, 0) for _, _, name in rules}
gaps = {}
for number in range(10):
    torch.manual_seed(number)
    candidate = stir(GPTModel(tiny).double(), number).eval()
    two_texts = torch.randint(tiny.vocab_size, (2, 6))  # [B, T]
    for dtype, tolerance, name in rules:
        typed = deepcopy(candidate).to(dtype)
        with torch.no_grad():
            logits = typed(two_texts)  # [B, T, V]
            limit = tolerance(logits.abs().max().item())
            for program, run in programs.items():
                gap = (run(typed, two_texts) - logits).abs().max().item()
                accepted[name][program] += gap <= limit
                if program == "exact GELU" and dtype == f64:
                    gaps[number] = gap

# %%
rows = [[name, *counts.values()] for name, counts in accepted.items()]
show_table(["accepted, of ten tiny models", *programs], rows)
least, most = min(gaps.values()), max(gaps.values())
print(f"the exact GELU moves the logits by {least:.1e} to {most:.1e}")
assert [row[1:] for row in rows] == [[10] * 3, [10, 10, 0], [10, 10, 0], [10, 0, 0]]

# %% [markdown]
# With 1e-3 the wrong activation passes in all ten. It may look strict for float32, and in a model of this size it is wider than the mistake. With a share that has a reason, float32 does see it. 1e-7 in float64 sees it with a wide margin, and lets upstream's constant pass; the last row sees that too. None of the four is the right one for every purpose. But each of them lets through whatever is smaller than it is, and who chooses it should know what that may be.
#
# ## All references
#
# One table for the chapter's model. Upstream's limit is 1e-7 of the largest value for the tiny sizes. It grows with D and with L where they are larger, since each feed-forward network adds up 4D numbers that are slightly wrong, and each block adds its own.

# %%
growth = max(1, D / 16) * max(1, L / 2)  # beyond the tiny sizes


def summary(comparison, growth=1.0):
    """Logits in each precision, greedy ids that differ, verdict over all stages."""

    def words(line):
        if line.difference <= line.rounding:
            return "rounding"
        accepted = line.difference <= growth * line.tolerance
        return "more than rounding" if accepted else f"{line.difference:.1e}"

    told = {x.dtype: words(x) for x in comparison.differences if x.stage == "logits"}
    same = not any(comparison.greedy.values()) and all(
        line.difference <= growth * line.tolerance for line in comparison.differences
    )
    greedy = sum(comparison.greedy.values())
    return [
        told.get(torch.float32, "not made"),
        told[f64],
        greedy,
        "same" if same else "differs",
    ]


# %%
rows = [
    ["NumPy, written here", *summary(by_numpy)],
    ["upstream", *summary(by_upstream, growth)],
    ["upstream, exact constant", *summary(other_default)],
    ["transformers", *summary(by_transformers)],
    ["torch.nn", *summary(by_torch)],
    [
        "ours with the exact GELU",
        *summary(compare_stages("", {f64: (kept, stages(with_erf, ids))})),
    ],
]
header = [
    "reference",
    "logits, float32",
    "float64",
    "greedy ids that differ",
    "verdict",
]
show_table(header, rows)
assert [row[4] for row in rows] == ["same"] * 5 + ["differs"]

# %% [markdown]
# The last row is the wrong model from the beginning of the chapter. Its *greedy ids*, the id with the largest logit at each position, are listed too, and they are a weak check: a small change of the logits seldom moves the largest one to another id. Three sets of logits show how little equal greedy ids say.

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
# Trained weights come in files, and a file is one more place where weights have a form of their own. `save_model` writes a *safetensors* file: a header in JSON that lists name, type and shape of each tensor, followed by the bare numbers. A tied table is written once. The files of this section go to a temporary folder, which is gone at the end of the cell.

# %%
rows = []
for tie in (False, True):
    candidate = stir(GPTModel(replace(cfg, tie_weights=tie)).double(), seed).eval()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_model(candidate, file)
        in_file = load_file(file)
        loaded = load_model(file)  # the sizes are in the file too
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


if checkpoint:
    loaded, theirs = both_loaded(checkpoint)
else:
    with tempfile.TemporaryDirectory() as folder:
        transformers().copy_of(small).save_pretrained(folder)
        loaded, theirs = both_loaded(folder)

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
masks = {f"h.{i}.attn.bias": torch.ones(1, 1, C, C).tril() for i in range(L)}
forms = {
    "the book's": own,
    "GPT-2's, with its prefix and head": gpt2,
    "without prefix and head, with masks": {**bare, **masks},
    "upstream's": UPSTREAM.from_ours(own, gpt2_cfg),
}
del forms["without prefix and head, with masks"]["lm_head.weight"]
rows = []
for name, state in forms.items():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        save_file({k: v.contiguous().clone() for k, v in state.items()}, file)
        again = load_model(file, gpt2_cfg)
    read = again.state_dict()
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


def refusal(name, save, folder):
    """What load_model says to the file that `save` writes; the folder is left out."""
    file = Path(folder) / name
    save(file)
    try:
        load_model(file, gpt2_cfg)
    except ValueError as error:
        return str(error).replace(str(file), name)
    raise AssertionError(f"{name} was accepted")


with tempfile.TemporaryDirectory() as folder:
    copies = {k: v.contiguous().clone() for k, v in faulty.items()}
    said = refusal("faulty.safetensors", partial(save_file, copies), folder)
    print(said)
    assert all(word in said for word in ("missing", "unknown", "another shape"))
    print(refusal("old.bin", partial(torch.save, dict(own)), folder))

# %% [markdown]
# Why are pickle files refused? Pickle, Python's own way to keep objects, does not describe an object. It describes how to *make* it, as a list of functions to call. Any function that can be imported may be on the list, and reading the file calls it.


# %%
class Harmless:
    def __reduce__(self):  # how pickle is told to rebuild this object
        return print, ("this line was printed by the bytes that were read",)


data = pickle.dumps(Harmless())
pickle.loads(data)

# %% [markdown]
# Here it was `print`. It could have been anything that the reader of the file may do. A safetensors file holds names, shapes and numbers, and there is nothing in it to call. (`torch.load` with `weights_only=True` reads a pickle with a short list of permitted calls; `load_model(…, allow_pickle=True)` uses it.)
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
# A file is a program, so the warning about pickle holds here as well. The file is never run. It is parsed into a syntax tree; six class definitions are taken from it, each is checked against a list of what may occur in a model, and only what passes is executed. A folder shows it, first with the two files of the installed package as they are, then with one line put into a class.

# %%
from llms_from_scratch import ch04
from book_utils.parity.upstream_file import UpstreamFileError, upstream_classes

package = Path(ch04.__file__).parent
texts = {name: (package / name).read_text("utf-8") for name in ("ch03.py", "ch04.py")}
head = "class GELU(nn.Module):\n"
hostile = texts["ch04.py"].replace(head, head + "    print('run by the file')\n")
assert hostile != texts["ch04.py"]
with tempfile.TemporaryDirectory() as folder:
    for name, text in texts.items():
        (Path(folder) / name).write_text(text, "utf-8")
    classes = upstream_classes(folder)
    print("taken:", ", ".join(classes))
    (Path(folder) / "ch04.py").write_text(hostile, "utf-8")
    try:
        upstream_classes(folder)
    except UpstreamFileError as error:
        print("refused:", error)
    else:
        raise AssertionError("a class that prints was accepted")
by_file = compare(model, upstream(classes["GPTModel"]), ids)
print("logits in float64:", summary(by_file, growth)[1])
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
# `compare` is this chapter's procedure in one call. It is put beside the pieces above: the hooks of `outputs_of`, and largest differences taken by hand. Both are compared up to rounding, 1e-12 of the largest value (or of 1), since two runs need not add in the same order.

# %%
names = {"block 1: norm 1": "norm1", "block 1: attention": "att"}
names |= {"block 1: feed-forward": "ff", "block 1: after feed-forward": ""}
paths = {stage: f"trf_blocks.0.{end}".rstrip(".") for stage, end in names.items()}
paths["final norm"] = "final_norm"
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
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | Shapes `[3D, D]` and `[D, 3D]` do not fit | the weight is kept as `[in, out]` | the file is GPT-2's | transpose every matrix of a `Conv1D` |
# | Everything fits, and it parts at "attention" | the square output projection was not transposed | QKV agrees, attention does not | transpose that one too |
# | It parts at "QKV" | other order of query, key, value, or rows of each head together | compare the three parts one by one | reorder the rows |
# | Unexpected keys `attn.bias`, `mask` | causal masks kept as buffers | their shape is `[…, C, C]` | pass over them |
# | Every key is unexpected, every one missing | the prefix `transformer.` | look at one name of each | remove or add it |
# | `lm_head.weight` is missing | the head is tied, and kept once | the configuration | take the token table |
# | It parts at "feed-forward", in float32 too | the exact GELU for the tanh form, or a fast path that takes it | exchange the activation; call with gradients on | `approximate="tanh"` |
# | It parts there, in float64 only | a constant rounded to float32 | run under another default type | make the constant a Python number |
# | It parts at "norm 1" already | another eps, or a variance divided by D − 1 | both settings, by hand | 1e-5, and D |
# | NaN at the last position only | the mask has the other sense | position 0 | `~mask` |
# | Each call gives another difference | dropout is alive | `model.training` | `eval()` on both |
# | A small difference in float32 | rounding | it vanishes in float64 | a tolerance with a reason |
# | Agreement with fresh weights, not with trained ones | norms or biases that were at 1 and 0 | stir every parameter | find the first stage |
# | Agreement, although one side is NaN | `difference > tolerance` is false for NaN | print the difference | `not difference <= tolerance` |
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
# `return weight.chunk(3, dim=0)`
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
# `return ~may_be_seen`
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
