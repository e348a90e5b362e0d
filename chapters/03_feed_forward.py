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
# # 3 · GELU and the feed-forward network
#
# **How is each position's vector transformed?**
#
# At the end of this chapter you can
#
# - write GELU in its two forms, say where and by how much they differ, and why GPT-2's trained weights settle which one to use;
# - build the feed-forward network D → 4D → D from its formula, with every shape, every bias and the number of its parameters;
# - show by checks that it works on each position alone, that it needs its nonlinearity, and why it must end at width D.
#
# You need the product of matrices, derivatives of a function of one variable, the normal distribution with its density and its distribution function, and the shapes `[B, T, D]` of [chapter 1](01_shell.ipynb). One section uses the LayerNorm of [chapter 2](02_layer_norm.ipynb).
#
# Attention lets a position gather from others. What it has gathered is then transformed, at each position separately, by a small network: the *feed-forward network*, two linear maps with a nonlinear function between them, its *activation*. (A *linear map* here is x W + b, with the bias b unless it is said to have none.) In GPT-2 the activation is GELU. It comes first, since it is where the choices and the surprises are.

# %% tags=["parameters"]
emb_dim: int = 16  # D, features per position (8 to 256)
num_tokens: int = 6  # T, tokens in each of two texts (2 to 128)
n_layers: int = 12  # L, layers in the section on many layers (2 to 24)
x_max: float = 4.0  # the plots run from -x_max to x_max (3 to 20)
seed: int = 123  # of the random examples (0 to 4294967295)

# %%
import math

import torch
from torch import nn

from book_utils import LayerNorm
from book_utils.workbench import check, check_parameters, publish, show_table

check_parameters("03_feed_forward", globals())
torch.manual_seed(seed)
x = torch.randn(2, num_tokens, emb_dim, dtype=torch.float64)  # [B, T, D]
print("x", list(x.shape))

# %% [markdown]
# ## GELU: a number times a probability
#
# Let Φ be the distribution function of the standard normal distribution: Φ(x) is the probability that a standard normal number is at most x. It rises from 0 to 1 and passes ½ at 0. The *Gaussian error linear unit*, *GELU* for short, multiplies its input by it:
#
# $$\begin{aligned} \mathrm{GELU}(x) &= x\,\Phi(x), \\ \Phi(x) &= \frac{1}{2}\left[1 + \mathrm{erf}\!\left(\frac{x}{\sqrt{2}}\right)\right]. \end{aligned}$$
#
# Here erf is the *error function*, the usual way to write Φ; in PyTorch it is `torch.erf`. So Φ(x) is the share of the input that is let through: nearly all of a large positive number, half of a number near 0, nearly nothing of a large negative one. The older *ReLU*, the rectified linear unit max(0, x), lets through all or nothing.


# %%
def normal_cdf(x):
    """Φ, element by element."""
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_erf(x):
    """GELU by its definition, element by element: the shape stays."""
    return x * normal_cdf(x)


# %% [markdown]
# PyTorch has Φ as well, under the name `ndtr`. A fine grid z of inputs, which serves the whole chapter, is a good place to compare.

# %%
end = round(1000 * x_max)
z = torch.arange(-end, end + 1, dtype=torch.float64) / 1000  # from -x_max to x_max
# values up to 1 in float64: the last of 16 digits may differ
torch.testing.assert_close(normal_cdf(z), torch.special.ndtr(z), rtol=0, atol=1e-14)
print(f"z from {z[0]:g} to {z[-1]:g} in steps of 0.001")
print("Φ agrees with torch.special.ndtr on all of z")

# %% [markdown]
# Now a few inputs, beside ReLU.

# %%
few = torch.tensor([-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3], dtype=torch.float64)
columns = [few, normal_cdf(few), gelu_erf(few), torch.relu(few)]
rows = torch.stack(columns, dim=1).tolist()
show_table(["x", "share Φ(x)", "GELU(x)", "ReLU(x)"], rows)

# %% [markdown]
# Read the rows for negative x. ReLU gives 0 for all of them. GELU gives small negative numbers, and not in the order of the inputs: the result for −1 is lower than those for −0.5 and for −2. GELU falls first and then rises, so it is not monotone.
#
# GELU keeps the shape, but it is no rearrangement of the numbers: it puts other numbers in their places. It is also not linear. For a linear function the result for a sum is the sum of the results.

# %%
together = gelu_erf(torch.tensor(1.0 + 2.0, dtype=torch.float64))
apart = gelu_erf(torch.tensor([1.0, 2.0], dtype=torch.float64)).sum()
print(f"GELU(1 + 2)       = {together:.4f}")
print(f"GELU(1) + GELU(2) = {apart:.4f}")
assert abs(together - apart) > 0.1

# %% [markdown]
# ## Beside ReLU
#
# The same comparison over a whole range, with the derivatives. By the product rule GELU's derivative is Φ(x) + x φ(x), where φ is the density of the standard normal distribution. ReLU's is 0 on the left and 1 on the right; at 0 it has none, and PyTorch takes 0 there. The derivatives below come from *autograd*, PyTorch's automatic differentiation.


# %%
def derivative(function, at):
    """The derivative of a function of one number, at each element of `at`."""
    at = at.clone().requires_grad_()
    return torch.autograd.grad(function(at).sum(), at)[0]


around_0 = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
functions = {"ReLU": torch.relu, "GELU": gelu_erf}
rows = [[name, *derivative(f, around_0).tolist()] for name, f in functions.items()]
show_table(["derivative at", "-1", "0", "1"], rows)

# %% [markdown]
# Over the whole range, GELU's derivative is checked against the formula. Then the lowest and the highest points of both curves are looked up on the grid.

# %%
gelu_z, gelu_slope = gelu_erf(z), derivative(gelu_erf, z)
formula = normal_cdf(z) + z * torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
# a few roundings of values near 1, in float64
torch.testing.assert_close(gelu_slope, formula, rtol=0, atol=1e-13)
lowest, flattest, steepest = gelu_z.argmin(), gelu_slope.argmin(), gelu_slope.argmax()
rows = [
    ["lowest value", z[lowest].item(), gelu_z[lowest].item()],
    ["lowest derivative", z[flattest].item(), gelu_slope[flattest].item()],
    ["highest derivative", z[steepest].item(), gelu_slope[steepest].item()],
]
show_table(["GELU", "at x =", "is"], rows, format="z.3f")

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench import diagram, figure

shown = slice(None, None, 40)
left, right = [-x_max, 0.0], [0.0, x_max]
gap = z[-1].item() - gelu_z[-1].item()
meets = f"lies {gap:.4f} below" if gap >= 5e-5 else "meets, to four decimals,"
solid, dashed = {"color": "#0072B2", "ls": "-"}, {"color": "#D55E00", "ls": "--"}
with figure(
    "gelu_relu",
    alt=f"GELU and ReLU from -{x_max:g} to {x_max:g}, and below them their "
    "derivatives: GELU follows ReLU with a dip below 0 and without a corner; "
    "its derivative runs smoothly where ReLU's jumps.",
    words=[
        "Both panels have the input on the horizontal axis, "
        f"from -{x_max:g} to {x_max:g}.",
        "Upper panel, the functions. ReLU, dashed, is 0 for negative inputs and "
        "equals the input for positive ones, with a corner at 0.",
        f"GELU, solid, dips to {gelu_z[lowest]:.3f} at {z[lowest]:.2f}, passes "
        f"through 0 at 0, and {meets} ReLU at the right end.",
        "Lower panel, the derivatives. ReLU's, dashed, is 0 on the left and 1 on "
        "the right, with a jump at 0.",
        f"GELU's, solid, is smooth: {gelu_slope[flattest]:.3f} at its lowest, ½ at "
        f"0, {gelu_slope[steepest]:.3f} at its highest; further right it falls "
        "back towards 1.",
    ],
    data={
        "x": z[shown],
        "GELU": gelu_z[shown],
        "GELU's derivative": gelu_slope[shown],
        "ReLU, x": [*left, *right],
        "ReLU": [0.0, 0.0, 0.0, x_max],
        "ReLU's derivative": [0.0, 0.0, 1.0, 1.0],
    },
    size=(6.4, 6.4),
    nrows=2,
    sharex=True,
) as (above, below):
    above.plot([*left, x_max], [0, 0, x_max], **dashed, label="ReLU")
    above.plot(z[shown], gelu_z[shown], **solid, label="GELU")
    above.set(ylabel="function (no unit)")
    below.plot(left, [0, 0], **dashed, label="ReLU's derivative")
    below.plot(right, [1, 1], **dashed)
    below.plot(z[shown], gelu_slope[shown], **solid, label="GELU's derivative")
    below.set(xlabel="input x (no unit)", ylabel="derivative (no unit)")
    above.legend(loc="upper left")
    below.legend(loc="upper left")

# %% [markdown]
# GELU lets some negative inputs produce small negative outputs, and passes smoothly from one side to the other. Its derivative is 0 only at the lowest point and shrinks towards 0 far on the left, where ReLU's is 0 throughout.
#
# That is what the curves show, and all that they show. Nothing about training follows from the shape of a function: whether a network with the one learns better than with the other is a question for an experiment with that network and that data.
#
# ## The form that GPT-2 uses
#
# GPT-2 computes a formula without erf, which Hendrycks and Gimpel give as an approximation:
#
# $$\begin{aligned} \mathrm{GELU}(x) &\approx \frac{x}{2}\,\bigl[1 + \tanh(u)\bigr], \\ u &= \sqrt{\frac{2}{\pi}}\,\bigl(x + 0.044715\,x^3\bigr). \end{aligned}$$
#
# The root is not arbitrary. At 0 the derivative of tanh is 1, so half the bracket has the slope ½√(2/π), and Φ has the slope φ(0) = 1/√(2π); the two are the same number. The factor 0.044715 is part of the approximation as the paper states it. It bends the curve so that it stays close to Φ further out; how close is measured below.


# %%
def gelu_tanh(x):
    """GELU in the tanh form, element by element."""
    cubic = x + 0.044715 * x**3
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * cubic))


slopes_at_0 = math.sqrt(2 / math.pi) / 2, 1 / math.sqrt(2 * math.pi)
assert math.isclose(*slopes_at_0, rel_tol=1e-12)  # one number, rounded twice

# %%
difference = gelu_tanh(z) - gelu_erf(z)
worst = difference.abs().argmax()
# the same at x and at -x, but for the rounding of numbers up to x_max
torch.testing.assert_close(difference, difference.flip(0), rtol=0, atol=1e-13)
assert 4e-4 < difference[worst] < 5e-4
print(f"largest difference: {difference[worst]:.2e}, at |x| = {z[worst].abs():.2f}")
print(f"lowest value: erf {gelu_z.min():.4f}, tanh {gelu_tanh(z).min():.4f}")

# %% jupyter={"source_hidden": true} tags=["hide-input"]
trough = difference.argmin()
high, low = 1e4 * difference[worst].item(), 1e4 * difference[trough].item()
with figure(
    "gelu_difference",
    alt=f"The tanh form of GELU minus the erf form, from -{x_max:g} to {x_max:g}: "
    f"two equal humps, {high:.1f} ten-thousandths high, and between them two equal "
    "dips about half as deep.",
    words=[
        f"The horizontal axis is the input, from -{x_max:g} to {x_max:g}; the "
        "vertical axis is the tanh form minus the erf form, in ten-thousandths.",
        "The curve is the same on both sides of 0, and it is 0 at 0.",
        f"Moving out from 0, it first dips to {low:.2f} ten-thousandths at "
        f"|x| = {z[trough].abs():.2f}: the tanh form is lower.",
        f"Then it rises to {high:.2f} ten-thousandths at "
        f"|x| = {z[worst].abs():.2f}: the tanh form is higher.",
        "Further out it falls towards 0.",
    ],
    data={"x": z[shown], "tanh form − erf form": difference[shown]},
) as ax:
    ax.axhline(0, color="#888888", linewidth=1, linestyle="-")
    ax.plot(z[shown], 1e4 * difference[shown])
    ax.set(xlabel="input x (no unit)", ylabel="tanh form − erf form\n(× 0.0001)")
    ax.set_ylim(-3, 6.2)
    ax.text(0, 5.4, f"highest: {high:.2f}, at |x| = {z[worst].abs():.2f}", ha="center")

# %% [markdown]
# On the scale of the first figure the two curves would lie on each other. They are still two functions, up to 5e-4 apart in each feature. Which of them is "the" GELU is not a matter of precision: GPT-2's weights were trained with the tanh form, so for these weights the tanh form is the right one and the erf form the approximation.
#
# ## How precise is the constant?
#
# One more difference hides inside the tanh form. In the code of [upstream](01_shell.ipynb) the constant is made in the *forward pass*, the run from input to output, as `torch.tensor(2.0 / torch.pi)`, and then its root is taken. Such a tensor gets PyTorch's *default* dtype, whatever the dtype of the input; unless somebody changed it, that is float32. In a float32 model this costs no more than the rounding of everything else. In a float64 computation, the constant is good to 7 or 8 digits only, and everything else to 16. (Which float32 number the root becomes depends on the machine's mathematical library: the nearest one, or its neighbour, which is off by somewhat more. The cell below takes the nearest, so that its result is the same everywhere.)

# %%
assert torch.tensor(2.0 / torch.pi).dtype == torch.get_default_dtype()
root_32 = torch.tensor(math.sqrt(2 / math.pi), dtype=torch.float32)


def gelu_constant_32(x):
    """The tanh form with √(2/π) rounded to float32."""
    return 0.5 * x * (1 + torch.tanh(root_32 * (x + 0.044715 * x**3)))


# %% [markdown]
# How far off are the constant and, on z, the function?

# %%
root_off = abs(root_32.item() - math.sqrt(2 / math.pi))
gelu_off = (gelu_constant_32(z) - gelu_tanh(z)).abs().max().item()
assert 1e-9 < gelu_off < 1e-8
print("dtype of the result:", gelu_constant_32(z).dtype)
print(f"off by: √(2/π) {root_off:.0e}, GELU up to {gelu_off:.0e}")

# %% [markdown]
# The result is float64 by name, and wrong from about the ninth decimal on. That is less than the rounding of a float32 model, and far more than that of float64. So two models that are both right may differ by several 1e-9 in each GELU when they are compared in float64, and a tolerance for the comparison has to leave room for it. [Chapter 9](09_parity.ipynb), which compares whole models, sets its tolerance with this in mind.
#
# `nn.GELU(approximate="tanh")` uses the same formula without this loss: the constant is part of the operation, which takes it in the precision it computes in. Our `gelu_tanh` does the same with Python's `math.sqrt`, which is float64. In float64 the two should agree to rounding.

# %%
# a few roundings of numbers up to 20, the largest x_max, each of 1e-16 of its size
by_torch, by_torch_erf = nn.GELU(approximate="tanh")(z), nn.GELU()(z)
torch.testing.assert_close(gelu_tanh(z), by_torch, rtol=0, atol=1e-13)
torch.testing.assert_close(gelu_erf(z), by_torch_erf, rtol=0, atol=1e-13)
print('nn.GELU(approximate="tanh") is the tanh form, to 1e-13')
print("nn.GELU() is the erf form, to 1e-13")

# %% [markdown]
# Note the second half: `nn.GELU()` without an argument is the *erf* form. It is the easier one to type, and the wrong one for GPT-2's weights.
#
# ## From D to 4D and back
#
# Now the network. For one position's vector x, as a row of D numbers:
#
# $$\mathrm{FFN}(x) = \mathrm{GELU}(x W_1 + b_1)\,W_2 + b_2.$$
#
# The first map widens D features to 4D, GELU acts on each of them, the second map comes back to D. In this layout, with x on the left, $W_1$ has the shape `[D, 4D]` and $W_2$ the shape `[4D, D]`; the biases have the lengths 4D and D. This is equation 2 of Vaswani et al., the Transformer paper of 2017, with GELU where they have the maximum. The factor 4 is theirs too: their D is 512, and the middle is 2,048 wide. They give no reason for it there, and GPT-2 kept it. The shapes and the number of parameters below have it in them. The arguments do not need it: any middle width would do, as long as the second map comes back to D.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
D, wide = emb_dim, 4 * emb_dim
with diagram(
    "feed_forward",
    17,
    15,
    alt="The feed-forward network from top to bottom: a linear map "
    f"from {D} to {wide} features, GELU, and a linear map back to {D}.",
    words=[
        f"At the top, the input x with the shape [B, T, D], here D = {D}.",
        f"A linear map with W1 of the shape [{D}, {wide}] and a bias of length "
        f"{wide} gives [B, T, 4D], here 4D = {wide}.",
        "GELU acts on each number alone; the shape stays [B, T, 4D].",
        f"A linear map with W2 of the shape [{wide}, {D}] and a bias of length {D} "
        "gives [B, T, D] again.",
        "At the bottom, the output, as wide as the input.",
    ],
) as draw:
    draw.box("in", 8.5, 14, "x", kind="data")
    draw.box("first", 8.5, 11, f"linear, {D} → {wide}", width=10)
    draw.box("gelu", 8.5, 7.5, "GELU", width=16)
    draw.box("second", 8.5, 4, f"linear, {wide} → {D}", width=10)
    draw.box("out", 8.5, 1, "FFN(x)", kind="data")
    draw.arrow("in", "first", "[B, T, D]")
    draw.arrow("first", "gelu", "[B, T, 4D]")
    draw.arrow("gelu", "second", "[B, T, 4D]")
    draw.arrow("second", "out", "[B, T, D]")


# %% [markdown]
# The class keeps the formula's layout and its names.


# %%
class PlainFeedForward(nn.Module):
    """The formula, written out: [..., D] -> [..., D]."""

    def __init__(self, emb_dim, activation=gelu_tanh):
        super().__init__()
        wide = 4 * emb_dim
        self.activation = activation
        self.W1 = nn.Parameter(torch.randn(emb_dim, wide) / emb_dim**0.5)  # [D, 4D]
        self.b1 = nn.Parameter(0.1 * torch.randn(wide))  # [4D]
        self.W2 = nn.Parameter(torch.randn(wide, emb_dim) / wide**0.5)  # [4D, D]
        self.b2 = nn.Parameter(0.1 * torch.randn(emb_dim))  # [D]

    def forward(self, x):
        hidden = self.activation(x @ self.W1 + self.b1)  # [..., 4D]
        return hidden @ self.W2 + self.b2  # [..., D]


# %% [markdown]
# The random numbers in there are examples. Their size keeps the features at ordinary size, and the biases are not zero, so that a forgotten bias shows. What GPT-2's weights are at the start of its training is a matter of [chapter 13](13_training.ipynb).

# %%
torch.manual_seed(seed + 1)  # not the numbers of x again
net = PlainFeedForward(emb_dim).double().requires_grad_(False)
tensors = {"x": x, "x W1 + b1": x @ net.W1 + net.b1, "FFN(x)": net(x)}
show_table(["tensor", "shape"], [[n, str(list(t.shape))] for n, t in tensors.items()])
assert net(x).shape == x.shape

# %% [markdown]
# The middle is four times as wide, and the end is as wide as the start.
#
# ## How many parameters?
#
# Two matrices of 4D² numbers, a bias of 4D and one of D: together 8D² + 5D. GELU has none.

# %%
rows = [[name, str(list(p.shape)), p.numel()] for name, p in net.named_parameters()]
total = sum(p.numel() for p in net.parameters())
assert total == 8 * emb_dim**2 + 5 * emb_dim
rows.append(["together", f"8D² + 5D, D = {emb_dim}", total])
show_table(["parameter", "shape", "numbers"], rows, int_format=",")
print(f"for D = 768, as in GPT-2 small: {8 * 768**2 + 5 * 768:,}")

# %% [markdown]
# ## The same matrix, stored the other way
#
# `nn.Linear(D, 4D)` computes x Wᵀ + b and stores its weight as `[4D, D]`, output first. The formula above, and GPT-2's own files, have `[D, 4D]`. (In the files an axis of length 1 stands before these two. GPT-2's code has each linear map as a convolution of width 1, and that axis is its width.) Both are the same map; between them lies a transposition.

# %%
linear = nn.Linear(emb_dim, 4 * emb_dim).double().requires_grad_(False)
print("W1 in the formula:     ", list(net.W1.shape))
print("weight of nn.Linear:   ", list(linear.weight.shape))
linear.load_state_dict({"weight": net.W1.T, "bias": net.b1})
# float64, sums of D products of ordinary size in another order: far below 1e-12
torch.testing.assert_close(linear(x), x @ net.W1 + net.b1, rtol=0, atol=1e-12)

# %% [markdown]
# For this network a forgotten transposition ends in an error, because D and 4D differ. For a square matrix, and attention has such matrices, no shape tells.
#
# ## The activation is part of the model
#
# The activation has no parameters, so nothing in a file of weights says which one they were trained with. What happens when the weights are loaded into a network with another?

# %%
kinds = {"tanh form": gelu_tanh, "erf form": gelu_erf, "ReLU": torch.relu}
rows = []
for name, activation in kinds.items():
    other = PlainFeedForward(emb_dim, activation).double()
    message = str(other.load_state_dict(net.state_dict(), strict=True))
    gap = (other(x) - net(x)).abs().max().item()
    same = gap < 1e-12  # float64 rounding stays far below
    assert same == (name == "tanh form")
    rows.append([name, message, "below 1e-12" if same else f"{gap:.0e}"])
show_table(["activation", "loading says", "largest difference"], rows)

# %% [markdown]
# All three load without a complaint, and only one computes the same. The activation is a part of the model that weights do not carry, like the variance in [chapter 2](02_layer_norm.ipynb). Replacing it makes another model; whether it is a better one is again a question for an experiment.
#
# ## Small differences in many layers
#
# A difference in one layer is part of the input of the next. To see what becomes of it, stack L networks in the way of the blocks to come: normalize, transform, add to what was there (attention is left out).


# %%
def through(activation):
    """The vectors after each of the L layers: [B, T, D] -> [L, B, T, D]."""
    torch.manual_seed(seed + 2)  # the same weights at each call
    norm, h, after = LayerNorm(emb_dim).double(), x, []
    for _ in range(n_layers):
        layer = PlainFeedForward(emb_dim, activation).double().requires_grad_(False)
        h = h + layer(norm(h))  # [B, T, D]
        after.append(h.detach())
    return torch.stack(after)  # [L, B, T, D]


# %% [markdown]
# Now put other functions in the place of the tanh form, with the same weights, and take the largest difference from the original after the first layer and after the last.

# %%
with_tanh = through(gelu_tanh)
kinds = {"ReLU": torch.relu, "erf form": gelu_erf}
kinds["constant in float32"] = gelu_constant_32
grown = {}  # by name, after the first layer and after the last
for name, activation in kinds.items():
    gaps = (through(activation) - with_tanh).abs()  # [L, B, T, D]
    grown[name] = gaps[0].max().item(), gaps[-1].max().item()
relu_last, erf_last, constant_last = (last for _, last in grown.values())
assert relu_last > erf_last > constant_last > 0
header = ["replacement", "after layer 1", f"after layer {n_layers}"]
show_table(header, [[name, *ends] for name, ends in grown.items()], format=".0e")

# %% [markdown]
# In every layer a new difference is added to those that came before, and the earlier ones pass through all later layers. How much is left at the end depends on the weights; these are random, so read the orders of magnitude and no more. The rows keep their order. A comparison that is to accept the third and to notice the second needs a tolerance between the two; one that is content with 1e-2 may well miss the wrong GELU.
#
# ## Each position on its own
#
# Nothing in the formula looks at a second position. If that is so, three things follow, and each can be checked. First: a changed token changes the output at its own position only.

# %%
changed = x.clone()
changed[0, 1] += 1.0  # another vector at batch row 0, position 1
moved = (net(changed) - net(x)).abs().amax(dim=-1)  # [B, T]
same = moved < 1e-12  # float64 rounding stays far below
assert (~same).nonzero().tolist() == [[0, 1]]
print("positions that changed (batch row, position):", (~same).nonzero().tolist())

# %% [markdown]
# Second: reordering the tokens reorders the outputs in the same way, and does nothing else. Third: the same parameters serve all positions of all texts, so calling the network with one vector at a time gives what calling it once with all gives.

# %%
order = torch.arange(num_tokens).flip(0)  # the last token first
torch.testing.assert_close(net(x[:, order]), net(x)[:, order], rtol=0, atol=1e-12)
print("reordered tokens: reordered outputs")
vectors = x.flatten(0, 1)  # [B T, D]
one_by_one = torch.stack([net(vector) for vector in vectors])  # [B T, D]
# float64, the same sums in another order: far below 1e-12
torch.testing.assert_close(one_by_one.view_as(x), net(x), rtol=0, atol=1e-12)
print(f"{len(vectors)} calls with one vector each: the same as one call")

# %% [markdown]
# So the network does not know where a position stands, nor what stands beside it. Attention mixes positions; the feed-forward network transforms what each has gathered. If order is to matter here, it has to be in the vectors already.
#
# ## Why something must stand between the two maps
#
# Leave the activation out. Then the second map can be multiplied into the first:
#
# $$\begin{aligned} &(x W_1 + b_1)\,W_2 + b_2 \\ &\quad = x\,(W_1 W_2) + (b_1 W_2 + b_2). \end{aligned}$$
#
# That is one linear map with a bias, from D to D. Note where the first bias goes.

# %%
two_maps = (x @ net.W1 + net.b1) @ net.W2 + net.b2  # [B, T, D]
W, b = net.W1 @ net.W2, net.b1 @ net.W2 + net.b2  # [D, D], [D]
# float64, sums of at most 1024 products in another order
torch.testing.assert_close(two_maps, x @ W + b, rtol=0, atol=1e-11)
rows = [["two maps", total], ["one map that does the same", W.numel() + b.numel()]]
show_table(["", "parameters"], rows, int_format=",")

# %% [markdown]
# The wide middle has bought nothing: all that the two maps can do, the one can do. With GELU between them this no longer works, whatever matrix one tries. For every map of the form f(x) = x W + b,
#
# $$f(u + v) - f(u) - f(v) + f(0) = 0,$$
#
# since uW and vW each appear once with plus and once with minus, and b twice with each. A network for which this is not 0 is no such map.


# %%
def bend(f, u, v):
    """0 for each map x W + b, whatever W and b are."""
    return (f(u + v) - f(u) - f(v) + f(torch.zeros_like(u))).abs().max().item()


linear_only = PlainFeedForward(emb_dim, activation=nn.Identity()).double()
linear_only.load_state_dict(net.state_dict())
without, with_gelu = bend(linear_only, x[0], x[1]), bend(net, x[0], x[1])
assert without < 1e-11 and with_gelu > 1e-2
print(f"f(u + v) - f(u) - f(v) + f(0) is up to {with_gelu:.1f} with GELU,")
print("and below 1e-11 without it")

# %% [markdown]
# This shows that the network can do what no linear map can. It does not show how much more, nor that training will find it.
#
# ## Why it must end at width D
#
# The next thing that happens to the output is an addition: the transformer block adds it to the vector that came in ([chapter 4](04_shortcuts.ipynb)). Numbers are added feature by feature, so both must have D of them. Suppose the second map is forgotten.

# %%
hidden = gelu_tanh(x @ net.W1 + net.b1)  # [B, T, 4D], left wide
try:
    x + hidden
except RuntimeError:
    print(f"RuntimeError: {list(x.shape)} + {list(hidden.shape)} cannot be added")
else:
    raise AssertionError("two widths were added")
print("with the second map:", list((x + net(x)).shape))

# %% [markdown]
# Cutting `hidden` to its first D features would make the sizes fit, and nothing else: they are not the features of x. It takes a map that is learned, and that is $W_2$.
#
# The width has a second use. Because input and output have one shape, layers can be stacked to any depth, as in the section above, without anything in between.
#
# ## No dropout in here
#
# This network has no dropout layer. In the block there is one right after it, before the addition. Some implementations place that dropout inside, as the last layer of the feed-forward network, and have none in the block; this computes the same. The slip is to have it in both places: with the rate p, each feature is then drawn for twice, and kept with probability (1 − p)².

# %%
assert not any(isinstance(module, nn.Dropout) for module in net.modules())
net.train()  # training mode, called twice: nothing is drawn
torch.testing.assert_close(net(x), net(x), rtol=0, atol=1e-12)
p = 0.1
rows = [["one place", 1 - p], ["two places", (1 - p) ** 2]]
show_table([f"dropout, p = {p}, in", "share of features kept"], rows, format=".2f")

# %% [markdown]
# ## The final form
#
# The module [book_utils/feed_forward.py](../book_utils/feed_forward.py) holds both: `book_utils.GELU` is the tanh form in one fused operation, and `book_utils.FeedForward` is two `nn.Linear` layers around it.

# %%
from book_utils import GELU, FeedForward, GPTConfig

torch.testing.assert_close(GELU()(z), gelu_tanh(z), rtol=0, atol=1e-13)  # as above
print("book_utils.GELU agrees with the tanh form")

# %% [markdown]
# From a configuration, `FeedForward` reads only `emb_dim`. It should agree with the plain class once the matrices are transposed. The tolerance is 1e-12 in float64: the numbers are of ordinary size, float64 carries 16 digits, and the sums of at most 4D products run in different orders.

# %%
sizes = {"vocab_size": 16, "context_length": num_tokens, "n_heads": 1}
cfg = GPTConfig(emb_dim=emb_dim, n_layers=n_layers, **sizes)
final = FeedForward(cfg).double().requires_grad_(False)
weights = {
    "layers.0.weight": net.W1.T,  # [4D, D]
    "layers.0.bias": net.b1,
    "layers.2.weight": net.W2.T,  # [D, 4D]
    "layers.2.bias": net.b2,
}
final.load_state_dict(weights)
torch.testing.assert_close(final(x), net(x), rtol=0, atol=1e-12)
print("book_utils.FeedForward agrees with the plain class")

# %% [markdown]
# And the reference, a `torch.nn.Sequential` of the same three parts. Its middle layer is the only thing that changes between the two rows.

# %%
rows = []
for middle in [nn.GELU(approximate="tanh"), nn.GELU()]:
    first, second = nn.Linear(emb_dim, 4 * emb_dim), nn.Linear(4 * emb_dim, emb_dim)
    by_torch = nn.Sequential(first, middle, second).double()
    by_torch.load_state_dict(final.layers.state_dict())  # 0.weight … 2.bias, as here
    gap = (by_torch(x) - final(x)).abs().max().item()
    assert (gap < 1e-12) == (middle.approximate == "tanh")
    rows.append([str(middle), "below 1e-12" if gap < 1e-12 else f"{gap:.0e}"])
show_table(["middle layer of the reference", "largest difference"], rows)

# %% [markdown]
# One convenience of the final form: a wrong width ends in a message that names it, rather than in one about two matrices.

# %%
try:
    final(hidden)
except ValueError as error:
    print("ValueError:", error)
else:
    raise AssertionError("a wrong width was accepted")

# %% [markdown]
# ## The results of this run
#
# The size of the network, and the distances between functions: each is the largest over all numbers compared. A rerun with other parameters gives these results again, under the same names. A distance belongs to these random weights and inputs, and says nothing about which function is better.

# %%
publish(
    [
        ("parameters", total, "of one network, 8D² + 5D"),
        ("gelu_difference", difference.abs().max(), "tanh form to erf form, one GELU"),
        ("erf_after_first", grown["erf form"][0], "the same after layer 1"),
        ("erf_after_last", erf_last, "the same after layer L"),
        ("relu_after_last", relu_last, "tanh form to ReLU after layer L"),
        ("bend", with_gelu, "f(u + v) − f(u) − f(v) + f(0); 0 for a linear map"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | Outputs differ from a reference by some ten-thousandths, by more after many layers. | One of the two has the erf form of GELU where the other has the tanh form. | Compare one GELU at x = 2.7: the two forms are nearly 5e-4 apart. | Use `nn.GELU(approximate="tanh")` for GPT-2's weights. |
# | Two right models differ by a few 1e-9 or more in float64. | One makes the constant √(2/π) of GELU in float32. | Compare one GELU at x = 1.3 in float64. | Make the constant with `math.sqrt`, or allow for it in the tolerance. |
# | The weights load, and the outputs are far off. | The activation is another one, say ReLU. | Give the activation one negative number: ReLU returns 0. | Use the activation that the weights were trained with. |
# | `size mismatch for layers.0.weight` when weights are loaded. | The file has `[D, 4D]`, and `nn.Linear` stores `[4D, D]`. | Print both shapes. | Transpose, and the square matrices of attention too, where no error tells. |
# | `The size of tensor a … must match` where the feed-forward network's result is added. | The second map is missing, and the result is 4D wide. | Print the last axis of the result. | Map back to D. |
# | A wider middle of the feed-forward network changes nothing in what it can do. | No activation stands between the two linear maps. | f(u + v) − f(u) − f(v) + f(0) is 0 for all u and v. | Put GELU between them. |
# | Two calls in training mode differ although the block's dropout rates are 0. | A dropout layer is left inside the feed-forward network. | Look for `nn.Dropout` among `modules()`. | Keep one dropout, in the block, before the addition. |
# | After a feed-forward network, one token's change shows at other tokens. | The positions were flattened into the features. | Change one token and compare the results at the others. | Apply the linear maps to the last axis, D, only. |
# | The number of parameters is off by 4D or by D for each layer. | A bias of the feed-forward network is missing. | Compare with 8D² + 5D. | `bias=True`, PyTorch's default. |
#
# ## Exercises
#
# ::::{admonition} Exercise 3.1 · GELU by its definition
#
# Write x Φ(x) for a tensor x, with `torch.erf`. Not the tanh form: the check sees the difference.
#
# ::::


# %% tags=["exercise"]
def gelu_by_definition(x):
    """x Φ(x), element by element."""
    ...  # your line here


check("3.1", gelu_by_definition)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
# ```
#
# The √2 is there because erf belongs to a normal distribution with variance ½, and Φ to one with variance 1.
#
# ::::
#
# ::::{admonition} Exercise 3.2 · The network as one function
#
# Write the feed-forward network of GPT-2 as a function of `x` and its four parameters, in the layout of the formula: `W1` is `[D, 4D]`, `W2` is `[4D, D]`.
#
# ::::


# %% tags=["exercise"]
def feed_forward(x, W1, b1, W2, b2):
    """[..., D] -> [..., D]"""
    ...  # your lines here


check("3.2", feed_forward)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return gelu_tanh(x @ W1 + b1) @ W2 + b2
# ```
#
# For stored weights of `nn.Linear` it would be `x @ weight.T`.
#
# ::::
#
# ::::{admonition} Exercise 3.3 · Two maps in one
#
# The activation has been forgotten. Give the matrix and the bias of the one linear map that does the same as the two.
#
# ::::


# %% tags=["exercise"]
def merged(W1, b1, W2, b2):
    """Return (W, b) with x @ W + b equal to (x @ W1 + b1) @ W2 + b2."""
    ...  # your line here


check("3.3", merged)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return W1 @ W2, b1 @ W2 + b2
# ```
#
# The first bias goes through the second map like everything else that leaves the first.
#
# ::::
#
# ::::{admonition} Exercise 3.4 · Left wide
#
# Somebody took x from D to 4D, through GELU, and did not bring it back: `hidden` is `[B, T, 4D]`. Why can it not be added to `x`? Complete the network, and add its result to `x`.
#
# ::::


# %% tags=["exercise"]
def add_branch(x, hidden, W2, b2):
    """x is [B, T, D], hidden [B, T, 4D], W2 [4D, D], b2 [D]; return [B, T, D]."""
    ...  # your line here


check("3.4", add_branch)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return x + hidden @ W2 + b2
# ```
#
# The last axis of `x` has D features and that of `hidden` 4D, so they cannot be added one by one; and they mean different things, so cutting or averaging `hidden` to D would make the sizes fit and leave the meaning wrong. A learned map back to D is needed, or another design of the path altogether. An equal width at both ends is also what lets blocks be stacked.
#
# ::::
#
# ::::{admonition} Exercise 3.5 · Counting
#
# How many parameters does the network have, as a function of D? Count the biases.
#
# ::::


# %% tags=["exercise"]
def parameters_of_feed_forward(d):
    """The number of parameters for emb_dim = d."""
    ...  # your line here


check("3.5", parameters_of_feed_forward)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return 8 * d**2 + 5 * d
# ```
#
# The first map has D · 4D + 4D numbers, the second 4D · D + D.
#
# ::::
#
# ## What you have now
#
# - GELU as x Φ(x) and in its tanh form, how far they are apart, and the reason why GPT-2's weights ask for the second.
# - The network D → 4D → D in 8D² + 5D parameters, and the transposition between its formula and `nn.Linear`.
# - Checks that it works on each position alone, that without GELU it is one linear map, and why it ends at width D.
#
# It ends at width D so that it can be added to what came in. [What does that addition do for a signal that has many layers to cross?](04_shortcuts.ipynb)
#
# **Sources.** D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units (GELUs)", 2016, arXiv:1606.08415, section 2. A. Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section 3.3 and equation 2. A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; its reference code, `src/model.py` of openai/gpt-2, functions `gelu`, `mlp` and `conv1d`. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.3; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb`. PyTorch's documentation of `torch.nn.GELU` and `torch.nn.Linear`.
