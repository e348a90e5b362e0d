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
# # 6 · The transformer block
#
# **In what order?**
#
# At the end of this chapter you can
#
# - write GPT-2's block from its two lines, and say for each part why it stands where it stands;
# - tell the right wiring (which part reads what, and where its result is added) from wrong ones that have the same shapes and load the same weights;
# - name the places where dropout acts, the rate that governs each, and what `train()` and `eval()` change.
#
# You need [LayerNorm](02_layer_norm.ipynb), the [feed-forward network](03_feed_forward.ipynb), [shortcuts](04_shortcuts.ipynb) and [attention](05_attention.ipynb): what each does, not how. One section multiplies the Jacobians of chapter 4, and state dicts (chapter 5) carry weights from one block to another. The shapes are `[B, T, D]` throughout.

# %% tags=["parameters"]
emb_dim: int = 16  # D, features per position; n_heads divides it (8 to 64)
n_heads: int = 4  # H, attention heads (1 to 16)
num_tokens: int = 6  # T, tokens in each text (2 to 32)
batch_size: int = 2  # B, texts in the batch (1 to 8)
n_layers: int = 6  # L, blocks in the stack whose variance is measured (1 to 12)
drop_rate: float = 0.1  # p, the dropout rate of the demonstrations (0.01 to 0.9)
seed: int = 123  # of the random examples (0 to 4294967295)

# %%
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import FeedForward, GPTConfig, LayerNorm, MultiHeadAttention
from book_utils.workbench import check, check_parameters, diagram, figure, publish
from book_utils.workbench import show_table

check_parameters("06_transformer_block", globals())

# %% [markdown]
# Four parts are on the table: normalization, attention, a feed-forward network, and addition. They could be joined in many orders. Many of these orders run and return the right shape; only one of them is GPT-2. This chapter puts the parts in that order, and looks at what some of the others would change.
#
# All examples read the same random input, in float64.

# %%
sizes = {"emb_dim": emb_dim, "n_heads": n_heads, "n_layers": n_layers}
cfg = GPTConfig(vocab_size=16, context_length=num_tokens, **sizes)
torch.manual_seed(seed)
x = torch.randn(batch_size, num_tokens, emb_dim, dtype=torch.float64)  # [B, T, D]
print("x", list(x.shape))

# %% [markdown]
# ## Two halves
#
# A *transformer block* is made of two halves of the same build. Each half takes the *stream*, the tensor that runs from block to block, reads a normalized copy of it, computes a change, and adds the change to the stream. What computes the change is called the *sublayer*: in the first half multi-head attention (MHA), in the second the feed-forward network (FFN). With u for the stream between the halves and LN for LayerNorm,
#
# $$\begin{aligned}u &= x + \mathrm{Dropout}(\mathrm{MHA}(\mathrm{LN}_1(x))),\\ y &= u + \mathrm{Dropout}(\mathrm{FFN}(\mathrm{LN}_2(u))).\end{aligned}$$
#
# Normalization stands *before* each sublayer, inside the branch. This order is called *pre-norm*. Dropout, which sets numbers to 0 at random in training, has a section of its own further down. In the drawing the stream takes the outer path at the right, past each branch and into the sum; the branches hang on it at the left.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
with diagram(
    "block",
    14.2,
    27,
    alt="A pre-norm block from top to bottom: two branches, each of normalization, a sublayer and dropout, and beside each a shortcut to its sum.",
    words=[
        f"x enters at the top, with the shape {list(x.shape)}. Every arrow in this drawing carries this shape.",
        "First branch: LayerNorm 1, then attention, which exchanges between positions, then dropout.",
        "First shortcut: x itself, unchanged, runs past the branch and is added to its result. The sum is u.",
        "Second branch, from u: LayerNorm 2, then the feed-forward network, for each position alone, then dropout.",
        "Second shortcut: u, not x, runs past the branch and is added to its result. The sum is y.",
        "y leaves with the shape of x, so the next block can take it. Nothing on the two shortcuts is normalized.",
    ],
) as d:
    for name, height, text, kind in [
        ("x", 26, "x  [B, T, D]", "data"),
        ("norm1", 23.2, "LayerNorm 1", "layer"),
        ("att", 20.7, "attention", "layer"),
        ("drop1", 18.2, "dropout", "placeholder"),
        ("norm2", 11.4, "LayerNorm 2", "layer"),
        ("ff", 8.9, "feed-forward", "layer"),
        ("drop2", 6.4, "dropout", "placeholder"),
        ("y", 1, "y  [B, T, D]", "data"),
    ]:
        d.box(name, 6, height, text, kind=kind)
    d.plus("sum1", 6, 15.6)
    d.plus("sum2", 6, 3.8)
    for pair in [("x", "norm1"), ("norm1", "att"), ("att", "drop1"), ("drop1", "sum1")]:
        d.arrow(*pair)
    d.arrow("sum1", "norm2", "u")
    for pair in [("norm2", "ff"), ("ff", "drop2"), ("drop2", "sum2"), ("sum2", "y")]:
        d.arrow(*pair)
    d.shortcut("x", "sum1", 13)
    d.shortcut("sum1", "sum2", 13)

# %% [markdown]
# The dropout boxes have dashed borders because they act in training only. The code is the formula: one line of `forward` for each half.


# %%
class PlainTransformerBlock(nn.Module):
    """The two lines of the formula: [B, T, D] -> [B, T, D]."""

    def __init__(self, cfg):
        super().__init__()
        D = cfg["emb_dim"]
        self.att = MultiHeadAttention(
            D, D, cfg["context_length"], cfg["drop_rate_attn"], cfg["n_heads"]
        )
        self.ff = FeedForward(cfg)
        self.norm1 = LayerNorm(D)
        self.norm2 = LayerNorm(D)
        self.drop_shortcut = nn.Dropout(cfg["drop_rate_shortcut"])

    def forward(self, x):
        u = x + self.drop_shortcut(self.att(self.norm1(x)))
        return u + self.drop_shortcut(self.ff(self.norm2(u)))


# %% [markdown]
# The chapter compares many blocks. They are all made by one helper, always from the same seed, so that equal parts get equal weights.


# %%
def make_block(cls=PlainTransformerBlock, **settings):
    """A fresh block in float64, in eval mode; equal parts get equal weights."""
    torch.manual_seed(seed)
    return cls(replace(cfg, **settings)).double().eval()


# %% [markdown]
# A fresh norm has the scale 1 and the shift 0, and fresh norms are all alike. A comparison of two wirings could miss a difference for that reason alone. A second helper moves the four norm vectors away from 1 and 0, each to values of its own, as training might.


# %%
def move_norms(block):
    """Scale and shift of both norms, away from 1 and 0."""
    with torch.no_grad():
        block.norm1.scale.copy_(torch.linspace(0.5, 1.5, emb_dim))  # [D]
        block.norm1.shift.copy_(torch.linspace(-0.2, 0.2, emb_dim))
        block.norm2.scale.copy_(torch.linspace(1.8, 0.6, emb_dim))
        block.norm2.shift.copy_(torch.linspace(0.3, -0.1, emb_dim))
    return block


# %% [markdown]
# This is the block that the examples use.

# %%
block = move_norms(make_block())
y = block(x)  # [B, T, D]
print("x", list(x.shape), "-> y", list(y.shape))

# %% [markdown]
# ## Why the shape stays
#
# Follow one tensor through the block and note its shape after each step. One step is expected to differ: inside the FFN the features are widened.

# %%
n1 = block.norm1(x)  # [B, T, D]
a = block.att(n1)  # [B, T, D]
u = x + a  # [B, T, D]
n2 = block.norm2(u)  # [B, T, D]
wide = block.ff.layers[0](n2)  # [B, T, 4D]
f = block.ff(n2)  # [B, T, D]

# %%
steps = {"x": x, "norm1(x)": n1, "att(…)": a, "u = x + …": u}
steps |= {"norm2(u)": n2, "inside ff": wide, "ff(…)": f, "y = u + …": u + f}
assert torch.equal(u + f, y)
assert all(v.shape == x.shape for name, v in steps.items() if name != "inside ff")
show_table(["step", "shape"], [[name, str(list(v.shape))] for name, v in steps.items()])

# %% [markdown]
# The steps, taken one by one, give what the block gives. All but one have the shape of x, for two reasons. The first is the addition: a sum needs two tensors of one shape, so attention joins its heads back to D features, and the FFN brings its 4D features back to D. What happens without the way back?

# %%
try:
    u + wide
except RuntimeError as error:
    print(f"{type(error).__name__}: {list(u.shape)} and {list(wide.shape)} do not add")
else:
    raise AssertionError("the sum should have been refused")

# %% [markdown]
# The second reason is stacking: a block whose result has the shape of its input can be followed by another block, and that one by another.
#
# ## One position, in numbers
#
# Take the vector [1, 2, 3, 4] at one position. The first branch normalizes it and computes a change. What attention finds depends on the other positions, so let its change be given here: [0.1, −0.1, 0.2, −0.2].

# %%
one = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)  # [D]
change = torch.tensor([0.1, -0.1, 0.2, -0.2], dtype=torch.float64)  # [D]
one_u = one + change  # [D]
expected = torch.tensor([1.1, 1.9, 3.2, 3.8], dtype=torch.float64)
# One addition, rounded at 1e-16.
torch.testing.assert_close(one_u, expected, rtol=0, atol=1e-15)
print("u =", one_u.tolist())

# %% [markdown]
# The old vector is still in the sum, plus a correction. The second branch is computed, with a small FFN of random weights. Its norm is fresh, and so is the first, so one serves for both here.

# %%
torch.manual_seed(seed)
norm = LayerNorm(4).double()
widen, gelu, narrow = FeedForward(replace(cfg, emb_dim=4, n_heads=1)).double().layers
widened = widen(norm(one_u))  # [4D]
activated = gelu(widened)
correction = narrow(activated)  # [D]

# %%
walk = {"x": one, "norm1(x)": norm(one), "change (given)": change, "u": one_u}
walk |= {"norm2(u)": norm(one_u), "widened": widened, "after GELU": activated}
walk |= {"brought back": correction, "y = u + that": one_u + correction}
rows = [[step, len(v), *v[:4].tolist()] for step, v in walk.items()]
show_table(["step", "features", "value 1", "2", "3", "4"], rows, "z.3f")

# %% [markdown]
# Of the widened vectors, only the first four features are shown. Compare x with y: after both halves the vector is a corrected x, not a new vector that has taken its place. The corrections are of modest size here because the example gives the first and fresh weights make the second; nothing in the block keeps them so.
#
# ## Who exchanges, and who works alone
#
# Attention lets a position gather from itself and from those before it. The FFN works on each position by itself, with one set of weights for all of them. Both claims can be tested: change the vector at one position, and see at which positions the result of each half changes. Differences below 1e-9 count as none, since they may come from the order in which the same terms are added.


# %%
def where_changed(before, after):
    """The [row, position] pairs at which two results [B, T, D] differ."""
    return ((before - after).abs().amax(dim=-1) > 1e-9).nonzero().tolist()


# %% [markdown]
# The change is made in row 0 of the batch, at a position that has others behind it. For attention it should reach the last position, for the FFN it should stay.

# %%
place = (num_tokens - 1) // 2
halves = [  # name, function, its input, the last position that should change
    ("attention", lambda x: x + block.att(block.norm1(x)), x, num_tokens - 1),
    ("feed-forward", lambda u: u + block.ff(block.norm2(u)), u, place),
]

# %%
rows = []
for name, half, stream, last in halves:
    changed = stream.clone()
    changed[0, place] *= -1
    places = where_changed(half(stream), half(changed))
    assert places == [[0, t] for t in range(place, last + 1)]
    rows.append([name, place, str([t for _, t in places])])
show_table(["half", "changed at", "result changed at"], rows)

# %% [markdown]
# Through the attention half the change reaches its own position and all later ones. Through the FFN half it stays where it is. Neither half reaches another text of the batch: all changed places lie in row 0. So one block hands a token's content on by attention and then works on what each position has gathered, by the FFN; without attention no position would ever hear of another.
#
# ## Two norms, not one
#
# Both halves begin with a LayerNorm. Each has its own scale and shift, because each prepares the stream for another reader. Could one module serve both? Build a block in which `norm2` *is* `norm1`.

# %%
own, shared = make_block(), make_block()
shared.norm2 = shared.norm1
norms = {name: p for name, p in own.named_parameters() if name.startswith("norm")}
assert len({id(p) for p in norms.values()}) == 4  # four objects
show_table(["own norms", "shape"], [[k, str(list(p.shape))] for k, p in norms.items()])

# %% [markdown]
# With norms of its own the block has these four tensors. With one shared norm it has two, each under two names. The number of parameters shows it.


# %%
def count(block):
    """The number of parameters; one that is used twice counts once."""
    return sum(p.numel() for p in block.parameters())


assert count(own) - count(shared) == 2 * emb_dim
print(f"own norms: {count(own):,} parameters · one shared norm: {count(shared):,}")
print(f"difference: 2 × {emb_dim} = {2 * emb_dim}")

# %% [markdown]
# Do the results differ, at first and after loading? The weights are those of `block`, whose norms differ. They are handed over as a state dict ([chapter 5](05_attention.ipynb)). Loading is *strict* unless told otherwise: a missing name, an unknown one, or another shape is an error.


# %%
def alike(block, other):
    """Whether two blocks return the same, to 1e-6: far above rounding."""
    return torch.allclose(block(x), other(x), rtol=0, atol=1e-6)


fresh = torch.equal(own(x), shared(x))
shared.load_state_dict(block.state_dict())  # strict, and no complaint
loaded = alike(block, shared)
assert fresh and not loaded
assert torch.equal(shared.norm1.scale, block.norm2.scale)
print(f"the same result when fresh: {fresh} · with loaded weights: {loaded}")

# %% [markdown]
# Two things that look like proof prove nothing here. The fresh blocks agree to the last bit, since all norms start at the same values. And strict loading passes: the state dict lists the one module under both names, and what is loaded last stays. The loaded values of `norm1` are gone. The count of parameters shows the sharing, and so does a comparison of results with weights that differ from the initial ones.
#
# ## The second half adds to u
#
# In the second line of the formula u occurs twice, once inside the branch and once on the shortcut. A likely slip is to keep x for both shortcuts, so that the second line becomes $y = x + \mathrm{FFN}(\mathrm{LN}_2(u))$.


# %%
class OldShortcutBlock(PlainTransformerBlock):
    """Wrong on purpose: the second shortcut starts from x."""

    def forward(self, x):
        u = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(u)))


# %% [markdown]
# Give it the weights of the right block, and compare all that can be compared from outside.


# %%
def compare(block, other):
    """A table of what two blocks share, once the first's weights are in the second."""
    loaded = other.load_state_dict(block.state_dict())  # strict: raises if one misfits
    verdicts = {
        "shape of the result": block(x).shape == other(x).shape,
        "number of parameters": count(block) == count(other),
        "weights that fit (strict)": loaded == ([], []),
        "values of the result": alike(block, other),
    }
    assert list(verdicts.values()) == [True, True, True, False]
    rows = [[what, "same" if same else "different"] for what, same in verdicts.items()]
    show_table(["compared", "verdict"], rows)


# %%
wrong = make_block(OldShortcutBlock)
compare(block, wrong)

# %% [markdown]
# Three checks pass, and the computation is another one. Only the comparison of values sees it. What exactly is lost? *Silence* a branch: set the weights and the bias of its last layer to 0, so that it returns 0 whatever it reads.


# %%
def silence(block, *layers):
    """A copy of the block in which the named linear layers return 0."""
    block = deepcopy(block)
    with torch.no_grad():
        for name in layers:
            for parameter in block.get_submodule(name).parameters():
                parameter.zero_()
    return block


# %% [markdown]
# With a silent FFN the block should return u: what attention has found leaves it unchanged.

# %%
quiet, quiet_wrong = silence(block, "ff.layers.2"), silence(wrong, "ff.layers.2")
print("right wiring returns u:", torch.equal(quiet(x), u))
print("wrong wiring returns x:", torch.equal(quiet_wrong(x), x))
assert torch.equal(quiet(x), u) and torch.equal(quiet_wrong(x), x)
assert not torch.allclose(u, x)

# %% [markdown]
# In the wrong wiring attention's result has no path of its own to the output. It is heard only as far as the FFN passes it on.
#
# The derivatives say the same. Write A and F for the Jacobians ([chapter 4](04_shortcuts.ipynb)) of the two branches, and I for the identity that each shortcut contributes. For the right wiring and for the wrong one the Jacobian of the block is
#
# $$\begin{aligned}(I + F)(I + A) &= I + A + F + FA,\\ I + F(I + A) &= I + F + FA.\end{aligned}$$
#
# The difference is A alone: the direct path from attention to the output. To check it, let PyTorch compute the Jacobians.


# %%
def jacobian(function, at):
    """The derivative of every result by every input, as a matrix."""
    n = at.numel()
    return torch.autograd.functional.jacobian(function, at).reshape(n, n)


# %% [markdown]
# The first two positions of one text are enough: A then has 2D rows and 2D columns.

# %%
two = x[:1, :2]  # [1, 2, D]
two_u = two + block.att(block.norm1(two)).detach()  # [1, 2, D]
A = jacobian(lambda x: block.att(block.norm1(x)), two)  # [2D, 2D]
# The F of the formula; torch.nn.functional has its name here.
FF = jacobian(lambda u: block.ff(block.norm2(u)), two_u)  # [2D, 2D]
identity = torch.eye(two.numel(), dtype=torch.float64)
right_jacobian, wrong_jacobian = jacobian(block, two), jacobian(wrong, two)

# %%
# Sums of 2D products of numbers of size 10 at most, each rounded at 1e-16.
close = {"rtol": 0, "atol": 1e-11}
torch.testing.assert_close(right_jacobian, (identity + FF) @ (identity + A), **close)
torch.testing.assert_close(wrong_jacobian, identity + FF @ (identity + A), **close)
torch.testing.assert_close(right_jacobian - wrong_jacobian, A, **close)
print("right: (I + F)(I + A) · wrong: I + F(I + A) · difference: A, to 1e-11")

# %% [markdown]
# ## The path that is always open
#
# Multiplied out, the product begins with I: whatever the branches do, one term of the derivative hands the gradient through unchanged. Silence both branches and nothing else is left. The block must then be the identity, and its Jacobian exactly I.

# %%
silent = silence(block, "att.out_proj", "ff.layers.2")
print("silent branches: block(x) is x:", torch.equal(silent(x), x))
print("silent branches: Jacobian is I:", torch.equal(jacobian(silent, two), identity))
assert torch.equal(silent(x), x) and torch.equal(jacobian(silent, two), identity)

# %% [markdown]
# This is the property that [chapter 4](04_shortcuts.ipynb) measured on a small network. It is an open path, and no promise: the other terms may be large, or may cancel part of it.
#
# ## Post-norm: the other well-known order
#
# The Transformer of 2017 normalizes *after* each sum:
#
# $$\begin{aligned}u &= \mathrm{LN}_1(x + \mathrm{Dropout}(\mathrm{MHA}(x))),\\ y &= \mathrm{LN}_2(u + \mathrm{Dropout}(\mathrm{FFN}(u))).\end{aligned}$$
#
# This is *post-norm*. GPT-2 moved the norm into the branch. The parts are the same, so the weights of one fit into the other.


# %%
class PlainPostNormBlock(PlainTransformerBlock):
    """The order of the original Transformer."""

    def forward(self, x):
        u = self.norm1(x + self.drop_shortcut(self.att(x)))
        return self.norm2(u + self.drop_shortcut(self.ff(u)))


post = make_block(PlainPostNormBlock)
compare(block, post)

# %% [markdown]
# Post-norm is not a mistake; it is another function. It is a mistake to load weights that were trained in one order into the other, and nothing but the values tells.
#
# Where do the orders differ? Silence both branches again. Pre-norm then hands x on. In post-norm the norms stand on the main path, so even a block with silent branches changes the stream.

# %%
fresh_post = silence(make_block(PlainPostNormBlock), "att.out_proj", "ff.layers.2")
rows = []
for name, result in [("x", x), ("pre-norm", silent(x)), ("post-norm", fresh_post(x))]:
    position = result[0, 0].detach()  # [D]
    rows.append([name, position.mean().item(), position.var(unbiased=False).item()])
assert torch.equal(fresh_post(x), fresh_post.norm2(fresh_post.norm1(x)))
assert not torch.allclose(fresh_post(x), x, rtol=0, atol=1e-6)
show_table(["silent branches, one position", "mean", "variance"], rows, "z.3f")

# %% [markdown]
# The fresh post-norm block returns mean 0 and a variance near 1; the pre-norm block has left both as they were. That is as far as this chapter goes. Whether one order *trains* better is a question for training runs. Xiong et al. study it: they find large gradients near the output of post-norm models at the start. Their post-norm models needed a *learning rate*, the length of a step of training, that rises slowly in the first steps (a *warm-up*); they train pre-norm models without one. Nothing here measures that.
#
# ## What pre-norm leaves to the end
#
# In pre-norm the branches read normalized copies, but the stream itself is never normalized. It collects one change after another. For any two vectors the variance of the sum is
#
# $$\begin{aligned}\mathrm{Var}(x + f) = {}&\mathrm{Var}(x) + \mathrm{Var}(f)\\ &+ 2\,\mathrm{Cov}(x, f).\end{aligned}$$
#
# The *covariance* Cov(x, f) multiplies each feature's deviation from the mean in x by that in f, and averages the products. It is positive where the two tend to be above and below their means together. Here are the three terms for both halves of our block. Variance and covariance are taken over the features of each position, then averaged over the positions. Each entry is rounded on its own, so the last digit of a sum may look off by one.


# %%
def covariance(v, w):
    """Over the features of each position, ÷ D; the mean over all positions."""
    v, w = (z - z.mean(dim=-1, keepdim=True) for z in (v, w))
    return (v * w).mean().item()


# %%
rows = []
for name, stream, branch in [("attention", x, a), ("FFN", u, f)]:
    variances = [covariance(stream, stream), covariance(branch, branch)]
    terms = [*variances, 2 * covariance(stream, branch)]
    total = covariance(stream + branch, stream + branch)
    assert abs(sum(terms) - total) < 1e-12  # numbers of size 1, each rounded at 1e-16
    rows.append([name, *terms, total])
show_table(["half", "stream", "branch", "2 × covariance", "sum"], rows, "z.3f")

# %% [markdown]
# The branch's own variance can only add. The covariance may have either sign. In a fresh block the weights and the bias of each branch's last layer are drawn evenly around 0, whatever the layer is given, so on average over many draws the covariance is 0 and the growth remains. To see it, stack fresh blocks, measure the variance after each, and average over many such stacks.


# %%
@torch.no_grad()
def variances():
    """Of a stream and its normalized copy: before, and after each of L blocks."""
    stream = torch.randn(1, num_tokens, emb_dim, dtype=torch.float64)  # [1, T, D]
    points = []
    for number in range(n_layers + 1):
        if number > 0:
            stream = PlainTransformerBlock(cfg).double().eval()(stream)  # [1, T, D]
        normed = F.layer_norm(stream, [emb_dim])
        points.append([covariance(stream, stream), covariance(normed, normed)])
    return points


# %%
stacks = 1024 // emb_dim  # wide vectors scatter less, so fewer stacks do
torch.manual_seed(seed)
measured = [variances() for _ in range(stacks)]
streams, copies = torch.tensor(measured, dtype=torch.float64).mean(dim=0).T  # [L + 1]
rows = [["the input", streams[0].item()], [f"block {n_layers}", streams[-1].item()]]
show_table(["after", f"variance, mean of {stacks} stacks"], rows, ".2f")
assert streams[-1] > streams[0] and (copies - 1).abs().max() < 0.01

# %% jupyter={"source_hidden": true} tags=["hide-input"]
with figure(
    "stream_variance",
    alt="The variance of the pre-norm stream is larger after the last block than at the input; a normalized copy of it keeps a variance near 1.",
    words=[
        f"Along the horizontal axis: the number of blocks passed, from 0 to {n_layers}.",
        f"Solid line with circles: the variance of the stream, averaged over {stacks} stacks of fresh blocks, {streams[0]:.2f} at the input and {streams[-1]:.2f} at the end.",
        "Dashed line with squares: the variance of a normalized copy, within 0.01 of 1 at every point.",
        "The solid line ends above its start; the dashed line does not follow it.",
    ],
    data={
        "blocks": list(range(n_layers + 1)),
        "stream": streams,
        "normalized copy": copies,
    },
    size=(5, 3.6),
) as ax:
    ax.plot(range(n_layers + 1), streams, marker="o", label="the stream")
    ax.plot(range(n_layers + 1), copies, marker="s", label="a normalized copy of it")
    ax.set(
        xlabel="blocks passed",
        ylabel="variance (no unit)",
        ylim=(0, 1.25 * streams.max().item()),
    )
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(loc="lower right")

# %% [markdown]
# (The features of the input were drawn from a distribution with variance 1. Measured at one position, around its own mean and ÷ D, the variance is (D − 1) / D on average: 15/16 for D = 16. The table scatters around that.)
#
# The scale of the stream depends on how many blocks it has passed. So the model has one more LayerNorm, after the last block and before the output head: [chapter 7](07_gpt_model.ipynb) calls it `final_norm`. A post-norm block needs none, since it ends with one.
#
# The figure shows fresh weights of PyTorch's default initialization. It says nothing of trained ones. GPT-2 started from other weights: its report scales the weights of the residual layers (those that write to the stream) at initialization by 1/√N, with N their number, to account for what piles up along the stream. The classes of this book do not; weights that are loaded replace the initial ones anyway.
#
# ## Dropout: three places, three rates
#
# *Dropout* sets each number to 0 with the probability p, its *rate*, and divides the others by 1 − p. It acts in training only, and is meant to keep the model from leaning on any one path. The first GPT's report names three places, and the model of this book has the same:
#
# | Place | Rate | Who reads the rate | What is dropped |
# |---|---|---|---|
# | embeddings | `drop_rate_emb` | the model, [chapter 7](07_gpt_model.ipynb) | features of token plus position |
# | attention weights | `drop_rate_attn` | the block, for its attention | weights after the softmax (a row of them then no longer sums to 1) |
# | shortcut branches | `drop_rate_shortcut` | the block | features of a branch's result, before the sum |
#
# A plain `drop_rate` stands for all three where they are not given. The FFN has no dropout inside: the branch drops its result once. The name `drop_shortcut` is upstream's (the code of S. Raschka's book); what is dropped is the branch, never the shortcut, so the direct path stays open in training too.
#
# What does dropout do to the size of the numbers? Try it on a million ones.

# %%
torch.manual_seed(seed)
drop, ones = nn.Dropout(drop_rate), torch.ones(1_000_000, dtype=torch.float64)
dropped = drop(ones)
survivor = 1 / (1 - drop_rate)
right = dropped.eq(0) | ((dropped - survivor).abs() < 1e-12)  # one division, rounded
assert right.all() and 0 < dropped.eq(0).sum() < len(ones)
print(f"p = {drop_rate:g}: every 1 became 0 or {survivor:.4f}")

# %% [markdown]
# With the rate p a value v becomes 0 with probability p and v / (1 − p) otherwise, so on average p · 0 + (1 − p) · v / (1 − p) = v. The mean of the draw should be near 1, to a few of its *standard errors*, the typical distance of such a mean from its expectation.

# %%
error = (drop_rate / (1 - drop_rate) / len(ones)) ** 0.5  # standard error of the mean
assert abs(dropped.mean() - 1) < 6 * error  # farther off in 1 of 500 million runs
assert not torch.equal(dropped, drop(ones)) and not list(drop.parameters())
print("the mean of the draw is 1, to 6 standard errors")
print("a second call of the same module: another draw")
print("parameters of the module: none")

# %% [markdown]
# The last two lines are why one `drop_shortcut` may serve both branches, although one norm may not: it has nothing to learn, and draws afresh at each call. The mean is kept where the drop happens. Later layers are not linear, and what they return need not keep its mean.
#
# Which of the three rates does a block read? Set one at a time, and compare the result in training with the one in evaluation. If the rate is read, they differ, since even what is not dropped is divided by 1 − p.

# %%
torch.manual_seed(seed)
texts = max(batch_size, 2048 // (num_tokens * emb_dim))  # enough that draws differ
many = torch.randn(texts, num_tokens, emb_dim, dtype=torch.float64)


@torch.no_grad()
def training_differs(block):
    """Whether the result in train mode is another one than in eval mode."""
    still, moving = block.eval()(many), block.train()(many)
    return not torch.allclose(still, moving, rtol=0, atol=1e-9)  # far above rounding


# %%
keys = ["drop_rate_emb", "drop_rate_attn", "drop_rate_shortcut"]
seen = [training_differs(make_block(**{key: drop_rate})) for key in keys]
assert seen == [False, True, True]
rows = [[key, "yes" if s else "no"] for key, s in zip(keys, seen, strict=True)]
show_table([f"the one rate at {drop_rate:g}", "train differs from eval"], rows)

# %% [markdown]
# The block reads two of them. `drop_rate_emb` belongs to the model.
#
# ## A key that nobody reads
#
# Splitting one rate into three takes two steps: add the keys, and read them where the layers are built. After the first step alone all runs as before. In this block the second step was forgotten on one path.


# %%
class OldKeyBlock(PlainTransformerBlock):
    """Wrong on purpose: the shortcut branches still read the old key."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.drop_shortcut = nn.Dropout(cfg["drop_rate"])


# %%
rates = {"drop_rate": 0.0, "drop_rate_shortcut": drop_rate}
rows = []
for cls in (PlainTransformerBlock, OldKeyBlock):
    built = make_block(cls, **rates)
    differs = "yes" if training_differs(built) else "no"
    rows.append([cls.__name__, float(drop_rate), built.drop_shortcut.p, differs])
assert [row[2:] for row in rows] == [[drop_rate, "yes"], [0.0, "no"]]
show_table(["block", "rate asked", "rate in the layer", "train differs"], rows, "g")

# %% [markdown]
# No error, no warning, no dropout. To know the rate, look at the layer that was built, not at the configuration. A misspelt key is caught earlier, because `GPTConfig` refuses what it does not know; a plain dictionary would keep it in silence.

# %%
try:
    GPTConfig.from_dict({**cfg, "drop_rate_shortcuts": drop_rate})
except ValueError as error:
    print(error)

# %% [markdown]
# ## Train, eval, and back
#
# `block.train()` and `block.eval()` set a flag, `training`, on the block and on all modules in it: *train mode* and *eval mode*. Evaluation should give the same result each time, and the same as a block without dropout. Training should not repeat itself. And one evaluation must not switch dropout off for ever: back in training, results must vary again.

# %%
dropping = make_block(drop_rate=drop_rate)


@torch.no_grad()
def repeats():
    """Whether two calls give the same."""
    return torch.equal(dropping(many), dropping(many))


# %%
rows = []
for mode in ("eval", "train", "eval", "train"):
    dropping.train(mode == "train")
    assert all(module.training == (mode == "train") for module in dropping.modules())
    rows.append([f"{mode}()", "the same" if repeats() else "different"])
assert [row[1] for row in rows] == ["the same", "different"] * 2
assert torch.equal(dropping.eval()(many), make_block(drop_rate=0.0).train()(many))
show_table(["mode, in this order", "two calls give"], rows)

# %% [markdown]
# In eval mode the block is a function of its input and of nothing else. Note that all four rows were computed under `no_grad`: not recording gradients is one matter, dropout another, and only `eval()` ends the second. A dropout that is called as a function does not see the flag unless it is told: `MultiHeadAttention` hands its attention function the rate 0 when it is not in training, and a version that forgets this drops in evaluation too.
#
# ## The final form
#
# The module [book_utils/transformer_block.py](../book_utils/transformer_block.py) holds `TransformerBlock`, the class of this chapter with one setting more, `qkv_bias`, and with room for the cache of [chapter 12](12_kv_cache.ipynb). With the same weights both call the same functions in the same order, so they should agree to the last bit: no tolerance.

# %%
from book_utils import TransformerBlock

final = TransformerBlock(replace(cfg, drop_rate=drop_rate)).double()
final.load_state_dict(block.state_dict())
plain = make_block(drop_rate=drop_rate)
plain.load_state_dict(block.state_dict())
assert torch.equal(final.eval()(x), plain(x)) and torch.equal(plain(x), block(x))
print("book_utils.TransformerBlock: equal to the last bit in eval mode")

# %% [markdown]
# From the same seed they must agree in training as well, since dropout stands at the same places and draws in the same order.

# %%
results = []
for other in (final.train(), plain.train()):
    torch.manual_seed(seed)
    results.append(other(x))
assert torch.equal(*results)
print("equal to the last bit in train mode")

# %% [markdown]
# Two versions by one hand could share a mistake. PyTorch has a block of its own, `nn.TransformerEncoderLayer`. By default it is another function: post-norm, ReLU, no causal mask, and dropout. With `norm_first=True`, GELU's tanh form, a causal mask and no dropout it should be ours. The activation is handed over as a function: given an `nn.GELU` module, PyTorch's shortened computation for eval mode without gradients may take the erf form, whatever the module says; [chapter 9](09_parity.ipynb) shows it.

# %%
reference = nn.TransformerEncoderLayer(
    emb_dim,
    n_heads,
    dim_feedforward=4 * emb_dim,
    dropout=0.0,
    activation=lambda x: F.gelu(x, approximate="tanh"),
    batch_first=True,
    norm_first=True,
    dtype=torch.float64,
).eval()

# %% [markdown]
# The names of its parts are others; what they hold is arranged alike.

# %%
pairs = {
    "self_attn.in_proj_": "att.qkv.",  # query, key and value in this order, in both
    "self_attn.out_proj.": "att.out_proj.",
    "linear1.": "ff.layers.0.",
    "linear2.": "ff.layers.2.",
}
state = final.state_dict() | {"att.qkv.bias": torch.zeros(3 * emb_dim)}  # ours has none

# %%
weights = {
    f"{theirs}{kind}": state[f"{ours}{kind}"]
    for theirs, ours in pairs.items()
    for kind in ("weight", "bias")
}
for name in ("norm1", "norm2"):
    weights[f"{name}.weight"] = state[f"{name}.scale"]
    weights[f"{name}.bias"] = state[f"{name}.shift"]
assert reference.load_state_dict(weights) == ([], [])  # strict
print(f"{len(weights)} tensors copied")

# %% [markdown]
# The load is strict: every name was filled, and none was left over. Now the values. The tolerance is 1e-12 in float64: the numbers are of size 10 or so, each is rounded at the sixteenth digit, and the two sides add up the same terms in different orders.

# %%
mask = nn.Transformer.generate_square_subsequent_mask(
    num_tokens, dtype=torch.float64
)  # [T, T]
theirs = reference(x, src_mask=mask, is_causal=True)  # [B, T, D]
torch.testing.assert_close(final.eval()(x), theirs, rtol=0, atol=1e-12)
rows = [["TransformerBlock", "to 1e-12"]]
for name, other in [("second shortcut from x", wrong), ("post-norm", post)]:
    assert not torch.allclose(other(x), theirs, rtol=0, atol=1e-6)  # far above rounding
    rows.append([name, "no"])
show_table(["block", "agrees with PyTorch's"], rows)

# %% [markdown]
# The same comparison refuses the two other wirings of this chapter, so it is able to fail.
#
# ## The results of this run
#
# Some numbers of this chapter again, by name. The two differences say that another wiring is another function; they do not say that it is a worse one. A rerun with other parameters gives the same results under the same names.

# %%
others = {"old_shortcut": wrong, "post_norm": post}
moved = {name: (other(x) - block(x)).abs().max() for name, other in others.items()}
publish(
    [
        ("parameters", count(block), "of one block, without QKV bias"),
        ("input_variance", streams[0], "of the stream before the first block"),
        ("stream_variance", streams[-1], "of the stream after L fresh blocks"),
        ("copy_variance", copies[-1], "of a normalized copy of it"),
        ("old_shortcut_moves", moved["old_shortcut"], "a value of the result at most"),
        ("post_norm_moves", moved["post_norm"], "a value of the result at most"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | Trained weights load without an error, and the text that the model writes is odd | In the block, the shortcut around the feed-forward network starts from the block's input x. | Set the last layer of the feed-forward network to 0: the block returns x, not x + attention's result. | Add the second result to u, the sum after attention. |
# | Trained weights load without an error, and all values are off from the first block on | The block is post-norm, the weights were trained pre-norm (or the reverse). | Set the last layers of both branches to 0: a pre-norm block then returns its input unchanged. | Normalize what each sublayer reads, inside the branch. |
# | The model has too few parameters, by 2D for each block | One LayerNorm module serves both halves of a block. | `block.norm1 is block.norm2` | Build two modules. |
# | `The size of tensor a … must match` at a sum in a block | A branch does not end with D features. | Print the shapes of both sides of the sum. | Let the last linear layer of each branch return D features. |
# | In a pre-norm model, the scale of the logits depends on the number of blocks | The LayerNorm after the last block is missing. | Print the variance of the features before the output head. | Put `final_norm` between the last block and the head. |
# | Evaluation gives another result each time | The model is in train mode, or dropout is called as a function that ignores the mode. | Call twice with the same input and compare. | `model.eval()`; pass the rate 0 to the function outside training. |
# | `torch.no_grad()` is on, and results still vary | `no_grad` ends the recording of gradients, not dropout. | Look at `model.training`. | `model.eval()` |
# | Training goes on without dropout after the first evaluation | Nothing switched back from `eval()`. | Look at `model.training`. | `model.train()` after each evaluation. |
# | A dropout rate in the configuration has no effect | The layer was built from another key. | Print the `p` of the dropout layer in the built model. | Read the new key where the layer is built. |
# | More numbers are dropped in training than the rate says | A second dropout stands at the end of the feed-forward network. | Count the dropout modules of one block. | Drop once, on the branch. |
# | Results in train mode differ between two machines | The draws of dropout differ between systems, even from one seed. | Compare in eval mode. | Compare only what has no draw in it. |
#
# ## Exercises
#
# ::::{admonition} Exercise 6.1 · The block from memory
#
# Write the pre-norm block as one function, with the dropout left out. `norm1`, `att`, `norm2` and `ff` are functions from `[B, T, D]` to `[B, T, D]`.
#
# ::::


# %% tags=["exercise"]
def pre_norm_block(x, norm1, att, norm2, ff):
    """[B, T, D] -> [B, T, D]"""
    ...  # your lines here


check("6.1", pre_norm_block)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# u = x + att(norm1(x))
# return u + ff(norm2(u))
# ```
#
# Twice the same pattern: normalize a copy, compute a change, add it to what you copied from. With `x += …` the values are right too, but the caller's tensor is changed as well; `x = x + …` makes a new one.
#
# ::::
#
# ::::{admonition} Exercise 6.2 · How much reaches the output
#
# Let D be 1 and both branches linear: the first turns x into a · x, the second turns u into f · u. The block is then y = s · x with one number s. Write s as a function of a and f.
#
# ::::


# %% tags=["exercise"]
def slope(a, f):
    """dy/dx of the block with the branches a * x and f * u."""
    ...  # your line here


check("6.2", slope)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return (1 + f) * (1 + a)
# ```
#
# The first half multiplies by 1 + a, the second by 1 + f. Multiplied out this is 1 + a + f + f · a: the direct path, each branch alone, and attention through the FFN. With the second shortcut from x it would be 1 + f · (1 + a), and the term a alone would be missing.
#
# ::::
#
# ::::{admonition} Exercise 6.3 · Three rates from one dictionary
#
# `settings` is a plain dictionary. It always has `drop_rate`, and may have `drop_rate_emb`, `drop_rate_attn` and `drop_rate_shortcut`. Return the three rates, in this order; where one is not given, `drop_rate` stands for it. Mind a rate that is given as 0.
#
# ::::


# %% tags=["exercise"]
def three_rates(settings):
    """(rate of the embeddings, of the attention weights, of the shortcut branches)"""
    ...  # your lines here


check("6.3", three_rates)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# default = settings["drop_rate"]
# places = ("emb", "attn", "shortcut")
# return tuple(settings.get(f"drop_rate_{place}", default) for place in places)
# ```
#
# With `settings.get(key) or settings["drop_rate"]` a given 0 counts as missing, and the place that was to be spared drops after all. And this function is half of the change only: the layers must be built with what it returns.
#
# ::::
#
# ::::{admonition} Exercise 6.4 · Dropped twice
#
# Somebody ends the FFN with a dropout of rate p, and the block still has its own on the branch, with the same rate. Which share of the FFN's numbers survives both? Write it as a function of p.
#
# ::::


# %% tags=["exercise"]
def surviving_share(p):
    """The share of numbers that neither dropout sets to 0, on average."""
    ...  # your line here


check("6.4", surviving_share)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return (1 - p) ** 2
# ```
#
# The two draws are independent, and a number must survive both. Survivors are divided by 1 − p twice, so the mean is still right, and no check of the mean sees the mistake; the share of zeros does. One dropout at the end of the FFN *in place of* the one on the branch would be the same computation as here; it is having both that drops twice.
#
# ::::
#
# ## What you have now
#
# - The pre-norm block from its two lines: normalize a copy, compute a change, add it to the stream; first across positions, then at each position alone.
# - Ways to tell wirings apart that shapes, counts and strict loading do not: compare values, silence a branch, look at the Jacobian.
# - Three places of dropout with three rates, two of them read by the block; draws in training, none in evaluation, and the way back.
#
# A stack of blocks turns vectors into vectors. [What stands before the first and after the last, to get from ids to logits?](07_gpt_model.ipynb)
#
# **Sources.** A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 (norm moved to the input of each sub-block, norm after the last block, the factor 1/√N); its reference code, `src/model.py` of openai/gpt-2, function `block`, which has no dropout. A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018, section 4.1 (residual, embedding and attention dropout). A. Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, sections 3.1 (post-norm) and 5.4 (dropout on each sublayer's output, before the sum). R. Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020, arXiv:2002.04745, figure 1 and section 3. K. He et al., "Identity Mappings in Deep Residual Networks", 2016, arXiv:1603.05027, section 2 (the open path). N. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", Journal of Machine Learning Research 15, 2014. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.5; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb`. PyTorch's documentation of `torch.nn.TransformerEncoderLayer` and `torch.nn.Dropout`.
