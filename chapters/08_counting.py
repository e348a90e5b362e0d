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
from textwrap import fill

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel, LayerNorm, TransformerBlock, get_config
from book_utils.workbench import check, check_parameters, figure, publish, show_table

# %% [markdown]
# Settings that are not named below keep their defaults: no dropout, no bias for query, key and value (for short, no QKV bias), and two separate tables, one for the token embedding and one in the output head.

# %%
check_parameters("08_counting", globals())
cfg = GPTConfig(vocab_size, context_length, emb_dim, n_heads, n_layers)
V, C, D, L = vocab_size, context_length, emb_dim, n_layers
print(f"V = {V}, C = {C}, D = {D}, H = {n_heads}, L = {L}")

# %% [markdown]
# [Chapter 7](07_gpt_model.ipynb) gave one formula for the whole model, and it agreed with PyTorch. One number that agrees is reassuring, but it says little about where to look when it does not agree. This chapter keeps a *ledger*, as an accountant does: one line for each layer, predicted first, counted second.
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
    return rows * width


def norm(width):
    return 2 * width  # scale and shift


# %% [markdown]
# These predict. PyTorch is asked by one more function:


# %%
def count(module):
    """All numbers in the Parameters of `module`, each Parameter once."""
    return sum(parameter.numel() for parameter in module.parameters())


# %% [markdown]
# Both are tried on single layers of this chapter's sizes.

# %%
layers = [
    ("linear D → 4D", linear(D, 4 * D), nn.Linear(D, 4 * D)),
    ("linear D → 3D, no bias", linear(D, 3 * D, False), nn.Linear(D, 3 * D, False)),
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


# %% [markdown]
# The six lines make three parts:


# %%
def subtotals(lines):
    """Attention, FFN and norms of a block."""
    attention = lines["QKV projection"] + lines["attention output"]
    ffn = lines["FFN expansion"] + lines["FFN contraction"]
    norms = lines["norm 1"] + lines["norm 2"]
    return {"attention": attention, "FFN": ffn, "norms": norms}


# %% [markdown]
# Added up on paper, in letters, each part is a short formula. Here it stands beside the sum of its lines, and PyTorch is asked for the whole block.

# %%
parts = subtotals(block_lines(D))
letters = {
    "attention": ("3D² + (D² + D) = 4D² + D", 4 * D**2 + D),
    "FFN": ("(4D² + 4D) + (4D² + D) = 8D² + 5D", 8 * D**2 + 5 * D),
    "norms": ("2D + 2D = 4D", 4 * D),
}
rows = [[name, text, parts[name], value] for name, (text, value) in letters.items()]
rows.append(["block", "12D² + 10D", sum(parts.values()), 12 * D**2 + 10 * D])
show_table(["part", "in letters", "sum of its lines", "value of the letters"], rows)
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


# %%
def total(lines):
    """The sum of a ledger."""
    return sum(number * times for number, times in lines.values())


# %% [markdown]
# Now PyTorch is asked, line by line, in every block. For that the lines of the ledger need the names of the modules: four around the blocks, six inside each.

# %%
AROUND = {"token embedding": "tok_emb", "position embedding": "pos_emb"}
AROUND |= {"final norm": "final_norm", "output head": "out_head"}
IN_BLOCK = {
    "norm 1": "norm1",
    "QKV projection": "att.qkv",
    "attention output": "att.out_proj",
    "norm 2": "norm2",
    "FFN expansion": "ff.layers.0",
    "FFN contraction": "ff.layers.2",
}


# %%
def counted_lines(model):
    """What `model` has: line -> its number, or L numbers for a line of a block."""
    found = {name: count(model.get_submodule(path)) for name, path in AROUND.items()}
    for name, path in IN_BLOCK.items():
        layers = [block.get_submodule(path) for block in model.trf_blocks]
        found[f"block: {name}"] = [count(layer) for layer in layers]
    return found


# %% [markdown]
# Prediction and count side by side:

# %%
torch.manual_seed(seed)
model = GPTModel(cfg)
lines, found = plain_ledger(cfg), counted_lines(model)
rows = []
for name, (number, times) in lines.items():
    agree = found[name] == ([number] * L if name.startswith("block") else number)
    rows.append([name, number, times, number * times, agree])
show_table(["line", "predicted", "times", "together", "found?"], rows)
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
    answers = (ids + 1) % V  # made up: at each position the id after its own
    F.cross_entropy(model(ids).flatten(0, 1), answers.flatten()).backward()
    optimizer.step()
    return optimizer


# %%
def kept(optimizer):
    """The numbers that AdamW keeps beside the parameters, without its step counters."""
    states = optimizer.state.values()
    return sum(s["exp_avg"].numel() + s["exp_avg_sq"].numel() for s in states)


# %% [markdown]
# The two models, and what would be reported of each:

# %%
torch.manual_seed(seed)
ids = torch.randint(V, (2, C))  # [B, T]
subtracted = GPTModel(cfg).double()
tied = GPTModel(replace(cfg, tie_weights=True)).double()
with torch.no_grad():
    subtracted.out_head.weight.copy_(subtracted.tok_emb.weight)
reported = {"subtracted": count(subtracted) - V * D, "tied": count(tied)}

# %% [markdown]
# Now both take their step.

# %%
rows = []
for name, candidate in [("subtracted", subtracted), ("tied", tied)]:
    states = kept(train_one_step(candidate, ids))
    equal = torch.equal(candidate.tok_emb.weight, candidate.out_head.weight)
    rows.append([name, reported[name], count(candidate), states, equal])
header = ["model", "reported", "trained", "kept by AdamW", "equal tables?"]
show_table(header, rows)
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
show_table(["one is missing", "total changes by", "as it would without"], rows)
norms = ["block: norm 1", "block: norm 2", "final norm"]
assert all(lines[name][0] == 2 * D for name in norms)

# %% [markdown]
# With sizes that happen to be equal, such as V = C, more lines coincide. So the comparison is made line by line, and in every block. `book_utils.counting` does it from the names of the parameters: `ledger(cfg)` predicts, and its method `check` raises an error for a model that differs. The next function returns that error as a text, with long lines broken.

# %%
from book_utils import ledger


def complaint(model, cfg=cfg):
    """What the ledger of `cfg` has against `model`."""
    try:
        ledger(cfg).check(model)
    except ValueError as error:
        lines = str(error).splitlines()
        return "\n".join(fill(line, 80, subsequent_indent="      ") for line in lines)
    return "nothing"


# %% [markdown]
# This is what it says when the last block has lost its first norm, and the contraction in the first block its bias.

# %%
broken = GPTModel(cfg)
broken.trf_blocks[-1].norm1 = nn.Identity()
broken.trf_blocks[0].ff.layers[2].bias = None
print(complaint(broken))
some_ids = torch.zeros(1, 1, dtype=torch.long)  # [B, T]
assert complaint(model) == "nothing" and broken(some_ids).shape == (1, 1, V)

# %% [markdown]
# Each line has its block, what was predicted, what was found, and the parameters that are there. Blocks are numbered from 1, PyTorch's names from 0. The model still runs, and no shape of its results is wrong.
#
# Now several changes, one at a time. Each is a function that changes the model it is given.

# %%
changes = {
    "a block lost": lambda m: m.trf_blocks.pop(0),
    "a block repeated": lambda m: m.trf_blocks.append(TransformerBlock(cfg)),
    "final norm lost": lambda m: setattr(m, "final_norm", nn.Identity()),
    "one norm shared": lambda m: setattr(
        m.trf_blocks[0], "norm2", m.trf_blocks[0].norm1
    ),
    "head with a bias": lambda m: setattr(m, "out_head", nn.Linear(D, V)),
    "output bias lost": lambda m: setattr(m.trf_blocks[0].att.out_proj, "bias", None),
    "tied unasked": lambda m: setattr(m.out_head, "weight", m.tok_emb.weight),
    "one added": lambda m: setattr(m, "temperature", nn.Parameter(torch.ones(1))),
}

# %%
rows = []
for name, change in changes.items():
    changed = GPTModel(cfg)
    change(changed)
    first = complaint(changed).splitlines()[1].strip()
    rows.append([name, count(changed) - count(model), first.partition(" (")[0]])
show_table(["change", "total changes by", "the line that differs"], rows)
assert all(row[1] != 0 for row in rows)

# %% [markdown]
# Every change is seen, and its line is named. One thing is not known: the block that was deleted was the first, and the message says the last. A list has no gaps; the blocks behind move up, and all of them have the same sizes. Which one is gone cannot be told from counts. (With one block there is no difference.)
#
# A shared norm deserves a second look. Both attributes are there, both work, and a comparison like `counted_lines`, which asks each module on its own, counts the one norm twice and finds nothing wrong. `check` counts each Parameter once and says under which name it was counted.

# %%
shared = GPTModel(cfg)
changes["one norm shared"](shared)
assert counted_lines(shared) == counted_lines(model) and count(shared) < count(model)
print("module by module: nothing differs")
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


# %% [markdown]
# Such a table takes the place of the model's own, and the last norm goes.

# %%
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
# Parameters are what is trained, and the ledger knows their names and numbers. It does not know what is computed with them. Three models follow that are given the same weights as the right one. In the first the norms divide by the *sample* variance, with D − 1 in place of D ([chapter 2](02_layer_norm.ipynb)).


# %%
def unbiased_norm(norm, x):
    """LayerNorm with the wrong variance: [..., D] -> [..., D]."""
    mean = x.mean(dim=-1, keepdim=True)  # [..., 1]
    variance = x.var(dim=-1, keepdim=True)  # [..., 1], divided by D - 1
    return norm.scale * (x - mean) / torch.sqrt(variance + norm.eps) + norm.shift


def wrong_variance(m):
    for module in m.modules():
        if isinstance(module, LayerNorm):
            module.forward = partial(unbiased_norm, module)


# %% [markdown]
# In the second the blocks normalize after the addition and not before. This is post-norm, the order of [chapter 6](06_transformer_block.ipynb) that GPT-2 does not have.


# %%
def post_norm(block, x):
    """The norms after the additions: [B, T, D] -> [B, T, D]."""
    u = block.norm1(x + block.att(x))
    return block.norm2(u + block.ff(u))


def wrong_order(m):
    for block in m.trf_blocks:
        block.forward = partial(post_norm, block)


# %% [markdown]
# And the third has ReLU for GELU.


# %%
def relu(m):
    for block in m.trf_blocks:
        block.ff.layers[1] = nn.ReLU()


# %%
right, rows = GPTModel(cfg).double(), []
for change in (wrong_variance, wrong_order, relu):
    changed = GPTModel(cfg).double()
    changed.load_state_dict(right.state_dict())
    change(changed)
    differs = not torch.allclose(changed(ids), right(ids), rtol=0, atol=1e-6)
    name = change.__name__.replace("_", " ")
    rows.append([name, count(changed) - count(right), complaint(changed), differs])
header = ["change", "total changes by", "the ledger complains about", "other logits?"]
show_table(header, rows)
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
rows = [[name, parts[name]] for name in ("FFN", "attention", "norms")]
show_table(["part of a block", "parameters"], rows, int_format=",")
assert (parts["FFN"], parts["attention"]) == (4_722_432, 2_360_064)
assert parts["FFN"] == 2 * parts["attention"] + 3 * small.emb_dim

# %% [markdown]
# The FFN has twice as many, and 3D more: $8D^2 + 5D = 2(4D^2 + D) + 3D$. That holds for every width. It follows from the expansion to 4D, which is a choice; a factor of 2 would give the FFN about as many parameters as attention.
#
# How do the parts share the whole model? That depends on the size. The blocks grow with L·D², the tables only with D. The figure shows the four sizes of GPT-2, each untied, so with a head of its own.

# %%
GPT2 = ["gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"]
for name in GPT2:
    sizes = get_config(name)
    print(f"{name:11}  L = {sizes.n_layers:2}  D = {sizes.emb_dim:4}")

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench.figures import COLORS

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
looks = [  # colour, hatch, and the colour of the number on it
    (COLORS[5], "", "black"),
    (COLORS[4], "//", "black"),
    (COLORS[0], "", "white"),
    (COLORS[5], "..", "black"),
    (COLORS[1], "", "black"),
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
    size=(5, 4.6),
) as ax:
    left = [0.0] * len(GPT2)
    bars = [name.removeprefix("gpt2-") for name in GPT2]
    for (part, share), (color, hatch, ink) in zip(shares.items(), looks, strict=True):
        style = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 1}
        ax.barh(bars, share, left=left, label=part, **style)
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
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.42, 1))

# %% [markdown]
# Most of the largest model is blocks; nearly half of the smallest is two tables of V rows, of which one goes when they are tied. So the question whether a model is tied matters most for small ones. The figure counts parameters. It says nothing about time: a look-up in a table costs next to nothing however many rows it has (in training, its gradient and the optimizer touch all of them), while every weight of a linear layer, the head's included, is used for every token.
#
# ## Four sizes, three models of each
#
# GPT-2 comes in four sizes. The largest would need several gigabytes if it were built, only to be counted. Two ways of counting need none: the ledger, which is arithmetic, and PyTorch's *meta* device, on which tensors have a shape and no values ([chapter 7](07_gpt_model.ipynb)). The first predicts, the second counts the real classes. First the prediction, in parameters:

# %%
variants = {
    "untied": {},
    "tied": {"tie_weights": True},
    "tied, QKV bias": {"tie_weights": True, "qkv_bias": True},
}
N = {
    (name, label): total(plain_ledger(replace(get_config(name), **switches)))
    for name in GPT2
    for label, switches in variants.items()
}
rows = [[name, *(N[name, label] for label in variants)] for name in GPT2]
show_table(["model", *variants], rows, int_format=",")

# %% [markdown]
# And here the classes are asked, all of them on the meta device.

# %%
for name, label in N:
    with torch.device("meta"):
        large = GPTModel(replace(get_config(name), **variants[label]))
    assert count(large) == N[name, label]
    assert all(parameter.is_meta for parameter in large.parameters())
assert N["gpt2-xl", "untied"] == 1_637_792_000
assert N["gpt2-xl", "tied"] == 1_557_380_800
assert N["gpt2-xl", "tied, QKV bias"] == 1_557_611_200
print(len(N), "models, each with as many parameters as predicted")

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
# A number takes as many bytes as its type has: 8 in float64, 4 in float32, 2 in bfloat16. 1 MiB is 2²⁰ bytes, 1 GiB is 2³⁰. For each parameter training needs more than the parameter. There is its gradient, and there are the two running means that Adam and AdamW keep, which are called the optimizer's *states*: four numbers in all when they have the same type. The last column below holds all four. (What the QKV bias adds hardly shows at this precision.)

# %%
GiB, rows = 2**30, []
for (name, label), number in N.items():
    stored = [number * t.itemsize / GiB for t in (torch.bfloat16, torch.float32)]
    training = [copies * number * 4 / GiB for copies in (2, 4)]
    rows.append([f"{name.removeprefix('gpt2-')}, {label}", *stored, *training])
header = ["in GiB", "bfloat16", "float32", "+ gradients", "+ 2 states"]
show_table(header, rows, format=".2f")

# %% [markdown]
# The factor 4 can be checked on the small model that took a step above. It takes one more, and everything is counted.

# %%
states = kept(train_one_step(tied, ids))
gradients = sum(parameter.grad.numel() for parameter in tied.parameters())
print("parameters, gradients, states:", count(tied), gradients, states)
assert gradients == count(tied) and states == 2 * count(tied)

# %% [markdown]
# What the table leaves out: *activations*, that is, the results of the layers, which training keeps for the backward pass. They grow with the batch and with the length of the texts and not only with the parameters, and in training they often take more than everything in the table. Left out are also Adam's step counters (one number for each Parameter), the buffers of the next section, what operations need for a moment, and what PyTorch's allocator, the part that hands out memory, holds in reserve. Mixed precision, where parameters, gradients and states have different types, makes other factors. For float32 and this optimizer the last two columns are a lower bound: what exceeds the memory already here will not fit.
#
# ## Buffers
#
# Upstream's attention keeps a causal mask, a table of C·C numbers that says which positions may not be looked at. It is registered as a *buffer*: a tensor that belongs to the module and is not trained. Here is a module that is nothing but such a mask.


# %%
class CausalMask(nn.Module):
    """A mask [C, C]: 1 where position (row) must not look at position (column)."""

    def __init__(self, context_length):
        super().__init__()
        square = torch.ones(context_length, context_length)  # [C, C]
        self.register_buffer("mask", square.triu(diagonal=1))


# %% [markdown]
# A mask for each block, as upstream's model has them:


# %%
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
for name, build in [("upstream's", UpstreamGPTModel), ("this book's", GPTModel)]:
    with torch.device("meta"):
        large = build(small)
    assert complaint(large, small) == "nothing"
    rows.append([name, count(large), buffers(large), 4 * buffers(large) // 2**20])
header = ["gpt2-small", "parameters", "in buffers", "buffers in MiB, float32"]
show_table(header, rows, int_format=",")
assert [row[2] for row in rows] == [small.n_layers * small.context_length**2, 0]

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
header = ["C", "parameters, tied", "in the masks", "masks / parameters"]
show_table(header, rows, format=".1f", int_format=",")
assert rows[0][3] < 1 < rows[1][3]

# %% [markdown]
# A number of parameters alone is therefore not yet the memory of a model.
#
# ## The final form
#
# The module [book_utils/counting.py](../book_utils/counting.py) holds the ledger with its `check`, the closed formula, and the counts of parameters and buffers. `ledger(cfg)` takes a `GPTConfig` or a dictionary with the same keys. It makes no tensor, only ten lines of arithmetic, and shows itself as a table.

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
# ## The results of this run
#
# The counts of this chapter's model by name, with three shares of the untied one. They are whole numbers and their ratios, so they are the same everywhere. A rerun with other parameters gives them again, under the same names.

# %%
predicted, in_blocks = total(lines), L * sum(block_lines(D).values())
publish(
    [
        ("parameters", count(model), "N counted, untied"),
        ("predicted", predicted, "N by the ledger, untied"),
        ("parameters_tied", count(tied), "N counted, tied"),
        ("block_share", in_blocks / predicted, "of N, in the L blocks"),
        ("head_share", V * D / predicted, "of N, in the output head"),
        ("mask_numbers", buffers(masks), "L · C · C, in upstream's masks"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | The model has 12D² + 10D parameters too few | A block is missing. | `ledger(cfg).check(model)` names the block. | Build `n_layers` blocks, and keep them in `nn.ModuleList`, not in a Python list. |
# | The model has 2D parameters too few | A LayerNorm is missing, or two attributes hold the same one. | `ledger(cfg).check(model)` names the line and the shared name. | Make a norm of its own for each place. |
# | The model has D or 4D parameters too few | A linear layer has lost its bias. | `ledger(cfg).check(model)` names the layer. | `bias=True`, the default of `nn.Linear` |
# | The model has 3D parameters too many in each block | Query, key and value have a bias, and the prediction does not. | Is `att.qkv.bias` None? | Set `qkv_bias` alike in model and prediction. |
# | The model has V parameters too many | The output head has a bias. | Is `out_head.bias` None? | `nn.Linear(D, V, bias=False)` |
# | 163 million parameters where 124 million were expected (V·D too many) | The output head is not tied to the token embedding. | `out_head.weight is tok_emb.weight` | Tie them, or predict an untied model. |
# | The total number of parameters is right, `ledger(cfg).check(model)` complains | Two mistakes cancel out in the total. | The message names both lines. | Mend both. |
# | All counts agree, the results are wrong | The mistake has no parameters: an order, an activation, a variance. | Compare values with a reference. | Look for the first stage that differs ([chapter 9](09_parity.ipynb)). |
# | The count is right, and one layer does not train | The optimizer was made before the layer was replaced. | Are all Parameters of the model in `optimizer.param_groups`? | Make the optimizer last. |
# | Training needs more memory than the parameters | Gradients, optimizer states, activations and buffers need memory too. | `count_buffers(model)`, and 4 times the parameters | Take a smaller batch or shorter texts; recompute activations. |
# | A saved file is larger than its parameters | Causal masks are in the state dict, or the state of the optimizer is in the file. | What are its keys, and their dtypes? | `register_buffer(..., persistent=False)` |
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
# ```python
# return 4 * (4 * N + L * C * C)
# ```
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
# ```python
# return (2 * V * D + C * D + 2 * D) // (12 * D * D + 10 * D) + 1
# ```
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
# **Sources.** A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 and table 2 (layers and widths of the four sizes); its reference code, `src/model.py` of openai/gpt-2 (which layers have a bias; the logits as a product with the token table). A. Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, sections 3.2 and 3.3 (the projections, the inner width 4D). J. Devlin et al., "BERT", 2018, arXiv:1810.04805; its reference code, `modeling.py` of google-research/bert, functions `embedding_postprocessor` and `transformer_model` (a norm after the embeddings, norms after the additions). D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2015, arXiv:1412.6980, algorithm 1 (two moments for each parameter). I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019, arXiv:1711.05101 (AdamW). O. Press, L. Wolf, "Using the Output Embedding to Improve Language Models", 2017, arXiv:1608.05859. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.6; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb` and `exercise-solutions.ipynb` beside it (counting by parts, the four sizes). PyTorch's documentation of `torch.nn.Module.register_buffer`, of `torch.optim.AdamW`, and of the meta device.
