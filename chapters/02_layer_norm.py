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
#
# A network multiplies its features by weights, layer after layer. If they grow a little in each layer, they are large after many; if they shrink, little is left. *Layer normalization*, *LayerNorm* for short, sets the scale back at chosen places. This chapter builds it in four steps: the two statistics, the division, the small number ε, and the two trained vectors.

# %% tags=["parameters"]
emb_dim: int = 4  # D, features per position (2 to 1024)
offset: float = 100.0  # a constant that is added to every feature (-1e6 to 1e6)
eps: float = 1e-5  # the small number inside the root (1e-12 to 1e-3)
seed: int = 26  # of the random examples; any other will do (0 to 4294967295)

# %%
import torch
from torch import nn

from book_utils.workbench import check, check_parameters, publish, rounded, show_table

check_parameters("02_layer_norm", globals())
torch.manual_seed(seed)
x = torch.randn(2, 3, emb_dim, dtype=torch.float64)  # [B, T, D]
print("x", list(x.shape))

# %% [markdown]
# ## One position at a time
#
# LayerNorm looks at one position's vector and at nothing else. It takes the mean and the variance *along the last axis*, the features. For an input `[B, T, D]` there is one mean and one variance for each position. Keeping the last axis, with length 1, lets them line up with `x` again.

# %%
mean = x.mean(dim=-1, keepdim=True)  # [B, T, 1]
variance = x.var(dim=-1, keepdim=True, unbiased=False)  # [B, T, 1]
tensors = {"x": x, "mean": mean, "variance": variance}
show_table(["tensor", "shape"], [[n, str(list(t.shape))] for n, t in tensors.items()])

# %% [markdown]
# With these two, subtract the mean and divide by the root of the variance. For one vector of D features, with the mean μ and the variance σ² of equation 3 of Ba, Kiros and Hinton (2016; the sources stand at the end of each chapter),
#
# $$\begin{aligned} \mu &= \frac{1}{D}\sum_{j=1}^{D} x_j, \\ \sigma^2 &= \frac{1}{D}\sum_{j=1}^{D}(x_j-\mu)^2, \\ \hat{x}_j &= \frac{x_j-\mu}{\sqrt{\sigma^2+\varepsilon}}. \end{aligned}$$
#
# What the small ε under the root is for is seen below. The code is the formula, line by line. (`rounded` makes a list of a tensor, rounded to four decimals.)


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
# Do the same with three positions that were put at different levels, on purpose, and spread differently. The *spread* in the table is the root of the variance, the standard deviation.

# %%
level = torch.tensor([[0.0], [6.0], [-4.0]], dtype=torch.float64)  # [3, 1]
stretch = torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64)  # [3, 1]
apart = level + stretch * x[0]  # [3, D]
together = normalize(apart)  # [3, D]
rows = []
for t in range(3):
    vectors = apart[t], together[t]
    numbers = [[v.mean().item(), v.std(unbiased=False).item()] for v in vectors]
    rows.append([f"position {t}", *numbers[0], *numbers[1]])
header = ["", "mean before", "spread before", "mean after", "spread after"]
show_table(header, rows, format="z.3f")

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench import figure

drawn = min(emb_dim, 16)  # features that are drawn; mean and spread are those of all
m0, s0 = ([row[i] for row in rows] for i in (1, 2))
m1, s1 = ([row[i] for row in rows] for i in (3, 4))
features = "all features" if drawn == emb_dim else f"the first {drawn} features"
near = "near 1" if min(s1) > 0.95 else f"from {min(s1):.2f} to {max(s1):.2f}"
with figure(
    "layer_norm",
    alt="The features of three positions as points on lines, before normalization at "
    f"different levels and differently spread, after it around 0 with a spread {near}.",
    words=[
        "Both panels have the value of a feature on the horizontal axis, the same axis "
        "for both, and a line for each of the positions 0, 1 and 2. Circles are "
        f"{features} of a position, a tall stroke is their mean, and a thick bar "
        "reaches one spread to each side of it.",
        *(
            f"Before, position {t} has the mean {m0[t]:.1f} and the spread {s0[t]:.1f}."
            for t in range(3)
        ),
        f"After, the mean of each is 0 and the spread {near}: the strokes stand one "
        "above the other, and the bars reach one such spread to each side.",
        "The circles of a position have kept their order, and the ratios of the gaps "
        "between them.",
    ],
    data={
        "features before": apart[:, :drawn],
        "features after": together[:, :drawn],
        "mean and spread before": [m0, s0],
        "mean and spread after": [m1, s1],
    },
    size=(5.6, 4.6),
    nrows=2,
    sharex=True,
) as panels:
    for ax, values, means, spreads in zip(
        panels, (apart, together), (m0, m1), (s0, s1), strict=True
    ):
        for t in range(3):
            ends = [means[t] - spreads[t], means[t] + spreads[t]]
            bar = {"color": "#bbbbbb", "ls": "-", "lw": 8, "solid_capstyle": "butt"}
            ax.plot(ends, [t, t], **bar, label="mean ± spread")
            ax.plot(means[t], t, "|", color="#222222", ms=20, mew=2, label="mean")
            ax.plot(
                values[t, :drawn],
                [t] * drawn,
                "o",
                mfc="none",
                ms=8,
                mew=1.8,
                color="#0072B2",
                label="feature",
            )
        ax.set(ylim=(2.6, -0.6), yticks=range(3))
        ax.set_yticklabels([f"position {t}" for t in range(3)])
    panels[0].set_title("before", loc="left", fontsize=12)
    panels[1].set_title("after", loc="left", fontsize=12)
    panels[1].set_xlabel("value of a feature (no unit)")
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].legend(
        handles[2::-1],
        labels[2::-1],
        loc="lower right",
        bbox_to_anchor=(1.02, 1.0),
        ncols=3,
        columnspacing=0.9,
        handletextpad=0.5,
        handlelength=1.0,
    )

# %% [markdown]
# Before, each position has its own level and its own spread. After, all three stand around 0, with a spread near 1. (It is less where the spread was so small before that ε counts.) Inside a position the picture is the same, moved and stretched.
#
# Nothing was averaged over the batch or over the tokens. If that is true, changing one token leaves the normalized vectors of all others untouched. That is worth a check rather than a promise.

# %%
changed = x.clone()
changed[0, 1] += torch.arange(emb_dim)  # another token at batch row 0, position 1
same = (normalize(x) == normalize(changed)).all(dim=-1)  # [B, T]
words = [["same" if s else "changed" for s in row] for row in same.tolist()]
rows = [[f"batch row {b}", *row] for b, row in enumerate(words)]
assert (~same).nonzero().tolist() == [[0, 1]]
show_table(["", *(f"position {t}" for t in range(same.shape[1]))], rows)

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
    becomes = (pair - pair.mean()) / v.sqrt()
    rows.append([name, pair.mean().item(), v.item(), *becomes.tolist()])
show_table(["variance", "mean", "value", "1 becomes", "3 becomes"], rows)

# %% [markdown]
# GPT-2 was trained with the first, so a layer that is to load its weights must use the first. [Upstream](01_shell.ipynb), the code of Sebastian Raschka's book, has both: the cells that explore a tensor call a bare `var`, the final LayerNorm sets `unbiased=False`. Exploring with the sample variance is no mistake; comparing its result with what the layer does is one.
#
# A layer with the sample variance returns the same shape, has the same parameters, and loads the same weights without a word of complaint. It only computes something else. Checks of shape are blind to this, which is why the exercises below, and [chapter 9](09_parity.ipynb), compare values.
#
# ## Near 1, not 1
#
# What is the variance after normalizing? Dividing by the root of σ² + ε makes it σ² / (σ² + ε), which is less than 1 for every ε above 0. It is short of 1 by ε / (σ² + ε), and how much that is depends on the variance that comes in.

# %%
rows = []
for factor in [1.0, 0.1, 0.01, 0.001]:
    vector = factor * one_to_four
    before, after = (v.var(unbiased=False) for v in (vector, normalize(vector)))
    # both sides round a few times in the last of 16 digits
    torch.testing.assert_close(after, before / (before + eps), rtol=1e-12, atol=0)
    taken = eps / (before + eps)
    name = f"{factor:g} × [1, 2, 3, 4]"
    rows.append([name, before.item(), after.item(), taken.item()])
header = ["input", "its variance", "variance after", "short of 1 by"]
show_table(header, rows, format=".6g")

# %% [markdown]
# For features of ordinary size a small ε takes off next to nothing. The smaller the spread, the more it takes: what is nearly constant is not blown up to full size.
#
# When you check this yourself, take the variance of the *result*, with `unbiased=False`. Two slips give a number that seems to contradict the formula: printing the statistics of the input, and using the sample variance on the output. The second gives D / (D − 1) times the value.
#
# At the far end stands a vector whose features are all equal. Its variance is 0, and without ε the formula is 0 / 0. The cell also looks at the way back. In training, some number at the end of the network is to be made small, and its *gradient*, its derivative by each feature, is handed back from layer to layer. Let g be such a gradient, as it arrives at the result.

# %%
flat = torch.full((emb_dim,), 7.0, dtype=torch.float64, requires_grad=True)
g = torch.linspace(-1, 1, emb_dim, dtype=torch.float64)  # its sum is 0
normalize(flat).backward(g)
print("first two features, without eps:", rounded(normalize(flat, eps=0.0))[:2])
print("first two features, with eps:   ", rounded(normalize(flat))[:2])
factor = (flat.grad.norm() / g.norm()).item()
print(f"the gradient is multiplied by {factor:.1f}; 1/√eps = {eps**-0.5:.1f}")
assert normalize(flat).eq(0).all() and abs(factor * eps**0.5 - 1) < 1e-9

# %% [markdown]
# With ε the result is zero and the gradient is finite: a flat position no longer gives NaN. It is not harmless, though. Nothing but ε is left under the root there, so tiny differences between the features are multiplied by 1/√ε. So is a gradient, less its mean: at such a vector the variance has the derivative 0, so what is left to differentiate is x − μ, times 1/√ε. (The mean of this g is 0, so nothing is taken off.)
#
# ## Moving all features together
#
# Add the same number to every feature. The mean moves by just that number and is subtracted again; the variance does not move at all. The result should be the old one.

# %%
moved = normalize(one_to_four + offset)
unmoved = normalize(one_to_four)
# x + offset rounds at about 1e-10 for 1e6
torch.testing.assert_close(moved, unmoved, rtol=0, atol=1e-9)
rows = [["[1, 2, 3, 4]", *unmoved.tolist()]]
sign = "−" if offset < 0 else "+"
rows.append([f"[1, 2, 3, 4] {sign} {abs(offset):g}", *moved.tolist()])
show_table(["normalized", *(f"feature {j}" for j in range(1, 5))], rows)

# %% [markdown]
# Normalizing forgets the common level. It does not erase the differences between the features; those are what the next layer reads.
#
# ## Scale and shift
#
# The normalizing step can only return mean 0 and a variance below 1. LayerNorm goes on with two trained vectors of length D, a *scale* γ and a *shift* β, one number per feature, with which a layer can return other means and variances:
#
# $$\mathrm{LN}(x)_j = \gamma_j\,\hat{x}_j + \beta_j.$$


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
        normalized = (x - mean) / torch.sqrt(variance + self.eps)  # [..., D]
        return self.scale * normalized + self.shift  # [..., D]


# %% [markdown]
# They start at 1 and 0, where they change nothing, and training moves them. (How much they are needed is another question. In GPT-2 a linear map reads the result of each LayerNorm, and it could take over their work: the scale as a factor of its weights, the shift as a part of its bias, where it has one.) Here they are moved by hand, to numbers such as training might leave.

# %%
layer = PlainLayerNorm(emb_dim).double()
fresh = layer(x)[0, 0]  # [D]
with torch.no_grad():
    layer.scale.copy_(torch.linspace(0.2, 0.8, emb_dim))
    layer.shift.fill_(3.0)
trained = layer(x)[0, 0]  # [D]
rows = []
for name, v in [("fresh", fresh), ("scale and shift moved", trained)]:
    rows.append([name, v.mean().item(), v.var(unbiased=False).item()])
assert rows[1][1] > 2 and rows[1][2] < rows[0][2] < 1  # γ below 1, β = 3
show_table(["one position of the result", "mean", "variance"], rows, format="z.3f")

# %% [markdown]
# The fresh layer gives mean 0 and the variance σ² / (σ² + ε). The other gives neither, and it is just as right. So keep two questions apart: *does the normalizing step give mean 0?* (always, up to rounding) and *does the layer give mean 0?* (only while scale and shift are untouched). A test that demands the second of a trained model will call a good model broken.
#
# ## The final form
#
# The module [book_utils/layer_norm.py](../book_utils/layer_norm.py) holds one class. `book_utils.LayerNorm` has the same parameters and the same formula, as one *fused* operation of PyTorch: the steps run in one go, with no tensor made for each. It should agree with the plain class and with `torch.nn.LayerNorm`, with the same weights. The tolerance is 1e-12 in float64: numbers here are of size 10 at most, float64 carries 16 digits, and the three add up the same terms in different orders.

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
# PyTorch calls the two vectors `weight` and `bias`. Names matter when weights are loaded: a layer whose parameters have other names than the file keeps its initial 1 and 0, and if loading is not *strict*, that is, if missing and unknown names are passed over, nobody says so.
#
# ## The results of this run
#
# How far from 1 the variance of a normalized position is, and what a wrong variance or a flat position would do. A rerun with other parameters gives these results again, under the same names. None depends on `offset`: that is what normalizing does with it.

# %%
variance_after = normalize(x).var(dim=-1, unbiased=False)  # [B, T]
least = variance.min().item()  # of all positions of x
sample_factor = ((emb_dim - 1) / emb_dim) ** 0.5
publish(
    [
        ("least_variance", least, "smallest σ² of a position of x"),
        ("least_variance_after", variance_after.min(), "the smallest once normalized"),
        ("short_of_one", eps / (least + eps), "what that lacks to 1: ε / (σ² + ε)"),
        ("sample_factor", sample_factor, "result with ÷ (D − 1), by the right one"),
        ("flat_factor", factor, "of a gradient where all features are equal: 1/√ε"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | A LayerNorm's values are too small by the factor √((D − 1) / D). | It divides by the sample variance, ÷ (D − 1). | `[1, 3]` becomes ±0.7071 in place of ±1. | Take the population variance, `unbiased=False`. |
# | After a LayerNorm, one token's change shows at other tokens. | Mean and variance run along the wrong axis. | Change one token and compare the results at the others. | Take both with `dim=-1`. |
# | `The size of tensor a … must match` inside a LayerNorm, or wrong values where T equals D. | Mean and variance have lost their last axis. | Print their shape: `[B, T, 1]` is right. | Take both with `keepdim=True`. |
# | A LayerNorm gives NaN at positions whose features are all equal. | ε is missing, and 0 is divided by 0. | Normalize a vector of equal numbers. | Put ε inside the root. |
# | A LayerNorm makes tiny features too large. | ε stands outside the root, where it is next to nothing. | Compare with another LayerNorm on features of size 0.001. | Divide by `sqrt(variance + eps)`. |
# | The variance after a fresh LayerNorm is not exactly 1. | Nothing is wrong, or the wrong tensor was measured, or with the sample variance. | Compare with σ² / (σ² + ε). | Measure the result, with `unbiased=False`. |
# | Weights load without an error, and the model's text is odd. | The file has scale and shift of LayerNorm under other names, so they kept 1 and 0. | Load with `strict=True`: the unused keys are listed. | Rename the keys. |
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
# ```python
# return normalize(x + offset)
# ```
#
# The result is the one without the offset: the mean moves by exactly `offset` and is subtracted again. What remains are the *differences* between the features; normalizing does not erase those.
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
# Last axis, population variance, ε inside the root, then scale, then shift. On the tiny vectors an ε outside the root shows, and on the flat ones a missing ε.
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
# ```python
# return ((d - 1) / d) ** 0.5
# ```
#
# The wrong variance is D / (D − 1) times the right one, so the result is smaller by the root of that. Print `factor(2)` and `factor(768)`: for the pair `[1, 3]` the error is plain to see; for GPT-2 small, with D = 768, it is too small to be seen by eye, and it is still there. Loading compares names and shapes, not what is computed. A claim of equality needs a comparison of outputs, and then of results on a task.
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
