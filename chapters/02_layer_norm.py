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
# # 2 · Layer normalization
#
# **How is the scale of the features kept in hand?**
#
# At the end of this chapter you can
#
# - write LayerNorm from its formula, and say along which axis it works and which variance it uses;
# - explain why the variance of its result is near 1 and not 1, and why a trained layer need not come near it at all;
# - tell a wrong LayerNorm from a right one although both return the same shape.
#
# You need mean and variance, and the shapes `[B, T, D]` of [chapter 1](01_shell.ipynb): B texts in the batch, T tokens in each, D features at each position.

# %% tags=["parameters"]
emb_dim: int = 4  # D, features per position (2 to 1024)
offset: float = 100.0  # a constant that is added to every feature (-1e6 to 1e6)
eps: float = 1e-5  # the small number inside the root (1e-12 to 1e-3)
seed: int = 26  # of the random examples (0 to 4294967295)

# %%
import torch
from torch import nn

from book_utils.workbench import check, check_parameters, rounded, show_table

check_parameters("02_layer_norm", globals())
torch.manual_seed(seed)
x = torch.randn(2, 3, emb_dim, dtype=torch.float64)  # [B, T, D]
print("x", list(x.shape))

# %% [markdown]
# A network multiplies its features by weights, layer after layer. If they grow a little in each layer, they are large after many; if they shrink, little is left. *Layer normalization* sets the scale back at chosen places. This chapter builds it in four steps: the two statistics, the division, the small number eps, and the two trained vectors.
#
# ## One position at a time
#
# LayerNorm looks at one position's vector and at nothing else. It takes the mean and the variance *along the last axis*, the features. For an input `[B, T, D]` there is one mean and one variance for each position. Keeping the last axis, with length 1, lets them line up with `x` again.

# %%
mean = x.mean(dim=-1, keepdim=True)  # [B, T, 1]
variance = x.var(dim=-1, keepdim=True, unbiased=False)  # [B, T, 1]
print(
    "x", list(x.shape), "· mean", list(mean.shape), "· variance", list(variance.shape)
)

# %% [markdown]
# With these two, the first step is to subtract the mean and to divide by the root of the variance. The mean μ and the variance σ² are those of equation 3 of Ba, Kiros and Hinton, for one vector of D features; with them,
#
# $$\mu = \frac{1}{D}\sum_{j=1}^{D} x_j, \qquad \sigma^2 = \frac{1}{D}\sum_{j=1}^{D}(x_j-\mu)^2, \qquad \hat{x}_j = \frac{x_j-\mu}{\sqrt{\sigma^2+\varepsilon}}.$$
#
# The small ε under the root is explained below. The code is the formula, line by line.


# %%
def normalize(x, eps=eps):
    """Zero mean and nearly unit variance for each position: [..., D] -> [..., D]."""
    mean = x.mean(dim=-1, keepdim=True)  # [..., 1]
    variance = x.var(dim=-1, keepdim=True, unbiased=False)  # [..., 1]
    return (x - mean) / torch.sqrt(variance + eps)  # [..., D]


one_to_four = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
print("normalized:", rounded(normalize(one_to_four)))

# %% [markdown]
# The order of the four numbers is the same as before, and so are the ratios of the gaps between them. What is gone is where they stood and how far they were spread.
#
# Nothing was averaged over the batch or over the tokens. If that is true, changing one token leaves the normalized vectors of all others untouched. That is worth a check rather than a promise.

# %%
changed = x.clone()
changed[0, 1] += torch.arange(emb_dim)  # another token at batch row 0, position 1
same = (normalize(x) == normalize(changed)).all(dim=-1)  # [B, T]
rows = [
    [f"batch row {row}", *map(str, values)] for row, values in enumerate(same.tolist())
]
assert (~same).nonzero().tolist() == [[0, 1]]
show_table(["unchanged?", *(f"position {t}" for t in range(same.shape[1]))], rows)

# %% [markdown]
# Only the position that was touched differs. Attention mixes positions; LayerNorm never does.
#
# ## Which variance?
#
# Take the smallest interesting vector, `[1, 3]`. Dividing the sum of squared distances by D gives the *population* variance, dividing it by D − 1 the *sample* variance (also called unbiased). Both have the name "variance", and PyTorch's `var` uses the second unless told otherwise.

# %%
pair = torch.tensor([1.0, 3.0], dtype=torch.float64)
rows = []
for name, unbiased in [("population, ÷ D", False), ("sample, ÷ (D − 1)", True)]:
    v = pair.var(unbiased=unbiased)
    rows.append(
        [
            name,
            pair.mean().item(),
            v.item(),
            str(rounded((pair - pair.mean()) / v.sqrt())),
        ]
    )
show_table(["variance", "mean", "value", "[1, 3] becomes"], rows)

# %% [markdown]
# GPT-2 was trained with the first, so a layer that is to load its weights must use the first. Upstream (the code of S. Raschka's book) has both: the cells that explore a tensor call a bare `var`, the final LayerNorm sets `unbiased=False`. Exploring with the sample variance is no mistake; comparing its result with what the layer does is one.
#
# A layer with the sample variance returns the same shape, has the same parameters, and loads the same weights without a word of complaint. It only computes something else. Checks of shape are blind to this, which is why the exercises below, and [chapter 9](09_parity.ipynb), compare values.
#
# ## Near 1, not 1
#
# What is the variance after normalizing? Dividing by the root of σ² + ε makes it σ² / (σ² + ε), which is less than 1 for every ε above 0. How much less depends on the variance that comes in.

# %%
rows = []
for spread in [1.0, 0.1, 0.01, 0.001]:
    result = normalize(spread * one_to_four)
    incoming = (spread * one_to_four).var(unbiased=False)
    assert torch.isclose(
        result.var(unbiased=False), incoming / (incoming + eps), rtol=1e-12, atol=0
    )
    rows.append(
        [
            f"{spread:g} × [1, 2, 3, 4]",
            f"{incoming.item():.2e}",
            result.var(unbiased=False).item(),
        ]
    )
show_table(["input", "its variance", "variance after"], rows, format=".6f")

# %% [markdown]
# For features of ordinary size a small ε takes off next to nothing. The smaller the spread, the more it takes: what is nearly constant is not blown up to full size.
#
# When you check this yourself, take the variance of the *result*, with `unbiased=False`. Two slips give a number that seems to contradict the formula: printing the statistics of the input, and using the sample variance on the output. The second gives D / (D − 1) times the value.
#
# At the far end stands a vector whose features are all equal. Its variance is 0, and without ε the formula is 0 / 0.

# %%
flat = torch.full((emb_dim,), 7.0, dtype=torch.float64, requires_grad=True)
g = torch.linspace(-1, 1, emb_dim, dtype=torch.float64)  # a gradient, as if from a loss
normalize(flat).backward(g)
print("first two features, without eps:", rounded(normalize(flat, eps=0.0))[:2])
print("first two features, with eps:   ", rounded(normalize(flat))[:2])
factor = (flat.grad.norm() / g.norm()).item()
print(f"the gradient is multiplied by {factor:.1f}; 1/√eps = {eps**-0.5:.1f}")
assert normalize(flat).eq(0).all() and abs(factor * eps**0.5 - 1) < 1e-9

# %% [markdown]
# With ε the result is zero and the gradient is finite: a flat position no longer gives NaN. It is not harmless, though. Nothing but ε is left under the root there, so small differences between the features, and gradients on their way back, are multiplied by 1/√ε.
#
# ## Moving all features together
#
# Add the same number to every feature. The mean moves by just that number and is subtracted again; the variance does not move at all. The result should be the old one.

# %%
moved = normalize(one_to_four + offset)
print(f"[1, 2, 3, 4]           -> {rounded(normalize(one_to_four))}")
print(f"[1, 2, 3, 4] + {offset:<7g} -> {rounded(moved)}")
torch.testing.assert_close(
    moved, normalize(one_to_four), rtol=0, atol=1e-9
)  # x + offset rounds at about 1e-10 for 1e6

# %% [markdown]
# Normalizing forgets the common level. It does not erase the differences between the features; those are what the next layer reads.
#
# ## Scale and shift
#
# A layer that could only return mean 0 and variance 1 would limit what the next layer can receive. So LayerNorm ends with two trained vectors of length D, a scale γ and a shift β, one number per feature:
#
# $$\mathrm{LN}(x)_j = \gamma_j\,\hat{x}_j + \beta_j.$$
#
# They start at 1 and 0, where they change nothing, and training moves them where it wants.


# %%
class PlainLayerNorm(nn.Module):
    """The formula, written out: [..., D] -> [..., D]."""

    def __init__(self, emb_dim, eps=eps):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(emb_dim))  # [D]
        self.shift = nn.Parameter(torch.zeros(emb_dim))  # [D]

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)  # [..., 1]
        variance = x.var(dim=-1, keepdim=True, unbiased=False)  # [..., 1]
        return (
            self.scale * (x - mean) / torch.sqrt(variance + self.eps) + self.shift
        )  # [..., D]


layer = PlainLayerNorm(emb_dim).double()
fresh = layer(x)[0, 0]  # [D]
with torch.no_grad():
    layer.scale.copy_(torch.linspace(0.5, 1.5, emb_dim))  # as training might leave them
    layer.shift.fill_(3.0)
trained = layer(x)[0, 0]  # [D]
show_table(
    ["one position of the result", "mean", "variance"],
    [
        [name, v.mean().item() + 0.0, v.var(unbiased=False).item()]
        for name, v in [("fresh", fresh), ("moved", trained)]
    ],
    format="z.3f",
)

# %% [markdown]
# The fresh layer gives mean 0 and a variance near 1. The moved one gives neither, and it is just as right. So keep two questions apart: *does the normalizing step give mean 0?* (always, up to rounding) and *does the layer give mean 0?* (only while scale and shift are untouched). A test that demands the second of a trained model will call a good model broken.
#
# ## The final form
#
# `book_utils.LayerNorm` has the same parameters and the same formula, in one fused operation of PyTorch. It should agree with the plain class and with `torch.nn.LayerNorm`, with the same weights. The tolerance is 1e-12 in float64: numbers here are of size 10 at most, float64 carries 16 digits, and the three add up the same terms in different orders.

# %%
from book_utils import LayerNorm

final = LayerNorm(emb_dim, eps=eps).double()
final.load_state_dict(layer.state_dict())
reference = nn.LayerNorm(emb_dim, eps=eps).double()
reference.load_state_dict({"weight": layer.scale, "bias": layer.shift})
for name, other in [("book_utils.LayerNorm", final), ("torch.nn.LayerNorm", reference)]:
    torch.testing.assert_close(layer(x), other(x), rtol=0, atol=1e-12)
    print(f"{name:21} agrees with the plain class")

# %% [markdown]
# PyTorch calls the two vectors `weight` and `bias`. Names matter when weights are loaded: a layer whose parameters have other names than the file keeps its initial 1 and 0, and if loading is not strict, nobody says so.
#
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | Values off by the factor √(D / (D − 1)) | sample variance | `[1, 3]` becomes ±0.7071 in place of ±1 | `unbiased=False` |
# | One token's change shows at others | statistics along the wrong axis | change one token, compare the rest | `dim=-1` |
# | `The size of tensor a … must match` | the statistics lost their last axis | print their shape | `keepdim=True` |
# | NaN at flat positions | eps missing | a vector of equal numbers | eps inside the root |
# | Small features come out too large | eps outside the root | features of size 0.001 | `sqrt(variance + eps)` |
# | The variance after is not 1 | nothing is wrong, or the wrong tensor was measured | compare with σ² / (σ² + ε) | measure the result, population variance |
# | The model loads and its text is odd | γ and β under other names | load with `strict=True` | rename the keys |
#
# ## Exercises
#
# ::::{admonition} Exercise 2.1 · The same vector, moved
#
# Add `offset` to every feature of `x` and normalize. Before you run it: what do you expect, and which line of `normalize` is the reason?
#
# ::::


# %% tags=["exercise"]
def moved_and_normalized(x, offset):
    """Return the normalized form of x + offset."""
    ...  # your line here


check("2.1", moved_and_normalized)

# %% [markdown]
# ::::{dropdown} Answer
#
# `return normalize(x + offset)`, and the result is the one without it: the mean moves by exactly `offset` and is subtracted again. What remains are the *differences* between the features; normalizing does not erase those.
#
# ::::
#
# ::::{admonition} Exercise 2.2 · From the formula
#
# Write LayerNorm as one function of `x`, `scale`, `shift` and `eps`, without looking up. The check tries it on flat vectors and on tiny ones too.
#
# ::::


# %% tags=["exercise"]
def layer_norm(x, scale, shift, eps):
    """[..., D] -> [..., D]"""
    ...  # your lines here


check("2.2", layer_norm)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# mean = x.mean(dim=-1, keepdim=True)
# variance = x.var(dim=-1, keepdim=True, unbiased=False)
# return scale * (x - mean) / torch.sqrt(variance + eps) + shift
# ```
#
# ::::
#
# ::::{admonition} Exercise 2.3 · It loads. Is it the same model?
#
# Somebody divides the sum of squares by D − 1 in place of D. The shape of the output is unchanged, and the trained weights load without an error. By what factor is each normalized feature then too small (take ε as 0)? Write it as a function of D, and say what the factor means for the claim "it loads, so it is the same model".
#
# ::::


# %% tags=["exercise"]
def factor(d):
    """The ratio of the wrong result to the right one, for vectors of d features."""
    ...  # your line here


check("2.3", factor)

# %% [markdown]
# ::::{dropdown} Answer
#
# `return ((d - 1) / d) ** 0.5`. The wrong variance is larger by D / (D − 1), so the result is smaller by the root of that. Print `factor(2)` and `factor(768)`: for the pair `[1, 3]` the error is plain to see; for GPT-2 small, with D = 768, it is too small to be seen by eye, and it is still there. Loading compares names and shapes, not what is computed. A claim of equality needs a comparison of outputs, and then of results on a task.
#
# ::::
#
# ## What you have now
#
# - LayerNorm from its formula: last axis, population variance, ε inside the root.
# - The reason why the variance after it is σ² / (σ² + ε), and why a trained layer is bound to neither mean 0 nor variance 1.
# - Checks that compare values, since a wrong LayerNorm has the right shape.
#
# The scale is in hand. [What happens to each position's vector next?](03_feed_forward.ipynb)
#
# **Sources.** J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016, arXiv:1607.06450, equations 3 and 4 and section 3. A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; its reference code, `src/model.py` of openai/gpt-2, function `norm`. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.2; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb`. PyTorch's documentation of `torch.nn.LayerNorm`.
