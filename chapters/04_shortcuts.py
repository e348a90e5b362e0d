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
# # 4 · Shortcuts
#
# **How does a signal get through many layers?**
#
# At the end of this chapter you can
#
# - write a layer with a shortcut, say what it demands of the shapes, and say what it adds to the layer's Jacobian;
# - compare the gradients of a deep network with and without shortcuts so that only the shortcuts differ, and say what such a comparison leaves open;
# - name cases where gradients vanish or explode although every layer has its shortcut.
#
# You need the derivative of a function of several variables, the chain rule, and GELU of [chapter 3](03_feed_forward.ipynb).
#
# A GPT is a stack of layers. Each one reads what the one before wrote, so a feature of the input reaches the end only if every layer hands it on. An error measured at the end, the *loss*, sends its gradient back the same way, layer by layer: this is *backpropagation*. Where the gradient shrinks on the way until next to nothing is left, it is said to *vanish*; where it grows beyond all measure, to *explode*. [Chapter 2](02_layer_norm.ipynb) kept the scale in hand. A *shortcut* (also called a residual or skip connection) is the second means, and it is one plus sign.

# %% tags=["parameters"]
depth: int = 5  # number of layers, the last of which has one output (2 to 64)
width: int = 3  # features before the last layer (2 to 64)
seed: int = 123  # of the weights (0 to 4294967295)
use_shortcut: bool = True  # whether the network at hand has shortcuts

# %%
import torch
from torch import nn
from torch.autograd.functional import jacobian

from book_utils import GELU
from book_utils.workbench import check, check_parameters, publish, rounded, show_table

check_parameters("04_shortcuts", globals())
layer_sizes = [width] * depth + [1]
x = torch.linspace(1, -1, width, dtype=torch.float64).unsqueeze(0)  # [1, width]
print(f"{depth} layers, {width} features, one output")
print("the input starts with", rounded(x[0, :3]))

# %% [markdown]
# ## Add the input back
#
# A plain layer replaces its input by f(x). A layer with a shortcut adds f(x) to its input:
#
# $$y = x + f(x).$$
#
# The part f is then called the *branch*. Suppose it answers the vector `[1, 2, 3, 4]` with four small numbers.

# %%
before = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
branch = torch.tensor([0.1, -0.1, 0.2, -0.2], dtype=torch.float64)
after = before + branch
rows = [("x", before), ("f(x)", branch), ("y = x + f(x)", after)]
rows = [[name, *rounded(vector)] for name, vector in rows]
show_table(["feature", "1", "2", "3", "4"], rows, format="z.1f")
# sums near 4 round at about 1e-15
torch.testing.assert_close(after - branch, before, rtol=0, atol=1e-14)

# %% [markdown]
# The old values are still there, with a correction on top. The branch need not carry the input through: it only says what should change. If nothing should, it can return zeros, and the layer is the identity. A plain layer would have to learn the identity with its weights, and one that ends in GELU cannot be the identity at all, since GELU returns no number far below zero.
#
# The picture shows the two paths. Forward, the input takes both and meets itself at the plus sign. Backward, the gradient takes both as well.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench import diagram

with diagram(
    "shortcut",
    17,
    13,
    alt="A layer with a shortcut: the input x goes down through the branch f and also around it, and both meet in a sum.",
    words=[
        "The input x arrives at the top.",
        "One copy goes down through the branch f, here a linear layer followed by GELU, and becomes f(x).",
        "Another copy goes around the branch and is not changed.",
        "At the plus sign both are added, feature by feature, so both must have the same shape.",
        "The result is y = x + f(x).",
    ],
) as d:
    d.box("x", 5.5, 12, "x", kind="data", width=2)
    d.box("f", 5.5, 7.5, "branch f:\nlinear layer, GELU", width=9, height=2.8)
    d.plus("sum", 5.5, 3.8)
    d.box("y", 5.5, 1, "y = x + f(x)", kind="data", width=6)
    d.arrow("x", "f")
    d.arrow("f", "sum", label="f(x)")
    d.arrow("sum", "y")
    d.shortcut("x", "sum", 11.5)
    d.text(12, 7.5, "x, unchanged", ha="left")

# %% [markdown]
# ## The identity in the Jacobian
#
# The derivative of a layer with D inputs and D outputs is a D × D matrix, its *Jacobian*: the number in row i and column j says how much output i moves when input j does. Since y is a sum, its Jacobian is a sum too, and the Jacobian of x with respect to itself is the identity:
#
# $$\frac{\partial y}{\partial x} = I + \frac{\partial f}{\partial x}.$$
#
# Automatic differentiation knows nothing of this formula. It is asked for both matrices, and the tolerance is 1e-12 because the two sides may round differently in the last of 16 digits. Here the layer has the `width` features of the parameters cell in the place of D.

# %%
torch.manual_seed(seed)
f = nn.Sequential(nn.Linear(width, width), GELU()).double()
point = x[0]  # [D]
jacobian_f = jacobian(f, point)  # [D, D]
jacobian_y = jacobian(lambda x: x + f(x), point)  # [D, D]
identity = torch.eye(width, dtype=torch.float64)  # [D, D]
torch.testing.assert_close(jacobian_y, identity + jacobian_f, rtol=0, atol=1e-12)

# %% [markdown]
# The tables show a corner of both: first of the Jacobian of f, then of that of y.

# %%
shown = range(min(width, 3))  # the corner that the table shows
for name, matrix in [("∂f/∂x", jacobian_f), ("∂y/∂x", jacobian_y)]:
    rows = [[f"output {i + 1}", *rounded(matrix[i, :3])] for i in shown]
    show_table([name, *(f"input {j + 1}" for j in shown)], rows)

# %% [markdown]
# The two tables differ on the diagonal, by one, and nowhere else.
#
# Now read it backwards. Let g be the gradient of some loss with respect to y. The chain rule multiplies it by the Jacobian, and the identity lets it through whole: what arrives at x is g itself, plus what came back through the branch.

# %%
g = torch.linspace(1, 2, width, dtype=torch.float64)  # [D], as if from a loss
start = point.clone().requires_grad_()
(start + f(start)).backward(g)
through = g @ jacobian_f  # [D], what came back through the branch
torch.testing.assert_close(start.grad, g + through, rtol=0, atol=1e-12)  # last digits
rows = [[j + 1, g[j].item(), through[j].item(), start.grad[j].item()] for j in shown]
show_table(["feature", "g at y", "through the branch", "at x"], rows)

# %% [markdown]
# The last column is the sum of the two before it. That is what a shortcut does to the gradient of one layer: it opens a path on which nothing is multiplied.
#
# Stack two such layers, and the Jacobians multiply. Written out, the product is a sum over paths:
#
# $$\begin{aligned} &(I + J_2)(I + J_1) \\ &\quad = I + J_1 + J_2 + J_2 J_1. \end{aligned}$$

# %%
second = nn.Sequential(nn.Linear(width, width), GELU()).double()
middle = point + f(point)  # [D]
J1, J2 = jacobian_f, jacobian(second, middle)  # [D, D] each
whole = jacobian(lambda x: (x + f(x)) + second(x + f(x)), point)  # [D, D]
paths = identity + J1 + J2 + J2 @ J1
torch.testing.assert_close(whole, paths, rtol=0, atol=1e-12)  # last digits, as above
shortcuts = depth - 1
paths = f"2^{shortcuts} = {2**shortcuts:.4g}"
print(f"layers with shortcuts: {shortcuts}, paths: {paths}")
print("1 of them past every branch, 1 through all of them")

# %% [markdown]
# Without shortcuts only the last term is left, the path through every branch. With them, the gradient also has the paths that skip one branch, or several, or all. Their terms are added, and nothing forbids that they cancel; this comes back below.
#
# ## A network to try it on
#
# The network has linear layers with GELU. All but the last have as many outputs as inputs; the last has one output, so that a loss is easy to state. It adds a layer's input to its output only if it was told to use shortcuts *and* the two shapes agree.


# %%
class PlainDeepNetwork(nn.Module):
    """Linear layers with GELU: [..., sizes[0]] -> [..., sizes[-1]]."""

    def __init__(self, sizes, use_shortcut):
        super().__init__()
        self.use_shortcut = use_shortcut
        self.layers = nn.ModuleList()
        for i in range(len(sizes) - 1):
            self.layers.append(nn.Sequential(nn.Linear(sizes[i], sizes[i + 1]), GELU()))

    def adds(self, x, out):
        return self.use_shortcut and x.shape == out.shape

    def forward(self, x):
        for layer in self.layers:
            out = layer(x)  # [..., size of this layer's output]
            x = x + out if self.adds(x, out) else out
        return x


# %% [markdown]
# A comparison is worth something if one thing differs. So the two networks get the same seed, set anew before each is built, and should have the same weights to the last bit. They are drawn in float32, PyTorch's default, and then widened to float64, so that they are the weights which [upstream](01_shell.ipynb) has at this seed.


# %%
def build(use_shortcut, sizes=layer_sizes, seed=seed):
    torch.manual_seed(seed)
    return PlainDeepNetwork(sizes, use_shortcut).double()


networks = {"without shortcuts": build(False), "with shortcuts": build(True)}
weights = [dict(network.named_parameters()) for network in networks.values()]
same = [torch.equal(weights[0][name], weights[1][name]) for name in weights[0]]
assert all(same) and weights[0].keys() == weights[1].keys()
print(f"{sum(same)} of {len(same)} weights and biases are equal in both networks")

# %% [markdown]
# A shortcut has no parameters of its own; this is why the same weights fit both. What happens inside depends on the flag. Here is the network at hand, the one that the parameter `use_shortcut` chooses.

# %%
at_hand = build(use_shortcut)
rows, h = [], x
for number, layer in enumerate(at_hand.layers, 1):
    out = layer(h)
    adds = at_hand.adds(h, out)
    shapes = f"{list(h.shape)} → {list(out.shape)}"
    rows.append([number, shapes, "x + f(x)" if adds else "f(x)"])
    h = h + out if adds else out
assert torch.equal(h, at_hand(x))
assert [row[2] for row in rows].count("x + f(x)") == (shortcuts if use_shortcut else 0)
show_table(["layer", "shape", "hands on"], rows)

# %% [markdown]
# ## The last layer cannot add
#
# Its input and its output differ in width, so there is nothing to add feature by feature. One would expect the attempt to fail. Two widths, two results:

# %%
for d_out in [1, 4 * width]:
    out = nn.Linear(width, d_out).double()(x)  # [1, d_out]
    try:
        result = f"gives {list((x + out).shape)}, without an error"
    except RuntimeError:
        result = "fails"
    print(f"{list(x.shape)} + {list(out.shape)} {result}")

# %% [markdown]
# A branch with four times the features is refused. This is why the feed-forward network of chapter 3 ends by projecting back to D, and why attention will return D features as well: either could not be added otherwise.
#
# A branch with *one* feature is not refused. PyTorch repeats it along the axis (*broadcasting*) and adds the same number everywhere; the result has the wrong shape and no one complains here. So the network compares shapes before it adds, and does not wait for an error.
#
# If a shortcut is wanted although the widths differ, the input has to be brought to the other width. He et al. do it with a matrix, a *projection* (their equation 2), which takes the place of the identity in the Jacobian as well:
#
# $$\begin{aligned} y &= W_s\,x + f(x), \\ \frac{\partial y}{\partial x} &= W_s + \frac{\partial f}{\partial x}. \end{aligned}$$

# %%
torch.manual_seed(seed)
f_out = nn.Sequential(nn.Linear(width, 1), GELU()).double()
projection = nn.Linear(width, 1, bias=False).double()  # W_s: [1, D]
y = projection(x) + f_out(x)  # [1, 1]
J = jacobian(lambda x: projection(x) + f_out(x), point)  # [1, D]
expected = projection.weight + jacobian(f_out, point)  # [1, D]
torch.testing.assert_close(J, expected, rtol=0, atol=1e-12)  # last digits, as above
print(f"x {list(x.shape)}, projected {list(projection(x).shape)}, y {list(y.shape)}")
print("parameters of the shortcut:", projection.weight.numel())

# %% [markdown]
# Now they add. But the shortcut has become a trained map: it has weights, which scale and mix what passes, and a gradient that takes this path is multiplied by them. Over many layers, this is again a product of matrices. Follow one gradient down the direct path of several layers, first with identities, then with freshly drawn projections.

# %%
torch.manual_seed(seed)
g = torch.ones(width, dtype=torch.float64) / width**0.5  # [D], length 1
print(f"layers passed: {shortcuts}")
print(f"length after the identities:  {g.norm().item():.3g}")
for _ in range(shortcuts):
    g = g @ nn.Linear(width, width, bias=False).double().weight  # [D]
print(f"length after the projections: {g.norm().item():.3g}")

# %% [markdown]
# The identity keeps the length whatever the number of layers. The projections do with it what their weights say. He et al. study this in their second paper, where shortcuts other than the identity did worse in experiments with 110 layers. GPT-2 needs none, since attention and the feed-forward network both return D features.
#
# ## A look at the gradients
#
# The loss is the squared error of the one output against a target of 0. For each weight matrix we take the mean of the absolute gradients: one number a layer, a rough measure of how strong a signal from the loss arrives there. Both networks get the same input and the same target. The function clears old gradients first.


# %%
def look(network, x, clear=True):
    """The mean absolute gradient of each weight matrix, first layer first."""
    if clear:
        network.zero_grad()
    loss = network(x).square().mean()  # the target is 0
    loss.backward()
    return [layer[0].weight.grad.abs().mean().item() for layer in network.layers]


# %%
lines = {name: look(network, x) for name, network in networks.items()}
by_layer = zip(*lines.values(), strict=True)
rows = [[f"layer {k}", *means] for k, means in enumerate(by_layer, 1)]
show_table(["mean absolute gradient", *networks], rows, format=".2e")

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench import figure

numbers = list(range(1, depth + 1))
off_scale = [name for name, means in lines.items() if min(means) == 0]  # log of 0
with figure(
    "gradient_means",
    alt=f"Mean absolute gradient of each of {depth} layers on a logarithmic axis: with shortcuts it is the larger one in "
    f"{sum(a < b for a, b in zip(*lines.values(), strict=True))} of them.",
    words=[
        f"The horizontal axis counts the layers, from 1 at the input to {depth} at the output.",
        "The vertical axis is the mean absolute gradient of the layer's weight, on a logarithmic scale, without a unit.",
        *(
            f"The line {k}: {v[0]:.1e} first, {v[-1]:.1e} last."
            for k, v in lines.items()
        ),
        *(f"Of the line {k}, points that are 0 are not drawn." for k in off_scale),
    ],
    data={"layer": numbers, **lines},
) as ax:
    for (name, means), marker in zip(lines.items(), "os", strict=True):
        label = f"{name} (0 is not drawn)" if name in off_scale else name
        drawn = [m if m > 0 else float("nan") for m in means]
        ax.plot(numbers, drawn, marker=marker, label=label)
    ax.set_yscale("log")
    ax.set(xlabel="layer (1 is next to the input)", ylabel="mean |gradient| (no unit)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend()

# %% [markdown]
# Where this notebook is open in JupyterLab and its cells were run, sliders stand below: depth, width, seed and shortcuts can be changed, and the curve follows. On the site, the figure above stands for them.

# %% jupyter={"source_hidden": true} tags=["hide-input", "remove-cell"]
from book_utils.workbench import explore_gradients

explore_gradients(depth, width, seed, use_shortcut)

# %% [markdown]
# The vertical axis is logarithmic: equal distances are equal factors. Two things can be read off it, and should be kept apart: how far the lines lie from each other, and how much each changes from right to left. The shortcuts act inside the stack, so let us look first at the right end, at the last layer, where *neither* network adds anything. The gradient that enters there is the derivative of the squared error, twice the output, times the slope of the last GELU.


# %%
def before_last(network, x):
    """What the last layer receives."""
    for layer in network.layers[:-1]:
        x = x + layer(x) if network.use_shortcut else layer(x)
    return x


# %%
def last_layer(network, x):
    """Of the last layer: its output, the slope of its GELU, and its input."""
    h = before_last(network, x)  # [1, D]
    linear, gelu = network.layers[-1]
    z = linear(h).detach().requires_grad_()  # [1, 1]
    y = gelu(z)
    y.sum().backward()
    return y.detach(), z.grad, h.detach()  # [1, 1], [1, 1], [1, D]


# %% [markdown]
# The gradient of the last weight matrix should be the product of three factors: twice the output, the slope, and the input of the layer. The table gives them, the gradient, and the ratio of the first layer's gradient to it (nan where both are 0).

# %%
rows = []
for name, means in lines.items():
    y, slope, h = last_layer(networks[name], x)
    product = (2 * y * slope * h).abs().mean().item()
    assert abs(product - means[-1]) <= 1e-12 * (1 + product)  # last digits
    ratio = means[0] / means[-1] if means[-1] > 0 else float("nan")  # 0 / 0
    factors = [v.item() for v in (y, slope, h.abs().mean())]
    rows.append([name, *factors, means[-1], ratio])
header = ["output", "GELU's slope", "mean |input|", "last gradient", "first ÷ last"]
show_table(["", *header], rows, format="z.3g")

# %% [markdown]
# The two networks have the same weights and yet different outputs, so they start with different errors. The distance between the lines at the last layer comes from the error, the slope and the size of the input there, and not from any path back. The column "first ÷ last" takes this start out. Whoever quotes the ratio of the two first layers has quoted a mixture.
#
# Even that column is no pure measure of the way back. The gradient of a weight is what arrives from behind *times* what the layer received from the front, and shortcuts act on both. The way back alone is measured below.
#
# The slope of the last GELU deserves a second look. It is a factor in every gradient, and for negative numbers it is soon very small.

# %%
rows = []
for value in [1, -1, -5, -20]:
    z = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    GELU()(z).backward()
    rows.append([value, z.grad.item()])
show_table(["the last GELU receives", "its slope"], rows, format="z.3f")

# %% [markdown]
# How often does it happen? Count the deep networks with shortcuts in which hardly anything comes back.

# %%
stacks = [build(True, [width] * 32 + [1], seed + i) for i in range(25)]
lost = sum(max(look(stack, x)) < 1e-12 for stack in stacks)
print(f"of {len(stacks)} networks with 32 layers and shortcuts,")
print(f"{lost} have no gradient above 1e-12 in any layer")

# %% [markdown]
# In a deep stack the features can become large, and where the last layer turns them into a large negative number, its GELU lets nothing back. (The output is then near 0, which is the target here, so the error is small as well; with another target the slope alone would be enough.) No shortcut helps there: the gradient is lost before it reaches the first of them. The last layer has none of its own. In GPT-2 no activation follows the output head, so this accident belongs to the example network.
#
# What neither tables nor figure show: how well either network would learn. A gradient is not bad because it is small, nor good because it is large, and these are gradients at one input and one seed before the first step. That deep networks with shortcuts are easier to train is a finding from experiments (He et al. give them); it does not follow from this curve.
#
# ## Clear before you look
#
# PyTorch *adds* gradients to those which are there. This serves training, where one step may collect several batches. It spoils a comparison when the second look still holds the first.

# %%
network, rows = build(use_shortcut), []
once = torch.tensor(look(network, x), dtype=torch.float64)  # [depth]
for name, clear, times in [
    ("second, not cleared", False, 2),
    ("third, not cleared", False, 3),
    ("fourth, cleared", True, 1),
]:
    means = torch.tensor(look(network, x, clear), dtype=torch.float64)  # [depth]
    torch.testing.assert_close(means, times * once, rtol=1e-12, atol=0)  # last digits
    rows.append([name, means[0].item(), means[-1].item()])
rows.insert(0, ["first", once[0].item(), once[-1].item()])
show_table(["look", "gradient of layer 1", "of the last layer"], rows, ".2e")

# %% [markdown]
# Two looks give twice the gradient, three give three times as much. A plot of uncleared gradients would show a difference that lies in how often one looked, not in the networks.
#
# ## The product decides
#
# Behind the lines of the figure stands a product. Each layer multiplies the passing gradient by its Jacobian: J without shortcuts, I + J with them. How much can a matrix lengthen a vector, and how much shorten it? It multiplies the length of a vector by a factor that depends on the vector's direction. The largest and the smallest of these factors are its largest and its smallest *singular value*.


# %%
def layer_jacobians(network, x):
    """The Jacobian of each layer of equal widths, at the input that reaches it."""
    matrices, h = [], x[0]  # [D]
    for layer in network.layers[:-1]:
        step = (lambda h, layer=layer: h + layer(h)) if network.use_shortcut else layer
        matrices.append(jacobian(step, h))  # [D, D]
        h = step(h).detach()
    return matrices


# %%
jacobians = {name: layer_jacobians(network, x) for name, network in networks.items()}
header = [f"{name}: {end}" for name in ("without", "with") for end in ("least", "most")]
rows = []
for k, pair in enumerate(zip(*jacobians.values(), strict=True), 1):
    values = [torch.linalg.svdvals(J) for J in pair]  # [D] each, largest first
    rows.append([f"layer {k}", *(v[i].item() for v in values for i in (-1, 0))])
show_table(["length multiplied by", *header], rows, format="z.2f")

# %% [markdown]
# A layer whose "most" is below 1 shortens every gradient, and several of them in a row shorten it by the product. Adding the identity moves the factors into the neighbourhood of 1. The neighbourhood is not 1 itself: a factor of exactly 1 can be repeated for ever, a factor near 1 cannot.
#
# The claim that a product of these matrices is what backpropagation computes can be checked. Multiply them by hand, and compare with the gradient at the input that PyTorch finds. The tolerance is 1e-10 of the largest entry: a product of many matrices rounds once for each.

# %%
g = torch.ones(width, dtype=torch.float64) / width**0.5  # [D], length 1
arrived = {}
for name, network in networks.items():
    by_hand = g
    for J in reversed(jacobians[name]):
        by_hand = by_hand @ J  # [D]
    start = x.clone().requires_grad_()
    before_last(network, start).backward(g.unsqueeze(0))
    tolerance = 1e-10 * by_hand.abs().max().item()
    torch.testing.assert_close(start.grad[0], by_hand, rtol=0, atol=tolerance)
    arrived[name] = by_hand.norm().item()
header = [f"layers passed: {shortcuts}", "length 1 becomes"]
show_table(header, list(arrived.items()), format=".2e")

# %% [markdown]
# ## Deeper
#
# One network at one seed may be an accident. So draw 25 networks for each of several depths, all layers of equal width this time (no last layer in the way), send a gradient of length 1 back through each, and take the median of the lengths that arrive at the input.

# %%
depths = [1, 2, 4, 8, 16, 32, 48, 64]


def arriving_length(layers, use_shortcut, seed):
    stack = build(use_shortcut, [width] * (layers + 1), seed)
    start = x.clone().requires_grad_()
    (stack(start).sum() / width**0.5).backward()
    return start.grad.norm().item()


# %%
arrives = {"without shortcuts": [], "with shortcuts": []}
for (_, medians), flag in zip(arrives.items(), (False, True), strict=True):
    for layers in depths:
        lengths = [arriving_length(layers, flag, seed + i) for i in range(25)]
        medians.append(torch.tensor(lengths, dtype=torch.float64).median().item())
rows = list(zip(depths, *arrives.values(), strict=True))
show_table(["layers", *arrives], rows, format=".1e")
assert all(a < b for _, a, b in rows)
assert rows[-1][1] < 1e-6 and rows[-1][2] > 1

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from matplotlib.ticker import LogLocator

with figure(
    "gradient_depth",
    alt=f"Length of a gradient after 1 to {depths[-1]} layers back, on a logarithmic axis: without shortcuts it "
    "shrinks far below 1, with shortcuts it ends above 1.",
    words=[
        f"The horizontal axis is the number of layers, from 1 to {depths[-1]}.",
        "The vertical axis is the length at the input of a gradient that had length 1 at the output, the median of 25 "
        "networks, on a logarithmic scale, without a unit.",
        *(f"The line {name} ends at {m[-1]:.0e}." for name, m in arrives.items()),
        "A thin line marks 1, where nothing would be gained or lost.",
    ],
    data={"layers": depths, **arrives},
) as ax:
    for (name, medians), marker in zip(arrives.items(), "os", strict=True):
        ax.plot(depths, medians, marker=marker, label=name)
    ax.axhline(1, color="#444444", linewidth=1, linestyle="-")
    ax.set_yscale("log")
    if min(map(min, arrives.values())) < 1e-20:
        ax.yaxis.set_major_locator(LogLocator(base=1e10))
    ax.set_xticks([1, 16, 32, 48, 64])
    ax.set(xlabel="layers", ylabel="length at the input (no unit)")
    ax.legend(loc="lower left")

# %% [markdown]
# On this axis a straight line is a steady factor a layer. Without shortcuts the gradient vanishes at such a pace. With them it does not vanish, and it does not stay at 1 either: it ends on the other side. In these stacks, with these weights, the shortcuts prevented vanishing and did not prevent growth.
#
# ## No promise
#
# The identity gives the gradient a direct path. What arrives is still the product of all the Jacobians I + J, and this depends on the derivatives of the branches, on their scale, and on the number of factors. Take the smallest branch there is, f(x) = a x with one number a, in every layer. Each layer multiplies by 1 + a.

# %%
rows = []
for a in [-1.0, -0.9, -0.1, 0.0, 0.1, 1.0]:
    h = start = torch.ones(1, dtype=torch.float64, requires_grad=True)
    for _ in range(depth):
        h = h + a * h
    h.backward()
    gradient, predicted = start.grad.item(), (1 + a) ** depth
    assert abs(gradient - predicted) <= 1e-12 * predicted  # about 1e-16 for each layer
    rows.append([f"{a:g} x", 1 + a, gradient])
header = ["branch f(x)", "a layer multiplies by", f"after {depth} layers"]
show_table(header, rows, format="z.3g")

# %% [markdown]
# With f(x) = −x the branch cancels the identity: the direct path is there, the branch's path is its exact opposite, and nothing arrives. Near it, at −0.9, each layer leaves a tenth, and the gradient soon vanishes although every layer has its shortcut. With f(x) = x it doubles in each layer, and explodes where there are many. Of these branches, only those that are small against the identity keep it near 1, and the more layers there are, the smaller they have to be.
#
# How small? Let the branches be random matrices, f(x) = s A x, with independent entries of mean 0 and variance 1 / D. In the mean square the part of g that comes back through the branch is as long as s g, and it stands at no preferred angle to g. So the mean squared length grows by the factor 1 + s² in each layer, by (1 + s²)ᴺ in N. With s = 1 it doubles each time. With s = 1/√N it is (1 + 1/N)ᴺ. This number grows with N and has the limit e = 2.718…, so it stays below e, however many layers there are, and its root below √e.


# %%
def length_after(branches, s):
    """Length of a gradient of length 1 after layers x + s A x, one for each A."""
    D = branches.shape[-1]
    g = torch.ones(D, dtype=torch.float64) / D**0.5  # [D], length 1
    for A in branches:
        g = g + s * (g @ A)  # [D]
    return g.norm().item()


# %% [markdown]
# Beside the length of one draw, with D = 64, stands the root of the mean square.

# %%
torch.manual_seed(seed)
D, rows = 64, []
for N in [depth, 2 * depth, 4 * depth]:
    branches = torch.randn(N, D, D, dtype=torch.float64) / D**0.5  # [N, D, D]
    row = [N]
    for s in [1.0, N**-0.5]:
        row += [length_after(branches, s), (1 + s**2) ** (N / 2)]
    assert row[3] < row[1]
    rows.append(row)
header = ["layers N", "s = 1", "root mean square", "s = 1/√N", "root mean square"]
show_table(header, rows, format=".3g")

# %% [markdown]
# A single draw scatters around the root of the mean square; the trend is the point. GPT-2's report says that the weights of the residual layers are scaled by 1/√N at the start of training, N being the number of those layers. (A GPT has two branches in each of its L blocks, attention and the feed-forward network, so they are 2L.) And the model normalizes what each branch reads, with the LayerNorm of chapter 2. Both act on the scale of the branches. Whether a deep stack then trains is again a question for experiments.
#
# ## Not in place
#
# `x = x + f(x)` makes a new tensor. `x += f(x)` writes into the old one, which others may still hold: the caller, and autograd, which keeps the inputs of layers for the way back.


# %%
def add_in_place(x, f):
    x += f(x)
    return x


mine = torch.tensor([1.0, 2.0], dtype=torch.float64)
add_in_place(mine, lambda x: 0.1 * x)
print("the caller's [1, 2] is now", rounded(mine))

# %% [markdown]
# The caller's values are gone. What does autograd say?

# %%
try:
    h = 1 * x.clone().requires_grad_()
    add_in_place(h, f).sum().backward()
except RuntimeError as error:
    print("backward:", str(error).partition(":")[0])

# %% [markdown]
# Autograd notices that a tensor it had kept was changed, and refuses. It notices only at the *backward pass*, when the gradients are computed, and only if some layer had kept that tensor. Of the caller's values it knows nothing.
#
# ## The final form
#
# The module [book_utils/shortcuts.py](../book_utils/shortcuts.py) holds the network and the look at its gradients. `book_utils.ExampleDeepNeuralNetwork` is the plain class with its sizes checked. At the same seed it draws the same weights in the same order and computes the same operations, so outputs should agree to rounding: the tolerance is 1e-12, relative for numbers above 1.

# %%
from book_utils import ExampleDeepNeuralNetwork

same_to_rounding = {"rtol": 1e-12, "atol": 1e-12}
for name, plain in networks.items():
    torch.manual_seed(seed)
    final = ExampleDeepNeuralNetwork(layer_sizes, plain.use_shortcut).double()
    pairs = zip(plain.parameters(), final.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    torch.testing.assert_close(final(x), plain(x), **same_to_rounding)
    print(f"{name}: agrees with the plain class")

# %% [markdown]
# Without shortcuts there is a reference of PyTorch's own as well, `nn.Sequential` of linear layers and `nn.GELU`.

# %%
plain = networks["without shortcuts"]
layers = [part for layer in plain.layers for part in (layer[0], nn.GELU("tanh"))]
torch.testing.assert_close(nn.Sequential(*layers)(x), plain(x), **same_to_rounding)
print("torch.nn.Sequential agrees with the plain class without shortcuts")

# %% [markdown]
# `gradient_means` is the look at the gradients; it clears first, so a second call gives the same. `print_gradients` prints it, a line a layer, here for the network at hand.

# %%
from book_utils import gradient_means, print_gradients

torch.manual_seed(seed)
final = ExampleDeepNeuralNetwork(layer_sizes, use_shortcut).double()
expected = torch.tensor(look(at_hand, x), dtype=torch.float64)  # [depth]
for _ in range(2):  # the second call, too: it clears first
    means = torch.tensor(list(gradient_means(final, x).values()), dtype=torch.float64)
    # relative, since sizes differ much; rounding adds up over the layers
    torch.testing.assert_close(means, expected, rtol=1e-10, atol=0)
print_gradients(final, x)

# %% [markdown]
# Seen in float32, as upstream prints them, such numbers differ in their last digits, and from processor to processor. If yours are wholly different, look first at where the seed is set: right before the network is built, each time.
#
# ## The results of this run
#
# Five results of the network at hand. The gradients depend on the loss and on what each layer receives, and where the last GELU has the slope 0 they are 0; the arriving length is the way back alone, without the last layer. A rerun with other parameters gives these results again, under the same names. One network at one seed shows no rule; many of them do not show how well a network learns.

# %%
chosen = "with shortcuts" if use_shortcut else "without shortcuts"
publish(
    [
        ("first_gradient", lines[chosen][0], "mean |gradient| of the first layer"),
        ("last_gradient", lines[chosen][-1], "mean |gradient| of the last layer"),
        ("arriving_length", arrived[chosen], "what length 1 becomes, way back alone"),
        ("loss", at_hand(x).square().mean(), "squared error, for the target 0"),
        ("adding_layers", shortcuts if use_shortcut else 0, "layers with a shortcut"),
    ]
)

# %% [markdown]
# ## A sweep of this chapter
#
# So the chapter was run many times, with other depths and seeds, without and with shortcuts. One command does that, `python -m book_utils sweep chapters/04_shortcuts.sweep.yml`, and the table that it made is kept with the chapter. The figure draws it: the first gradient of each run. It was not computed just now, and does not follow this notebook's parameters.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
from book_utils.workbench import show_sweep

runs = show_sweep("04_shortcuts")

# %% [markdown]
# The same in numbers: the least, the median and the largest of the seeds' first gradients.

# %%
first = {}  # (depth, use_shortcut) -> the first gradients, in order
for run in runs:
    place = (run["depth"], run["use_shortcut"])
    first[place] = sorted([*first.get(place, []), run["first_gradient"]])
rows = []
for (layers, flag), found in first.items():
    name = "with" if flag else "without"
    rows.append([layers, name, found[0], found[len(found) // 2], found[-1]])
show_table(["depth", "shortcuts", "least", "median", "largest"], rows, "z.1e")

# %%
for flag, name in [(False, "without"), (True, "with")]:
    lists = [found for (_, f), found in first.items() if f == flag]
    middle = [found[len(found) // 2] for found in lists]
    falls = middle == sorted(middle, reverse=True)
    zeros = sum(found.count(0) for found in lists)
    print(f"{name} shortcuts: {sum(map(len, lists))} runs, {zeros} of them with 0")
    print("  the median falls at every step to a greater depth:", falls)

# %% [markdown]
# What it shows: without shortcuts the first gradient vanishes as the network gets deeper, with every seed. With shortcuts it does not follow that path. But it is not kept near one size either. The deeper the network, the further the seeds lie apart: most gradients have grown by orders of magnitude, and some are exactly 0, those in which the last GELU lets nothing back. (A logarithmic scale has no place for a 0, and where the median is 0 the line has a gap.) The shortcut took away one way to lose a gradient. It did not put a scale in its place; LayerNorm, which does, is missing in this network.
#
# What it does not show: how well any of these networks would learn, what another width or input gives, or how often a 0 comes, for which a few seeds are too few. And a first gradient remains a mixture of error, slope and way back. The table has `arriving_length` too, the way back alone.

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | `The size of tensor a … must match` where a shortcut adds x to its branch f(x). | The branch does not return D features. | Print both shapes. | Map the branch back to D. |
# | The sum of a shortcut and its branch has a wrong shape, without an error. | Broadcasting: the branch has one feature, and it was repeated. | Compare the shapes before adding. | Add only where they are equal, or project x. |
# | Gradients double from one look to the next. | The old gradients were not cleared, and the new ones were added to them. | Look twice at the same input. | `zero_grad()` before each `backward()`. |
# | Two networks that should differ in their shortcuts alone differ in more. | Their weights differ: the seed was set once, for both. | `torch.equal` on each weight. | Set the seed before each network is built. |
# | A layer with a shortcut changes its caller's x. | `x += f(x)` writes into x. | Compare x with a clone made before. | `x = x + f(x)`. |
# | `… modified by an inplace operation` in `backward()`. | A tensor that autograd had kept was overwritten, say by `x += f(x)`. | Look for `+=` and for methods that end in `_`. | `x = x + f(x)`. |
# | All gradients of a network are 0, shortcuts or not. | A GELU after the last layer receives a large negative number, where its slope is nearly 0. | Print that input and the slope there. | Let no activation follow the last layer; make the branches smaller. |
# | Gradients or outputs grow with depth although there are shortcuts. | The branches are too large. | Print lengths by depth, or the singular values of I + J. | Normalize before the branch, or scale it down. |
# | Gradients vanish although there are shortcuts. | The branches cancel the identity, or the shortcuts are projections. | Print the singular values of I + J, or of the projections. | Make the branches smaller; keep the identity on the shortcut. |
# | A network computes the same with and without its shortcuts. | The flag is set and no layer adds, since no two shapes agree. | Count the layers that add. | Give input and output of a layer equal widths. |
#
# ## Exercises
#
# ::::{admonition} Exercise 4.1 · Keep the input
#
# A branch is given as a function, say one that returns a tenth of its input. Return what a layer with a shortcut hands on: for `[1, 2]` and this branch, `[1.1, 2.2]`. The input itself must stay as it is.
#
# ::::


# %% tags=["exercise"]
def solve(x, branch):
    """Return the output of a layer with this branch and a shortcut."""
    ...  # your line here


check("4.1", solve)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return x + branch(x)
# ```
#
# The values of `x += branch(x)` are the same, and the caller's `x` is lost.
#
# ::::
#
# ::::{admonition} Exercise 4.2 · Too wide to be added
#
# A feed-forward branch goes from D to 4D features and is left there. Why can its result not be added to x? Mend it: `expand` takes `[..., D]` to `[..., 4D]`, with the GELU already applied, and `contract` takes `[..., 4D]` to `[..., D]`.
#
# ::::


# %% tags=["exercise"]
def mended(x, expand, contract):
    """[..., D] -> [..., D], with a shortcut"""
    ...  # your line here


check("4.2", mended)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return x + contract(expand(x))
# ```
#
# The features of x and those of the wide result are not the same features, and there are four times as many of them: no pairing of the one with the other is given, and the sum does not exist. Either the branch leads back to D, or another path has to be designed and named. Equal widths are also what allows blocks to be stacked.
#
# ::::
#
# ::::{admonition} Exercise 4.3 · Only where the shapes agree
#
# Return what `layer` hands on: with a shortcut where the shape of its output is the shape of its input, and without one otherwise. The check also tries layers with one output feature, and one that averages over the tokens.
#
# ::::


# %% tags=["exercise"]
def hand_on(x, layer):
    """Add x to the layer's output where both have the same shape."""
    ...  # your lines here


check("4.3", hand_on)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# out = layer(x)
# return x + out if out.shape == x.shape else out
# ```
#
# The comparison takes all axes. One that looks at the last axis alone would let `[B, 1, D]` be repeated along the tokens.
#
# ::::
#
# ::::{admonition} Exercise 4.4 · What is left after n layers
#
# Each of n layers has a shortcut, and its branch is f(x) = a x. The gradient at the last output is 1. What is it at the input? Before you check: for which a does it stay 1, and for which is it 0?
#
# ::::


# %% tags=["exercise"]
def gradient_at_input(a, n):
    """The derivative of the output of n such layers with respect to the input."""
    ...  # your line here


check("4.4", gradient_at_input)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return (1 + a) ** n
# ```
#
# It stays 1 for a = 0, where the branch does nothing (and for a = −2 with an even n, where each layer turns the sign). It is 0 for a = −1, where the branch takes away what the shortcut brings. In between and beyond, it shrinks while 1 + a lies between −1 and 1, and grows outside.
#
# ::::
#
# ::::{admonition} Exercise 4.5 · A look that can be repeated
#
# Return a list with the mean absolute gradient of each *weight* of the model (not of the biases), in the order of `model.named_parameters()`. The loss is the mean squared output. The check calls your function twice on the same model.
#
# ::::


# %% tags=["exercise"]
def mean_gradients(model, x):
    """One number for each parameter whose name ends in "weight"."""
    ...  # your lines here


check("4.5", mean_gradients)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# model.zero_grad()
# model(x).square().mean().backward()
# weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
# return [weight.grad.abs().mean().item() for weight in weights]
# ```
#
# Without the first line the second call would return twice the numbers. The absolute values come before the mean, since plus and minus would cancel.
#
# ::::
#
# ## What you have now
#
# - The layer with a shortcut, y = x + f(x): equal shapes, compared and not hoped for, and an identity in the Jacobian that lets the gradient through whole.
# - A comparison in which the weights are equal to the last bit and gradients are cleared, together with what it leaves open: the different errors at the start, other seeds, and all of training.
# - Branches for which the gradient vanishes or explodes in spite of shortcuts, since the derivatives, their scale and the product over the layers decide.
#
# The scale is in hand, each position is transformed, and the signal gets through. [What brings the positions together?](05_attention.ipynb)
#
# **Sources.** K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", 2015, arXiv:1512.03385, equations 1 and 2; the authors hold in section 4.1 that the difficulty of their plain deep networks, which had batch normalization, is unlikely to come from vanishing gradients, one more reason not to read training results out of gradients. The same authors, "Identity Mappings in Deep Residual Networks", 2016, arXiv:1603.05027, equations 3 to 5 on the direct path and section 3 on shortcuts that are no identity. A. Veit, M. Wilber, S. Belongie, "Residual Networks Behave Like Ensembles of Relatively Shallow Networks", 2016, arXiv:1605.06431, on the sum over paths. A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 on the scale 1/√N. S. Raschka, "Build a Large Language Model (From Scratch)", 2024, section 4.4; its code, rasbt/LLMs-from-scratch, `ch04/01_main-chapter-code/ch04.ipynb`.
