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
# # 7 · The GPT model
#
# **How do ids become logits?**
#
# At the end of this chapter you can
#
# - assemble a GPT from its parts, and give the shape of the tensor at every stage;
# - say what the logits are and what they are not, and why the model ends without a softmax;
# - tie the output head to the token embedding for real, and tell a tied model from one that only looks tied.
#
# You need the block of [chapter 6](06_transformer_block.ipynb), LayerNorm from [chapter 2](02_layer_norm.ipynb), and the empty shell of [chapter 1](01_shell.ipynb), which is filled here.

# %% tags=["parameters"]
vocab_size: int = 16  # V, number of token ids (2 to 1024)
context_length: int = 16  # C, the longest input in tokens (2 to 64)
emb_dim: int = 16  # D, features per position (4 to 64)
n_heads: int = 4  # H, attention heads; they divide emb_dim (1 to 16)
n_layers: int = 2  # L, transformer blocks (1 to 12)
batch_size: int = 2  # B, texts in the batch (1 to 4)
num_tokens: int = 6  # T, tokens in each text, no more than context_length (2 to 64)
seed: int = 123  # of the random weights and ids (0 to 4294967295)

# %%
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig, LayerNorm, TransformerBlock, get_config
from book_utils.workbench import check, check_parameters, diagram, publish, rounded
from book_utils.workbench import show_table

check_parameters("07_gpt_model", globals())

# %% [markdown]
# A text has been cut into tokens, and each token is a whole number, its id. At the end of the route stands, for each position, one score for each of the V ids that could come next: the logits ([chapter 1](01_shell.ipynb)). The ids here are drawn at random, because this chapter is about the route and not about language.

# %%
if num_tokens > context_length:
    raise ValueError(f"{num_tokens = } is more than {context_length = }")
# The rest keeps its default: no dropout, no bias of query, key and value, no tie.
cfg = GPTConfig(vocab_size, context_length, emb_dim, n_heads, n_layers)
torch.manual_seed(seed)
ids = torch.randint(vocab_size, (batch_size, num_tokens))  # [B, T]
print("ids", list(ids.shape), "· the first text:", ids[0].tolist())

# %% [markdown]
# ## The whole route
#
# The parts are known. What is new is how they are joined. The drawing shows it from top to bottom, with the shapes on the way. The dropout inside the blocks is left out of it.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
V, C, D, L = vocab_size, context_length, emb_dim, n_layers
B, T = batch_size, num_tokens
steps = [
    f"Ids go in: a tensor [B, T] = [{B}, {T}] of whole numbers from 0 to {V - 1}.",
    f"The token embedding has a table [V, D] = [{V}, {D}] and looks up one row for "
    f"each id: [B, T, D] = [{B}, {T}, {D}].",
    f"The position embedding has a table [C, D] = [{C}, {D}] and looks up one row for "
    f"each of the positions 0 to {T - 1}: [T, D] = [{T}, {D}].",
    "The two are added, the same position rows to every text, and dropout follows, "
    "which acts in training only. The shape is [B, T, D] from here to the output head.",
    "A block normalizes its input, lets attention mix the positions, and adds the "
    "result to the input.",
    "It normalizes the sum, sends each position through the feed-forward network, and "
    "adds the result to the sum.",
    f"There are L = {L} such blocks, one after the other, each with its own parameters.",
    "The final LayerNorm follows.",
    f"The output head, a linear layer without bias, turns D = {D} features into "
    f"V = {V} logits: [B, T, V] = [{B}, {T}, {V}].",
]
with diagram(
    "route",
    16,
    31.4,
    alt="The route from ids to logits: token and position embedding are added and go "
    "through dropout, L blocks, a final LayerNorm and the output head.",
    words=steps,
) as d:
    d.box("ids", 5.2, 30.6, "ids  [B, T]", kind="data", width=7, height=1.2)
    d.box("tok_emb", 5.2, 28.2, "token embedding", width=7.6)
    d.box("positions", 12.8, 28.4, "positions  [T]", kind="data", width=6, height=1.2)
    d.box("pos_emb", 12.8, 25.4, "position\nembedding", width=5.4, height=2.6)
    d.plus("sum", 5.2, 25.4)
    d.box("drop_emb", 5.2, 23, "dropout", width=7.6)
    d.frame(6.2, 14.2, 12, 14, "block × L")
    d.box("x", 5.2, 20.2, "[B, T, D]", kind="data", width=4, height=1.2)
    d.box("att", 5.2, 16.8, "LayerNorm\nattention", width=7.6, height=2.6)
    d.plus("add1", 5.2, 14.2)
    d.box("ff", 5.2, 11, "LayerNorm\nfeed-forward", width=7.6, height=2.6)
    d.plus("add2", 5.2, 8.4)
    d.box("final_norm", 5.2, 5.6, "final LayerNorm", width=7.6)
    d.box("out_head", 5.2, 2.8, "output head", width=7.6)
    d.box("logits", 5.2, 0.5, "logits  [B, T, V]", kind="data", width=8, height=1.2)
    d.arrow("ids", "tok_emb")
    d.arrow("positions", "pos_emb")
    d.arrow("tok_emb", "sum", "[B, T, D]")
    d.arrow("pos_emb", "sum")
    d.text(8.6, 24.7, "[T, D]")
    d.arrow("sum", "drop_emb")
    d.arrow("drop_emb", "x")
    d.arrow("x", "att")
    d.shortcut("x", "add1", 10.6)
    d.arrow("att", "add1")
    d.arrow("add1", "ff")
    d.shortcut("add1", "add2", 10.6)
    d.arrow("ff", "add2")
    d.arrow("add2", "final_norm")
    d.arrow("final_norm", "out_head", "[B, T, D]")
    d.arrow("out_head", "logits")

# %% [markdown]
# Between the sum of the two embeddings and the output head every tensor has the same shape, `[B, T, D]`. That is why blocks can be stacked to any depth. Only the head changes the last axis, from D features to V scores.
#
# [Chapter 1](01_shell.ipynb) built this route with empty blocks. Now the blocks compute.


# %%
class PlainGPTModel(nn.Module):
    """From ids to logits: [B, T] -> [B, T, V]."""

    def __init__(self, cfg):
        super().__init__()
        V, C, D = cfg.vocab_size, cfg.context_length, cfg.emb_dim
        self.tok_emb = nn.Embedding(V, D)  # table [V, D]
        self.pos_emb = nn.Embedding(C, D)  # table [C, D]
        self.drop_emb = nn.Dropout(cfg.rate("emb"))
        blocks = [TransformerBlock(cfg) for _ in range(cfg.n_layers)]
        self.trf_blocks = nn.Sequential(*blocks)
        self.final_norm = LayerNorm(D)
        self.out_head = nn.Linear(D, V, bias=False)  # weight [V, D]

    def forward(self, ids):
        positions = torch.arange(ids.shape[1], device=ids.device)  # [T]
        x = self.tok_emb(ids) + self.pos_emb(positions)  # [B, T, D] + [T, D]
        x = self.trf_blocks(self.drop_emb(x))  # [B, T, D]
        return self.out_head(self.final_norm(x))  # [B, T, V]


# %% [markdown]
# The LayerNorm after the last block is the *final norm*. The comparisons of this chapter are made in float64, with models that start from the same seed.


# %%
def build(**changes):
    """A plain model with the chapter's sizes, always from the same seed, in float64."""
    torch.manual_seed(seed)
    return PlainGPTModel(replace(cfg, **changes)).double()


def assert_same(a, b):
    """Raise unless a and b are equal to 1e-9."""
    torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


# %%
plain = build()
print("ids", list(ids.shape), "-> logits", list(plain(ids).shape))
assert plain(ids).shape == (batch_size, num_tokens, vocab_size)

# %% [markdown]
# `.double()` casts the weights to float64. Nothing in the model asks for it; it makes the comparisons of this chapter sharp. Two results count as the same when they differ by 1e-9 at most: that is far above what rounding in float64 adds up to here (about 1e-16 of the value for each operation), and far below any difference that random weights make.
#
# ## Stage by stage
#
# The shape at the end says little about the stages between. This function walks the route by hand and keeps every tensor on the way.


# %%
def route(model, ids):
    """Every stage of `model`, in order: name -> tensor."""
    places = torch.arange(ids.shape[1], device=ids.device)  # [T]
    stages = {"ids": ids}
    token = stages["token embedding"] = model.tok_emb(ids)  # [B, T, D]
    position = stages["position embedding"] = model.pos_emb(places)  # [T, D]
    x = stages["sum, dropout"] = model.drop_emb(token + position)  # [B, T, D]
    for number, block in enumerate(model.trf_blocks, 1):
        x = stages[f"block {number}"] = block(x)  # [B, T, D]
    x = stages["final norm"] = model.final_norm(x)  # [B, T, D]
    stages["logits"] = model.out_head(x)  # [B, T, V]
    return stages


# %%
stages = route(plain, ids)
assert_same(stages["logits"], plain(ids))
letters = {"ids": "[B, T]", "position embedding": "[T, D]", "logits": "[B, T, V]"}
show_table(
    ["stage", "shape", "in letters"],
    [[k, str(list(x.shape)), letters.get(k, "[B, T, D]")] for k, x in stages.items()],
)

# %% [markdown]
# When several sizes are equal, as vocabulary, context and width are in this chapter's defaults, such a table cannot tell the axes apart. A `[2, 6, 16]` could be `[B, T, D]` or `[B, T, V]`. So the check of shapes is made with sizes that are all different.

# %%
odd = GPTConfig(vocab_size=11, context_length=7, emb_dim=6, n_heads=3, n_layers=2)
uneven = PlainGPTModel(odd)
zeros = torch.zeros(3, 5, dtype=torch.long)  # [B, T]
shapes = {name: list(x.shape) for name, x in route(uneven, zeros).items()}
print("B = 3, T = 5, D = 6, V = 11, C = 7")
show_table(["stage", "shape"], [[name, str(shape)] for name, shape in shapes.items()])
assert all(shapes[f"block {number}"] == [3, 5, 6] for number in (1, 2))
assert shapes["final norm"] == [3, 5, 6] and shapes["logits"] == [3, 5, 11]
assert uneven.tok_emb.weight.shape == (11, 6) and uneven.pos_emb.weight.shape == (7, 6)

# %% [markdown]
# The last line guards against a slip that equal sizes hide: the two tables swapped. The token table has V rows, the position table C. Neither B nor T appears in any parameter, so one model takes batches of any size and texts of any length up to C.
#
# ## Content and position
#
# Why two tables? Any token can stand anywhere. What it is and where it stands are two independent numbers, and each needs a row of its own. The sum joins them.

# %%
token = ids[0, 0]
first, second = plain.tok_emb(token) + plain.pos_emb(torch.tensor([0, 1]))  # twice [D]
show_table(
    [f"id {token.item()}", "feature 0", "feature 1", "feature 2"],
    [["at position 0", *rounded(first[:3])], ["at position 1", *rounded(second[:3])]],
)
assert not torch.allclose(first, second)

# %% [markdown]
# The same id gives two different vectors. What depends on it? Take the position table away, by filling it with zeros, and feed a text that repeats one token. Attention then averages values that are all the same, so every position should end with the same logits.

# %%
repeated = token.repeat(1, num_tokens)  # [1, T]
blind = build()
with torch.no_grad():
    blind.pos_emb.weight.zero_()
rows = []
for name, model in [("as it is", plain), ("all zeros", blind)]:
    logits = model(repeated)  # [1, T, V]
    rows.append([name, torch.allclose(logits, logits[:, :1], rtol=0, atol=1e-9)])
show_table(["position table", "all positions give the same logits?"], rows)
assert [alike for _, alike in rows] == [False, True]

# %% [markdown]
# Without the table the model cannot tell the first of these tokens from the last. This does not show that a model without the table is blind to order altogether. The causal mask itself treats positions differently, since a later one sees more, and models trained without position embeddings have been found to use that (Haviv et al., 2022). GPT-2 has the table, and the table is part of what its weights expect.
#
# ## No look ahead
#
# Position t may use the ids 0 to t and none after. [Chapter 5](05_attention.ipynb) shows it for attention alone. The model adds embeddings, norms and a head, which treat each position on its own, so it should hold for the whole. Change one id of each text, at one position after the other, and note the first position whose logits move.

# %%
rows = []
for position in range(num_tokens):
    changed = ids.clone()
    changed[:, position] = (changed[:, position] + 1) % vocab_size
    difference = (plain(changed) - plain(ids)).abs().amax(dim=(0, 2))  # [T]
    moved = difference > 1e-9  # far above rounding
    rows.append([position, moved.nonzero().min().item()])
show_table(["id changed at", "first logits moved at"], rows)
assert all(moved == changed for changed, moved in rows)

# %% [markdown]
# No position before the changed one moves, and the changed one always does. The texts of a batch should not see each other either.

# %%
alone = torch.cat([plain(text[None]) for text in ids])  # each text as a batch of one
assert_same(alone, plain(ids))
print("each text gives the same logits alone as in the batch")

# %% [markdown]
# So one pass over T tokens gives T predictions, none of which has seen its own answer: the logits at position t are scores for the token at t + 1. Training uses all of them; generation, the writing of a text id by id ([chapter 11](11_generation.ipynb)), only the last.
#
# ## Sequential or ModuleList?
#
# The plain class keeps its blocks in `nn.Sequential`, as upstream (the code of S. Raschka's book) does, which works because each block takes one `x` and returns one. The final form uses `nn.ModuleList` and a loop. What is the difference? A third candidate, an ordinary Python list, is put beside them.


# %%
class Holder(nn.Module):
    """A module that holds blocks and nothing else."""

    def __init__(self, blocks):
        super().__init__()
        self.trf_blocks = blocks


def count(module):
    """The number of trained numbers."""
    return sum(p.numel() for p in module.parameters())


# %%
rows = []
blocks = [TransformerBlock(cfg) for _ in range(n_layers)]
for kept in (nn.Sequential(*deepcopy(blocks)), nn.ModuleList(deepcopy(blocks)), blocks):
    holder = Holder(kept).double()
    kind = type(holder.trf_blocks).__name__
    reached = holder.trf_blocks[0].norm1.scale.dtype == torch.float64
    rows.append([kind, count(holder), len(holder.state_dict()), reached])
header = ["blocks kept in", "parameters", "entries of the state dict"]
show_table([*header, "reached by .double()"], rows, int_format=",")
assert rows[0][1:] == rows[1][1:] and rows[2][1:] == [0, 0, False]

# %% [markdown]
# The first two register the blocks alike. The list registers nothing: an *optimizer*, which changes the parameters it is given in each step of training, would not be given those of its blocks; a file would not contain them; and no cast or move would reach them. Its forward pass would still run.
#
# With the same weights, names and results must be the same too.

# %%
looped = build()
looped.trf_blocks = nn.ModuleList(looped.trf_blocks)  # the same blocks, kept otherwise
assert list(looped.state_dict()) == list(plain.state_dict())
x = looped.tok_emb(ids) + looped.pos_emb(torch.arange(num_tokens))  # [B, T, D]
for block in looped.trf_blocks:
    x = block(x)  # [B, T, D]
assert_same(x, stages[f"block {n_layers}"])
print("same names, same result; the name of one:", list(looped.state_dict())[2])

# %% [markdown]
# So a state dict fits both. What the loop adds is freedom of calling: it can hand each block something besides `x`, for example the keys and values kept from earlier tokens, which [chapter 12](12_kv_cache.ipynb) does. `Sequential` passes on one value and no more. `ModuleList`, for its part, cannot be called; it only holds.
#
# ## Logits are not probabilities
#
# Logits are scores. They may be negative, and they need not sum to 1. Softmax turns the V scores of one position into probabilities:
#
# $$p_i = \frac{e^{z_i}}{\sum_{j=1}^{V} e^{z_j}}.$$

# %%
logits = plain(ids)  # [B, T, V]
probabilities = logits.softmax(dim=-1)  # [B, T, V]
rows = []
for name, z in [("logits", logits[0, 0]), ("after softmax", probabilities[0, 0])]:
    values = [value.item() for value in (z.min(), z.max(), z.sum())]
    rows.append([name, *values, z.argmax().item()])
show_table(["scores", "smallest", "largest", "sum", "id of the largest"], rows)

# %% [markdown]
# That is position 0 of the first text. What holds there must hold at every position.

# %%
ones = torch.ones(batch_size, num_tokens, dtype=torch.float64)  # [B, T]
torch.testing.assert_close(probabilities.sum(dim=-1), ones, rtol=0, atol=1e-12)
assert not torch.allclose(logits.sum(dim=-1), ones)
assert torch.equal(logits.argmax(dim=-1), probabilities.argmax(dim=-1))  # [B, T]
print("at every position: probabilities sum to 1, the largest keeps its place")

# %% [markdown]
# The tolerance of the sum is 1e-12: it adds V rounded numbers below 1, each wrong by 1e-16 at most, and V is below 10,000 here.
#
# Softmax keeps the order of finite scores, because the exponential grows and the divisor is the same for all. So the most likely id is the `argmax` of the logits already, and taking the highest score each time (the *greedy* choice) needs no softmax at all. The condition matters: a score of +∞, or a row of nothing but −∞, makes softmax compute ∞ − ∞, which is NaN, and the order is lost. (A single −∞ among finite scores only gets the probability 0; the causal mask relies on that.) In a weaker form the same happens when two scores are so close together, or so far below the largest, that rounding makes their probabilities equal.
#
# ## The loss takes logits
#
# Training measures the negative logarithm of the probability of the right id, averaged over the positions. This is the *cross-entropy*. `F.cross_entropy` takes the logits and does softmax and logarithm in one step. That is more than convenience: done one after the other, the exponential overflows. The scores 1000 and 0 are enough, when the second id is the right one. The exact value is the logarithm of 1 + e¹⁰⁰⁰, which is 1000 to every digit that float64 has.

# %%
scores = torch.tensor([[1000.0, 0.0]], dtype=torch.float64)  # one position, V = 2
in_steps = -(scores.exp() / scores.exp().sum()).log()[0, 1].item()
at_once = F.cross_entropy(scores, torch.tensor([1])).item()
print("step by step:", in_steps, "· at once:", at_once)
assert in_steps == float("inf") and at_once == 1000

# %% [markdown]
# A softmax inside the model would be a mistake of another kind. `F.cross_entropy` cannot know that it is given probabilities; it takes them for scores and applies softmax again. Nothing fails. What does the loss say then? Here are three models that need no training, because their logits are written by hand: one that is sure and right, one that is sure of nothing (all scores equal), one that is sure and wrong. The two limits are asserted to 1e-12, since these few numbers are of size 1 to 100.

# %%
targets = ids.flatten()  # [B * T]
right = 100 * F.one_hot(targets, vocab_size).double()  # [B * T, V]
wrong = right.roll(1, dims=-1)  # the score of 100 goes to the next id
rows = []
for name, z in [("and right", right), ("of nothing", 0 * right), ("and wrong", wrong)]:
    losses = [F.cross_entropy(scores, targets).item() for scores in (z, z.softmax(-1))]
    rows.append([f"sure {name}", *losses])
show_table(["model", "loss of the logits", "loss with a softmax inside"], rows)
assert rows[0][1] < 1e-12 and rows[0][2] > 0.3
assert abs(rows[2][2] - rows[0][2] - 1) < 1e-12  # from the best to the worst

# %% [markdown]
# With logits the loss tells the three apart: near 0 for the first, the logarithm of V for the second, large for the third. With the softmax inside, the loss of a perfect model is well above 0, and between the best and the worst possible answer lies exactly 1, since probabilities lie between 0 and 1. However long such a model is trained, its loss moves within that one unit. Exercise 7.3 asks where the floor lies.
#
# ## Two tables of the same shape
#
# The token embedding has the shape `[V, D]`. So has the weight of the output head: PyTorch stores a linear layer as `[out, in]`. The first turns an id into a vector, the second compares a vector with one row for each id. They can be *tied*, so that one and the same Parameter (PyTorch's class for a tensor that is trained) serves as both (Press and Wolf, 2017). GPT-2 does so; upstream's model, by default, does not.
#
# Three models from the same seed: an untied one, one whose head got a *copy* of the embedding's values, and one whose two attributes are the *same* Parameter.

# %%
untied, copied, tied = build(), build(), build()
with torch.no_grad():
    copied.out_head.weight.copy_(copied.tok_emb.weight)
tied.out_head.weight = tied.tok_emb.weight  # one Parameter under two names
assert untied.tok_emb.weight.shape == untied.out_head.weight.shape
assert_same(copied(ids), tied(ids))
print("copied and tied: the same logits")

# %% [markdown]
# The logits of the tied model are products with the rows of the embedding. In nearly every draw they are also larger than those of the untied model; the reason is given at the end of this section. There the last two columns are needed: the standard deviation without the logits of a position's own id, the one that stands there in the input, and the mean of these own logits.

# %%
features = route(tied, ids)["final norm"]  # [B, T, D]
assert_same(tied(ids), features @ tied.tok_emb.weight.T)  # [B, T, V]
own = F.one_hot(ids, vocab_size).bool()  # [B, T, V]: True at the input's own id
rows = []
for name, model in [("untied", untied), ("copied", copied), ("tied", tied)]:
    z = model(ids)  # [B, T, V]
    spreads = [part.std(unbiased=False).item() for part in (z, z[~own])]
    rows.append([name, *spreads, z[own].mean().item()])
header = ["standard deviation of logits", "without own ids", "mean of own"]
show_table(["model", *header], rows, "z.2f")

# %% [markdown]
# No forward pass can tell the copy from the tie. One step of training can. The answers for it are made up: at each position the id after its own, and 0 after the last. (A model that gives the right answers already would learn nothing, and show nothing.)


# %%
def loss_of(logits):
    """The logits at each position against the id after its own, averaged."""
    answers = (ids + 1) % vocab_size  # [B, T]
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


def after_one_step(model, rate=0.1):
    """A copy of `model` after one step of gradient descent, with its gradients."""
    model = deepcopy(model)  # keeps a tie
    loss_of(model(ids)).backward()
    torch.optim.SGD(model.parameters(), lr=rate).step()
    return model


# %%
rows, stepped = [], {}
for name, model in [("untied", untied), ("copied", copied), ("tied", tied)]:
    after = stepped[name] = after_one_step(model)
    table, head = after.tok_emb.weight, after.out_head.weight
    rows.append([name, head is table, count(after), (head - table).abs().max().item()])
header = ["model", "one Parameter?", "parameters", "largest difference"]
show_table(header, rows, int_format=",")
assert rows[1][3] > 0 and rows[2][3] == 0
assert count(untied) - count(tied) == vocab_size * emb_dim

# %% [markdown]
# The last column compares the two tables after the step. The copy drifts with the first step, because the two tables get different gradients. The embedding's gradient reaches the rows of the ids that were read; the head's reaches every row, as every id gets a score. The tied table gets both, added up. That can be checked from the gradients that the step left behind, because the copy and the tie had the same values before it.

# %%
copy, tie = stepped["copied"], stepped["tied"]
total = copy.tok_emb.weight.grad + copy.out_head.weight.grad  # [V, D]
limit = 1e-9 * total.abs().max().item()
torch.testing.assert_close(tie.tok_emb.weight.grad, total, rtol=0, atol=limit)
print("the tied gradient is the sum of the two")

# %% [markdown]
# The tolerance is 1e-9 of the largest gradient, since both sides add the same terms in different orders, and rounding goes with the size of the terms.
#
# There is a third thing that is taken for tying: *subtracting*. Upstream's code prints the number of parameters minus V·D, which is how many the model would have if it were tied. The model keeps two tables, trains two, and stores two. In the table above only the row "tied" has really fewer. Counting that way is a fair estimate as long as it is called one.
#
# Tying also changes the start, as the standard deviations above say. `nn.Embedding` draws its values with standard deviation 1, `nn.Linear` from the range ±1/√D. After the final LayerNorm the D features have a mean square near 1, so a logit, a sum of D products, spreads by about √D with the one table and by about 1/√3 with the other (numbers spread evenly from −a to a have the variance a²/3), for many features and as long as the row has nothing to do with them. In the tied model one row has: the features contain the row of the position's own token, which the shortcuts have carried to the end, and the product of the row with itself is positive and, with many features, large. So it is the second number, without own ids, that √D is to be compared with. GPT-2 draws its token table with standard deviation 0.02, and a tied model that is to be trained should do something of the kind. The final form leaves the initial values to its user.
#
# ## How many parameters?
#
# A formula that predicts the number is a good check that no layer is missing. The bias of query, key and value together is called the *QKV bias*; this model has none. It has a bias in the attention's output and in both maps of the feed-forward network. Then attention has $4D^2 + D$, the feed-forward network $8D^2 + 5D$ and the two norms $4D$. That makes $12D^2 + 10D$ for a block, and for the whole model
#
# $$\begin{aligned}N = {}&2VD + CD\\ &+ L(12D^2 + 10D) + 2D,\end{aligned}$$
#
# minus $VD$ when the tables are tied. The two $VD$ are the token embedding and the head, $CD$ the position embedding, $2D$ the last LayerNorm. [Chapter 8](08_counting.ipynb) takes the formula apart, layer by layer.


# %%
def formula(cfg):
    """N for a model without QKV bias."""
    V, C, D, L = cfg.vocab_size, cfg.context_length, cfg.emb_dim, cfg.n_layers
    return (2 - cfg.tie_weights) * V * D + C * D + L * (12 * D**2 + 10 * D) + 2 * D


cfg_tied = replace(cfg, tie_weights=True)
print(f"by formula: {formula(cfg):,} untied, {formula(cfg_tied):,} tied")
assert formula(cfg) == count(untied) and formula(cfg_tied) == count(tied)
assert formula(odd) == count(uneven)
assert formula(get_config("tiny")) == 7264  # whatever the parameters of this chapter

# %% [markdown]
# `parameters()` yields a shared Parameter once, so counting a tied model needs no correction. A state dict, in contrast, lists the table under both names, and what a file makes of that depends on the format.
#
# The number does not depend on H: heads divide D among themselves. And an equal number proves no equal computation. A model with its norms in the wrong places has the same count.
#
# ## What is not a parameter
#
# A module may carry tensors that no one trains. Upstream's attention keeps its causal mask, `[C, C]`, as a buffer ([chapter 5](05_attention.ipynb)). Here is a small module with such a mask, next to a tensor that is only an attribute.


# %%
class MaskedScores(nn.Module):
    """The attention weights of one head: [B, T, D] -> [B, T, T]."""

    def __init__(self, emb_dim, context_length):
        super().__init__()
        self.qk = nn.Linear(emb_dim, 2 * emb_dim, bias=False)
        square = torch.ones(context_length, context_length)
        mask = square.triu(diagonal=1)  # [C, C], 1 where looking is forbidden
        self.register_buffer("mask", mask)
        self.loose = mask.clone()  # an attribute and no more

    def forward(self, x):
        T = x.shape[1]
        query, key = self.qk(x).chunk(2, dim=-1)  # twice [B, T, D]
        scores = query @ key.transpose(1, 2) / x.shape[-1] ** 0.5  # [B, T, T]
        hidden = self.mask[:T, :T].bool()  # [T, T]
        return scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)


# %% [markdown]
# Which of the three tensors is trained, stored, and reached by a cast?

# %%
head = MaskedScores(emb_dim, context_length).double()
trained, stored = dict(head.named_parameters()), head.state_dict()
rows = []
for name in ("qk.weight", "mask", "loose"):
    tensor = head.get_parameter(name) if name in trained else getattr(head, name)
    cast = tensor.dtype == torch.float64
    rows.append([name, tensor.numel(), name in trained, name in stored, cast])
assert [row[2:] for row in rows] == [[True] * 3, [False, True, True], [False] * 3]
header = ["tensor", "numbers", "trained, counted", "in the state dict"]
show_table([*header, "reached by .double()"], rows, int_format=",")

# %% [markdown]
# A buffer is not trained and not counted. It still goes where the module goes, to another type or another device. The loose tensor stays behind, and a forward pass that used it on another device would fail. (With `register_buffer(..., persistent=False)` a buffer also stays out of the state dict.)
#
# And a buffer fills memory. How much do float32 masks take at the size of GPT-2 small? The attention of this book lets PyTorch's function make the causal mask and keeps none of its own, so the book's model should have no buffers at all.

# %%
small = get_config("gpt2-small")
mebibytes = 4 * small.n_layers * small.context_length**2 / 2**20  # L masks [C, C]
print(f"such masks for {small.n_layers} blocks of GPT-2 small: {mebibytes:.0f} MiB")
assert list(plain.buffers()) == []
print("buffers of the plain model:", len(list(plain.buffers())))

# %% [markdown]
# ## GPT-2 small, without the memory
#
# On the meta device of [chapter 1](01_shell.ipynb) a tensor has a shape and a type but no values. A model can be built there to look at its shapes and to count its parameters, with next to no memory used, and even a forward pass works: it gives the shapes that a real one would give.

# %%
with torch.device("meta"):
    large = PlainGPTModel(small).eval()
    full_text = torch.zeros(1, small.context_length, dtype=torch.long)  # [1, C]
shapes = {name: list(x.shape) for name, x in route(large, full_text).items()}
wanted = ["ids", "sum, dropout", "block 1", "block 12", "final norm", "logits"]
rows = [[name, str(shapes[name])] for name in wanted]
show_table(["stage of gpt2-small", "shape"], rows)
assert all(p.is_meta for p in large.parameters()) and shapes["logits"][-1] == 50257

# %% [markdown]
# None of its weights has a value. The name "gpt2-small" stands for a list of sizes and for nothing else: `get_config` reads no file, and a model built from it on a real device would hold random numbers, not the trained weights of GPT-2.
#
# How many parameters does it have? Two numbers are in circulation. Here both are computed, and a third: upstream's model, the same with a tie, and GPT-2 as released, which has the tie and the QKV bias.

# %%
rows = []
for tie, bias in [(False, False), (True, False), (True, True)]:
    with torch.device("meta"):
        model = PlainGPTModel(replace(small, qkv_bias=bias))
    if tie:
        model.out_head.weight = model.tok_emb.weight
    extra = 3 * small.emb_dim * small.n_layers if bias else 0  # 3D in each block
    N = formula(replace(small, tie_weights=tie)) + extra
    assert count(model) == N
    rows.append([tie, bias, N, round(N / 1e6), round(4 * N / 2**20)])
header = ["tied", "QKV bias", "parameters", "millions", "MiB in float32"]
show_table(header, rows, int_format=",")

# %% [markdown]
# The first two rows are the two numbers. Both are right, for different models. Untied, the table of the head is counted, because it exists; tied, it does not. The bias of query, key and value, 3D for each block, adds little. (The paper's own table gives 117 million for this size. The released files have the number in the last row, and the authors' repository calls the earlier counts an error.)
#
# The meta device has one trap. Giving such a model real memory with `to_empty` makes a new Parameter for each name, and a tie that was made by hand is gone, without a message. The final form ties again.

# %%
from book_utils import GPTModel

with torch.device("meta"):
    by_hand, final_tied = PlainGPTModel(cfg), GPTModel(cfg_tied)
by_hand.out_head.weight = by_hand.tok_emb.weight
rows = []
for name, model in [("tied by hand", by_hand), ("GPTModel", final_tied)]:
    before = model.out_head.weight is model.tok_emb.weight
    model.to_empty(device="cpu")  # memory without values: nothing of it is printed
    rows.append([name, before, model.out_head.weight is model.tok_emb.weight])
show_table(["model", "tied on meta", "tied after to_empty"], rows)
assert [row[1:] for row in rows] == [[True, False], [True, True]]

# %% [markdown]
# ## Types, and two modes
#
# The model computes in the type of its weights. Ids stay whole numbers in every case.

# %%
rows = []
for dtype in (torch.float64, torch.float32, torch.bfloat16):
    model = build().to(dtype)
    stored = sum(p.numel() * p.element_size() for p in model.parameters())
    rows.append([str(dtype), str(model(ids).dtype), stored / 1024])
    assert model(ids).dtype == dtype and model(ids).isfinite().all()
show_table(["weights", "logits", "KiB of parameters"], rows, ".1f")

# %% [markdown]
# That it runs in bfloat16 says nothing of its accuracy there: bfloat16 keeps 8 significant bits, about two to three decimal digits.
#
# The mode is the other switch, and it is about dropout. With a rate above 0 a model in training mode draws a new mask at each call, so the same ids give other logits. `eval()` switches it off, for as long as `train()` is not called.

# %%
noisy = build(drop_rate=0.5)  # training mode is the initial one
rows = []
for mode in ("train", "eval", "train"):
    noisy.train(mode == "train")
    with torch.no_grad():
        calls = [noisy(ids) for _ in range(8)]
    alike = all(torch.allclose(y, calls[0], rtol=0, atol=1e-9) for y in calls)
    rows.append([f"{mode}()", alike])
assert [alike for _, alike in rows] == [False, True, False]
assert_same(noisy.eval()(ids), plain(ids))  # without dropout it is the plain model
show_table(["mode", "eight calls alike?"], rows)

# %% [markdown]
# The calls were made under `torch.no_grad()`, and dropout acted all the same. The two are independent: `eval()` has nothing to do with gradients, `torch.no_grad()` nothing with dropout. Generation wants both.
#
# ## What is refused
#
# Ids can be wrong in several ways. What does the plain model do with them, and what does the final form, which looks at the ids before it computes anything?


# %%
def attempt(model, ids):
    """The name and the message of the error that `model(ids)` raises."""
    try:
        model(ids)
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


# %%
final = GPTModel(cfg).double()
wrong_inputs = {
    "floats": ids.double(),
    "negative": ids * 0 - 1,
    "id = V": ids * 0 + vocab_size,
    "T = C + 1": ids.new_zeros(1, context_length + 1),
    "T = 0": ids[:, :0],
    "no batch axis": ids[0],
}

# %%
rows = []
for name, wrong in wrong_inputs.items():
    kind, message = attempt(final, wrong)
    assert kind in ("TypeError", "ValueError")
    rows.append([name, attempt(plain, wrong)[0], f"{kind}: {message}"])
show_table(["input", "plain model", "GPTModel"], rows)
too_large, too_long = wrong_inputs["id = V"], wrong_inputs["T = C + 1"]
assert attempt(plain, too_large) == attempt(plain, too_long)

# %% [markdown]
# The plain model reports an id that is too large and a text that is too long with one and the same message: an index is out of range. It does not say which index, of which table, nor what the range is. On a GPU it can be worse, since there the error may come up in a later operation. The final form names the value and the limit.
#
# Note what `context_length` is: the largest T that a model takes, because its position table has that many rows. It is not the length that an input must have.
#
# ## The final form
#
# The module [book_utils/gpt_model.py](../book_utils/gpt_model.py) holds `GPTModel`: the class above with its blocks in a `ModuleList`, the checks of the input, and the tie. It takes a `GPTConfig` or a dictionary with the same keys. The names of its parameters are the same, so weights can be loaded from the plain class. The tolerance is 1e-9 in float64, for the reason given above: both perform the same operations, so only rounding could separate them.

# %%
final.load_state_dict(plain.state_dict())
assert_same(final(ids), plain(ids))
print("same weights, same logits")
torch.manual_seed(seed)
fresh = GPTModel(dict(cfg)).double()
pairs = zip(fresh.parameters(), plain.parameters(), strict=True)
assert all(torch.equal(p, q) for p, q in pairs)
print("same seed, same initial weights")

# %% [markdown]
# The parts are created in the same order, so one seed gives one set of initial weights. It is upstream's order as well, and its model starts with the same weights from the same seed as long as it has no QKV bias. (PyTorch draws the fused projection as it would draw three separate ones, one after the other. With a bias, the draws come in another order.)
#
# The tie is part of the configuration. It should give what the tie by hand gives, keep through saving and loading, and refuse a state dict that contradicts it.

# %%
torch.manual_seed(seed)
one_table = GPTModel(cfg_tied).double()
by_hand = build()
by_hand.out_head.weight = by_hand.tok_emb.weight
assert_same(one_table(ids), by_hand(ids))
one_table.load_state_dict(by_hand.state_dict())
assert one_table.out_head.weight is one_table.tok_emb.weight
print("the same as tied by hand, and still one Parameter after loading")

# %%
try:
    one_table.load_state_dict(plain.state_dict())
except ValueError as error:
    print("refused:", error, sep="\n  ")
else:
    raise AssertionError("a state dict with two different tables was accepted")

# %% [markdown]
# `torch.nn` has no class for a whole GPT to compare with. The blocks were compared in their own chapters; [chapter 9](09_parity.ipynb) compares the whole model with other implementations, stage by stage.
#
# What has been shown is that the sizes fit, that no logit depends on a later id, and that the plain class and the final form compute the same. These two are by one author and use one and the same block, so their agreement is a narrow result. A reference from outside comes with chapter 9. The weights are random numbers. The logits of such a model say nothing about language, and the id with the largest score means nothing yet.
#
# ## The results of this run
#
# Some numbers of this chapter again, by name. The spreads are those of initial weights, and say nothing of a trained model. A rerun with other parameters gives the same results under the same names.

# %%
z, tied_z = untied(ids), tied(ids)  # [B, T, V]
spread, tied_spread = z.std(unbiased=False), tied_z[~own].std(unbiased=False)
floor_of_loss = F.cross_entropy(right.softmax(dim=-1), targets)
publish(
    [
        ("parameters", count(untied), "N, untied"),
        ("parameters_tied", count(tied), "N, tied"),
        ("logit_spread", spread, "standard deviation of the logits, untied"),
        ("logit_spread_tied", tied_spread, "the same, tied, without own ids"),
        ("own_logit_tied", tied_z[own].mean(), "mean logit of the own ids, tied"),
        ("loss_floor", floor_of_loss, "smallest loss with a softmax inside"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | `index out of range in self` from an embedding | An id of V or more, a negative id, or an input of more than C tokens. | Print the largest and the smallest id, then T. | Set `vocab_size` to the tokenizer's; crop the text. |
# | The model works with V = C and fails with other sizes | Token table and position table are swapped. | Build it with V = 11 and C = 7. | V rows for tokens, C rows for positions. |
# | The loss starts near log V and hardly falls | The model ends with a softmax, and the loss applies another. | Sum the model's output over the last axis: 1 means a softmax. | Return logits. |
# | The loss is `inf` or NaN although the logits are finite | Softmax and logarithm are computed one after the other. | Try it with two scores, 1000 and 0. | `F.cross_entropy` on the logits |
# | `Module [ModuleList] is missing the required "forward" function` | A `ModuleList` was called; it only holds modules. | Read the forward method. | Loop over the blocks. |
# | The optimizer trains too few parameters | The blocks are in a Python list, which registers nothing. | Count the parameters. | `nn.ModuleList` or `nn.Sequential` |
# | Output head and token embedding were "tied" and differ after training | Their values were copied; there are two Parameters. | `model.out_head.weight is model.tok_emb.weight` | Assign the Parameter itself. |
# | GPT-2 small has 163 million parameters where 124 were expected | Its output head is not tied to the token embedding. | `model.out_head.weight is model.tok_emb.weight` | Tie them, or accept the number. |
# | The tie of head and embedding is gone after `to_empty` | `to_empty` makes a new Parameter for each name. | `model.out_head.weight is model.tok_emb.weight` | Tie again; `book_utils.GPTModel` does. |
# | The same ids give other logits at each call | The model is in train mode, and dropout acts. | Look at `model.training`. | `model.eval()` |
# | An error about tensors on two devices | The ids, or a mask kept as a plain attribute, stayed behind. | Print the `device` of each. | Move the ids; make the mask a buffer. |
#
# ## Exercises
#
# ::::{admonition} Exercise 7.1 · Two numbers, two tables
#
# Write the first step of the model from the two tables themselves, by indexing: `tok_table` is `[V, D]`, `pos_table` is `[C, D]`, and `ids` is `[B, T]`. Why could one table, with one index, not do the work of both?
#
# ::::


# %% tags=["exercise"]
def embed(ids, tok_table, pos_table):
    """[B, T] -> [B, T, D]"""
    ...  # your lines here


check("7.1", embed)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return tok_table[ids] + pos_table[torch.arange(ids.shape[1])]
# ```
#
# One token can stand at many positions, and one position can hold any token. Content and place are two independent indices. A single index, say the id plus the position, maps different pairs to the same row: the id 5 at position 0 and the id 4 at position 1 would be one and the same. A table with a row for each pair would keep them apart, but it would need V times C rows and could carry nothing learned at one position over to another.
#
# ::::
#
# ::::{admonition} Exercise 7.2 · Tie it
#
# Change a given, untied model so that its output head and its token embedding are tied for good. The check takes a training step with your model and looks at both tables after it.
#
# ::::


# %% tags=["exercise"]
def tie(model):
    """Tie model.out_head and model.tok_emb, in place; nothing is returned."""
    ...  # your line here


check("7.2", tie)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# model.out_head.weight = model.tok_emb.weight
# ```
#
# The assignment replaces the Parameter of the head by that of the embedding; the other direction would do as well. `model.out_head.weight.data = model.tok_emb.weight.data` comes close and is not the same: both then share their memory, but they are two Parameters with two gradients. They are counted twice, and an optimizer that keeps a state for each Parameter, as those of [chapter 8](08_counting.ipynb) do, keeps two and writes twice into one memory.
#
# ::::
#
# ::::{admonition} Exercise 7.3 · The floor
#
# Somebody ends the model with a softmax and trains with `F.cross_entropy`. What is the smallest loss that such a model can reach with V ids, when it gives the right one the probability 1? Write it as a function of V.
#
# ::::


# %% tags=["exercise"]
def floor(vocab_size):
    """The smallest cross-entropy that probabilities, taken for logits, can give."""
    ...  # your line here


check("7.3", floor)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# import math
# return math.log(math.e + vocab_size - 1) - 1
# ```
#
# The "scores" are 1 for the right id and 0 for the V − 1 others. The second softmax gives the right one e / (e + V − 1), and the loss is the negative logarithm of that. For a large vocabulary the floor lies very near log(V) − 1, one unit below log(V), which is what an undecided model has. Print `floor(50257)` and compare.
#
# ::::
#
# ::::{admonition} Exercise 7.4 · Count before you build
#
# Write the number of parameters as a function of the sizes, with two switches: `qkv_bias` adds a bias to each of query, key and value in every block, `tied` makes one table of two. Try V = 20, C = 10, D = 8, L = 1 on paper first, without QKV bias, untied and tied.
#
# ::::


# %% tags=["exercise"]
def count_parameters(vocab_size, context_length, emb_dim, n_layers, qkv_bias, tied):
    """The number of trained numbers."""
    ...  # your lines here


check("7.4", count_parameters)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# tables = (1 if tied else 2) * vocab_size * emb_dim + context_length * emb_dim
# block = 12 * emb_dim**2 + 10 * emb_dim + (3 * emb_dim if qkv_bias else 0)
# return tables + n_layers * block + 2 * emb_dim
# ```
#
# On paper: 2 · 20 · 8 + 10 · 8 + (12 · 64 + 80) + 16 = 1,264. Tied, one table of 20 · 8 = 160 goes, and 1,104 remain.
#
# ::::
#
# ## What you have now
#
# - The whole route from ids to logits, with the shape at every stage, and checks for its positions, its causality and its container.
# - Logits as scores for the next id: softmax makes probabilities of them, `argmax` needs none, and the loss takes them as they are.
# - A tie that is one Parameter, told from a copy by one training step, and from a mere subtraction by counting.
#
# The model runs, and its parameter count fits a formula. Does the count tell whether a layer is missing? [Chapter 8](08_counting.ipynb) opens the ledger and reads it line by line.
#
# **Sources.** A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 (the model) and table 2 (its sizes); its reference code, `src/model.py` of openai/gpt-2, function `model` (the two tables, their initial spread, the logits as a product with the token table). O. Press, L. Wolf, "Using the Output Embedding to Improve Language Models", 2017, arXiv:1608.05859. A. Haviv et al., "Transformer Language Models without Positional Encodings Still Learn Positional Information", 2022, arXiv:2203.16634. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, sections 4.1 and 4.6; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb` and `gpt.py` beside it. PyTorch's documentation of `torch.nn.ModuleList`, `torch.nn.functional.cross_entropy` and the meta device.
