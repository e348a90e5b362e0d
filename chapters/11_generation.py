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
# # 11 · Generation
#
# **How is a text written, and where does the loop stand?**
#
# At the end of this chapter you can
#
# - write the loop that turns a model into text, give the shape at each of its steps, and name the slips that no error reports;
# - say what a window that moves does to the text in it, and what temperature, top-k and top-p do to one row of logits;
# - tell what a generated text proves about a model, and what it does not.
#
# You need the model of [chapter 7](07_gpt_model.ipynb), its logits above all, and causality from [chapter 5](05_attention.ipynb). One section takes up the equal strings of [chapter 10](10_blind_spots.ipynb).

# %% tags=["parameters"]
tokenizer: str = "bytes"  # "bytes", or "gpt2": GPT-2's vocabulary, downloaded once
prompt: str = "A café by the"  # the text to go on from, at least two ids long
context_length: int = 16  # C, the longest input in tokens (4 to 64)
emb_dim: int = 16  # D, features per position (4 to 64)
n_heads: int = 4  # H, attention heads; they divide emb_dim (1 to 16)
n_layers: int = 2  # L, transformer blocks (1 to 12)
max_new_tokens: int = 12  # n, how many ids are appended (2 to 64)
temperature: float = 0.7  # what logits are divided by before drawing (0.1 to 10)
top_k: int = 4  # how many of the likeliest ids can be drawn (1 to 8)
top_p: float = 0.8  # which probability the likeliest ids reach together (0.05 to 1)
seed: int = 11  # of the random weights, ids and draws (0 to 4294967295)

# %%
import math
from copy import deepcopy
from dataclasses import replace

import torch
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel
from book_utils.workbench import check, check_parameters, diagram, figure
from book_utils.workbench import get_tokenizer, publish, rounded, show_table

check_parameters("11_generation", globals())
torch.set_num_threads(1)  # a model this small gains nothing from more

# %% [markdown]
# A *tokenizer* turns a text into ids and back. How it does that is the subject of a later section; until then an id is a number from 0 to V − 1, and a text is a row of ids. The *prompt* is the text that is to be continued.

# %%
tok = get_tokenizer(tokenizer)
encoded = tok.encode(prompt)
if len(encoded) < 2:
    raise ValueError(f"{prompt = } gives {len(encoded)} ids; at least 2 are needed")
V, C, T, n = tok.n_vocab, context_length, len(encoded), max_new_tokens
cfg = GPTConfig(V, C, emb_dim, n_heads, n_layers)
torch.manual_seed(seed)
model = GPTModel(cfg).double().eval()
ids = torch.tensor([encoded, torch.randint(V, (T,)).tolist()])  # [B, T]
print(f"V = {V}, C = {C}, D = {emb_dim}, L = {n_layers} · ids {list(ids.shape)}")

# %% [markdown]
# The batch has two rows. The first is the prompt; the second has as many ids, drawn at random. The model is the one of chapter 7, with random weights, in float64.
#
# ## One step by hand
#
# The model gives logits: for each position, a score for every id that could come next. It does not write. Writing is done by a program around it, in five steps: *crop* the text to the last C ids, since the model takes no more; run the model *forward*; keep the logits at the *last position*; *choose* an id; *append* it.

# %%
window = ids[:, -C:]  # [B, min(T, C)]
logits = model(window)  # [B, min(T, C), V]
last = logits[:, -1]  # [B, V]
new = last.argmax(dim=-1, keepdim=True)  # [B, 1]
longer = torch.cat([ids, new], dim=1)  # [B, T + 1]
steps = ["crop", "forward", "last position", "choose", "append"]
gives = ["[B, min(T, C)]", "[B, min(T, C), V]", "[B, V]", "[B, 1]", "[B, T + 1]"]
shapes = [str(list(x.shape)) for x in (window, logits, last, new, longer)]
show_table(["step", "gives", "shape"], list(zip(steps, gives, shapes, strict=True)))

# %% [markdown]
# The ids that the model reads are the *window*, at most C of them. `argmax` gives the place of the largest score, and choosing it each time is called *greedy*. What is new is one id in each row. For the next one the text, now longer, goes round again. In the drawing t is its length so far, T at first.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
S = min(T, C)
words = [
    f"At the top stands the text so far, [B, t]; at first it is the prompt, [{len(ids)}, {T}].",
    f"It is cropped to the last C = {C} ids: [B, min(t, C)], at first [{len(ids)}, {S}].",
    "The window enters the model, the only part of the drawing with parameters, "
    f"and leaves it as logits, [B, min(t, C), V], at first [{len(ids)}, {S}, {V}].",
    f"The last position is kept, [B, V] = [{len(ids)}, {V}].",
    f"One id is chosen for each row: [B, 1] = [{len(ids)}, 1].",
    "It is appended to the whole text, not to the window: [B, t + 1].",
    "An arrow leads back to the top: the longer text is the text of the next step.",
]
with diagram(
    "generation_loop",
    17,
    22,
    alt="A loop from top to bottom and back: the text so far, crop, the model, the last "
    "position, choose, append; from there an arrow returns to the text.",
    words=words,
) as d:
    d.box("text", 6, 21.2, "the text so far", kind="data", width=6, height=1.2)
    d.box("crop", 6, 18.2, "crop to the last C", kind="placeholder", width=8.4)
    d.box("model", 6, 14.4, "model", width=8.4, height=2.2)
    d.box("last", 6, 10.6, "last position", kind="placeholder", width=8.4)
    d.box("choose", 6, 7, "choose", kind="placeholder", width=8.4)
    d.box("append", 6, 3.4, "append to the text", kind="placeholder", width=8.4)
    d.arrow("text", "crop", "[B, t]")
    d.arrow("crop", "model", "[B, min(t, C)]")
    d.arrow("model", "last", "[B, min(t, C), V]")
    d.arrow("last", "choose", "[B, V]")
    d.arrow("choose", "append", "[B, 1]")
    d.shortcut("append", "text", 14.4)
    d.ax.plot([6, 6], [2.6, 2.25], color="#222222", linewidth=1.4, linestyle="-")
    d.text(13.2, 1.4, "[B, t + 1]", ha="right")

# %% [markdown]
# So the loop stands outside. The model does not know that it is in one, keeps nothing from one step to the next, and has no part that stops. The dashed boxes have no parameters: they are lines of a program, and could be others. Here they are, as a function.


# %%
def write(model, ids, max_new_tokens, context_size):
    """Append the id with the largest logit, again and again: [B, T] -> [B, T + n]."""
    for _ in range(max_new_tokens):
        logits = model(ids[:, -context_size:])[:, -1]  # [B, V]
        new = logits.argmax(dim=-1, keepdim=True)  # [B, 1]
        ids = torch.cat([ids, new], dim=1)  # one id longer
    return ids


# %% [markdown]
# What was there must be unchanged, and the first new id must be the one that was found by hand.

# %%
greedy = write(model, ids, n, C)  # [B, T + n]
print("ids", list(ids.shape), "->", list(greedy.shape))
for row, text in enumerate(greedy):
    print(f"row {row}, new ids:", text[T:].tolist())
assert torch.equal(greedy[:, :T], ids) and torch.equal(greedy[:, : T + 1], longer)

# %% [markdown]
# The library has this loop under the name that it has upstream, in the code of S. Raschka's book. The same operations in the same order must give the same ids; ids are whole numbers, so the comparison is exact.

# %%
from book_utils import generate_text_simple

theirs = generate_text_simple(model, ids, max_new_tokens=n, context_size=C)
print("the same ids as generate_text_simple:", torch.equal(theirs, greedy))
assert torch.equal(theirs, greedy)

# %% [markdown]
# ## Why the last position only
#
# The logits at position i are scores for the id at i + 1. For every position but the last that id is already there. And because no position sees a later one (the model is *causal*), a longer text changes nothing about the earlier positions: their logits come out again as they were in the step before.

# %%
with torch.no_grad():
    before, after = model(window[:, :-1]), model(window)
moved = (after[:, :-1] - before).abs().amax(dim=(0, 2)) > 1e-9  # [min(T, C) - 1]
print(f"of {len(moved)} earlier positions moved: {moved.sum().item()}")
computed = sum(min(t, C) for t in range(T, T + n))
print(f"{n} steps compute {computed} positions in each row, and use the logits of {n}")
assert not moved.any()

# %% [markdown]
# After the first step, and as long as the window has not begun to move, one position of each step is new and the others repeat earlier work. The end of the chapter comes back to that.
#
# Taking the last position, and the largest score in it, leaves room for slips. Some raise an error at the next step; some do not. Here are two rows of logits with V = 3. The right choice is id 1 in the first row and id 2 in the second.

# %%
example = torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.0, 0.9]])  # [B, V]
rows = []
for name, chosen in {
    "argmax(dim=-1)": example.argmax(dim=-1),  # [B]
    "argmax()": example.argmax(),  # one number
    "argmax(dim=0)": example.argmax(dim=0),  # [V]
}.items():
    rows.append([name, str(list(chosen.shape)), str(chosen.tolist())])
show_table(["written", "shape", "ids"], rows)
assert example.argmax().item() >= example.shape[1]  # no id at all

# %% [markdown]
# Without `dim` the batch is read as one long list, and the result is a place in that list: here 5, where ids end at 2. A number of V or more is refused at the next step. But if the largest score of all stands in the first row, the number is a legal id; a loop that spreads one number over the batch, say with `torch.full`, then writes one id for all rows, and nobody notices. Along `dim=0` the rows compete for each id, which gives V numbers; where B and V are equal, nothing complains.
#
# Slices slip in the same silent way. Three of them, on a text of four ids in each of two rows:

# %%
text = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23]])  # [B, T]
for name, cut in [("-2:", text[:, -2:]), (":2", text[:, :2]), ("-0:", text[:, -0:])]:
    print(f"text[:, {name}]".ljust(14), cut.tolist())
assert torch.equal(text[:, -0:], text)

# %% [markdown]
# The first is the window of two ids, the second its opposite, the beginning of the text. The third is everything, since −0 is 0; it is met where a size is computed, and comes out as 0. The library refuses a window of 0.
#
# ## The largest score
#
# Upstream's notebook takes a softmax before `argmax`; the script that collects the same code leaves it out. Do both choose the same id? On paper yes, for finite logits: the exponential keeps the order of the scores, and the divisor is the same for all. In floating-point numbers two things can come between: values that are not finite, and rounding. First the former. `choose` is the library's step; it looks at the logits before it chooses.

# %%
from book_utils import choose

nan, inf = float("nan"), float("inf")


def choice_or_refusal(z):
    """What `choose` makes of one row of logits."""
    try:
        return choose(z[None]).item()
    except ValueError as error:
        return f"refused, “{str(error).rpartition(' ')[2]}”"


# %%
rows = []
for z in ([1, 3, 2], [1, 3, 3], [1, -inf, 2], [1, nan, 2], [1, inf, 2], [-inf] * 3):
    z = torch.tensor(z, dtype=torch.float64)  # [V]
    p = z.softmax(dim=-1)  # [V]
    places = [z.argmax().item(), p.argmax().item(), choice_or_refusal(z)]
    rows.append([str(z.tolist()), str(rounded(p, 2)), *places])
header = ["logits", "softmax", "argmax of logits", "of softmax", "choose"]
show_table(header, rows)
assert [row[2] == row[3] for row in rows] == [True, True, True, False, False, True]
assert rows[-1][2] == 0 and all(isinstance(row[4], str) for row in rows[3:])

# %% [markdown]
# Of two equal scores, `argmax` takes the first; the documentation promises it. A single −∞ is harmless. The others are not. NaN, "not a number", is what a broken weight or an overflow leaves behind. PyTorch's `argmax` counts it as the largest and returns its place, which is a legal id; the loop would go on writing without a word. With +∞ the softmax computes ∞ − ∞, and every probability is NaN; with nothing but −∞ as well. In the last row both columns say 0, only because 0 is the first place; no score was the largest. `choose` refuses all three. (`generate_text_simple` does what upstream's function does, and does not look.)
#
# Now rounding. Take two logits, 0 and a small *lead*, and let the second be the larger. Each number type has an eps, the gap between 1 and the next number.

# %%
rows = []
for dtype in (torch.float64, torch.float32, torch.bfloat16):
    eps = torch.finfo(dtype).eps
    for name, lead in [("eps / 64", eps / 64), ("8 eps", 8 * eps)]:
        z = torch.tensor([0.0, lead], dtype=dtype)  # [V], V = 2
        places = [z.argmax().item(), z.softmax(dim=-1).argmax().item()]
        rows.append([str(dtype), f"{name} = {lead:.0e}", *places])
show_table(["type", "lead", "argmax of logits", "of softmax"], rows)
assert [row[2:] for row in rows] == [[1, 0], [1, 1]] * 3
far = torch.tensor([0.0, -200.0, -300.0]).softmax(dim=-1)  # float32
print("softmax of 0, -200, -300 in float32:", far.tolist())

# %% [markdown]
# The ratio of the two probabilities is the exponential of the lead, so for a small lead they differ by that share. Each carries a relative error of up to about eps. A lead of several eps therefore survives. A lead far below eps is rounded away, the probabilities are equal, and `argmax` takes the first. Only logits near 0 can be so close: two different numbers of size 1 or more are eps apart at least.
#
# The other rounding is at the far end: scores far below the largest get the probability 0, and their order is lost. This cannot touch the largest, whose exponential is that of 0, which is 1. So for finite logits both ways choose the same id where the lead of the first over the second is well above eps; far below it they part; between, it depends on the rounding. Leaving the softmax out is cheaper and exact.
#
# ## Two switches
#
# `write` says nothing of the model's mode, train or eval, and nothing of gradients. What happens when a caller forgets them? Take a model with the same weights and a dropout rate of 0.5.

# %%
noisy = GPTModel(replace(cfg, drop_rate=0.5)).double()
noisy.load_state_dict(model.state_dict())
print("dropout rate:", noisy.cfg.drop_rate)

# %% [markdown]
# It reads the window twice in each mode.

# %%
rows = []
with torch.no_grad():
    for mode in ("train", "eval"):
        noisy.train(mode == "train")
        first, second = noisy(window), noisy(window)  # [B, min(T, C), V]
        alike = torch.allclose(first, second, rtol=0, atol=1e-9)
        right = torch.allclose(first, model(window), rtol=0, atol=1e-9)
        rows.append([f"{mode}()", alike, right])
header = ["mode", "two runs alike?", "the logits without dropout?"]
show_table(header, rows)
assert [row[1:] for row in rows] == [[False, False], [True, True]]

# %% [markdown]
# In train mode the model's scores change from call to call, for the same text. The loop would run as before; what it writes would not be the text of the model.
#
# Gradients are the other matter. Each forward pass that may be followed by a backward pass records its operations, the *graph*, and saves with them the tensors that the backward pass would need. PyTorch lets one look at what is kept: `saved_tensors_hooks` calls a function for each saved tensor. The weights exist anyway and are left out of the sum.


# %%
def kept_bytes(model, ids):
    """Bytes that one forward pass keeps for a backward pass, besides the weights."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}  # address -> bytes, so that memory seen twice counts once

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(ids)
    return sum(kept.values()), logits.requires_grad


# %%
with_graph, asks = kept_bytes(model, window)
with torch.no_grad():
    without, asks_not = kept_bytes(model, window)
inputs = 7 * n_layers + 1  # of linear layers, in D: 1, 1, 1, 4 a block, 1 the head
bound = 8 * window.numel() * emb_dim * inputs  # float64 has 8 bytes
rows = [["as it is", asks, f"{bound:,} or more"], ["under no_grad", asks_not, "0"]]
show_table(["", "logits ask for gradients", "bytes kept"], rows)
assert with_graph >= bound and without == 0 and asks and not asks_not

# %% [markdown]
# How much is kept depends on the PyTorch release, so the table states a lower bound that follows from the sizes: the gradient of a linear layer's weight needs the layer's input. Here is the same bound for one full window of GPT-2 small: T = 1024, D = 768, L = 12, and 4 bytes for a number in float32.

# %%
gpt2 = 4 * 1024 * 768 * (7 * 12 + 1) / 2**20
print(f"a full window of GPT-2 small in float32: {gpt2:.0f} MiB or more")

# %% [markdown]
# All of it is thrown away at the next step, because an id has no gradient: `argmax` cuts the graph. Nothing is wrong in the text, then; memory and time are spent for nothing. (Where somebody collects the logits of every step, the graphs are collected too.)
#
# So before generating, `eval()` and `no_grad`; and afterwards? A function that generates in the middle of a training must give the model back as it was. A careless version looks at the mode of the whole model, and nothing else. (`contextmanager` makes of such a function something for a `with` line: what stands before `yield` runs on entering, what stands after it on leaving. An error in the block is raised at the `yield`, and the line after it is then not reached.)


# %%
from contextlib import contextmanager, suppress

from book_utils import evaluating


@contextmanager
def careless(model):
    """Eval mode in the block; then the mode that the model as a whole had before."""
    was = model.training
    model.eval()
    yield
    model.train(was)


# %% [markdown]
# Try it, and `evaluating` from the library, on a model in which all modules train but one: the dropout of the embedding was switched off on purpose.


# %%
def in_training(model):
    """How many modules are in train mode."""
    return sum(module.training for module in model.modules())


# %%
rows = []
for way in (careless, evaluating):
    for fails in (False, True):
        noisy.train().drop_emb.eval()
        before = in_training(noisy)
        with suppress(RuntimeError), way(noisy):
            if fails:
                raise RuntimeError("an error in the middle")
        rows.append([way.__name__, fails, before, in_training(noisy)])
show_table(["way", "error in the middle?", "in train mode before", "after"], rows)
modules = len(list(noisy.modules()))
print("modules in all:", modules)
assert [row[3] for row in rows] == [modules, 0, modules - 1, modules - 1]

# %% [markdown]
# The careless way switches the silent dropout on again, and after an error it leaves the whole model in eval mode, where a training would go on without dropout. `evaluating` notes each module's own mode first and gives it back in a `finally`. That holds the other way round too, where one module alone is in train mode; and gradients, off inside, are on again.

# %%
noisy.eval().drop_emb.train()  # the other way round: one module alone trains
with evaluating(noisy):
    assert in_training(noisy) == 0 and not torch.is_grad_enabled()
assert in_training(noisy) == 1 and noisy.drop_emb.training and torch.is_grad_enabled()
print("modules in train mode afterwards:", in_training(noisy))

# %% [markdown]
# Both loops of the library, `generate_text_simple` above and `generate` below, run inside `evaluating`.
#
# ## Words
#
# A model knows ids alone. A tokenizer cuts a text into pieces and gives each piece its id; back again, it joins the pieces of the ids. The plainest one takes the bytes of the text's UTF-8 form, each byte one id, so V = 256.
#
# GPT-2's starts from the same 256 bytes and learned 50,000 merges from a collection of texts, one after the other: each joins the pair of neighbouring pieces that is the most frequent by then, two bytes at first, longer pieces later. (Before that the text is cut into words, numbers and signs, and no merge crosses such a cut.) This is *byte pair encoding* (Sennrich et al., 2016; on bytes, Radford et al., 2019). With one id more for the end of a text V = 50,257. Common words are one piece there, and any text has ids, since every byte has one.
#
# The model's V must be the tokenizer's or more; here they are equal.

# %%
first = encoded[:16]  # 16 at most
rows = [[place, i, repr(tok.decode([i]))] for place, i in enumerate(first)]
show_table(["place", "id", "piece"], rows)
print(f"characters: {len(prompt)} · ids: {T}")
assert tok.decode(encoded) == prompt

# %% [markdown]
# A character outside ASCII takes several bytes, and half a character is no text: the sign � stands for it.

# %%
by_bytes = get_tokenizer("bytes")
two = by_bytes.encode("é")
halves = [by_bytes.decode([byte]) for byte in two]
print("é in bytes:", two, "· one by one:", halves, "· together:", by_bytes.decode(two))

# %% [markdown]
# Who shows ids as they come must hold back such halves. With GPT-2's pieces it is the same, since a piece may end inside a character.
#
# Now the text of the model, and beside it a measure of what the model knows. *Cross-entropy* is the mean of −ln p, where p is the probability that the model gives to the id that really comes next: 0 for one that is always sure and right, ln V for one to which all ids are alike. It is measured on the prompt, whose ids are known (on the part that fits into the window).

# %%
print("prompt: ", repr(prompt))
print("text:   ", repr(tok.decode(greedy[0].tolist())))
with torch.no_grad():
    scores, targets = model(window[:1])[0, :-1], window[0, 1:]  # [., V], [.]
of_model = F.cross_entropy(scores, targets).item()
rows = [
    ["this model", of_model],
    ["all ids alike: ln V", math.log(V)],
]
show_table(["scores for the prompt's ids", "cross-entropy"], rows, format=".2f")

# %% [markdown]
# The loop ran to its end and wrote what was asked for. That shows that the call path works: encode, crop (where the text is longer than C), forward, choose, append, decode. It shows nothing of language. The model has random weights, and the table says what it knows: its cross-entropy is not far from that of a model to which all ids are alike. On average over such models it is somewhat above, since scores that know nothing are still unequal; for one short prompt it can fall on either side. Wrong logits would give a text that looks no different.
#
# ## When the text outgrows the window
#
# As long as the text has at most C ids, cropping does nothing. After that it drops an id at the left for each one that is appended at the right. GPT-2's positions are *absolute*, rows of a table that is counted from the window's own beginning. Which position does each id have, step by step? A small window of C = 4 is enough to see it. In the table the columns are the places 0 to 6 in the text, the rows five steps, and the numbers the positions.

# %%
rows = []
for length in range(3, 8):  # the text at five steps
    window_ids = list(range(length))[-4:]  # which places of the text are seen
    cells = [""] * 7
    for position, place in enumerate(window_ids):
        cells[place] = position
    rows.append([length, *cells])
show_table(["ids so far", *map(str, range(7))], rows)

# %% [markdown]
# Read down the column of place 3: its id comes in at position 3 and goes out at position 0. At each of these steps another row of the position table is added to it. So a moving window changes two things at once: what came before it is gone, and what is left stands elsewhere. To see them apart, take a text of C + 3 ids and, beside the model, two variants. The first has a longer position table, whose first C rows are the model's own, so it can read the whole text. The second is the model with the rows 3 to C + 2 of that table: its window stands where the ids really are.

# %%
draw = torch.Generator().manual_seed(seed)
full = torch.randint(V, (1, C + 3), generator=draw)  # [1, C + 3]
more = torch.randn(3, emb_dim, generator=draw, dtype=torch.float64)
state = model.state_dict()
table = torch.cat([state["pos_emb.weight"], more])  # [C + 3, D]
wide = GPTModel(replace(cfg, context_length=C + 3)).double().eval()
wide.load_state_dict({**state, "pos_emb.weight": table})
in_place = deepcopy(model)
_ = in_place.load_state_dict({**state, "pos_emb.weight": table[3:]})

# %% [markdown]
# Five logits of the last position: of the cropped text; of another text whose last C ids are the same; of the longer table, which must change nothing by itself; of the same window at its places in the text; and of the whole text.

# %%
other = full.clone()
other[:, :3] = (full[:, :3] + 1) % V  # other ids before the window
with torch.no_grad():
    last_logits = {
        "the window, cropped": model(full[:, -C:])[:, -1],  # [1, V]
        "other ids before the window": model(other[:, -C:])[:, -1],
        "longer table, same window": wide(full[:, -C:])[:, -1],
        "the window at positions 3 to C + 2": in_place(full[:, -C:])[:, -1],
        "longer table, the whole text": wide(full)[:, -1],
    }

# %%
cropped = last_logits["the window, cropped"]
rows = []
for name, z in last_logits.items():
    gap = (z - cropped).abs().max().item()
    rows.append([name, "none" if gap < 1e-9 else f"{gap:.3f}"])
show_table(["read by the model", "difference from the first row"], rows)
assert [row[1] == "none" for row in rows] == [True, True, True, False, False]
assert torch.equal(last_logits["other ids before the window"], cropped)

# %% [markdown]
# The numbers are the largest difference of any logit. The ids before the window have no influence at all; the logits are the same to the last bit. The same window at other positions gives other logits, and so does the whole text. So a text cropped to C ids is not what a model with a longer context would read, in two respects. This does not say which text would be the better one, and the added rows are as random here as the others.
#
# Why is the crop left to the loop? The model could do it silently. It refuses instead, so that whoever hands it C + 1 ids learns that one of them would go unread.

# %%
try:
    model(full[:, : C + 1])
except ValueError as error:
    print("refused:", error)
else:
    raise AssertionError("a text of C + 1 ids was accepted")

# %% [markdown]
# ## Drawing
#
# Greedy choice gives one text for each prompt. The other way is to *draw* the next id, each with its probability. Three settings shape the probabilities before that. To see what they do, one fixed row of eight logits is enough.
#
# The *temperature* divides the logits before the softmax. Below 1 it stretches the gaps between them, above 1 it shrinks them. The *entropy*, the mean of −log₂ p with each id weighted by its p, in bits, measures how open the choice still is: 0 when one id has all the probability, 3 bits when eight are equally likely. Two to the power of it is the number of equally likely ids that would leave the choice as open; it is called *perplexity*.

# %%
fixed = torch.tensor([2.0, 1.2, 0.9, 0.3, 0.0, -0.4, -1.1, -2.0]).double()  # [V]
degrees = sorted({0.5, 1.0, 2.0, float(temperature)})
rows, spread = [], {}
for degree in degrees:
    p = spread[degree] = (fixed / degree).softmax(dim=-1)  # [V]
    bits = torch.special.entr(p).sum().item() / math.log(2)
    rows.append([f"{degree:g}", p.max().item(), bits, 2**bits])
header = ["temperature", "largest probability", "entropy, bits", "equally open ids"]
show_table(header, rows, format=".3f")
entropies = [row[2] for row in rows]
assert entropies == sorted(entropies) and entropies[-1] < 3
assert all(p.argmax() == 0 for p in spread.values())

# %% jupyter={"source_hidden": true} tags=["hide-input"]
tops = [f"{p[0]:.2f} at temperature {degree:g}" for degree, p in spread.items()]
words = [
    "The horizontal axis has eight ids, the one with the largest logit first; the vertical axis is their probability.",
    f"There is a line for each of {len(degrees)} temperatures, and each falls from left to right.",
    f"The first id has the probability {', '.join(tops)}.",
    "The lower the temperature, the steeper the line; the higher, the nearer it comes to the level of 1/8.",
]
with figure(
    "temperature",
    alt=f"The probabilities of eight ids at {len(degrees)} temperatures: the lower the temperature, the steeper the fall from the first id to the last.",
    words=words,
    data={"logits": fixed, **{f"temperature {x:g}": p for x, p in spread.items()}},
) as ax:
    for (degree, p), marker in zip(spread.items(), "osD^", strict=False):
        ax.plot(range(8), p.tolist(), marker=marker, label=f"temperature {degree:g}")
    ax.set(xlabel="id, by falling logit", ylabel="probability", ylim=(0, None))
    ax.legend()

# %% [markdown]
# The order of the ids is the same at every temperature, so the greedy choice does not depend on it. Towards 0 the largest takes everything; the library writes greedy choice as temperature 0, without dividing.
#
# The other two settings cut. *Top-k* keeps the k likeliest ids (Fan et al., 2018). *Top-p*, or nucleus sampling, keeps the fewest likeliest ids that together reach the probability p (Holtzman et al., 2020): few where the model is sure, many where it is not. What is kept is scaled to sum to 1 again. With both, top-p works on what top-k has left. The temperature comes first here, so it changes which ids reach p, though not which are the k likeliest; programs differ in this order.


# %%
def distribution(logits, temperature=1.0, top_k=None, top_p=None):
    """The probabilities with which ids are drawn: [V] -> [V]."""
    order = logits.argsort(descending=True)  # the likeliest first
    kept = order[:top_k]  # all of them where top_k is None
    p = torch.zeros_like(logits)
    p[kept] = (logits[kept] / temperature).softmax(dim=-1)
    if top_p is not None and top_p < 1:
        reached = p[order].cumsum(dim=-1)  # with each id, and those before it
        number = (reached < top_p).sum() + 1  # those that stay below, and one more
        p[order[number:]] = 0
    return p / p.sum()


# %%
settings = {
    "temperature": {"temperature": temperature},
    "with top-k": {"temperature": temperature, "top_k": top_k},
    "with top-p": {"temperature": temperature, "top_p": top_p},
    "with both": {"temperature": temperature, "top_k": top_k, "top_p": top_p},
}
shaped = {name: distribution(fixed, **options) for name, options in settings.items()}
print(f"temperature {temperature:g} · k = {top_k} · p = {top_p:g}")
columns = [rounded(p, 3) for p in shaped.values()]
show_table(["id", *shaped], list(zip(range(8), *columns, strict=True)), ".3f")

# %%
left = {name: (p > 0).sum().item() for name, p in shaped.items()}
show_table(["setting", "ids left"], [list(pair) for pair in left.items()])
assert left["with top-k"] == top_k
assert left["with both"] <= min(left["with top-k"], left["with top-p"])

# %% [markdown]
# `choose` should draw with exactly these probabilities. How can draws be compared with a distribution? By counting. Among N independent draws the share of one id differs from its probability by δ or more with a probability of at most 2 exp(−2Nδ²) (Hoeffding, 1963). For the N and δ of the next cell that is the number printed below it: where a share is farther off, chance is ruled out for all practical purposes. And an id that was cut must never come.

# %%
N, delta = 100_000, 0.015
draw = torch.Generator().manual_seed(seed)
rows = []
for name, options in settings.items():
    p = shaped[name]  # [V]
    drawn = choose(fixed.expand(N, -1), generator=draw, **options)  # [N, 1]
    counts = drawn.flatten().bincount(minlength=len(fixed))  # [V]
    off = (counts / N - p).abs().max().item()
    rows.append([name, counts[p == 0].sum().item(), off < delta])
show_table(["setting", "draws of cut ids", f"all shares within {delta}?"], rows)
print(f"by chance farther off: {2 * math.exp(-2 * N * delta**2):.0e} for one id")
assert all(row[1:] == [0, True] for row in rows)

# %% [markdown]
# The drawn ids themselves are not printed here. A seed fixes them on one machine with one PyTorch release; PyTorch promises no more than that. What holds wherever the operations are deterministic (on a GPU not all are) are claims such as these: the same seed twice gives the same text, every id is among the k likeliest of its step, and a `torch.Generator` of one's own leaves PyTorch's global one as it was.

# %%
from book_utils import generate

state_before = torch.get_rng_state()
texts = []
for _ in range(2):
    own = torch.Generator().manual_seed(seed)
    options = {"temperature": temperature, "top_k": top_k, "generator": own}
    texts.append(generate(model, ids, n, use_cache=False, **options))  # [B, T + n]
drawn, again = texts
assert torch.equal(drawn, again)
assert torch.equal(torch.get_rng_state(), state_before)
print("twice the same text; the global generator is untouched")

# %% [markdown]
# And each new id, one step at a time:

# %%
with torch.no_grad():
    for end in range(T, T + n):
        likeliest = model(drawn[:, :end][:, -C:])[:, -1].topk(top_k).indices  # [B, k]
        assert (likeliest == drawn[:, end : end + 1]).any(dim=-1).all()
print(f"every new id is among the likeliest of its step, k = {top_k}")

# %% [markdown]
# `generate` is the library's second loop, with these settings. It has a cache, which [chapter 12](12_kv_cache.ipynb) builds, and the ids are the same with it and without, unless rounding decides a near tie; `use_cache=False` leaves it out. Where several logits equal the k-th, exactly k are kept, and PyTorch's `topk` does not promise which of them.
#
# ## Where a text ends
#
# Nothing in the model stops. A tokenizer can set an id aside for the end of a text (*end of sequence*, in code `eos_id`), and the loop stops a row that has written it. The rows of a batch end at different times, but a tensor has rows of one length, so a row that has ended is filled up with a *padding id* (`pad_id`). To see it happen, let the end be an id that row 0 writes by itself, no later than the middle of its greedy text.


# %%
def cut_after(texts, eos_id, pad_id):
    """What follows the first new eos_id becomes pad_id; as short as all rows allow."""
    texts, ends = texts.clone(), []
    for text in texts:
        places = (text[T:] == eos_id).nonzero().flatten().tolist()
        end = T + places[0] + 1 if places else T + n
        text[end:] = pad_id
        ends.append(end)
    return texts[:, : max(ends)], ends


# %%
eos_id = greedy[0, T + (n - 1) // 2].item()
pad_id = (eos_id + 1) % V  # any id but that one, to tell them apart
wanted, ends = cut_after(greedy, eos_id, pad_id)

# %%
seen = []  # what `stream` was called with
options = {"eos_id": eos_id, "pad_id": pad_id, "use_cache": False}
ended = generate(model, ids, n, stream=seen.append, **options)  # [B, up to T + n]
alone = generate(model, ids[:1], n, **options)  # [1, fewer]
print(f"end {eos_id}, padding {pad_id}")
for row, text in enumerate(ended):
    print(f"row {row}, new ids:", text[T:].tolist())
print("row 0 alone:       ", alone[0, T:].tolist())
assert torch.equal(ended, wanted) and torch.equal(alone[0], ended[0, : ends[0]])
assert torch.equal(torch.cat(seen, dim=1), ended[:, T:])
assert all(new.shape == (len(ids), 1) for new in seen) and alone.shape[1] < T + n

# %% [markdown]
# A row ends where it writes that id, and is padded as long as another goes on. Rows do not see each other, so the end of one changes nothing in the other. The result is shorter than T + n only when every row has ended, as it is for row 0 alone. `stream` is a function of the caller's; it was given the ids `[B, 1]` of every step as they came, which is how a text can be shown while it is written.
#
# Only an id that the loop has written ends a row. The same id in the prompt does not count: a prompt may well begin with the end of the text before it.

# %%
marked = ids.clone()
marked[:, -1] = eos_id  # both prompts end with it
going_on = generate(model, marked, n, **options)
plain_text = generate(model, marked, n, use_cache=False)
assert torch.equal(going_on, cut_after(plain_text, eos_id, pad_id)[0])
assert torch.equal(going_on[:, T], plain_text[:, T])
print("after an end in the prompt the text goes on:", going_on.shape[1] > T)

# %% [markdown]
# ## Equal strings
#
# [Chapter 10](10_blind_spots.ipynb) met mistakes that write the right text. The loop shows why: of V scores it uses one place. Call the distance between the largest and the second logit the *lead*. Two kinds of change leave the greedy text as it is: one that keeps the order of the scores, however large it is, and one that moves no logit by half the lead or more, at any step. Here are three functions of the model's logits, so three other models. Two are of the first kind, all logits doubled and a softmax inside; one is of the second, noise that stays below a quarter of the smallest lead on the way.


# %%
@torch.no_grad()
def smallest_lead(model, text, context_size):
    """The smallest lead over all steps that wrote text[:, T:]."""
    leads = []
    for end in range(T, text.shape[1]):
        z = model(text[:, :end][:, -context_size:])[:, -1]  # [B, V]
        first, second = z.topk(2).values.T  # twice [B]
        leads.append((first - second).min().item())
    return min(leads)


# %% [markdown]
# Three functions and the model as it is:

# %%
lead = smallest_lead(model, greedy, C)
draw = torch.Generator().manual_seed(seed)
noise = lead / 4 * (2 * torch.rand(V, generator=draw, dtype=torch.float64) - 1)  # [V]
changes = {
    "as it is": lambda z: z,
    "logits doubled": lambda z: 2 * z,
    "a softmax inside": lambda z: z.softmax(dim=-1),
    "noise": lambda z: z + noise,
}
print(f"the smallest lead on the way: {lead:.1e}")

# %% [markdown]
# Each writes a text. Beside it stand the largest difference of its logits from those of the model, and the probability that it gives to the first new id of row 0.

# %%
rows = []
for name, change in changes.items():

    def changed(ids, change=change):
        return change(model(ids))  # [B, T, V]

    same = torch.equal(write(changed, ids, n, C), greedy)
    with torch.no_grad():
        scores = changed(window)  # [B, min(T, C), V]
    off = (scores - logits).abs().max().item()
    rows.append([name, same, off, scores[0, -1].softmax(dim=-1).max().item()])
header = ["model", "same text?", "largest difference", "probability of the choice"]
show_table(header, rows, format=".2e")
assert all(row[1] for row in rows) and all(row[2] > 0 for row in rows[1:])

# %% [markdown]
# Four equal texts, four models. (Where the differences of the second and third row are nearly the same, it is because all probabilities are small: both are then about the largest logit itself.) The last column says what a text that is drawn would notice, and a greedy one does not. So an equal string is no proof of equal logits.
#
# Is a different string a proof of a mistake, then? Let two models differ by next to nothing, at a place where two scores are nearly equal. The logit of an id is the product of its row of the output head with the hidden vector h of the position. Let w be the row of the second-best id, so that its score is w · h. Adding δ h / (h · h) to w adds exactly δ to that score. The δ is chosen so that the score comes to stand 1e-9 below the best once, and 1e-9 above it once.


# %%
@torch.no_grad()
def with_second_at(gap):
    """A copy in which the second id of row 0 stands `gap` above the first."""
    copy, seen = deepcopy(model), []

    def keep(module, inputs, output):  # what a hook is given
        seen.append(output)

    hook = copy.final_norm.register_forward_hook(keep)
    z = copy(window)[0, -1]  # [V]
    hook.remove()
    h = seen[0][0, -1]  # [D]
    first, second = z.topk(2).indices
    copy.out_head.weight[second] += (z[first] - z[second] + gap) * h / (h @ h)
    return copy


# %% [markdown]
# Both copies have nearly the same logits. Do they write the same?

# %%
below, above = with_second_at(-1e-9), with_second_at(1e-9)
with torch.no_grad():
    off = (above(window) - below(window)).abs().max().item()
texts = [write(copy, ids[:1], n, C)[0, T:].tolist() for copy in (below, above)]
print("largest difference of the logits below 1e-8:", off < 1e-8)
print("first new ids:", [text[0] for text in texts])
assert off < 1e-8 and texts[0][0] != texts[1][0]

# %% [markdown]
# A difference of 2e-9, far below the gap between neighbouring float32 numbers of size 1, decides the id, and from there on the two read different texts. So near a tie is rare; compare it with the smallest lead above. Where it occurs, a right model on another processor may write another text. Upstream tests its default model by comparing everything it prints, as a string; that notices a change of the format or of the random numbers, and stands on the versions and settings it was made with. Compare logits, with a tolerance, and texts besides.
#
# ## Prompts
#
# What may a prompt be? With 0 new ids the result is the prompt. A prompt longer than C is cropped like any text, so its last C ids alone give the same new ids.

# %%
assert torch.equal(generate(model, ids, 0), ids)
from_long = generate(model, full, n, use_cache=False)[:, full.shape[1] :]
from_window = generate(model, full[:, -C:], n, use_cache=False)[:, C:]
assert torch.equal(from_long, from_window)
print(f"from {full.shape[1]} ids and from the last {C} of them: the same new ids")

# %% [markdown]
# The next table lists what is refused: all but its last line before anything is computed; a broken weight shows only in the logits.

# %%
broken = deepcopy(model)
with torch.no_grad():
    broken.final_norm.scale.fill_(nan)
calls = {
    "no ids": (model, ids[:, :0], n),
    "rows of two lengths": (model, [[1, 2], [3]], n),
    "no batch axis": (model, ids[0], n),
    "floats": (model, ids.double(), n),
    "id = V": (model, ids * 0 + V, n),
    "−1 new ids": (model, ids, -1),
    "a broken weight": (broken, ids, n),
}

# %%
rows = []
for name, (called, given, number) in calls.items():
    try:
        generate(called, given, number, use_cache=False)
    except (TypeError, ValueError) as error:
        rows.append([name, type(error).__name__, str(error)])
show_table(["call", "error", "message"], rows)
unseen = generate_text_simple(broken, ids, n, C)[:, T:]  # [B, n]
legal = bool((unseen < V).all())
print("the broken weight in generate_text_simple: no error, legal ids:", legal)
assert len(rows) == len(calls) and legal

# %% [markdown]
# Rows of two lengths make no tensor. The usual way out is to fill the shorter ones up with a padding id, on the left or on the right, and to tell the model which ids do not count. This model cannot be told: it has no mask for padding, and its positions count from the left end of the tensor. What would padding do here? Take one row without its first id, so that one is missing, and read it by itself, padded on the left, and padded on the right.

# %%
shorter = window[:1, 1:]  # [1, T'], one id too short
pad = torch.zeros(1, 1, dtype=torch.long)  # the padding id 0
with torch.no_grad():
    by_itself = model(shorter)[:, -1]  # [1, V]
    left = model(torch.cat([pad, shorter], dim=1))  # [1, T' + 1, V]
    right = model(torch.cat([shorter, pad], dim=1))  # [1, T' + 1, V]

# %% [markdown]
# The loop takes the last position; for the row that is padded on the right, the last of its own ids stands one place before.

# %%
cases = {
    "padded on the left, last position": left[:, -1],
    "padded on the right, last position": right[:, -1],
    "padded on the right, the row's own last": right[:, -2],
}
rows = []
for name, z in cases.items():
    gap = (z - by_itself).abs().max().item()
    rows.append([name, "none" if gap < 1e-9 else f"{gap:.3f}"])
show_table(["logits of", "difference from the row by itself"], rows)
assert [row[1] == "none" for row in rows] == [False, False, True]

# %% [markdown]
# On the left, the padding is read like any id, and every real id stands one position farther on. On the right, the last position is the padding's own. At the row's own last id nothing has changed, because that position sees nothing later; but the loop takes the last column and appends behind the padding. So here prompts of different lengths need one call for each length.
#
# ## The final form
#
# The module [book_utils/generation.py](../book_utils/generation.py) has both loops, `choose` and `evaluating`. The loops are `write`, run inside `evaluating`, with checks of the arguments; `generate` adds the settings, the end and the cache. All must write the ids that `write` has written, for a smaller window too. There is no tolerance: ids are whole numbers. What could make them differ is rounding at a near tie, and the leads here are far above rounding in float64, which is about 1e-16 of a value for each operation.

# %%
for size in (C, C // 2):
    mine, options = write(model, ids, n, size), {"context_size": size}
    texts = [
        generate_text_simple(model, ids, n, size),
        generate(model, ids, n, use_cache=False, **options),
        generate(model, ids, n, **options),
        generate(model, ids, n, temperature=temperature, top_k=1, **options),
    ]
    assert all(torch.equal(text, mine) for text in texts)
    lead = smallest_lead(model, mine, size)
    print(f"context_size {size}: the same ids; smallest lead {lead:.1e}")
    assert lead > 1e-12

# %% [markdown]
# With top-k = 1 one id is left to draw, so drawing is greedy at any temperature. `choose` was compared with `distribution` above, by counting.
#
# ## The results of this run
#
# The prompt and the work of the loop as numbers, what the settings make of the fixed row of eight logits, and how far a window's place moves the logits. They describe a model with random weights, and no text. A rerun with other parameters gives them again, under the same names.

# %%
elsewhere = last_logits["the window at positions 3 to C + 2"]  # [1, V]
moved = (elsewhere - cropped).abs().max().item()
publish(
    [
        ("prompt_ids", T, "T, the ids of the prompt"),
        ("positions_computed", computed, f"in each row, by {n} steps without a cache"),
        ("cross_entropy", round(of_model, 4), "on the prompt, in nats"),
        ("entropy_bits", entropies[degrees.index(temperature)], "of the fixed row"),
        ("ids_left", (shaped["with both"] > 0).sum(), "of its eight, after both cuts"),
        ("moved_window", round(moved, 4), "largest difference of a logit"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | Generation chooses an id of V or more | `argmax` without `dim` runs over the flattened batch | print the shape of what it returns; it should be `[B]` | `argmax(dim=-1)` |
# | In the generating loop `torch.cat` complains of the number of dimensions | `argmax` without `keepdim` gives `[B]` where `[B, 1]` is needed | print the shape of the new ids | `keepdim=True`, or `[:, None]` |
# | Generation fails as soon as the text has context_length + 1 ids | the text is not cropped to the window | print the length of the model's input | `ids[:, -context_size:]` |
# | The same id over and over, once the text is longer than the window | the window is cut at the wrong end | print the window; it should end with the newest id | a minus sign: `ids[:, -context_size:]` |
# | A generated text loses its beginning | the new id is appended to the window | look at the length of the result | append to the whole text |
# | Greedy generation gives another text at each call | dropout is on | print `model.training` | generate inside `evaluating(model)`, or call `model.eval()` |
# | Training goes on without dropout after a text was generated | the mode was not given back | count the modules in train mode | generate inside `evaluating(model)` |
# | Memory grows with each generated id | the logits are kept, and with them their graphs | `logits.requires_grad` is True | `torch.no_grad()` |
# | The same id for ever, whatever the prompt | NaN in the logits, which `argmax` counts as the largest | `logits.isfinite().all()` | find the broken weight; use `generate`, which refuses |
# | NaN when drawing at a very small temperature | the divided logits overflow | print the largest of `logits / temperature` | subtract the largest logit first; for greedy choice use temperature 0 |
# | The sign � in a generated text | a character that is cut in half, or ids that are no text | decode the whole text | wait for the next id before showing it |
# | Another text on another machine, at the same seed | draws differ between machines, or two logits are nearly tied | compare the logits | nothing to mend; test logits with a tolerance |
# | The rows of a batch give other logits than the same rows alone | padding without a mask | run one row alone | one call for each length of prompt |
#
# ## Exercises
#
# ::::{admonition} Exercise 11.1 · One step
#
# Write one greedy step: from the text `[B, T]` to the text `[B, T + 1]`. `model` takes ids `[B, t]` with t at most `context_size` and returns logits `[B, t, V]`. The text may be longer than that.
#
# ::::


# %% tags=["exercise"]
def one_step(model, ids, context_size):
    """[B, T] -> [B, T + 1]"""
    ...  # your lines here


check("11.1", one_step)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# logits = model(ids[:, -context_size:])  # [B, min(T, C), V]
# new = logits[:, -1].argmax(dim=-1, keepdim=True)  # [B, 1]
# return torch.cat([ids, new], dim=1)  # [B, T + 1]
# ```
#
# The window goes into the model, the id goes behind the text. `keepdim` keeps the axis along which the two are joined.
#
# ::::
#
# ::::{admonition} Exercise 11.2 · The nucleus
#
# Write the top-p cut. `probabilities` is `[V]` and sums to 1; keep the fewest likeliest ids that together reach `p` or more, set the others to 0, and scale what is left to sum to 1. The ids keep their places. No two of the probabilities are equal.
#
# ::::


# %% tags=["exercise"]
def nucleus(probabilities, p):
    """[V] -> [V]"""
    ...  # your lines here


check("11.2", nucleus)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# order = probabilities.argsort(descending=True)
# reached = probabilities[order].cumsum(dim=-1)
# number = (reached < p).sum() + 1
# kept = probabilities.clone()
# kept[order[number:]] = 0
# return kept / kept.sum()
# ```
#
# The id that crosses p belongs to the nucleus; without it the sum would stay below. So at least one id is always left, even when the likeliest alone has more than p. `clone` keeps the caller's tensor as it was.
#
# ::::
#
# ::::{admonition} Exercise 11.3 · Repair
#
# This loop runs without an error and writes the wrong text as soon as the text is longer than the window. It has two mistakes. Write it without them.
#
# ```python
# for _ in range(max_new_tokens):
#     window = ids[:, :context_size]
#     new = model(window)[:, -1].argmax(dim=-1, keepdim=True)
#     ids = torch.cat([window, new], dim=1)
# return ids
# ```
#
# ::::


# %% tags=["exercise"]
def repaired(model, ids, max_new_tokens, context_size):
    """[B, T] -> [B, T + max_new_tokens]"""
    ...  # your lines here


check("11.3", repaired)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# for _ in range(max_new_tokens):
#     window = ids[:, -context_size:]
#     new = model(window)[:, -1].argmax(dim=-1, keepdim=True)
#     ids = torch.cat([ids, new], dim=1)
# return ids
# ```
#
# The window is the *end* of the text, and the id is appended to the *text*. For a text that stays within the window both forms agree, which is why a short test does not see the difference. Test with a text that outgrows the window.
#
# ::::
#
# ::::{admonition} Exercise 11.4 · Given back
#
# Put `model` into eval mode, call `work(model)`, and return what it returns. Afterwards every module must have its own mode again, also when `work` raises an error; the error goes on to the caller. Do not use `evaluating`.
#
# ::::


# %% tags=["exercise"]
def in_eval(model, work):
    """What work(model) returns."""
    ...  # your lines here


check("11.4", in_eval)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# modes = [(module, module.training) for module in model.modules()]
# model.eval()
# try:
#     return work(model)
# finally:
#     for module, mode in modes:
#         module.training = mode
# ```
#
# Each module keeps its mode in its own attribute `training`; `train()` and `eval()` set it on a module and on everything inside, so they cannot restore a mixture. `finally` runs on every way out, the error included, and lets the error pass.
#
# ::::
#
# ## What you have now
#
# - The loop around the model, with its shapes: crop, forward, last position, choose, append. And the slips in it: an axis, an end, a mode.
# - A window that moves gives each id another position at every step and forgets what came before it; temperature, top-k and top-p as a distribution that draws were counted against.
# - What a text proves: that the loop runs. Equal texts do not prove equal logits, and a tiny difference can change a text.
#
# As long as the text fits into the window, each step computes all its positions again, although only one is new. What of it can be kept? [Chapter 12](12_kv_cache.ipynb) builds a cache, and finds out where it must be thrown away.
#
# **Sources.** A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2 (bytes and byte pairs). R. Sennrich, B. Haddow, A. Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016, arXiv:1508.07909, section 3.2 (byte pair encoding). A. Fan, M. Lewis, Y. Dauphin, "Hierarchical Neural Story Generation", 2018, arXiv:1805.04833 (top-k). A. Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020, arXiv:1904.09751, section 3.1 (top-p). W. Hoeffding, "Probability Inequalities for Sums of Bounded Random Variables", Journal of the American Statistical Association 58, 1963, theorem 1. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, sections 4.7 (the loop) and 5.3 (temperature, top-k); its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code`: `ch04.ipynb` (with a softmax), `gpt.py` (without) and `tests.py`. PyTorch's documentation of `torch.argmax`, `torch.multinomial`, `torch.autograd.graph.saved_tensors_hooks`, and its notes on reproducibility.
