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
# # 8 · Counting
#
# **Is a layer missing?**
#
# At the end of this chapter you can
#
# - predict every parameter of a GPT from its sizes, line by line, before you ask PyTorch;
# - find a missing, added or shared layer by the line in which a model and the prediction differ, and say which mistakes no count can see;
# - say why GPT-2 small has "163 million" parameters and also "124 million", and what parameters, training and masks need in memory.
#
# You need the model of [chapter 7](07_gpt_model.ipynb) and the layers inside it: LayerNorm ([chapter 2](02_layer_norm.ipynb)), the feed-forward network ([chapter 3](03_feed_forward.ipynb)) and attention ([chapter 5](05_attention.ipynb)).

# %% tags=["parameters"]
vocab_size: int = 16  # V, number of token ids (2 to 1024)
context_length: int = 16  # C, the longest input in tokens (2 to 64)
emb_dim: int = 16  # D, features per position (4 to 64)
n_heads: int = 4  # H, attention heads; they divide emb_dim (1 to 16)
n_layers: int = 2  # L, transformer blocks (1 to 12)
seed: int = 123  # of the random weights and ids (0 to 4294967295)

# %%
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel, LayerNorm, TransformerBlock, get_config
from book_utils.workbench import check, check_parameters, figure, show_table

check_parameters("08_counting", globals())
# The rest keeps its default: no dropout, no QKV bias, two separate tables.
cfg = GPTConfig(vocab_size, context_length, emb_dim, n_heads, n_layers)
V, C, D, L = vocab_size, context_length, emb_dim, n_layers
print(f"V = {V}, C = {C}, D = {D}, H = {n_heads}, L = {L}")

# %% [markdown]
# Chapter 7 gave one formula for the whole model, and it agreed with PyTorch. One number that agrees is reassuring, but it says little about where to look when it does not agree. This chapter keeps a *ledger*, as an accountant does: one line for each layer, predicted first, counted second.
#
# ## Three kinds of layer
#
# A *parameter* is a number that training may change. PyTorch keeps such numbers in tensors of the type `Parameter`, and `module.parameters()` yields all of those inside a module, each once. (A frozen one, which a training leaves alone, is yielded and counted all the same.) Only three kinds of layer in a GPT hold any.
#
# - A linear layer has a weight for each pair of an input and an output, and with a bias one more number for each output.
# - An embedding has one row of D numbers for each index.
# - A LayerNorm has a scale and a shift for each feature.


# %%
def linear(d_in, d_out, bias=True):
    """The parameters of a linear layer."""
    return d_in * d_out + (d_out if bias else 0)


def embedding(rows, width):
    """The parameters of a table."""
    return rows * width


def norm(width):
    """The parameters of a LayerNorm: scale and shift."""
    return 2 * width


def count(module):
    """What PyTorch says: all numbers in the Parameters of `module`, each once."""
    return sum(parameter.numel() for parameter in module.parameters())


# %%
layers = [
    ("linear D → 4D", linear(D, 4 * D), nn.Linear(D, 4 * D)),
    (
        "linear D → 3D, no bias",
        linear(D, 3 * D, bias=False),
        nn.Linear(D, 3 * D, False),
    ),
    ("embedding of V ids", embedding(V, D), nn.Embedding(V, D)),
    ("LayerNorm", norm(D), LayerNorm(D)),
    ("GELU, dropout", 0, nn.Sequential(nn.GELU(), nn.Dropout())),
]
rows = [[name, predicted, count(layer)] for name, predicted, layer in layers]
show_table([f"layer, with D = {D}, V = {V}", "predicted", "counted"], rows)
assert all(predicted == counted for _, predicted, counted in rows)

# %% [markdown]
# Activation functions, dropout, additions and softmax hold no parameters. Whatever they do, and whether they are there at all, a count does not notice. That will matter below.
#
# ## One block
#
# A block has six layers with parameters. Attention projects each position to query, key and value, three maps from D to D features, without bias unless asked for; its output projection is a fourth map, with bias. The feed-forward network (FFN) expands D to 4D and contracts 4D to D, both with bias. In front of each of the two stands a LayerNorm. The number of heads appears nowhere: heads divide the D features among themselves.


# %%
def block_lines(D, qkv_bias=False):
    """The parameters of one block: line -> number."""
    return {
        "norm 1": norm(D),
        "QKV projection": linear(D, 3 * D, bias=qkv_bias),
        "attention output": linear(D, D),
        "norm 2": norm(D),
        "FFN expansion": linear(D, 4 * D),
        "FFN contraction": linear(4 * D, D),
    }


# %%
def subtotals(lines):
    """Attention, FFN and norms of a block."""
    attention = lines["QKV projection"] + lines["attention output"]
    ffn = lines["FFN expansion"] + lines["FFN contraction"]
    norms = lines["norm 1"] + lines["norm 2"]
    return {"attention": attention, "FFN": ffn, "norms": norms}


parts = subtotals(block_lines(D))
letters = {
    "attention": ("3D² + (D² + D) = 4D² + D", 4 * D**2 + D),
    "FFN": ("(4D² + 4D) + (4D² + D) = 8D² + 5D", 8 * D**2 + 5 * D),
    "norms": ("2D + 2D = 4D", 4 * D),
}
rows = [[name, text, parts[name], value] for name, (text, value) in letters.items()]
rows.append(["block", "12D² + 10D", sum(parts.values()), 12 * D**2 + 10 * D])
show_table(
    ["part of a block", "in letters", "sum of its lines", "value of the letters"], rows
)
assert all(row[2] == row[3] for row in rows)
assert sum(parts.values()) == count(TransformerBlock(cfg))

# %% [markdown]
# The terms with D² are the weights, the terms with D the biases and the norms. With growing D the weights take over, so a rule of thumb reads "12D² for each block". A rule of thumb cannot find a missing bias, though. The exact number can.
#
# ## The whole ledger
#
# Around the L blocks stand two tables, a last LayerNorm, and the output head, a linear layer from D features to V scores without bias. Tied to the token embedding, the head has no parameters of its own. The function below returns each line with its number and how many times the model has it.


# %%
def plain_ledger(cfg):
    """Every line of the model: name -> (number, times)."""
    V, C, D, L = cfg.vocab_size, cfg.context_length, cfg.emb_dim, cfg.n_layers
    block = block_lines(D, cfg.qkv_bias)
    head = 0 if cfg.tie_weights else linear(D, V, bias=False)
    return {
        "token embedding": (embedding(V, D), 1),
        "position embedding": (embedding(C, D), 1),
        **{f"block: {name}": (number, L) for name, number in block.items()},
        "final norm": (norm(D), 1),
        "output head": (head, 1),
    }


def total(lines):
    """The sum of a ledger."""
    return sum(number * times for number, times in lines.values())


# %% [markdown]
# Now PyTorch is asked, line by line, in every block.

# %%
MODULES = {
    "norm 1": "norm1",
    "QKV projection": "att.qkv",
    "attention output": "att.out_proj",
    "norm 2": "norm2",
    "FFN expansion": "ff.layers.0",
    "FFN contraction": "ff.layers.2",
}


def counted_lines(model):
    """What `model` has: line -> its number, or L numbers for a line of a block."""
    blocks = {
        f"block: {name}": [count(b.get_submodule(path)) for b in model.trf_blocks]
        for name, path in MODULES.items()
    }
    around = {
        "token embedding": count(model.tok_emb),
        "position embedding": count(model.pos_emb),
        "final norm": count(model.final_norm),
        "output head": count(model.out_head),
    }
    return around | blocks


# %%
torch.manual_seed(seed)
model = GPTModel(cfg)
lines, found = plain_ledger(cfg), counted_lines(model)
rows = []
for name, (number, times) in lines.items():
    agree = found[name] == ([number] * L if name.startswith("block") else number)
    rows.append([name, number, times, number * times, agree])
show_table(["line", "predicted", "times", "together", "counted the same?"], rows)
print("sum of the ledger:", total(lines), "· all of the model:", count(model))
assert all(row[-1] for row in rows) and total(lines) == count(model)
assert total(plain_ledger(get_config("tiny"))) == 7264  # whatever this chapter's sizes

# %% [markdown]
# Two questions are answered here. The lines agree one by one, so each layer has its size. And their sum is the count of the whole model, so there is nothing besides these layers, as long as no two of them share a Parameter. Neither answer alone would be enough, and a section below comes back to sharing.
#
# Adding up the lines in letters gives the formula of chapter 7,
#
# $$N = 2VD + CD + L(12D^2 + 10D) + 2D.$$
#
# The comparison was made for the sizes of this chapter; the tests of the book make it for many others.
#
# ## Two switches
#
# The bias of query, key and value adds 3D to each block. Tying takes the head's line, V·D, away. The number of heads, tried last, changes nothing.

# %%
rows = []
for tie in (False, True):
    for bias in (False, True):
        variant = replace(cfg, qkv_bias=bias, tie_weights=tie)
        predicted, counted = total(plain_ledger(variant)), count(GPTModel(variant))
        rows.append([tie, bias, predicted, counted, counted - count(model)])
show_table(["tied", "QKV bias", "predicted", "counted", "change"], rows)
assert all(row[2] == row[3] for row in rows)
assert [row[4] for row in rows] == [0, 3 * D * L, -V * D, 3 * D * L - V * D]
assert count(GPTModel(replace(cfg, n_heads=1))) == count(model)

# %% [markdown]
# ## Subtracting is not tying
#
# Upstream (the code of S. Raschka's book) builds an untied model, counts it, and then prints the count minus V·D as the number that a tied model would have. As an estimate of another model this is right. It is not a statement about the model at hand. Here are two models; in each of them the two tables hold the same values. For the first, V·D is subtracted from the count; the second is tied. Both take one step with AdamW, an optimizer that keeps two more numbers for each parameter: running means of its gradient and of the gradient's square.


# %%
def train_one_step(model, ids):
    """One step of AdamW on `ids` [B, T]; returns the optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    logits = model(ids)[:, :-1]  # [B, T - 1, V]
    F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()
    return optimizer


def kept(optimizer):
    """The numbers that AdamW keeps beside the parameters, without its step counters."""
    states = optimizer.state.values()
    return sum(s["exp_avg"].numel() + s["exp_avg_sq"].numel() for s in states)


# %%
torch.manual_seed(seed)
ids = torch.randint(V, (2, C))  # [B, T]
subtracted = GPTModel(cfg).double()
tied = GPTModel(replace(cfg, tie_weights=True)).double()
with torch.no_grad():
    subtracted.out_head.weight.copy_(subtracted.tok_emb.weight)
reported = {"subtracted": count(subtracted) - V * D, "tied": count(tied)}
rows = []
for name, candidate in [("subtracted", subtracted), ("tied", tied)]:
    states = kept(train_one_step(candidate, ids))
    equal = torch.equal(candidate.tok_emb.weight, candidate.out_head.weight)
    rows.append([name, reported[name], count(candidate), states, equal])
header = ["model", "reported", "trained", "kept by AdamW"]
show_table([*header, "tables equal after the step?"], rows)
assert reported["subtracted"] == reported["tied"] == rows[1][2]
assert rows[0][2] == reported["subtracted"] + V * D and rows[0][3] == 2 * rows[0][2]
assert [row[4] for row in rows] == [False, True]

# %% [markdown]
# The two reports agree, and yet the first model trains V·D numbers more, its optimizer keeps twice that besides, and its tables part at the first step. A subtraction changes a report; only an assignment changes a model. ([Chapter 7](07_gpt_model.ipynb) shows what else distinguishes a copy from a tie: the tied table gets the sum of both gradients.)
#
# ## Is a layer missing?
#
# Suppose a model is short by 2D. The total alone cannot say which layer it is, since at least three lines have that size: the two norms of a block and the last one. Here is, for each line, how far the total falls when one such layer is gone, and what else would have the same effect.

# %%
rows = []
for name, (number, _) in lines.items():
    same = [other for other, (n, _) in lines.items() if n == number and other != name]
    rows.append([name, -number, ", ".join(same) or "nothing else"])
show_table(["one missing", "change of the total", "the same change from"], rows)
norms = ["block: norm 1", "block: norm 2", "final norm"]
assert all(lines[name][0] == 2 * D for name in norms)

# %% [markdown]
# With sizes that happen to be equal, such as V = C, more lines coincide. So the comparison is made line by line, and in every block. `book_utils.counting` does it from the names of the parameters: `ledger(cfg)` predicts, and its method `check` raises an error for a model that differs. This is how the error looks when the last block has lost its first norm, and the contraction in the first block its bias.

# %%
from book_utils import ledger


def complaint(model, cfg=cfg):
    """What the ledger of `cfg` has against `model`."""
    try:
        ledger(cfg).check(model)
    except ValueError as error:
        return str(error)
    return "nothing"


broken = GPTModel(cfg)
broken.trf_blocks[-1].norm1 = nn.Identity()
broken.trf_blocks[0].ff.layers[2].bias = None
print(complaint(broken))
some_ids = torch.zeros(1, 1, dtype=torch.long)  # [B, T]
assert complaint(model) == "nothing" and broken(some_ids).shape == (1, 1, V)

# %% [markdown]
# Each line has its block, what was predicted, what was found, and the parameters that are there. Blocks are numbered from 1, PyTorch's names from 0. The model still runs, and no shape of its results is wrong.
#
# Now several changes, one at a time.


# %%
def lose_a_block(m):
    del m.trf_blocks[0]


def repeat_a_block(m):
    m.trf_blocks.append(TransformerBlock(cfg))


def lose_the_final_norm(m):
    m.final_norm = nn.Identity()


def share_a_norm(m):
    m.trf_blocks[0].norm2 = m.trf_blocks[0].norm1


def give_the_head_a_bias(m):
    m.out_head = nn.Linear(D, V)


def lose_the_output_bias(m):
    m.trf_blocks[0].att.out_proj.bias = None


def tie_unasked(m):
    m.out_head.weight = m.tok_emb.weight


def add_a_parameter(m):
    m.temperature = nn.Parameter(torch.ones(1))


# %%
changes = [
    lose_a_block,
    repeat_a_block,
    lose_the_final_norm,
    share_a_norm,
    give_the_head_a_bias,
    lose_the_output_bias,
    tie_unasked,
    add_a_parameter,
]
rows = []
for change in changes:
    changed = GPTModel(cfg)
    change(changed)
    first = complaint(changed).splitlines()[1].strip()
    name = change.__name__.replace("_", " ")
    rows.append([name, count(changed) - count(model), first.partition(" (")[0]])
show_table(["change", "total changes by", "the line that differs"], rows)
assert all(row[1] != 0 for row in rows)

# %% [markdown]
# Every change is seen, and its line is named. One thing is not known: the block that was deleted was the first, and the message says the last. A list has no gaps; the blocks behind move up, and all of them have the same sizes. Which one is gone cannot be told from counts. (With one block there is no difference.)
#
# A shared norm deserves a second look. Both attributes are there, both work, and a comparison like `counted_lines`, which asks each module on its own, counts the one norm twice and finds nothing wrong. `check` counts each Parameter once and says under which name it was counted.

# %%
shared = GPTModel(cfg)
share_a_norm(shared)
assert counted_lines(shared) == counted_lines(model) and count(shared) < count(model)
print("module by module:", "nothing differs")
print("each Parameter once:", complaint(shared))

# %% [markdown]
# ## Two mistakes that cancel out
#
# A total can also be right when the model is wrong. BERT, a relative of GPT, has a LayerNorm after its embeddings and no separate one after its last block. Somebody who takes up its habits loses one norm and gains one.


# %%
class NormedEmbedding(nn.Embedding):
    """A position table whose rows are normalized: [T] -> [T, D]."""

    def __init__(self, rows, width):
        super().__init__(rows, width)
        self.norm = LayerNorm(width)

    def forward(self, positions):
        return self.norm(super().forward(positions))


balanced = GPTModel(cfg)
balanced.final_norm = nn.Identity()
balanced.pos_emb = NormedEmbedding(C, D)
print("total:", count(balanced), "· predicted:", total(lines))
print(complaint(balanced))
assert count(balanced) == total(lines) and balanced(ids).shape == (2, C, V)

# %% [markdown]
# The total agrees to the last unit, and the model runs. (The norm in this example is put on the positions only, which keeps it short; the count would be the same for the sum.) The ledger names both: a line that is short, and parameters that no line predicts.
#
# ## What no count can see
#
# Parameters are what is trained, and the ledger knows their names and numbers. It does not know what is computed with them. Three models follow that are given the same weights as the right one: one whose norms divide by the *sample* variance, with D − 1 in place of D; one with ReLU for GELU; one whose blocks normalize after the addition and not before.


# %%
def unbiased_norm(norm, x):
    """LayerNorm with the wrong variance: [..., D] -> [..., D]."""
    mean = x.mean(dim=-1, keepdim=True)  # [..., 1]
    variance = x.var(dim=-1, keepdim=True)  # [..., 1], divided by D - 1
    return norm.scale * (x - mean) / torch.sqrt(variance + norm.eps) + norm.shift


def post_norm(block, x):
    """The norms after the additions: [B, T, D] -> [B, T, D]."""
    u = block.norm1(x + block.att(x))
    return block.norm2(u + block.ff(u))


def wrong_variance(m):
    for module in m.modules():
        if isinstance(module, LayerNorm):
            module.forward = partial(unbiased_norm, module)


def relu(m):
    for block in m.trf_blocks:
        block.ff.layers[1] = nn.ReLU()


def wrong_order(m):
    for block in m.trf_blocks:
        block.forward = partial(post_norm, block)


# %%
right = GPTModel(cfg).double()
rows = []
for change in (wrong_variance, relu, wrong_order):
    changed = GPTModel(cfg).double()
    changed.load_state_dict(right.state_dict())
    change(changed)
    differs = not torch.allclose(changed(ids), right(ids), rtol=0, atol=1e-6)
    name = change.__name__.replace("_", " ")
    rows.append([name, count(changed) - count(right), complaint(changed), differs])
show_table(
    ["change", "total changes by", "the ledger complains about", "other logits?"], rows
)
assert all(row[1:] == [0, "nothing", True] for row in rows)

# %% [markdown]
# Another computation from the same parameters, and nothing to count. ("Other" means that some logit moves by more than 1e-6 in float64, far above rounding.) The answer to the question of this chapter is therefore one-sided: a count that differs shows that model and prediction do not fit, and a ledger that agrees in every line shows that each layer with parameters is registered, with its number of them, and none besides. It does not show that the model is right, nor even that each layer is used: a block that never calls its second norm has the same parameters. [Chapter 9](09_parity.ipynb) compares values, and [chapter 10](10_blind_spots.ipynb) makes a catalogue of what each kind of check overlooks.
#
# ## Where the parameters are
#
# Which part of a block is larger, attention or the feed-forward network? For GPT-2 small:

# %%
small = get_config("gpt2-small")
parts = subtotals(block_lines(small.emb_dim))
for name in ("FFN", "attention", "norms"):
    print(f"{name:9} {parts[name]:>9,}")
assert (parts["FFN"], parts["attention"]) == (4_722_432, 2_360_064)
assert parts["FFN"] == 2 * parts["attention"] + 3 * small.emb_dim

# %% [markdown]
# The FFN has twice as many, and 3D more: $8D^2 + 5D = 2(4D^2 + D) + 3D$. That holds for every width. It follows from the expansion to 4D, which is a choice; a factor of 2 would give the FFN about as many parameters as attention.
#
# How do the parts share the whole model? That depends on the size. The blocks grow with L·D², the tables only with D. The figure shows the four sizes of GPT-2, with a head of its own.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
GPT2 = ["gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"]
shares = {}  # part -> one share in percent for each size
for name in GPT2:
    sizes = get_config(name)
    whole = plain_ledger(sizes)
    of_block = subtotals(block_lines(sizes.emb_dim))
    numbers = {
        "token embedding": whole["token embedding"][0],
        "attention": sizes.n_layers * of_block["attention"],
        "FFN": sizes.n_layers * of_block["FFN"],
        "output head": whole["output head"][0],
    }
    numbers["positions, norms"] = total(whole) - sum(numbers.values())
    for part, number in numbers.items():
        shares.setdefault(part, []).append(100 * number / total(whole))
looks = [
    ("#56B4E9", "", "black"),
    ("#E69F00", "//", "black"),
    ("#0072B2", "", "white"),
    ("#CCE8F7", "..", "black"),
    ("#444444", "", "white"),
]
with figure(
    "parameter_shares",
    alt="Four bars, one for each size of GPT-2, divided into the shares of its parts: "
    "the larger the model, the more of it is attention and FFN, and the less of "
    "it is tables.",
    words=[
        "Each bar is one model, untied, and is 100 percent long. From left to right it "
        "is divided into token embedding, attention, FFN, output head, and, as a thin "
        "strip at the end, position embedding and all norms.",
        *(
            f"{name}: "
            + ", ".join(
                f"{part} {share[i]:.1f} percent" for part, share in shares.items()
            )
            + "."
            for i, name in enumerate(GPT2)
        ),
        "In every bar the FFN is about twice as long as attention, and the output head "
        "exactly as long as the token embedding.",
        "From small to xl the two tables of V rows shrink from "
        f"{2 * shares['output head'][0]:.0f} to {2 * shares['output head'][3]:.0f} "
        "percent together.",
    ],
    data={"size": GPT2, **shares},
    size=(7.2, 3.8),
) as ax:
    left = [0.0] * len(GPT2)
    for (part, share), (color, hatch, ink) in zip(shares.items(), looks, strict=True):
        style = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 1}
        ax.barh(GPT2, share, left=left, label=part, **style)
        for row, (start, width) in enumerate(zip(left, share, strict=True)):
            if width > 4:
                box = {"facecolor": color, "edgecolor": "none", "pad": 1.5}
                middle = start + width / 2
                ax.text(
                    middle,
                    row,
                    f"{width:.0f}",
                    ha="center",
                    va="center",
                    color=ink,
                    bbox=box,
                )
        left = [start + width for start, width in zip(left, share, strict=True)]
    ax.set(xlabel="share of the parameters (percent)", xlim=(0, 100))
    ax.invert_yaxis()
    ax.grid(False)
    ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1), fontsize=10)

# %% [markdown]
# Most of the largest model is blocks; nearly half of the smallest is two tables of V rows, of which one goes when they are tied. So the question whether a model is tied matters most for small ones. The figure counts parameters. It says nothing about time: a look-up in a table costs next to nothing however many rows it has, while every weight of a linear layer, the head's included, is used for every token.
#
# ## Four sizes, three models of each
#
# GPT-2 comes in four sizes. The largest would need several gigabytes if it were built, only to be counted. Two ways of counting need none: the ledger, which is arithmetic, and PyTorch's *meta* device, on which tensors have a shape and no values. The first predicts, the second counts the real classes.

# %%
variants = {
    "untied": {},
    "tied": {"tie_weights": True},
    "tied, QKV bias": {"tie_weights": True, "qkv_bias": True},
}
rows, N = [], {}
for name in GPT2:
    for label, switches in variants.items():
        sizes = replace(get_config(name), **switches)
        with torch.device("meta"):
            large = GPTModel(sizes)
        N[name, label] = total(plain_ledger(sizes))
        assert count(large) == N[name, label]
        assert all(parameter.is_meta for parameter in large.parameters())
    rows.append([name, *(N[name, label] for label in variants)])
show_table(["model", *variants], rows, int_format=",")
assert N["gpt2-xl", "untied"] == 1_637_792_000
assert N["gpt2-xl", "tied"] == 1_557_380_800
assert N["gpt2-xl", "tied, QKV bias"] == 1_557_611_200

# %% [markdown]
# The first column is what upstream's classes build. The last is GPT-2 as it was released: its head is the token table, and its query, key and value have a bias. For the smallest model, this is where the two numbers in circulation come from:

# %%
for label in variants:
    print(f"{label:15} {N['gpt2-small', label] / 1e6:8.2f} million")
one_table = small.vocab_size * small.emb_dim
print(f"{'one table, V·D':15} {one_table / 1e6:8.2f} million")
assert N["gpt2-small", "untied"] - one_table == N["gpt2-small", "tied"]

# %% [markdown]
# "163 million" is the untied model, "124 million" the tied one, with or without the bias. Neither is a mistake, and the architecture is the same up to that one table and the bias. (The paper's own table has a third number, 117 million, which its authors later called an error.) Whoever expects 124 and finds 163 has no layer too many; the head is a table of its own. The ledger says so in one line:

# %%
with torch.device("meta"):
    untied_small = GPTModel(small)
print(complaint(untied_small, replace(small, tie_weights=True)))

# %% [markdown]
# ## How much memory?
#
# A number takes as many bytes as its type has: 8 in float64, 4 in float32, 2 in bfloat16. 1 MiB is 2²⁰ bytes, 1 GiB is 2³⁰. For each parameter training needs more than the parameter. There is its gradient, and Adam's two running means, four numbers in all when they have the same type.


# %%
def readable(size):
    """A number of bytes in MiB or GiB."""
    unit, scale = ("GiB", 2**30) if size >= 2**30 else ("MiB", 2**20)
    return f"{size / scale:.1f} {unit}"


rows = []
for (name, label), number in N.items():
    stored = [readable(number * t.itemsize) for t in (torch.bfloat16, torch.float32)]
    training = [readable(copies * number * 4) for copies in (2, 4)]
    rows.append([f"{name}, {label}", *stored, *training])
header = ["parameters", "in bfloat16", "in float32", "with gradients"]
show_table([*header, "and Adam's two states"], rows)

# %% [markdown]
# The factor 4 can be checked on the small model that took a step above. It takes one more, and everything is counted.

# %%
states = kept(train_one_step(tied, ids))
gradients = sum(parameter.grad.numel() for parameter in tied.parameters())
print("parameters, gradients, states:", count(tied), gradients, states)
assert gradients == count(tied) and states == 2 * count(tied)

# %% [markdown]
# What the table leaves out: *activations*, that is, the results of the layers, which training keeps for the backward pass. They grow with the batch and with the length of the texts and not only with the parameters, and in training they often take more than everything in the table. Left out are also Adam's step counters (one number for each Parameter), the buffers of the next section, what operations need for a moment, and what PyTorch's allocator, the part that hands out memory, holds in reserve. Mixed precision, where parameters, gradients and states have different types, makes other factors. For this type and this optimizer the table is a lower bound: what exceeds the memory already here will not fit.
#
# ## Buffers
#
# Upstream's attention keeps a causal mask, a table of C·C numbers that says which positions may not be looked at. It is registered as a *buffer*: a tensor that belongs to the module and that nobody trains. Here is a module that is nothing but such a mask.


# %%
class CausalMask(nn.Module):
    """A mask [C, C]: 1 where position (row) must not look at position (column)."""

    def __init__(self, context_length):
        super().__init__()
        square = torch.ones(context_length, context_length)  # [C, C]
        self.register_buffer("mask", square.triu(diagonal=1))


def buffers(module):
    """All numbers in the buffers of `module`."""
    return sum(buffer.numel() for buffer in module.buffers())


masks = nn.ModuleList(CausalMask(C) for _ in range(L))
sizes = f"in buffers: {buffers(masks)} · L·C·C: {L * C**2}"
print(f"parameters: {count(masks)} · {sizes}")
assert count(masks) == 0 and buffers(masks) == L * C**2

# %% [markdown]
# No optimizer sees it, and the ledger has no line for it. Still it is stored, once in each block, and it moves to another device with its module. How much is it for GPT-2 small? The formula says L·C²; the package of upstream's classes is asked on the meta device.

# %%
from llms_from_scratch.ch04 import GPTModel as UpstreamGPTModel

rows = []
for name, build in [("upstream's GPTModel", UpstreamGPTModel), ("GPTModel", GPTModel)]:
    with torch.device("meta"):
        large = build(small)
    memory = readable(4 * buffers(large))
    rows.append([name, count(large), buffers(large), memory])
    assert complaint(large, small) == "nothing"
header = ["gpt2-small", "parameters", "in buffers", "buffers in float32"]
show_table(header, rows, int_format=",")
upstream_buffers = small.n_layers * small.context_length**2
assert [row[2] for row in rows] == [upstream_buffers, 0]

# %% [markdown]
# The parameters agree, and the ledger accepts both, although upstream has three projections where this book has one: three times D² is 3D². The masks are all equal, so all of them together hold no more information than one. Even that one need not be stored: the attention of this book asks PyTorch's operation for a causal mask and stores nothing.
#
# With C = 1024 the masks are a small part. They grow with the square of C, though, and the position table, the only parameters that depend on C, does not.

# %%
rows = []
for length in (1024, 4096, 16384):
    longer = replace(small, context_length=length, tie_weights=True)
    in_masks, trained = longer.n_layers * length**2, total(plain_ledger(longer))
    rows.append([length, trained, in_masks, in_masks / trained])
header = ["context length", "parameters, tied", "numbers in the masks"]
show_table([*header, "masks / parameters"], rows, format=".1f", int_format=",")
assert rows[0][3] < 1 < rows[1][3]

# %% [markdown]
# A number of parameters alone is therefore not yet the memory of a model.
#
# ## The final form
#
# `ledger(cfg)` of `book_utils` takes a `GPTConfig` or a dictionary with the same keys. It makes no tensor, only ten lines of arithmetic, and shows itself as a table.

# %%
from IPython.display import display

from book_utils import count_buffers, count_parameters, parameter_formula

display(ledger(cfg))

# %% [markdown]
# It must agree with the plain ledger of this chapter, in every line and for both switches, and with the closed formula. These are whole numbers, so exact equality is asked for.

# %%
for name in ("tiny", *GPT2):
    for switches in variants.values():
        sizes = replace(get_config(name), **switches)
        final = ledger(dict(sizes))
        numbers = {line.name: (line.count, line.times) for line in final.lines}
        assert numbers == plain_ledger(sizes)
        assert final.total == parameter_formula(sizes) == total(plain_ledger(sizes))
assert count_parameters(model) == count(model)
assert count_buffers(masks) == buffers(masks)
assert ledger(cfg).memory(torch.bfloat16) == 2 * count(model)
print("equal in every line, for five models in three variants")

# %% [markdown]
# `Ledger.check` looks for the lines under the names of this book's model and of upstream's. A model with other names is not understood: each of its parameters is reported as one that no line predicts. And it compares numbers of parameters, not their shapes and not their values.
#
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | The count is short by 12D² + 10D | a block is missing | `ledger(cfg).check(model)` | `range(cfg.n_layers)`; look for blocks in a Python list |
# | Short by 2D | a norm is missing, or two are one object | the line that `check` names | a norm of its own for each place |
# | Short by D or 4D | a bias is missing | the line that `check` names | `bias=True`, the default of `nn.Linear` |
# | Over by 3D for each block | query, key and value have a bias | `att.qkv.bias is None` | `qkv_bias=False`, or predict with it |
# | Over by V | the head has a bias | `out_head.bias is None` | `bias=False` |
# | Over by V·D: 163 million for 124 | the model is not tied | `out_head.weight is tok_emb.weight` | tie it, or predict it untied |
# | The total agrees, `check` does not | two mistakes cancel out | all lines of the message | mend both |
# | `check` agrees, results are wrong | a mistake without parameters | compare values | [chapter 9](09_parity.ipynb) |
# | The count is right, one layer does not train | the optimizer was made before the layer was replaced | are the model's Parameters in `optimizer.param_groups`? | make the optimizer last |
# | More memory than the ledger says | gradients, optimizer states, activations, buffers | `count_buffers(model)`, and 4 times the parameters | no stored masks; a smaller batch |
# | A file is larger than the parameters | masks are in the state dict | `state_dict()` keys | `register_buffer(..., persistent=False)` |
#
# ## Exercises
#
# ::::{admonition} Exercise 8.1 · The ledger on paper
#
# Take V = 20, C = 10, D = 8, L = 1, no QKV bias. Write the ten lines of the ledger on paper, add them up, untied and tied. Then write the function: it returns the ten numbers as a list, in the order of the ledger (token embedding, position embedding; norm 1, QKV, attention output, norm 2, FFN expansion, FFN contraction; final norm, head), each for all L blocks together.
#
# ::::


# %% tags=["exercise"]
def ledger_lines(V, C, D, L, qkv_bias, tied):
    """Ten numbers, in the order of the ledger."""
    ...  # your lines here


check("8.1", ledger_lines)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# qkv = 3 * D * D + (3 * D if qkv_bias else 0)
# block = [2 * D, qkv, D * D + D, 2 * D, 4 * D * D + 4 * D, 4 * D * D + D]
# head = 0 if tied else V * D
# return [V * D, C * D, *(L * number for number in block), 2 * D, head]
# ```
#
# On paper: 160 + 80 for the tables, 16 + 192 + 72 + 16 + 288 + 264 = 848 for the block, 16 for the final norm, 160 for the head. That is 1264; tied, the head's 160 go and 1104 remain.
#
# ::::
#
# ::::{admonition} Exercise 8.2 · Suspects
#
# A model without QKV bias, untied, has `short` parameters fewer than predicted, and you know that one layer is missing, one only. Return the names of all layers that it can have been, as a list in the order of the ledger. The names are `"token embedding"`, `"position embedding"`, `"norm 1"`, `"QKV projection"`, `"attention output"`, `"norm 2"`, `"FFN expansion"`, `"FFN contraction"`, `"final norm"`, `"output head"`. The sizes may coincide in unexpected ways.
#
# ::::


# %% tags=["exercise"]
def suspects(short, V, C, D):
    """The names of all layers with exactly `short` parameters."""
    ...  # your lines here


check("8.2", suspects)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# sizes = {
#     "token embedding": V * D,
#     "position embedding": C * D,
#     "norm 1": 2 * D,
#     "QKV projection": 3 * D * D,
#     "attention output": D * D + D,
#     "norm 2": 2 * D,
#     "FFN expansion": 4 * D * D + 4 * D,
#     "FFN contraction": 4 * D * D + D,
#     "final norm": 2 * D,
#     "output head": V * D,
# }
# return [name for name, size in sizes.items() if size == short]
# ```
#
# A norm always has two others beside it, the token embedding always the head. With C = 3D the position table is as large as the QKV projection, with V = D + 1 the token table as large as the attention output. A total narrows the search; it does not end it.
#
# ::::
#
# ::::{admonition} Exercise 8.3 · The memory of training
#
# Give the bytes that upstream's model needs in training, activations left out: parameters, gradients and Adam's two states, all in float32, and the masks of its L blocks, in float32 too. `N` is the number of parameters.
#
# ::::


# %% tags=["exercise"]
def training_bytes(N, C, L):
    """Bytes of parameters, gradients, Adam's two states and masks."""
    ...  # your line here


check("8.3", training_bytes)

# %% [markdown]
# ::::{dropdown} Answer
#
# `return 4 * (4 * N + L * C * C)`
#
# Four numbers for each parameter, and one for each entry of a mask, 4 bytes each. A buffer has no gradient and no optimizer state, so it counts once. For GPT-2 small, `training_bytes(163009536, 1024, 12) / 2**30` gives the GiB.
#
# ::::
#
# ::::{admonition} Exercise 8.4 · When the blocks take over
#
# In a shallow untied model most parameters are in the tables, in a deep one most are in the blocks. How many blocks does a model without QKV bias need, at least, for *more than half* of its parameters to be in the blocks? Everything else (both tables, the final norm, the head) stands on the other side.
#
# ::::


# %% tags=["exercise"]
def blocks_for_majority(V, C, D):
    """The smallest L with more parameters in the blocks than elsewhere."""
    ...  # your lines here


check("8.4", blocks_for_majority)

# %% [markdown]
# ::::{dropdown} Answer
#
# `return (2 * V * D + C * D + 2 * D) // (12 * D * D + 10 * D) + 1`
#
# The blocks must exceed the rest: L (12D² + 10D) > 2VD + CD + 2D. The whole-number quotient is the largest L that does not exceed it (with a remainder of 0 it is a draw), so the next one does. One D can be cancelled: `(2 * V + C + 2) // (12 * D + 10) + 1`. Try the sizes of GPT-2 small, and compare with the number of blocks that it has.
#
# ::::
#
# ## What you have now
#
# - A ledger of ten lines that predicts every parameter from the sizes, with 3D more in each block for a QKV bias and one table less when tied.
# - A check that names the line and the block where a model differs, counts each Parameter once, and is not deceived by mistakes that cancel out in the total; and three wrong models that it accepts.
# - Two right numbers for GPT-2 small, the memory behind them, and the masks that no parameter count contains.
#
# All layers are there, with the right sizes. Do they compute what they should? [Chapter 9](09_parity.ipynb) gives this model and others the same weights and compares what comes out.
#
# **Sources.** A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 and table 2 (layers and widths of the four sizes); its reference code, `src/model.py` of openai/gpt-2 (which layers have a bias; the logits as a product with the token table). A. Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, sections 3.2 and 3.3 (the projections, the inner width 4D). J. Devlin et al., "BERT", 2018, arXiv:1810.04805; its reference code, `modeling.py` of google-research/bert, functions `embedding_postprocessor` and `transformer_model` (a norm after the embeddings, norms after the additions). D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2014, arXiv:1412.6980, algorithm 1 (two moments for each parameter). I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2017, arXiv:1711.05101 (AdamW). O. Press, L. Wolf, "Using the Output Embedding to Improve Language Models", 2017, arXiv:1608.05859. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.6; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb` and `exercise-solutions.ipynb` beside it (counting by parts, the four sizes). PyTorch's documentation of `torch.nn.Module.register_buffer`, of `torch.optim.AdamW`, and of the meta device.
