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
# # 1 · The shell
#
# **Do the sizes fit together?**
#
# At the end of this chapter you can
#
# - name the sizes that define a GPT, the constraints between them, and the place where each bad value is refused;
# - build a GPT of placeholders, from token ids to one score for each possible token, and give the shape at every stage;
# - say what such a shell proves and what it does not, and why tokens and positions have a table each.
#
# You need Python, a little PyTorch (tensors and `nn.Module`), and one idea: attention lets a position gather context from other positions. How it does so is not needed here.
#
# GPT-2 is a language model, published by OpenAI in 2019. A text comes to it cut into *tokens*, pieces such as a word or a part of one. Each token is written as a whole number, its *id*, and the set of all tokens is the *vocabulary*. For each place in the text, counted from 0 and called a *position*, the model answers with *logits*: one score for each token of the vocabulary that may come next.
#
# This book builds all that GPT-2 has around attention, a part in each chapter, and then the whole model, from ids to logits. Every result that a chapter reports is computed when the chapter is run. On the site you read chapters that were run already. To run one yourself, download its notebook by the link at the top of its page, or open all of them with `make lab` in the book's folder.
#
# In a notebook, run a cell with Shift+Enter, or all of them from the menu *Run*; change a value in the first cell and run all again, and everything below follows. An exercise is a cell with a gap: fill it in and run it, and its last line, `check`, says at once whether it is right, or which known mistake it looks like. Two more helpers come from `book_utils.workbench`: `check_parameters` refuses a value in the first cell that lies outside the range given there, and `show_table` shows rows under a header.

# %% tags=["parameters"]
vocab_size: int = 16  # V, the number of token ids (2 to 1024)
context_length: int = 16  # C, the longest input in tokens (2 to 512)
emb_dim: int = 16  # D, features per position, a multiple of n_heads (2 to 1024)
n_heads: int = 4  # H, attention heads (1 to 1024)
n_layers: int = 2  # L, transformer blocks (1 to 64)
batch_size: int = 2  # B, texts in the batch (1 to 16)
num_tokens: int = 6  # T, tokens in each text, no more than context_length (2 to 512)
seed: int = 123  # of the random weights and ids (0 to 4294967295)

# %%
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace

import torch
from torch import nn

from book_utils import GPTConfig, get_config
from book_utils.workbench import check, check_parameters, show_table

check_parameters("01_shell", globals())
if num_tokens > context_length:
    raise ValueError(f"{num_tokens = } is more than {context_length = }")

# %% [markdown]
# ## Seven letters
#
# Inside the model each position is described by a vector of D numbers, its *features*. They pass through L *transformer blocks*, layers of one and the same build, in which attention is one of two parts. Attention runs H times side by side, each time on its own share of the features; each of these is an attention *head*. And several texts are computed at once, as a *batch*.
#
# So a model is defined by five sizes, and an input brings two more. One letter stands for each of them, in this chapter and in all others.

# %%
letters = [
    ["V", "vocab_size", "different token ids", "model", vocab_size],
    ["C", "context_length", "positions: the longest input", "model", context_length],
    ["D", "emb_dim", "features at each position", "model", emb_dim],
    ["H", "n_heads", "attention heads", "model", n_heads],
    ["L", "n_layers", "transformer blocks", "model", n_layers],
    ["B", "batch_size", "texts in one batch", "input", batch_size],
    ["T", "num_tokens", "tokens in each text", "input", num_tokens],
]
show_table(["letter", "name", "number of", "belongs to", "here"], letters)

# %% [markdown]
# Here is an input. Its ids are random, since only sizes matter in this chapter. A comment such as `# [B, T]` stands on each line of code that changes a shape.

# %%
torch.manual_seed(seed)
ids = torch.randint(vocab_size, (batch_size, num_tokens))  # [B, T]
print("ids", list(ids.shape))

# %% [markdown]
# The seven sizes cannot be chosen freely. Three constraints hold:
#
# - H divides D without a remainder, $D \bmod H = 0$. Attention cuts the D features into H heads of the *head width* D / H.
# - Each token id is at least 0 and less than V.
# - Each position is at least 0 and less than C. So T is at most C.
#
# The first is a matter of the model alone, and can be checked before a model exists. The other two can only be checked when an input comes.
#
# ## One configuration
#
# Sebastian Raschka's "Build a Large Language Model (From Scratch)" keeps the sizes in a dictionary. Its code is called *upstream* in this book: the names of classes, attributes and keys here are the same as there, and everything here accepts such a dictionary as it is. The last two keys are not sizes. One is the rate of *dropout*, which sets numbers to 0 at random in training; [chapter 6](06_transformer_block.ipynb) shows where. The other says whether three linear maps of attention, those to query, key and value ([chapter 5](05_attention.ipynb)), have a bias.

# %%
settings = {
    "vocab_size": vocab_size,
    "context_length": context_length,
    "emb_dim": emb_dim,
    "n_heads": n_heads,
    "n_layers": n_layers,
    "drop_rate": 0.0,
    "qkv_bias": False,
}

# %% [markdown]
# The book's own form is a `GPTConfig`, made from such a dictionary or from keyword arguments. Its values can be read both ways, as keys and as attributes.

# %%
cfg = GPTConfig.from_dict(settings)
assert cfg == GPTConfig(**settings)
assert all(cfg[key] == value for key, value in settings.items())
print(f"emb_dim: {cfg['emb_dim']} as a key, {cfg.emb_dim} as an attribute")
print(f"head width D / H: {cfg.emb_dim} / {cfg.n_heads} = {cfg.head_dim}")

# %% [markdown]
# `GPTConfig` holds the same values, and has two properties that a dictionary lacks. It has checked them, together, before it exists. And it is *frozen*: an assignment to it is refused, so it does not change by accident behind the back of a model that was built from it. Another size means another configuration, made with `replace`, which checks again.

# %%
try:
    cfg.n_layers = n_layers + 1
except FrozenInstanceError as error:
    print(f"FrozenInstanceError: {error}")
deeper = replace(cfg, n_layers=n_layers + 1)
print(f"n_layers: {deeper.n_layers} in the new one, {cfg.n_layers} in the old one")
assert (deeper.n_layers, cfg.n_layers) == (n_layers + 1, n_layers)

# %% [markdown]
# ## Sizes that do not fit
#
# What happens to a bad value? The function `outcome` catches the error, so that the notebook runs on.


# %%
def outcome(call, argument):
    """What `call(argument)` does, in words: a shape, or an error with its message."""
    try:
        return f"returns {list(call(argument).shape)}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# %% [markdown]
# There are four ways to be bad: a value out of range, a value of the wrong type, a key that nobody knows, and a key that is missing. One change is made at a time.

# %%
# the first number of heads that does not divide D
uneven = next(heads for heads in range(2, emb_dim + 2) if emb_dim % heads)
out_of_range = [("vocab_size", 0), ("context_length", -1), ("n_layers", 0)]
out_of_range += [("n_heads", uneven), ("drop_rate", 1.0)]
wrong_type = [("n_layers", True), ("emb_dim", 2.0), ("qkv_bias", 0)]
unknown_key = [("n_layer", 2)]

# %%
rows = []
for key, value in [*out_of_range, *wrong_type, *unknown_key]:
    answer = outcome(GPTConfig.from_dict, {**settings, key: value})
    rows.append([f"{key} = {value!r}", answer])
without_heads = {key: settings[key] for key in settings if key != "n_heads"}
rows.append(["no n_heads", outcome(GPTConfig.from_dict, without_heads)])
assert all(answer.startswith(("TypeError: ", "ValueError: ")) for _, answer in rows)
show_table(["change", "answer"], rows)

# %% [markdown]
# Each message names the key and, where there is one, the value and what is wanted. Without the check some of these values would do damage in silence. `True` counts as 1 in Python and would build a model of one layer. A dropout rate of 1.0 is accepted by PyTorch and drops everything. A misspelt key in a dictionary is read by nobody; here the nearest known key is offered. And a number of heads that leaves a remainder would be carried by the dictionary, unseen, as far as the attention layer.
#
# ## Names of architectures
#
# Five configurations have a name: *tiny*, the small one of this book, and the four sizes of GPT-2. The table shows their sizes. (GPT-2's paper lists the four by layers and width; the names from small to xl came later.)

# %%
names = ["tiny", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"]
rows = []
for name in names:
    c = get_config(name)
    sizes = [c.vocab_size, c.context_length, c.emb_dim, c.n_heads, c.n_layers]
    rows.append([name, *sizes, c.head_dim])
show_table(["name", "V", "C", "D", "H", "L", "D / H"], rows, int_format=",")
assert {get_config(name).head_dim for name in names[1:]} == {64}
print(outcome(get_config, "gpt2-huge"))

# %% [markdown]
# The four share the vocabulary, the context length and the head width. Wider means more heads, not wider ones. The fifth name, which does not exist, is refused, and the known ones are listed.
#
# > [!NOTE]
# > `get_config("gpt2-small")` is the name of an architecture. It loads no weights: what comes back is a handful of numbers and switches. A model built from it starts with random weights and knows nothing of language. Its dropout rate and the missing bias of query, key and value are upstream's defaults; the published weights come with that bias.
#
# Called with two arguments, as upstream calls it, `get_config` takes width, depth and heads from the name, and the rest from the first argument, which is left as it was.

# %%
before = dict(settings)
mixed = get_config(settings, "gpt2-small")
assert settings == before
kinds = {type(value) for name in names for value in dict(get_config(name)).values()}
assert kinds <= {int, float, bool}  # no tensor among them
print(f"from the name:  D = {mixed.emb_dim}, H = {mixed.n_heads}, L = {mixed.n_layers}")
print(f"from the first: V = {mixed.vocab_size}, C = {mixed.context_length}")

# %% [markdown]
# ## Content and place
#
# Now the first two stages of a GPT. Ids are mere numbers of entries in a vocabulary; the model needs a vector for each. An *embedding* is a table of vectors, and using it is looking up rows. The *token embedding* has V rows of length D. Its entries are *parameters*, also called weights: numbers that training sets. Here they are random, and `.double()` makes them float64, numbers of about 16 digits, so that exact claims can be checked.

# %%
torch.manual_seed(seed)
tok_emb = nn.Embedding(vocab_size, emb_dim).double()
token_vectors = tok_emb(ids)  # [B, T, D]
assert torch.equal(token_vectors, tok_emb.weight[ids])
print("table", list(tok_emb.weight.shape), "· ids", list(ids.shape))
print("token vectors", list(token_vectors.shape))

# %% [markdown]
# Looking up rows is all that happens: indexing the table gives the same numbers. The ids `[B, T]` have gained an axis of length D.
#
# Nothing in these vectors says *where* a token stands. So there is a second table, the *position embedding*, with one row for each position: C rows of length D. It is looked up with 0, 1, … T − 1, which are the same for every text in the batch, so the result has no batch axis.

# %%
torch.manual_seed(seed + 1)
pos_emb = nn.Embedding(context_length, emb_dim).double()
position_vectors = pos_emb(torch.arange(num_tokens))  # [T, D]
x = token_vectors + position_vectors  # [B, T, D]
print("table", list(pos_emb.weight.shape))
print("position vectors", list(position_vectors.shape), "· sum", list(x.shape))

# %% [markdown]
# In the sum, PyTorch repeats `[T, D]` for each of the B texts. With E for the token table, P for the position table and $i_{b,t}$ for the ids, the sum is
#
# $$x_{b,t} = E_{i_{b,t}} + P_t.$$
#
# Take one token and put it at every position. Its token vectors are all the same. Are the sums?

# %%
repeated = ids[:1, :1].expand(1, num_tokens)  # [1, T], one token T times
content = tok_emb(repeated)[0]  # [T, D]
placed = content + position_vectors  # [T, D]
different = [len(torch.unique(vectors, dim=0)) for vectors in (content, placed)]
assert different == [1, num_tokens]
show_table(
    ["one token at every position", "different vectors"],
    list(zip(["content alone", "content + place"], different, strict=True)),
)

# %% [markdown]
# One vector has become as many as there are positions. The same token may stand at several positions, and several tokens may stand, in different texts, at the same position. Content and place are two independent indices, and the input has to carry both.
#
# Could one index do for both? Here are four ways to make do with a single table, and the two tables last, each with the number of rows that it needs.

# %%
V, C, E, P = vocab_size, context_length, tok_emb.weight, pos_emb.weight
torch.manual_seed(seed + 2)
one = torch.randn(C + 2, emb_dim, dtype=torch.float64)  # a single table
ways = [
    ("row: token", V, lambda token, place: one[token]),
    ("row: token + position", V + C - 1, lambda token, place: one[token + place]),
    ("one table, rows added", max(V, C), lambda token, place: one[token] + one[place]),
    ("row: token × C + position", V * C, lambda token, place: one[token * C + place]),
    ("two tables, rows added", V + C, lambda token, place: E[token] + P[place]),
]

# %% [markdown]
# Each is tried on two pairs of inputs, written (token, position). A way that gives the same vector for both members of a pair has lost something.

# %%
rows, lost = [], []
for name, size, vector in ways:
    pairs = [((0, 0), (0, 1)), ((0, 1), (1, 0))]
    same = [torch.equal(vector(*a), vector(*b)) for a, b in pairs]
    rows.append([name, size, *("same" if s else "different" for s in same)])
    lost.append(any(same))
header = ["way", "rows needed", "(0, 0) and (0, 1)", "(0, 1) and (1, 0)"]
show_table(header, rows, int_format=",")
assert lost == [True, True, True, False, False]

# %% [markdown]
# The first way forgets the place. The second and the third cannot tell "token 0 at position 1" from "token 1 at position 0". The fourth keeps both, at a price: a row for every combination, none of which shares anything with another row of the same token. Two tables keep both here, with V + C rows. (Laid end to end they may be stored as one table; what matters is that no row serves both as a token and as a position.) For GPT-2 small the difference in size is plain.

# %%
small = get_config("gpt2-small")
print(f"two tables: {small.vocab_size + small.context_length:,} rows")
print(f"one row for each combination: {small.vocab_size * small.context_length:,} rows")

# %% [markdown]
# That the vectors differ is all that was shown. Whether a model makes use of the difference is decided by its training.
#
# ## Placeholders
#
# Between these vectors and the logits at the end stand the L transformer blocks and a last *LayerNorm*, short for layer normalization, which [chapter 2](02_layer_norm.ipynb) builds. A *placeholder* stands where one of them will stand: it takes the arguments of the real thing and returns its input.


# %%
class PlainDummyTransformerBlock(nn.Module):
    """Stands where a transformer block will stand: [B, T, D] -> [B, T, D]."""

    def __init__(self, cfg):
        super().__init__()

    def forward(self, x):
        return x


class PlainDummyLayerNorm(nn.Module):
    """Stands where LayerNorm will stand: [B, T, D] -> [B, T, D]."""

    def __init__(self, emb_dim):
        super().__init__()

    def forward(self, x):
        return x


# %% [markdown]
# The last stage is real again. The *output head* is a linear map without *bias* (a product with a matrix, and nothing added), from D features to V logits, at every position. With W `[V, D]` for its weight,
#
# $$\mathrm{logits}_{b,t} = W\,x_{b,t}.$$
#
# Logits are not probabilities: they may be negative, and they need not add up to 1. (W has the shape of the token embedding. GPT-2 uses one matrix for both; upstream, and this book unless told otherwise, keep two.)
#
# That makes a whole GPT, with nothing inside: a *shell*. Dropout is in its place too; its rate is 0 here, so it changes nothing. The comments at the two embeddings and at the output head give the shapes of their weights.


# %%
class PlainDummyGPTModel(nn.Module):
    """The shell of a GPT: ids [B, T] -> logits [B, T, V]."""

    def __init__(self, cfg):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])  # [V, D]
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])  # [C, D]
        self.drop_emb = nn.Dropout(cfg["drop_rate"])
        blocks = [PlainDummyTransformerBlock(cfg) for _ in range(cfg["n_layers"])]
        self.trf_blocks = nn.Sequential(*blocks)
        self.final_norm = PlainDummyLayerNorm(cfg["emb_dim"])
        d, v = cfg["emb_dim"], cfg["vocab_size"]
        self.out_head = nn.Linear(d, v, bias=False)  # [V, D]

    def forward(self, in_idx):
        positions = torch.arange(in_idx.shape[-1], device=in_idx.device)  # [T]
        x = self.tok_emb(in_idx) + self.pos_emb(positions)  # [B, T, D]
        x = self.final_norm(self.trf_blocks(self.drop_emb(x)))
        return self.out_head(x)  # [B, T, V]


# %%
torch.manual_seed(seed)
shell = PlainDummyGPTModel(cfg).double().eval()
logits = shell(ids)  # [B, T, V]
assert logits.shape == (batch_size, num_tokens, vocab_size)
print("ids", list(ids.shape), "-> logits", list(logits.shape))

# %% [markdown]
# `eval()` switches dropout off, whatever its rate. It is the right mode for every check of values.
#
# To see the shape at each stage, ask the model itself. A *forward hook* is a function that PyTorch calls whenever a module has returned.

# %%
trace = [("ids", ids.shape)]


def watch(name):
    return lambda module, args, out: trace.append((name, out.shape))


stages = shell.named_children()
hooks = [part.register_forward_hook(watch(name)) for name, part in stages]
shell(ids)
for hook in hooks:
    hook.remove()

# %% [markdown]
# The trace holds a name and a shape for each stage. Beside each shape the table sets the letters that are expected there, and the cell asserts that both agree.

# %%
in_letters = {"ids": "BT", "pos_emb": "TD", "out_head": "BTV"}
sizes = {"B": batch_size, "T": num_tokens, "D": emb_dim, "V": vocab_size}
rows = []
for name, shape in trace:
    stage_letters = in_letters.get(name, "BTD")
    assert list(shape) == [sizes[letter] for letter in stage_letters]
    rows.append([name, f"[{', '.join(stage_letters)}]", str(list(shape))])
show_table(["stage", "in letters", "shape"], rows)

# %% [markdown]
# The sum has no name of its own; it is what `drop_emb` receives and returns. Between the sum and the output head the shape is `[B, T, D]` throughout. Only the head changes the last axis, from D to V. That is why a block can be put in or taken out without a thought for its neighbours, and why the chapters to come can fill in one placeholder at a time.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from itertools import pairwise

from book_utils.workbench import diagram

B, T, D = batch_size, num_tokens, emb_dim
hidden, scores = str([B, T, D]), str([B, T, V])
with diagram(
    "shell",
    width=17,
    height=31.4,
    alt=f"The shell from top to bottom: token ids {[B, T]} and positions {[T]} are looked up in a table each, the rows are added, "
    f"and dropout, the dashed placeholders for the transformer blocks (L = {n_layers}) and for the last LayerNorm, and the output head lead to logits {scores}.",
    words=[
        f"Token ids {[B, T]} are looked up in the token embedding, a table {[V, D]}: token vectors {hidden}.",
        f"Positions {[T]} are looked up in the position embedding, a table {[C, D]}: position vectors {[T, D]}.",
        f"Both are added: {hidden}. The position vectors are the same for every text in the batch.",
        "Dropout follows; the shape stays.",
        f"Then come the transformer blocks, L = {n_layers} in number, and a last LayerNorm. They are placeholders, drawn with dashed borders: each returns its input {hidden}.",
        f"The output head maps the D = {D} features of each position to V = {V} scores: logits {scores}.",
    ],
) as d:
    table = {"width": 7.6, "height": 2.6}
    text = {"width": 7.6, "height": 2.2, "kind": "data"}
    empty = {"height": 2.6, "kind": "placeholder"}
    d.box("ids", 4.2, 30.6, "token ids", kind="data")
    d.box("positions", 12.8, 30.6, "positions", kind="data")
    d.box("tok_emb", 4.2, 26.7, f"token embedding\n[V, D] = {[V, D]}", **table)
    d.box("pos_emb", 12.8, 26.7, f"position embedding\n[C, D] = {[C, D]}", **table)
    d.box("token_vectors", 4.2, 22.6, f"token vectors\n[B, T, D] = {hidden}", **text)
    d.box("place_vectors", 12.8, 22.6, f"position vectors\n[T, D] = {[T, D]}", **text)
    d.plus("sum", 8.5, 19.8)
    d.box("drop_emb", 8.5, 16.4, "dropout")
    d.box(
        "blocks", 8.5, 12.6, f"transformer block\n(placeholder) × {n_layers}", **empty
    )
    d.box("final_norm", 8.5, 8.4, "last LayerNorm\n(placeholder)", **empty)
    d.box("out_head", 8.5, 4.4, "output head")
    d.box("logits", 8.5, 0.9, "logits", kind="data")
    d.arrow("ids", "tok_emb", f"[B, T] = {[B, T]}")
    d.arrow("positions", "pos_emb", f"[T] = {[T]}")
    d.arrow("tok_emb", "token_vectors")
    d.arrow("pos_emb", "place_vectors")
    d.shortcut("token_vectors", "sum", 4.2)
    d.shortcut("place_vectors", "sum", 12.8)
    for start, end in pairwise(["sum", "drop_emb", "blocks", "final_norm", "out_head"]):
        d.arrow(start, end, f"[B, T, D] = {hidden}")
    d.arrow("out_head", "logits", f"[B, T, V] = {scores}")

# %% [markdown]
# ## What a shell proves
#
# Two things, and they are worth having before the first real layer is written: the sizes fit, and the call path runs from end to end. This holds for large sizes too, without the memory. On PyTorch's *meta* device a tensor has a shape and no content, so the shell of GPT-2 small can be called although not one of its weights exists.

# %%
with torch.device("meta"):
    large = PlainDummyGPTModel(get_config("gpt2-small"))
large_logits = large(ids.to("meta"))  # [B, T, V]
assert all(weight.is_meta for weight in large.parameters())
assert large_logits.shape == (batch_size, num_tokens, small.vocab_size)
print("ids", list(ids.shape), "-> logits", list(large_logits.shape))

# %% [markdown]
# ## What it does not prove
#
# The logits of random weights mean nothing, and no computation of a transformer has run. To see the second, change the first token of each text. Later positions would notice it in a real GPT, where attention carries something of every earlier token to them. In the shell there is no path on which it could travel, so their logits should stay exactly as they were.


# %%
changed_ids = ids.clone()
changed_ids[:, 0] = (ids[:, 0] + 1) % vocab_size


def positions_that_notice(model):
    """The positions whose logits change when the first token does."""
    differs = (model(ids) != model(changed_ids)).any(dim=-1)  # [B, T]
    return differs.any(dim=0).nonzero().flatten().tolist()


# %%
noticed = positions_that_notice(shell)
assert noticed == [0]
print(f"the shell: {len(noticed)} of {num_tokens} positions notice: {noticed}")

# %% [markdown]
# Only position 0 notices, the one that was changed. In the shell the logits at a position depend on its own token and its own place, and on nothing else.
#
# For contrast, put the plainest thing that mixes positions into one block: the average of all vectors up to and including the present one. This is not attention, which weighs the positions by their content; but information travels in the same direction, from earlier to later.


# %%
class AverageSoFar(nn.Module):
    """The mean of a position and of those before it: [B, T, D] -> [B, T, D]."""

    def forward(self, x):
        return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]


mixing = deepcopy(shell)
mixing.trf_blocks[0] = AverageSoFar()
noticed = positions_that_notice(mixing)
assert noticed == list(range(num_tokens)) and mixing(ids).shape == logits.shape
print(f"with mixing: {len(noticed)} of {num_tokens} positions notice")
print("logits", list(mixing(ids).shape))

# %% [markdown]
# Now every position notices, and the shape of the logits is the same in both cases. A check of shapes cannot tell a model that mixes positions from one that does not.
#
# Nor can the shell tell one number of layers from another, for its blocks do nothing; and it never reads the number of heads at all. Two models with the same weights show it: one has three more layers, and the other is built from a plain dictionary with a number of heads that does not divide D.

# %%
rows = []
for name, other in [
    ("three more layers", replace(cfg, n_layers=n_layers + 3)),
    (f"{uneven} heads, from a dictionary", {**settings, "n_heads": uneven}),
]:
    model = PlainDummyGPTModel(other).double().eval()
    model.load_state_dict(shell.state_dict())
    rows.append([name, torch.equal(model(ids), logits)])
show_table(["changed", "same logits?"], rows)
assert all(same for _, same in rows)

# %% [markdown]
# So the shell says nothing about heads or depth, nor about what the real layers will compute. A number of heads that does not divide D would come to light only in the attention layer of [chapter 5](05_attention.ipynb). This is why `GPTConfig` checks it, and why every class of `book_utils` that takes a configuration turns a dictionary into a `GPTConfig` first.
#
# ## Sizes that are equal hide a swap
#
# In the book's tiny configuration V, C and D are the same number. That keeps the numbers small, and it blinds a check of shapes: if somebody swaps the two embedding tables, every shape is still right. The remedy is to check with numbers that all differ, here V = 11 and C = 7.


# %%
class SwappedShell(PlainDummyGPTModel):
    """A mistake: C rows for the tokens, V rows for the positions."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.tok_emb, self.pos_emb = self.pos_emb, self.tok_emb


# %%
tiny = get_config("tiny")
assert tiny.vocab_size == tiny.context_length == tiny.emb_dim
rows = []
for config in [tiny, replace(tiny, vocab_size=11, context_length=7)]:
    for shell_class in [PlainDummyGPTModel, SwappedShell]:
        model = shell_class(config)
        tables = [str(tuple(e.weight.shape)) for e in (model.tok_emb, model.pos_emb)]
        name = f"V = {config.vocab_size}, C = {config.context_length}"
        rows.append([name, shell_class.__name__, *tables])
show_table(["configuration", "class", "token table", "position table"], rows)
assert rows[0][2:] == rows[1][2:] and rows[2][2:] != rows[3][2:]
assert rows[2][2:] == [str((11, tiny.emb_dim)), str((7, tiny.emb_dim))]

# %% [markdown]
# In the tiny configuration the two classes look alike. With V = 11 and C = 7 the swap is seen at once: the token table has 7 rows, and token 7 has no vector.
#
# ## Capacity and length
#
# Two numbers are often confused. `context_length`, C, is a capacity: how many positions the model has rows for. It is fixed when the model is built. The *sequence length*, T, belongs to one input and may be anything from 1 to C. A short input is not filled up to C; it reads the first T rows of the position table, and the others stay untouched.
#
# A *gradient* says how much a result moves when a number does. It tells which rows were read: a row that took no part in the result has the gradient 0.

# %%
rows = []
for length in sorted({1, num_tokens, context_length}):
    model = deepcopy(shell)
    out = model(torch.zeros(1, length, dtype=torch.long))  # [1, T, V]
    out.sum().backward()
    read = model.pos_emb.weight.grad.abs().sum(dim=-1).nonzero().flatten().tolist()
    assert read == list(range(length))
    rows.append([length, len(model.pos_emb.weight), len(read), str(list(out.shape))])
show_table(["T", "rows in the position table", "rows read", "logits"], rows)

# %% [markdown]
# C stands in the weights and T in the shapes of an input. The logits have T positions, never C, unless the two happen to be equal. T = C is allowed, as the last row of the table shows; the first length that is not is C + 1.
#
# ## One rate or three
#
# Dropout has three places in a GPT: on the sum of the embeddings (`emb`), on the attention weights, the shares by which a position gathers ([chapter 5](05_attention.ipynb), `attn`), and at the end of the branches that a block adds to its input (`shortcut`). With nothing else said, one `drop_rate` serves all three. A configuration may also set `drop_rate_emb`, `drop_rate_attn` and `drop_rate_shortcut`; each holds for its own place, and `drop_rate` for those that have none. The method `rate` of a `GPTConfig` answers with the rate that holds at a place.

# %%
one_rate = replace(cfg, drop_rate=0.1)
own_rate = replace(one_rate, drop_rate_emb=0.0)
places = ["emb", "attn", "shortcut"]
rows = [[place, one_rate.rate(place), own_rate.rate(place)] for place in places]
show_table(["place", "drop_rate = 0.1", "and drop_rate_emb = 0.0"], rows, format=".1f")
assert [rate for _, _, rate in rows] == [0.0, 0.1, 0.1]

# %% [markdown]
# A key changes nothing by being there. Some line of code has to read it, and it has to be the right one: `PlainDummyGPTModel` reads `cfg["drop_rate"]`, so the new key passes it by. The next class reads the key of its place, which a `GPTConfig` answers with `drop_rate` where no rate of its own is set.


# %%
class ShellWithOwnRate(PlainDummyGPTModel):
    """The shell, with dropout on the embeddings at its own rate."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.drop_emb = nn.Dropout(cfg["drop_rate_emb"])


classes = [PlainDummyGPTModel, ShellWithOwnRate]
rows = [[c.__name__, c(own_rate).drop_emb.p] for c in classes]
show_table(["class", "rate in use with drop_rate_emb = 0.0"], rows, format=".1f")
assert [rate for _, rate in rows] == [0.1, 0.0]

# %% [markdown]
# The same holds for the other two places, and those are in other modules: separate rates are in force only when each of the three constructors reads its own. A look at the built model, at the `p` of each `nn.Dropout`, tells what is in use; a look at the configuration does not.
#
# ## The final form
#
# Two modules hold what this chapter has built: [book_utils/config.py](../book_utils/config.py) the configuration with its checks and the five names, and [book_utils/shell.py](../book_utils/shell.py) the shell and its placeholders.
#
# `book_utils.DummyGPTModel` has the same parts under the same names, so the weights of the plain shell fit. The same operations run in the same order on the same shapes, so the logits should not merely be close but equal, number by number. PyTorch has no such class to compare with; the two formulas of this chapter serve as the reference. `torch.einsum` writes the second of them out: its letters name the axes, and d, which is missing after the arrow, is summed over. There the sums may run in another order, so the tolerance is 1e-12 in float64: the logits are numbers of a few units, and float64 carries about 16 digits.

# %%
from book_utils import DummyGPTModel

final = DummyGPTModel(cfg).double().eval()
final.load_state_dict(shell.state_dict())
assert torch.equal(final(ids), logits)
E, P = shell.tok_emb.weight, shell.pos_emb.weight  # [V, D], [C, D]
W = shell.out_head.weight  # [V, D]
by_formula = torch.einsum("vd,btd->btv", W, E[ids] + P[:num_tokens])  # [B, T, V]
torch.testing.assert_close(final(ids), by_formula, rtol=0, atol=1e-12)
print("book_utils.DummyGPTModel equals the plain class, and agrees with the formulas")

# %% [markdown]
# One thing is different. Before it computes anything, the final form looks at the ids. Here are six inputs that it should refuse.

# %%
zeros = torch.zeros(1, context_length + 1, dtype=torch.long)  # [1, C + 1]
bad_inputs = {
    "an id equal to V": torch.full_like(ids, vocab_size),
    "an id of -1": torch.full_like(ids, -1),
    "ids as floats": ids.double(),
    "T = C + 1": zeros,
    "T = 0": zeros[:, :0],
    "one axis, [T]": ids[0],
}

# %% [markdown]
# The table sets its answers beside those of the plain shell, of which only the kind of error is shown.

# %%
rows, answers = [], []
for name, bad in bad_inputs.items():
    plain = outcome(shell, bad)
    kind = plain if plain.startswith("returns") else plain.partition(":")[0]
    answers.append(outcome(final, bad))
    rows.append([name, kind, answers[-1]])
show_table(["input", "plain shell", "book_utils.DummyGPTModel"], rows)
assert all(answer.startswith(("TypeError: ", "ValueError: ")) for answer in answers)
assert final(zeros[:, 1:]).shape == (1, context_length, vocab_size)  # T = C is in order

# %% [markdown]
# The plain shell gives the same kind of error for a token that does not exist as for an input that is too long, and it comes from inside a lookup. For T = 0 and for a single axis it returns a result without complaint. The checked one names what it got and what the limit is: for T = C + 1 both numbers.
#
# What the check cannot see is an id that is in range and wrong, say from another *tokenizer*, the program that turns text into ids ([chapter 11](11_generation.ipynb)). It has a row, and the row is looked up.
#
# ## The results of this run
#
# A few results of each chapter have names. `publish` shows them as a table, and keeps them in the notebook as data that a program can read; a rerun with other parameters gives them again, under the same names. Those of this chapter are counts. All but the last follow from the sizes alone, and the last is the same for all sizes.

# %%
from book_utils.workbench import publish

noticing = len(positions_that_notice(shell))
publish(
    [
        ("parameters", sum(p.numel() for p in shell.parameters()), "numbers: 2VD + CD"),
        ("head_width", cfg.head_dim, "features of one head, D / H"),
        ("logit_count", logits.numel(), "logits of this batch, B × T × V"),
        ("added_rows", vocab_size + context_length, "of two tables, V + C"),
        ("combined_rows", vocab_size * context_length, "one for each pair, V × C"),
        ("noticing_positions", noticing, "positions that notice another first token"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | `emb_dim must be divisible by n_heads` | The number of heads does not divide D. | The message gives the remainder. | Change `emb_dim` or `n_heads`. |
# | `unknown configuration key` | A key is misspelt. | The message offers the nearest known key. | Use the known key. |
# | `index out of range` from an embedding | An id is V or more, or the input is longer than C. | Print the largest id and the length of the input. | Use the tokenizer that belongs to the model; cut the input to C tokens. |
# | Ids below V are refused, or inputs longer than C are accepted. | The token table and the position table are swapped. | Build the model with V and C different, and print the shape of each table. | The token table is `[V, D]`, the position table `[C, D]`. |
# | All shapes are right, and the logits do not depend on earlier tokens. | Placeholders stand where the transformer blocks should be. | Change an early token and compare the logits at later positions. | Put the real blocks in. |
# | The logits have fewer positions than `context_length`. | Nothing is wrong: the input has fewer than C tokens. | Compare with the length of the input. | None is needed. |
# | `in_idx is on …, the model is on …` | Ids and weights are on different devices. | The message names both. | Move the ids to the model's device. |
# | A new dropout key has no effect. | The constructor of that layer reads another key. | Print `p` of each `nn.Dropout` in the built model. | Read the new key where that layer is made. |
# | A model from `get_config("gpt2-small")` writes nonsense. | A configuration holds no weights; the model's are random. | Print the configuration: numbers and switches, no tensor. | Load weights, or train the model. |
#
# ## Exercises
#
# ::::{admonition} Exercise 1.1 · The shapes along the way
#
# Give the shapes of five tensors on the way through a GPT, in this order: the token vectors, the position vectors before they are added, the sum, the output of the last block, the logits. Write each as a list such as `[B, T]`.
#
# ::::


# %% tags=["exercise"]
def shapes(B, T, V, C, D):
    """Return a list of five lists."""
    ...  # your line here


check("1.1", shapes)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return [[B, T, D], [T, D], [B, T, D], [B, T, D], [B, T, V]]
# ```
#
# C is in none of them: it is the number of rows in the position table, of which T are read. And only the last shape has V in it.
#
# ::::
#
# ::::{admonition} Exercise 1.2 · Why two tables?
#
# Somebody uses one table for both: the vector of a token at a position is the row `token` plus the row `position` of the *same* table. Which other pair (token, position) then gets the same vector as the given one, whatever the numbers in the table are? The token and the position that are given differ.
#
# ::::


# %% tags=["exercise"]
def confused_with(token, position):
    """Return another pair (token, position) with the same vector."""
    ...  # your line here


check("1.2", confused_with)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return position, token
# ```
#
# The sum of two rows does not say which row came first, so "token 3 at position 5" and "token 5 at position 3" are one and the same input. The same token can stand at many positions, so content and place are two independent indices; each needs rows of its own.
#
# ::::
#
# ::::{admonition} Exercise 1.3 · May it come in?
#
# Write the check of the input. `ids` is an integer tensor `[B, T]`, with at least one text. Return `True` if a model with vocabulary V and context length C can take it, and `False` otherwise.
#
# ::::


# %% tags=["exercise"]
def fits(ids, V, C):
    """[B, T] -> True or False"""
    ...  # your lines here


check("1.3", fits)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# T = ids.shape[1]
# return 1 <= T <= C and bool((ids >= 0).all()) and bool((ids < V).all())
# ```
#
# T may be equal to C, since positions are counted from 0 to C − 1. An id may not be equal to V, for the same reason. And neither limit says anything about the other: an id may well be larger than C.
#
# ::::
#
# ## What you have now
#
# - Five sizes of a model and two of an input, in one checked and frozen configuration; head width D / H, ids below V, positions below C.
# - A shell from ids `[B, T]` to logits `[B, T, V]`, with `[B, T, D]` at every stage between.
# - Proof that the sizes fit and the call path runs, and of nothing more: no position has heard of another yet.
#
# The shell is ready to be filled, one placeholder at a time. [How is the scale of the features kept in hand?](02_layer_norm.ipynb)
#
# **Sources.** A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 and table 2 (width and number of layers); its reference code, `src/model.py` of openai/gpt-2, functions `default_hparams` and `model`, and the `hparams.json` of the released models for the heads. A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018, equation 2 (the sum of token and position embedding). S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.1, and the exercises of chapter 4 (the larger sizes, separate dropout rates); its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb` and `exercise-solutions.ipynb` beside it. PyTorch's documentation of `torch.nn.Embedding`.
