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
# # 13 · A first training
#
# **Can it learn?**
#
# At the end of this chapter you can
#
# - write the loss of next-token prediction from logits and ids, and say what it should be at the start and what it cannot fall below;
# - write a training loop with clipping, AdamW and a learning rate that rises and falls, stop it, go on, and share it among processes, so that no more than rounding changes;
# - measure what a model has learned, and say what a comparison of two trainings leaves open.
#
# You need the model of [chapter 7](07_gpt_model.ipynb), the gradients of [chapter 4](04_shortcuts.ipynb), sampling from [chapter 11](11_generation.ipynb) and the cache of [chapter 12](12_kv_cache.ipynb).

# %% tags=["parameters"]
emb_dim: int = 64  # D of the model that learns to write; 4 divides it (64 to 128)
steps: int = 800  # of its training (600 to 2000)
depth: int = 8  # L of the models that are compared (2 to 8)
couplets_shown: int = 3  # of those that the trained model writes (1 to 24)
seed: int = 26  # of everything that is drawn (0 to 4294967295)

# %%
import math
import random
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel, Trainer, TrainingConfig, initialize
from book_utils import learning_rate, next_token_loss
from book_utils.workbench import Progress, check, check_parameters, figure
from book_utils.workbench import publish, rounded, show_table

check_parameters("13_training", globals())

# %% [markdown]
# Everything in this chapter is computed in float64, weights and all. Training is usually done in less. Here each result is a test, and a training enlarges differences: what two machines round differently in the last digit is fed back into the weights at every step. What a training run gives is therefore tested as a claim, such as a loss below a limit. Where a cell or a figure shows its digits, they are shown and not compared.

# %%
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)  # at these sizes more gain little, and can cost much

# %% [markdown]
# ## A language to learn
#
# A model of this size, trained for a few minutes at most, does not learn English, and no program could say whether it has. So the language is a small formal one. A text is a keyword of two words, a colon, and a *couplet*: two lines that hold the keyword and whose ends rhyme. The module [book_utils/couplets.py](../book_utils/couplets.py) holds its words, a program that writes, and one that judges.

# %%
from book_utils.couplets import CLASSES, FORMS, accepts, split_keywords, texts, write

training, kept_out = split_keywords(seed)
asked = kept_out[0]
example = write(asked, random.Random(seed))
print(" ".join(asked), ":", example)
for form in FORMS:
    print("a line:", " ".join(form))
rows = [[name, len(words), ", ".join(words[:5])] for name, words in CLASSES.items()]
show_table(["class", "words", "the first of them"], rows)

# %% [markdown]
# Each line has one of the two forms. The subject is the keyword in one of the lines, and a noun in the other. The end words come in groups of four that rhyme; a couplet takes two different words of one group. That is the whole grammar. A program writes couplets by it, each as likely as any other, and a program accepts or refuses them. It is strict. To see that, spoil the example in several ways.

# %%
from book_utils.couplets import RHYMES

words = example.split()
comma = words.index(",")
other = next(rhyme for rhyme in RHYMES if words[-2] not in rhyme)[0]
swapped = [words[1], words[0], *words[2:]]

# %%
candidates = {
    "as written": (words, asked),
    "another rhyme": ([*words[:-2], other, "."], asked),
    "the same end twice": ([*words[:-2], words[comma - 1], "."], asked),
    "the first two words exchanged": (swapped, asked),
    "no full stop": (words[:-1], asked),
    "asked for another keyword": (words, kept_out[1]),
}
rows = [[name, accepts(" ".join(c), k)] for name, (c, k) in candidates.items()]
show_table(["couplet", "accepted?"], rows)
assert [accepted for _, accepted in rows] == [True] + 5 * [False]

# %% [markdown]
# Every word and every sign is one id, and all texts have the same number of ids. So the language sets V and C. One model is to learn to write; a narrower one serves for comparisons.

# %%
from book_utils.couplets import TOKENS, VOCABULARY, decode, encode, least_loss

V = len(VOCABULARY)
cfg = GPTConfig(V, TOKENS, emb_dim, n_heads=4, n_layers=2)
small = replace(cfg, emb_dim=32)
print(f"V {V} · C {cfg.context_length} · D {emb_dim} · H 4 · L 2")

# %% [markdown]
# There are 12 first words and 12 second ones. Of the 144 pairs, 24 are kept out of training, two for each word, so that every word is known from ten other pairs. Whether the model can write for a keyword that it has never seen is the test at the end. It is worth something only if those keywords are in no training text, at no place.

# %%
print("keywords in training:", len(training), "· kept out:", len(kept_out))
ids = texts(training, 16_384, seed)  # [N, T]
neighbours = ids[:, :-1] * V + ids[:, 1:]  # [N, T - 1], one number for two ids
absent = torch.tensor([a * V + b for a, b in (encode(" ".join(k)) for k in kept_out)])
print("training texts:", list(ids.shape))
leaked = torch.isin(absent, neighbours).sum().item()
print("kept-out keywords found in them:", leaked)
print("training keywords found in them:", len(ids[:, :2].unique(dim=0)))
assert leaked == 0 and set(training).isdisjoint(kept_out)

# %% [markdown]
# ## What is predicted
#
# A model of [chapter 7](07_gpt_model.ipynb) gives logits at every position, and those at position t have seen the ids up to t. So they are scores for the id at t + 1, and the id at t + 1 says how good they were. A text of T ids gives T − 1 predictions: the last id has no successor, and the first has nothing before it that could predict it. This is *next-token prediction*. As code it is a shift by one: the model reads all but the last, and should have said all but the first.

# %%
model = initialize(GPTModel(cfg), seed)  # what this does is said below
few = ids[:64]
inputs, targets = few[:, :-1], few[:, 1:]  # [B, T - 1] each
read_and_next = [decode(side[0].tolist()).split() for side in (inputs, targets)]
rows = [[t, *pair] for t, pair in enumerate(zip(*read_and_next, strict=True))]
show_table(["position", "the id it reads", "the id to predict"], rows[:5])

# %% [markdown]
# The *loss* is the number that training makes small. For one prediction it is the negative logarithm of the probability that the right id was given: 0 for certainty, ln 2 for an even chance between two. With the natural logarithm its unit is the *nat*. The loss of a batch is the mean over all its predictions, the cross-entropy of [chapter 11](11_generation.ipynb). From the logits it takes two steps: *log-softmax*, the logarithm of the softmax, then picking the entry of the right id. `F.cross_entropy` does both at once, and so does `next_token_loss`, which shifts as well. All three add the same numbers, so 1e-12 leaves room for rounding alone.

# %%
logits = model(inputs)  # [B, T - 1, V]
log_p = logits - logits.logsumexp(dim=-1, keepdim=True)  # [B, T - 1, V]
by_hand = -log_p.gather(-1, targets[..., None]).mean()  # of [B, T - 1, 1]
at_once = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
print(f"the loss: {by_hand.item():.4f}")
for loss in (at_once, next_token_loss(model, few)):
    torch.testing.assert_close(loss, by_hand, rtol=0, atol=1e-12)

# %% [markdown]
# [Chapter 7](07_gpt_model.ipynb) showed that softmax and logarithm, one after the other, overflow for large scores. In training the gradient matters as much as the value. Take the scores 1000 and 0, with the second id as the right one, and ask for the gradient both ways.

# %%
rows = []
for name in ("softmax, then log", "log-softmax"):
    scores = torch.tensor([1000.0, 0.0], requires_grad=True)  # [V], V = 2
    log = scores.softmax(-1).log() if name != "log-softmax" else scores.log_softmax(-1)
    (-log[1]).backward()
    rows.append([name, -log[1].item(), str(scores.grad.tolist())])
show_table(["", "loss", "gradient"], rows, "g")

# %% [markdown]
# The exact gradient is 1 and −1 to every digit that float64 has: less for the first, more for the second. A NaN, once it is in the weights, stays in them. This is why the model ends with logits and the loss does the rest.
#
# ## The least possible loss
#
# How low can the loss fall? For most languages nobody knows. For this one it can be computed, since each choice of the grammar is even. Given the first word, a text in training has ten second words, and after it every acceptable couplet is as likely as any other. A model that knew the language would give each of n ways the probability 1/n, and lose ln n. No model loses less *on average*: to give one text more it must give another less, and the logarithm punishes that more than it rewards the first. (That the true probabilities are the best answer is Gibbs' inequality; the average loss they leave is the *entropy* of the language.)

# %%
squared = ("adjective", "verb", "preposition")  # one in each line
ways = {
    "the second word": 10,
    "the forms, and the line with the keyword": len(FORMS) ** 2 * 2,
    "articles, two in each line": len(CLASSES["article"]) ** 4,
    **{f"{name}, one in each line": len(CLASSES[name]) ** 2 for name in squared},
    "the noun": len(CLASSES["noun"]),
    "two ends that rhyme": len(RHYMES) * 4 * 3,
}

# %%
rows = [[name, n, math.log(n)] for name, n in ways.items()]
total = math.prod(ways.values())
rows.append(["all", total, math.log(total)])
show_table(["choice", "ways", "nats"], rows, int_format=",")
couplets = total // 10  # for one keyword
print(f"couplets for one keyword: {couplets:,}")
print(f"the least loss: {math.log(total):.4f} / {TOKENS - 1} = {least_loss():.4f}")
assert abs(math.log(total) / (TOKENS - 1) - least_loss()) < 1e-12

# %% [markdown]
# The nats of a text are shared by its T − 1 predictions. Some of those, such as the colon, are certain and cost nothing in the end; others, such as an adjective, cannot be known. A good model ends above 0, and how far above is a matter of the language, not of the model. (On texts that it reads again and again a model can go lower, by learning them by heart. The bound holds for new ones.)
#
# ## The loss at the start
#
# A model that knows nothing should find all V ids equally likely, and lose ln V for each. That is the first check of a training, before any step. Does it hold? It depends on the initial weights. PyTorch draws tables with standard deviation 1, and the weights of a linear layer evenly between ±1/√(inputs). `initialize` draws GPT-2's: matrices and tables with standard deviation 0.02, positions with 0.01, biases 0, and the two matrices that end a branch in each block divided by √(2L).

# %%
rows = []
wanted = {"tok_emb": 0.02, "pos_emb": 0.01, "trf_blocks.0.att.qkv": 0.02}
wanted["trf_blocks.0.att.out_proj"] = wanted["trf_blocks.0.ff.layers.2"] = 0.02 / 4**0.5
for name, spread in wanted.items():
    found = model.get_submodule(name).weight.std().item()
    rows.append([name, spread, found])
    assert abs(found / spread - 1) < 0.15
show_table(["weight", "standard deviation", "of the numbers drawn"], rows, "z.3f")
zeros = [p for name, p in model.named_parameters() if name.endswith(("bias", "shift"))]
assert all(not p.any() for p in zeros)

# %% [markdown]
# Why √(2L)? Each of the L blocks adds two branches to the stream, and their last matrices are drawn independently. Variances of uncorrelated terms add up, so with 2L of them divided by √(2L) each, their sum is as large as one of them would be undivided, however deep the model is. (GPT-2's report divides by √N for N “residual layers”. It is read here, as by most, as two for each block.)
#
# Now both starts, with two tables and with a tied one.


# %%
def start_of(start, tied):
    """A row of the table below."""
    torch.manual_seed(seed)
    fresh = GPTModel(replace(cfg, tie_weights=tied))
    if start == "GPT-2's":
        initialize(fresh, seed)
    logits, loss = fresh(inputs), next_token_loss(fresh, few).item()
    parrot = (logits.argmax(dim=-1) == inputs).double().mean().item()
    name = f"{start}, {'tied' if tied else 'untied'}"
    return [name, logits.std().item(), loss, f"{parrot:.0%}"]


# %%
rows = [["all logits equal", 0.0, math.log(V), "–"]]
rows += [start_of(s, tied) for tied in (False, True) for s in ("GPT-2's", "PyTorch's")]
header = ["start", "spread of the logits", "loss", "largest for the id just read"]
show_table(header, rows, "z.1f")
assert all(abs(rows[i][2] - math.log(V)) < limit for i, limit in [(1, 0.1), (3, 0.2)])
assert 0 < rows[2][2] - math.log(V) < 1 and rows[4][2] > 4 * math.log(V)

# %% [markdown]
# With GPT-2's start the logits are so near to each other that the loss is about ln V. PyTorch's start, with two tables, is a little above. If it is tied, it is tens of nats above. The reason was met in [chapter 7](07_gpt_model.ipynb): a logit is the product of a normalized vector, of length about √D, and a row of the table. Rows of N(0, 1) have the length √D as well, so the logits have a standard deviation of about √D, and the id just read, whose row is still part of the vector, gets the largest of all, as the last column says. The model is sure, and wrong. With GPT-2's start, tied, it leans the same way; there the logits are too close to each other for it to matter much.
#
# A start at ln V shows that nothing is gravely wrong with the scale. It is no sign of health beyond that: a model whose logits are all 0 has it too.
#
# ## One step of AdamW
#
# An *optimizer* turns gradients into changes of the parameters. Plain gradient descent, SGD in PyTorch, moves each parameter against its gradient g, by g times a small number η, the *learning rate*. But gradients of different parameters can differ by orders of magnitude (as in [chapter 4](04_shortcuts.ipynb)), and a rate that suits the large ones hardly moves the small ones. Adam (Kingma and Ba, 2015) divides by the size that the gradient has had lately. It keeps two running averages for each parameter, of the gradient and of its square:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1)\,g,$$
#
# $$v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2.$$
#
# Both start at 0, so after t steps they are too small: where gradients come from one distribution, on average by the factors $1 - \beta_1^t$ and $1 - \beta_2^t$. They are divided by these. Then, for a parameter θ,
#
# $$\theta \leftarrow \theta - \eta\lambda\,\theta - \eta\,\frac{\hat m}{\sqrt{\hat v} + \varepsilon}.$$
#
# The middle term is *weight decay*: each step takes the share ηλ of the parameter away. AdamW (Loshchilov and Hutter, 2019) applies it to the parameter itself, beside the division, and not as a part of g.


# %%
def adamw(p, g, m, v, t, lr, decay, betas=(0.9, 0.95), eps=1e-8):
    """Step t = 1, 2, … of one parameter: its new value, and both averages."""
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g**2
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return p - lr * decay * p - lr * m_hat / (v_hat**0.5 + eps), m, v


# %%
gradients = [[0.001, 1.0, -1000.0], [0.001, -3.0, 0.0], [0.002, 0.5, 1.0]]
parameter = nn.Parameter(torch.full((3,), 2.0))
theirs = torch.optim.AdamW([parameter], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
p, m, v = torch.full((3,), 2.0), torch.zeros(3), torch.zeros(3)
for t, g in enumerate(gradients, 1):
    parameter.grad = torch.tensor(g)
    theirs.step()
    p, m, v = adamw(p, parameter.grad, m, v, t, lr=0.1, decay=0.1)
    torch.testing.assert_close(p, parameter.detach(), rtol=0, atol=1e-12)
print("three steps of three parameters: as torch.optim.AdamW")

# %% [markdown]
# The first step shows what Adam is like. There the corrected averages are g and g², so the fraction is g/|g|, the sign alone (but for ε). Take one parameter of value 2, the rate 0.01 and λ = 0.1, and three ways to have weight decay. How far does the parameter move?

# %%
rows = []
for g in (0.0, 0.001, 1.0, 1000.0):
    row = [f"{g:g}"]
    for kind, decay in [("SGD", 0.1), ("Adam", 0.1), ("AdamW", 0.1), ("AdamW", 0.0)]:
        one = nn.Parameter(torch.tensor([2.0]))
        one.grad = torch.tensor([g])
        getattr(torch.optim, kind)([one], lr=0.01, weight_decay=decay).step()
        row.append(2 - one.item())
    rows.append(row)
header = ["gradient", "SGD, λ in g", "Adam, λ in g", "AdamW", "AdamW, λ = 0"]
show_table(header, rows, "z.4f")
assert all(abs(row[4] - 0.01) < 1e-6 for row in rows[1:])  # ε is 1e-8 beside 0.001

# %% [markdown]
# SGD follows the size of the gradient. AdamW moves by the learning rate whatever the size, and by ηλθ more for the decay. In the older form, with λθ added to g, the division takes the decay's size away too: with no gradient at all the parameter moves by a full step. (In the paper λ is multiplied by the schedule alone; in PyTorch, as here, by the whole rate.)
#
# So the learning rate has a plain meaning here: about how far a parameter may go in one step, before decay. (Later steps are shorter where gradients change their sign, and can be longer where a large gradient comes after many small ones.) A loss multiplied by ten would move no parameter farther, but for ε.
#
# Decay pulls towards 0. For matrices and tables that is a mild preference for small weights. For a scale of LayerNorm, which starts at 1, or for a bias there is no such reason, and a common choice is to leave them out. The loop below makes two groups of parameters for this, by their number of axes.

# %%
decayed = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
free = sum(p.numel() for p in model.parameters() if p.ndim < 2)
print(f"{decayed + free:,} parameters: {decayed:,} with decay, {free:,} without")

# %% [markdown]
# ## The learning rate, step by step
#
# At the first steps v rests on few gradients, and each parameter goes nearly its full step, all at once. So the rate starts low and grows, which is called *warm-up*. Towards the end small steps are wanted, to settle. A common curve is a straight line up and half a cosine down (Loshchilov and Hutter, 2017, equation 5, without restarts). PyTorch has schedulers for both parts; they should say the same as the formula.

# %%
plan = TrainingConfig(steps, learning_rate=5e-3, min_learning_rate=5e-5, seed=seed)
rates = [learning_rate(step, plan) for step in range(steps)]
optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=plan.learning_rate)
up, schedulers = plan.warmup_steps, torch.optim.lr_scheduler
line = schedulers.LinearLR(optimizer, 1 / up, total_iters=up - 1)
cosine = schedulers.CosineAnnealingLR(optimizer, steps - 1 - up, plan.min_learning_rate)
both = schedulers.SequentialLR(optimizer, [line, cosine], milestones=[up])
for step in range(steps):
    assert math.isclose(rates[step], both.get_last_lr()[0], rel_tol=1e-9), step
    optimizer.step()
    both.step()
print("the same rate at all steps, to 1e-9 of it")

# %% [markdown]
# The tolerance is 1e-9, because PyTorch computes each rate from the one before and rounds at every step.

# %% jupyter={"source_hidden": true} tags=["hide-input"]
shown = [*range(0, steps, 10), steps - 1]
with figure(
    "learning_rate",
    alt="The learning rate over the steps: a short straight line up, then half a cosine down.",
    words=[
        f"The horizontal axis has the steps, 0 to {steps - 1}; the vertical one the learning rate.",
        f"It starts at {rates[0]:g} and grows in a straight line to {max(rates):g} at step {up - 1}.",
        "From there it falls along half a cosine: slowly, then faster, then slowly again.",
        f"At the last step it is {rates[-1]:g}.",
    ],
    data={"step": shown, "learning rate": [rates[step] for step in shown]},
) as ax:
    ax.plot(shown, [rates[step] for step in shown])
    ax.set(xlabel="step", ylabel="learning rate", ylim=(0, None))

# %% [markdown]
# ## Clipping
#
# One unlucky batch can have a gradient many times the usual. It would stay in the averages: m forgets a tenth of it at each step, v a twentieth of its square, and for as long as it fills v, the steps are too short. *Clipping* takes all gradients together as one long vector, and where that is longer than a limit it is shortened to the limit. All are multiplied by one factor, which keeps the direction. An example: two parameters whose gradients have the lengths 3 and 4, together √(9 + 16) = 5.

# %%
two = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
two[0].grad, two[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
before = nn.utils.clip_grad_norm_(two, max_norm=1.0).item()
after = torch.cat([p.grad for p in two])  # [3]
print(f"length before {before:.1f}, after {after.norm().item():.4f}")
print("clipped together:", rounded(after), "· each alone: [1.0, 0.0, 1.0]")
assert before == 5 and abs(after.norm().item() - 1) < 1e-6  # it divides by 5 + 1e-6

# %% [markdown]
# Clipped each alone, the two would have become equally long, and the direction another.
#
# ## The loop, and one batch first
#
# Now the parts can be put together. First the optimizer, with decay for one group of parameters and without for the other.


# %%
def adamw_for(model, decay):
    """AdamW, with weight decay for matrices and tables alone."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=decay)


# %% [markdown]
# A step is: set the rate; the loss; clear the old gradients, because PyTorch adds to them ([chapter 4](04_shortcuts.ipynb)); the new gradients; clip; move the parameters.


# %%
def train(model, batches, settings, loss_of=next_token_loss):
    """Train `model`, in place, one step for each batch; the loss before each step."""
    optimizer, losses = adamw_for(model, settings.weight_decay), []
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


# %% [markdown]
# ### Without the shift
#
# A loop as good as this one can train for the wrong thing. What if the targets are not shifted? Then each position is asked for the id that it has just read. A small model with one block is trained so.


# %%
def unshifted_loss(model, ids):
    """Wrong on purpose: the logits at t against the id at t."""
    return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


settings = TrainingConfig(100, 16, learning_rate=1e-2, warmup_steps=10)
copier = initialize(GPTModel(replace(small, n_layers=1)), seed)
losses = train(copier, ids[:1600].split(16), settings, unshifted_loss)
print("loss without the shift below 0.1:", losses[-1] < 0.1)
assert losses[-1] < 0.2

# %% [markdown]
# That is far below the least possible loss. What does this model say, and what is it worth as a prediction of the next id?

# %%
says = copier(few).argmax(dim=-1)  # [B, T]
copied = (says == few).double().mean().item()
print("says the id that it reads, 95 times in 100 or more:", copied > 0.95)
worse = next_token_loss(copier, few).item() > math.log(V)
print("as a prediction of the next id it is worse than an even guess:", worse)
assert worse

# %% [markdown]
# The model has learned to copy. Nothing in the loss tells that it is the wrong one, except that it is too good: a loss below what is possible is a mistake until the opposite is shown.
#
# ### One batch
#
# Before a long training, a short one: a model should be able to learn *one batch* by heart. If it cannot, there is no point in going on. The batch has one text for each of eight first words, so that the first id tells all the rest, and the loss on it can come as near to 0 as one likes. Beside the right model, five of the mistakes of [chapter 10](10_blind_spots.ipynb).

# %%
batch = ids[:80:10]  # the keywords come in order, ten for each first word
assert len({row[0] for row in batch.tolist()}) == len(batch) == 8
settings = TrainingConfig(100, 8, learning_rate=1e-2, warmup_steps=10)

# %%
from book_utils import mutate

names = ["softmax inside", "detached shortcut", "no causal mask"]
names += ["unbiased variance", "last block skipped"]
rows, learned = [], {}
for name in ["none", *names]:
    fresh = initialize(GPTModel(small), seed)
    fresh = fresh if name == "none" else mutate(fresh, name)
    learned[name] = train(fresh, [batch] * 100, settings)[-1] < 0.05
    rows.append([name, learned[name]])
show_table(["mistake", "one batch learned: loss below 0.05?"], rows)
assert learned["none"] and not learned["softmax inside"]

# %% [markdown]
# A softmax inside the model is found at once: its loss cannot come near 0, as exercise 7.3 computed. At the default seed a shortcut that holds back the gradient is found as well, since the loss is not there after so many steps, and the other three learn the batch like the right model. One of these sees the answers, since nothing hides the later ids from it, and its training would look splendid. So this check catches a model that *cannot learn*. It does not catch one that computes something else, or one that cheats. For those there are the checks of [chapter 10](10_blind_spots.ipynb), and text that the model writes.
#
# ### Drawn from the seed alone
#
# One more thing before the long run. `Trainer` is the library's form of `train`; the section on the final form compares the two. What it draws at random, the order of the texts and dropout, should follow from the seed alone, not from what else has drawn numbers before. So train twice, after different draws.

# %%
states = []
for noise in (0, 7):
    torch.manual_seed(noise)  # the state that the rest of a program may have left
    fresh = initialize(GPTModel(replace(small, drop_rate=0.1)), seed)
    twin = Trainer(fresh, ids, TrainingConfig(3, 16, seed=seed))
    global_state = torch.get_rng_state()
    while not twin.done:
        twin.step()
    assert torch.equal(global_state, torch.get_rng_state())
    states.append(fresh.state_dict())

# %%
same = all(torch.equal(states[0][name], states[1][name]) for name in states[0])
print("same seed, same weights to the last bit, dropout included:", same)
assert same

# %% [markdown]
# `Trainer` seeds what it draws with its own seed and the number of the step, and leaves PyTorch's global random state as it found it. To the last bit this holds on one machine with one number of threads. Another may add in another order.
#
# ## The training
#
# What the model writes is drawn by Python's random numbers, which are the same on every machine, from the probabilities of each next id, with the cache of [chapter 12](12_kv_cache.ipynb). All keywords are one batch.


# %%
from book_utils import KVCache, evaluating


def written_by(model, keywords, per_keyword, temperature):
    """(keyword, couplet) for each keyword, so often."""
    rows = [keyword for keyword in keywords for _ in range(per_keyword)]
    ids = torch.tensor([encode(f"{' '.join(row)} :") for row in rows])  # [B, 3]
    draw, cache, new = random.Random(seed), KVCache(model.cfg, len(rows)), ids
    with evaluating(model):
        while ids.shape[1] < TOKENS:
            logits = model(new, cache)[:, -1] / temperature  # [B, V]
            chances = logits.softmax(dim=-1).tolist()
            new = torch.tensor([draw.choices(range(V), p) for p in chances])  # [B, 1]
            ids = torch.cat([ids, new], dim=1)  # one id longer
    return list(zip(rows, [decode(text[3:]) for text in ids.tolist()], strict=True))


# %%
def count_accepted(written):
    return sum(accepts(couplet, keyword) for keyword, couplet in written)


# %% [markdown]
# First the untrained model.

# %%
model = initialize(GPTModel(cfg), seed)
untrained = count_accepted(written_by(model, kept_out, 8, temperature=0.7))
print(f"accepted before training: {untrained} of {8 * len(kept_out)}")
assert untrained == 0

# %% [markdown]
# Then `steps` steps of 64 texts each. The texts are read in a drawn order, all of them once before any comes again.

# %%
trainer = Trainer(model, ids, plan)
for _ in Progress(range(steps), "training"):
    trainer.step()
tail = sum(trainer.losses[-50:]) / 50
print(f"even guess {math.log(V):.2f}, least possible {least_loss():.2f}")
print("last fifty losses within 0.05 of the least:", tail < least_loss() + 0.05)
assert tail < least_loss() + 0.05

# %% [markdown]
# In the figure there is a third level. A model that knows only how often each word occurs, and nothing of what came before, loses the entropy of these frequencies.

# %% jupyter={"source_hidden": true} tags=["hide-input", "nbval-ignore-output"]
counts = torch.bincount(ids[:, 1:].flatten(), minlength=V)
frequencies = counts[counts > 0] / counts.sum()
by_frequency = -(frequencies * frequencies.log()).sum().item()
curve = torch.tensor(trainer.losses[: steps // 10 * 10]).view(-1, 10).mean(dim=1)
middle = [10 * n + 4.5 for n in range(len(curve))]
levels = {
    "even guess": math.log(V),
    "word frequencies": by_frequency,
    "least possible": least_loss(),
}
first_below = next(
    10 * n for n, loss in enumerate(curve.tolist()) if loss < by_frequency
)
with figure(
    "training_loss",
    alt="The training loss over the steps falls from the level of an even guess, steeply at first, and flattens just above the least possible loss.",
    words=[
        f"The horizontal axis has the steps, 0 to {steps - 1}; the vertical one the loss in nats, each point the mean of ten steps.",
        *(f"A level line marks {value:.2f}: {name}." for name, value in levels.items()),
        f"The first point is at {curve[0].item():.2f}, near the even guess.",
        f"From step {first_below} on the curve is below the level of word frequencies.",
        f"The last point is at {curve[-1].item():.2f}.",
    ],
    data={"step": middle, "loss": curve, "levels": list(levels.values())},
    tolerance=0.05,
) as ax:
    ax.plot(middle, curve.tolist(), label="training loss")
    for (name, value), style in zip(levels.items(), [":", "-.", "--"], strict=True):
        ax.axhline(
            value,
            color="#555555",
            linestyle=style,
            linewidth=1.4,
            label=f"{name}, {value:.2f}",
        )
    ax.set(xlabel="step", ylabel="loss, nats", ylim=(0, None))
    ax.legend()

# %% [markdown]
# The loss ends close above the least possible. It is the loss on texts of training, though. The language provides any number of new ones, so the same can be measured on texts that the model has never read.


# %%
@torch.no_grad()
def nats(model, ids):
    """The loss of each prediction: [N, T] -> [N, T - 1]."""
    log_p = model(ids[:, :-1]).log_softmax(dim=-1)  # [N, T - 1, V]
    return -log_p.gather(-1, ids[:, 1:, None])[..., 0]


# %% [markdown]
# The mean over 960 new texts is an estimate. Its *standard error*, the spread of the single values divided by the root of their number, says how far chance may have moved it; three of them are rarely exceeded.

# %%
fresh = texts(training, 960, seed + 1)  # [N, T]
of_each = nats(model, fresh).mean(dim=1)  # [N]
above = of_each.mean().item() - least_loss()
error = of_each.std().item() / len(fresh) ** 0.5
print("new texts: less than 0.05 above the least possible:", above < 0.05)
print("below it by three standard errors or more:", above < -3 * error)
assert -3 * error < above < 0.05

# %% [markdown]
# On texts that it has not read the model is as near to the least possible loss, and, as must be, not below it. Now the writing. Here is what the model writes for keywords that it has never seen, drawn at temperature 0.7.

# %% tags=["nbval-ignore-output"]
for keyword, couplet in written_by(model, kept_out[:couplets_shown], 1, 0.7):
    accepted = "accepted" if accepts(couplet, keyword) else "refused"
    print(f"{' '.join(keyword)}  ({accepted})")
    print("   " + couplet.replace(" , ", " ,\n   "))

# %% [markdown]
# Such lines are pleasant to read, and a few of them prove little. What was learned is measured, not admired.

# %% tags=["nbval-ignore-output"]
from book_utils.couplets import accepted_share

rows, shares = [], {}
for name, keywords in [("in training", training), ("kept out", kept_out)]:
    for temperature in (0.7, 1.0):
        written = written_by(model, keywords, 960 // len(keywords), temperature)
        shares[name, temperature] = count_accepted(written) / len(written)
        share = shares[name, temperature]
        rows.append([f"{name}, temperature {temperature}", share, share > 0.95])
    greedy = accepted_share(model, keywords, 1, temperature=0)
    rows.append([f"{name}, greedy", greedy, greedy > 0.95])
    assert greedy > 0.8 and shares[name, 0.7] > 0.8
show_table(["keywords", "share accepted", "more than 95 %?"], rows, "z.2f")

# %%
enough = {row[0]: row[2] for row in rows}
for way in ("temperature 0.7", "greedy"):
    print(f"kept out, {way}: more than 95 % accepted:", enough[f"kept out, {way}"])
apart = abs(shares["in training", 0.7] - shares["kept out", 0.7])
print("at temperature 0.7 the two shares are less than 0.05 apart:", apart < 0.05)
print("predictions in a couplet:", TOKENS - 3)

# %% [markdown]
# The keywords that were kept out do about as well as those of training. So the model has not learned a list of keywords with their couplets; it carries both words of a pair to the place where they belong, for pairs it has never met. Lower temperatures do better, since they keep to what is likely, and at temperature 1 every small error of the probabilities has its chance, seventeen times in a couplet.
#
# ## From the loss to the share
#
# The loss looks at the probabilities of texts that the grammar wrote. The share counts what the model wrote. An inequality ties the two. Let M be the number of acceptable couplets for a keyword, and q(c) the probability that the model, at temperature 1, writes the couplet c.
#
# The share that it gets right, in the long run, is the sum of q(c) over the M acceptable ones. That is the *arithmetic mean* of the M numbers M·q(c).
#
# The loss of a whole couplet is the sum over its predictions, −ln q(c). The grammar draws its couplets evenly from the same M, so on average it is the mean of −ln q(c) over them. Less ln M it is the mean of −ln(M·q(c)), which is minus the logarithm of the *geometric mean* of the same numbers. Call it the excess. A geometric mean is never more than the arithmetic one, so
#
# $$\text{share} \;\ge\; e^{-\text{excess}}, \qquad \text{excess} = \text{loss of a whole couplet} - \ln M.$$
#
# (In the language of information theory the excess is the Kullback–Leibler divergence from the grammar to the model, and the inequality a case of the data-processing inequality.) Both means can be estimated from couplets that the grammar writes; the share can be counted in what the model writes.

# %%
fresh = texts(kept_out, 960, seed + 1)  # by the grammar, for keywords kept out
excess = nats(model, fresh)[:, 2:].sum(dim=1) - math.log(couplets)  # [N]
bound = math.exp(-excess.mean().item())  # the geometric mean
ratios = (-excess).exp()  # [N], M times q(c)

# %% tags=["nbval-ignore-output"]
mean, of_mean = ratios.mean().item(), ratios.std().item() / len(ratios) ** 0.5
counted = shares["kept out", 1.0]
of_counted = (counted * (1 - counted) / 960) ** 0.5
print(f"bound {bound:.2f} · estimated share {mean:.2f} · counted {counted:.2f}")
agree = abs(counted - mean) < 4 * (of_counted**2 + of_mean**2) ** 0.5
print("estimated and counted share agree, within four standard errors:", agree)
assert bound <= mean and counted + 4 * of_counted > bound

# %% [markdown]
# Only the predictions after the colon count here: the couplet, given the keyword. For one prediction the excess is tiny, but a couplet has seventeen, and all of them must go well. A small loss on average is not yet a good text.
#
# ## What was learned, and what was not
#
# Were the couplets learned by heart? There are billions and the model has read thousands, so a couplet that it writes should hardly ever be one that it has read. And what does it think of a kept-out keyword itself, before it is asked to use it?

# %% tags=["nbval-ignore-output"]
read = {tuple(row) for row in ids.tolist()}
new = written_by(model, training, 8, 1.0)
copied = sum(tuple(encode(f"{' '.join(k)} : {c}")) in read for k, c in new)
print(f"{len(new)} couplets for keywords in training; in a training text: {copied}")
assert copied < 0.05 * len(new)

# %% tags=["nbval-ignore-output"]
rows = []
for name, keywords in [("in training", training), ("kept out", kept_out)]:
    loss = nats(model, texts(keywords, 240, seed + 1))[:, 0].mean().item()
    rows.append([name, loss])
rows.append(["ten even chances", math.log(10)])
show_table(["keywords", "loss of the second word, nats"], rows, "z.2f")
assert rows[1][1] > rows[2][1]

# %% [markdown]
# The couplets are new. But the kept-out pairs are a surprise to the model: their second words cost more than one of ten even chances. Training texts never have them, and it has learned *that* as well, as the loss asked of it. It can use such a pair when it is given one, and would seldom offer it. Both are right; they are answers to different questions.
#
# And this is all that was shown: a formal language with a fixed form, learned by a small model from as many texts as were wanted, all written by the grammar that judges. It says nothing about English, where nobody knows the least possible loss and no program accepts or refuses.
#
# ## What carries the training
#
# The chapters on normalization, shortcuts and the block left open what these do for training. Here they are changed, one at a time, in a narrower model of `depth` blocks: no shortcuts; the norms after the sums, as in post-norm, with the last norm kept; no norms at all, not even the last.


# %%
from book_utils import TransformerBlock


class NoShortcut(TransformerBlock):
    def forward(self, x):
        return self.ff(self.norm2(self.att(self.norm1(x))))


class PostNorm(TransformerBlock):
    def forward(self, x):
        u = self.norm1(x + self.att(x))
        return self.norm2(u + self.ff(u))


# %%
def variant(block=TransformerBlock, norms=True, n_layers=depth):
    """Always the same initial weights; PyTorch's, which presuppose no shortcuts."""
    torch.manual_seed(seed)
    model = GPTModel(replace(small, n_layers=n_layers))
    for part in model.trf_blocks:
        part.__class__ = block
        if not norms:
            part.norm1 = part.norm2 = nn.Identity()
    if not norms:
        model.final_norm = nn.Identity()
    return model


# %% [markdown]
# All else is the same: the initial numbers, the texts and their order, the learning rate. `Trainer` stops with an error where the loss is no longer finite; that would be the end of a curve.


# %%
def losses_of(model, largest=5e-3, warmup_steps=20):
    plan = TrainingConfig(80, 16, largest, warmup_steps, 0.0, seed=seed)
    trainer = Trainer(model, ids, plan)
    try:
        while not trainer.done:
            trainer.step()
    except FloatingPointError:  # the loss is no longer finite
        pass
    return trainer.losses


# %%
variants = {
    "as built": variant(),
    "no shortcuts": variant(NoShortcut),
    "post-norm": variant(PostNorm),
    "no LayerNorm": variant(norms=False),
}
reference = dict(variants["as built"].named_parameters())
for each in variants.values():
    assert all(torch.equal(p, reference[n]) for n, p in each.named_parameters())
curves = {name: losses_of(deepcopy(each)) for name, each in variants.items()}

# %% jupyter={"source_hidden": true} tags=["hide-input", "nbval-ignore-output"]
smooth = {
    name: [sum(c[n : n + 5]) / 5 for n in range(0, len(c) - 4, 5)]
    for name, c in curves.items()
}
with figure(
    "what_carries",
    alt=f"Training losses of four variants of a model with {depth} blocks, over 80 steps, with a level line for word frequencies.",
    words=[
        "The horizontal axis has the steps, 0 to 79; the vertical one the loss in nats, each point the mean of five steps.",
        f"A level line marks {by_frequency:.2f}: a model that knows the frequencies of words alone.",
        *(
            f"“{name}” starts at {c[0]:.2f}, is at {c[len(c) // 2]:.2f} half-way and ends at {c[-1]:.2f}."
            for name, c in smooth.items()
        ),
    ],
    data=smooth | {"word frequencies": by_frequency},
    tolerance=0.3,
    size=(6.4, 4.4),
) as ax:
    for (name, c), marker in zip(smooth.items(), "osD^", strict=True):
        ax.plot([5 * n + 2 for n in range(len(c))], c, marker=marker, label=name)
    style = {"color": "#555555", "linewidth": 1.2, "linestyle": "-"}
    ax.axhline(by_frequency, label="word frequencies", **style)
    ax.set(xlabel="step", ylabel="loss, nats")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)

# %% [markdown]
# At the default depth and seed, one curve stands apart. Without shortcuts the loss comes down to the level of word frequencies and stays there, where a model ends that has learned which words are common, and nothing that depends on the text or on the place in it. The other three learn. LayerNorm, which every GPT has, is not needed for that here; the model without it is even ahead.
#
# One thing that the model without shortcuts is up against can be seen before any training. Attention averages over positions. With nothing to pass around it, one average is averaged again, layer by layer, until all positions carry nearly the same vector. (Dong, Cordonnier and Loukas, 2021, prove a form of this for attention alone, without a mask.) Here is the mean cosine between the vectors of two positions, after the last norm of a fresh model.


# %%
def mean_cosine(model):
    """Between two positions of a text, on average."""
    x = model.tok_emb(few) + model.pos_emb.weight  # [B, T, D], T = C
    for part in model.trf_blocks:
        x = part(x)  # [B, T, D]
    x = F.normalize(model.final_norm(x), dim=-1)
    different = ~torch.eye(TOKENS, dtype=torch.bool)  # [T, T]
    return (x @ x.transpose(1, 2))[:, different].mean().item()  # of [B, T, T]


# %%
rows = []
for n_layers in sorted({1, 2, depth}):
    blocks = TransformerBlock, NoShortcut
    models = [variant(block, n_layers=n_layers) for block in blocks]
    rows.append([n_layers, *map(mean_cosine, models)])
show_table(["blocks", "as built", "no shortcuts"], rows, "z.2f")
assert all(without > with_ for _, with_, without in rows)

# %% [markdown]
# Does the figure give a ranking? It is one size, one seed, one learning rate, one kind of initial weights. Change one of them, and see what becomes of it: the model without shortcuts with a single block; and the two orders of norm and sum at four times the rate, with and without warm-up.

# %%
fast = 2e-2
runs = {
    "no shortcuts, 1 block": losses_of(variant(NoShortcut, n_layers=1)),
    "as built, rate × 4, no warm-up": losses_of(variant(), fast, 0),
    "post-norm, rate × 4, no warm-up": losses_of(variant(PostNorm), fast, 0),
    "post-norm, rate × 4, warm-up": losses_of(variant(PostNorm), fast),
}

# %% tags=["nbval-ignore-output"]
rows = []
for name, c in {**curves, **runs}.items():
    end = sum(c[-10:]) / len(c[-10:])
    finite = len(c) == 80
    shown_end = f"{end:.1f}" if finite else "not finite"
    rows.append([name, shown_end, finite and end < by_frequency - 0.5])
show_table(["run", "loss, last ten steps", "well below word frequencies?"], rows)

# %%
stuck = [row[0] for row in rows if not row[2]]
print("not well below word frequencies:", " · ".join(stuck) or "none")

# %% [markdown]
# At the default seed one block learns without shortcuts. And, at the default depth besides, post-norm, which did as well as pre-norm in the figure, does not get past the word frequencies at the higher rate unless it is warmed up, while the model as built takes the same rate from the first step. That agrees with what Xiong et al. (2020) report of the two orders. Still it is an observation about a small model, one seed and 80 steps. What the runs do show is how easily a comparison is turned round: whoever tunes the rate for one variant and gives it to the other may have decided the outcome. A difference between two trainings is a finding about both *and* their settings.
#
# ## Stop, and go on
#
# Long trainings are interrupted. One that goes on should compute what it would have computed without the stop, to the last bit. Which numbers must be kept for that? A step is a function of the weights, of AdamW's two averages and its count of steps, and of the number of the step, which gives the rate, the texts and the seed of dropout.


# %%
def small_trainer(n_steps=8, **changes):
    model = initialize(GPTModel(replace(small, drop_rate=0.1)), seed)
    return Trainer(model, ids, TrainingConfig(n_steps, 16, seed=seed, **changes))


def run(trainer, until):
    while len(trainer.losses) < until:
        trainer.step()
    return trainer


# %% [markdown]
# `save` writes them to a file, a *checkpoint*, and `load` reads it. One training runs through; another is stopped half-way, and a new `Trainer` goes on from its file.


# %%
def same_weights(a, b):
    pairs = zip(a.model.parameters(), b.model.parameters(), strict=True)
    return all(torch.equal(p, q) for p, q in pairs)


# %%
import tempfile
from pathlib import Path

whole = run(small_trainer(), 8)
folder = tempfile.TemporaryDirectory()  # removed at the end
path = Path(folder.name) / "halfway.safetensors"
run(small_trainer(), 4).save(path)
resumed = small_trainer()
resumed.load(path)
half = deepcopy(resumed.model.state_dict())
print("stopped and gone on, same weights:", same_weights(whole, run(resumed, 8)))
assert same_weights(whole, resumed)

# %% [markdown]
# A third has the weights of the file and nothing else of it.

# %%
weights_only = small_trainer()
weights_only.model.load_state_dict(half)
weights_only.losses = whole.losses[:4]  # their number is the number of the step
run(weights_only, 8)
print("with the weights alone, same weights:", same_weights(whole, weights_only))
assert not same_weights(whole, weights_only)

# %% [markdown]
# With the weights alone, AdamW starts anew: its averages are 0, its steps are counted from 1, and the first steps are full ones again. What is in the file?

# %%
from safetensors.torch import load_file

kept, rows = load_file(path), []
for kind in ("model", "exp_avg", "exp_avg_sq", "step", "losses"):
    found = [x.numel() for name, x in kept.items() if name.partition(".")[0] == kind]
    rows.append([kind, len(found), sum(found)])
show_table(["kind", "tensors", "numbers"], rows, int_format=",")
assert rows[0][1:] == rows[1][1:] == rows[2][1:] and rows[4][2] == 4

# %% [markdown]
# For each parameter the weight, the two averages m and v, and AdamW's count of steps: three times as much as the model. The losses say at which step it was. The order of the texts and the state of dropout need no place, because they follow from the seed and the step.
#
# The file is safetensors: names, shapes and numbers, and no pickle, which could run code when it is read. It is written beside the old one and then takes its name, so that an interruption leaves either the old or the new one whole. And it says which training it belongs to. Another, here one with another learning rate, is refused:

# %%
try:
    small_trainer(learning_rate=1e-3).load(path)
except ValueError as error:
    start, _, rest = str(error).replace(str(path), path.name).partition(". ")
folder.cleanup()
print(start + ".")
print("named as different:", rest.partition(":")[0])

# %% [markdown]
# ## More processes
#
# The work of a step can be shared. In *data parallel* training each process has the whole model and takes its share of every batch; then the gradients are averaged over the processes, and each makes the same step. On the shell:
#
# ```
# python -m book_utils train
# torchrun --nproc-per-node 2 -m book_utils train
# ```
#
# Both train a model of this chapter's default size (in float32, at a higher rate) and write some couplets. Why may the gradients be averaged? The loss of the batch is a mean, the gradient is linear, and the mean of a whole is the mean of the means of its parts, if the parts have the same size. That can be checked in one process.


# %%
def gradient(batch, limit=math.inf):
    """All gradients of the loss on a batch as one vector, clipped to the limit."""
    model.zero_grad()
    next_token_loss(model, batch).backward()
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    return torch.cat([p.grad.flatten() for p in model.parameters()])


# %%
together = ids[:16]
full = gradient(together)
limit = full.norm().item() / 2
clipped = gradient(together, limit)

# %%
halves = together.split(8)
parts = {
    "halves": (full, [gradient(half) for half in halves]),
    "4 and 12 texts": (full, [gradient(together[:4]), gradient(together[4:])]),
    "halves, each clipped": (clipped, [gradient(half, limit) for half in halves]),
}
rows = []
for name, (whole_batch, found) in parts.items():
    difference = (sum(found) / 2 - whole_batch).abs().max().item()
    rows.append([name, difference < 1e-12])
show_table(["mean of the gradients of", "that of the whole batch, to 1e-12?"], rows)
assert [same for _, same in rows] == [True, False, False]

# %% [markdown]
# Equal halves give the gradient of the whole, up to rounding. Unequal ones do not: each text of the smaller part counts for more. This is why `Trainer` refuses a batch that the processes cannot share evenly. And clipping comes after the averaging: clipped parts do not average to the clipped whole. With dropout, each process draws its own, and the result depends on their number.
#
# ## The final form
#
# The module [book_utils/training.py](../book_utils/training.py) has what was used here: `initialize`, `next_token_loss`, `learning_rate`, `TrainingConfig` and `Trainer`. Is `Trainer` the loop `train`? Its order of the texts is the one that `torch.randperm` draws from the seed, for each pass over the texts anew. Given these batches, `train` should end with the same weights. `Trainer` uses AdamW's fused form, one routine for all parameters, which may round differently; the check allows 1e-9 for what ten steps make of that.

# %%
short = TrainingConfig(10, 16, warmup_steps=3, seed=seed)
order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))
batches = ids[order[: 10 * 16]].split(16)
plain = initialize(GPTModel(small), seed)
losses = train(plain, batches, short)
final = Trainer(initialize(GPTModel(small), seed), ids, short)
run(final, 10)
for p, q in zip(plain.parameters(), final.model.parameters(), strict=True):
    torch.testing.assert_close(p, q, rtol=0, atol=1e-9)
torch.testing.assert_close(losses, final.losses, rtol=0, atol=1e-9)
print("ten steps: the same losses and the same weights, to 1e-9")

# %% [markdown]
# What `Trainer` adds is the checks before a training begins, the error where a loss is not finite, and everything about stopping and sharing.
#
# ## The results of this run
#
# What was learned in a few numbers: the loss on new texts beside the least possible one, the share of accepted couplets beside its bound, and where two of the compared models ended. Except for the least loss they are outcomes of trainings, so their digits are those of one machine, one seed and one schedule. A rerun with other parameters gives these results again, under the same names.

# %% tags=["nbval-ignore-output"]
ends = {name: sum(c[-10:]) / len(c[-10:]) for name, c in curves.items()}
publish(
    [
        ("least_loss", least_loss(), "least possible loss, in nats"),
        ("new_texts_loss", of_each.mean(), "loss on texts never read, in nats"),
        ("accepted_share", shares["kept out", 1.0], "of couplets, keywords kept out"),
        ("share_bound", bound, "the bound on that share, from the loss"),
        ("loss_as_built", ends["as built"], f"depth {depth}, last ten of 80 steps"),
        ("loss_no_shortcuts", ends["no shortcuts"], "the same without shortcuts"),
    ]
)

# %% [markdown]
# ## When it goes wrong
#
# | Symptom | Cause | How to tell | Mend |
# |---|---|---|---|
# | The loss of a training starts far above ln V | too large initial weights, often a tied table drawn from N(0, 1) | print the standard deviation of the first logits | draw small initial weights, as `initialize` does |
# | The training loss falls below what is possible | targets that are not shifted, or a mask that lets later ids through | print inputs and targets side by side; change a later id and compare earlier logits | shift the targets by one; mend the mask |
# | The training loss stays at the level of word frequencies | what differs between positions does not reach the head, as without shortcuts, or the learning rate is too high | the cosine between the vectors of two positions; a training at a lower rate, with warm-up | mend the block; lower the rate |
# | The training loss falls a little, and not even one batch is learned by heart | a softmax inside the model, or a gradient that is cut | do the outputs sum to 1 in each row? does the embedding have the gradient of a right model? | return logits; no `detach` on the way |
# | The training loss becomes NaN | softmax and logarithm one after the other, or a learning rate that is too high | find the step where it begins, and the length of the gradient before it | `F.cross_entropy` on logits; warm-up and clipping |
# | A training is erratic, or diverges | old gradients are not cleared, so they add up | print a gradient just before `backward()`: it should be `None` or 0 | `optimizer.zero_grad()` in each step |
# | The training loss jumps after going on from a file | the weights were kept, the optimizer's averages were not | compare with a run that was not stopped | save the optimizer's state and the number of the step too |
# | Low loss in training, high loss on new texts | the training texts were learned by heart | measure the loss on texts that were kept out | more texts, fewer steps, or a smaller model |
# | A good loss, but bad generated texts | dropout is still on, or a small error at each id adds up over a text | print `model.training`; add up the loss over a whole text | generate in eval mode; a lower temperature |
# | Two trainings with one seed end with different weights | another thread count, machine or precision adds in another order | repeat on one thread, in float64, on one machine | compare to a tolerance, or compare claims |
#
# ## Exercises
#
# ::::{admonition} Exercise 13.1 · Shift it yourself
#
# `logits` are the model's output for all of `ids`: `[B, T, V]` and `[B, T]`. Return the mean loss of next-token prediction.
#
# ::::


# %% tags=["exercise"]
def loss_from_logits(logits, ids):
    """[B, T, V] and [B, T] -> a tensor without axes"""
    ...  # your lines here


check("13.1", loss_from_logits)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
# ```
#
# The logits at the last position predict an id that is not there. Giving the model `ids[:, :-1]` in the first place, as `next_token_loss` does, saves their computation and gives the same loss, since no position looks ahead.
#
# ::::
#
# ::::{admonition} Exercise 13.2 · The rate at a step
#
# Return the learning rate at `step` (0, 1, …, `steps` − 1). It grows in a straight line over `warmup` steps, so that the last of these has the `largest` rate and the first has `largest / warmup`. The step after them has the `largest` once more, and from there it falls along half a cosine to the `smallest` at the last step. `steps` is at least `warmup + 2`.
#
# ::::


# %% tags=["exercise"]
def rate_at(step, steps, warmup, largest, smallest):
    """A number"""
    ...  # your lines here


check("13.2", rate_at)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# if step < warmup:
#     return largest * (step + 1) / warmup
# done = (step - warmup) / (steps - 1 - warmup)  # 0 .. 1
# return smallest + (largest - smallest) * (1 + math.cos(math.pi * done)) / 2
# ```
#
# A rate of 0 at step 0 would waste a step; hence `step + 1`. The last step has the number `steps - 1`.
#
# ::::
#
# ::::{admonition} Exercise 13.3 · The first step
#
# Return the value of a parameter `p` after the *first* step of AdamW, with the gradient `g`, learning rate `lr`, weight decay `decay` and `eps`. It does not depend on the two betas. Why?
#
# ::::


# %% tags=["exercise"]
def first_step(p, g, lr, decay, eps):
    """The new value; all arguments are numbers"""
    ...  # your line here


check("13.3", first_step)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# return p - lr * decay * p - lr * g / (abs(g) + eps)
# ```
#
# After one step m is (1 − β₁)·g, and the correction divides it by 1 − β₁. The same happens to v, so its root is |g|. What is left is the sign of g, nearly; ε matters where the gradient is as small as ε itself.
#
# ::::
#
# ::::{admonition} Exercise 13.4 · The floor of one batch
#
# The batch above could be learned to a loss of 0, because its texts had different first ids. In general it cannot: where two texts agree up to some position and then part, no model can know which of them it is reading. Given `rows`, a list of lists of ids, all of the same length, return the least mean loss, in nats, that any model can have on exactly these rows. The best it can do at each place is the share of rows that go on like this one, among those that began alike.
#
# ::::


# %% tags=["exercise"]
def floor_of(rows):
    """The least mean loss over all predictions of all rows"""
    ...  # your lines here


check("13.4", floor_of)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# total = 0.0
# for row in rows:
#     for t in range(1, len(row)):
#         alike = [other for other in rows if other[:t] == row[:t]]
#         total -= math.log(sum(other[t] == row[t] for other in alike) / len(alike))
# return total / (len(rows) * (len(rows[0]) - 1))
# ```
#
# Try it on the first rows of training, `floor_of(ids[:8].tolist())`, which all begin with the same word, and on `batch.tolist()`. The whole training set has such a floor, too; with texts this varied it lies far below the least loss of the language, and only learning by heart leads there.
#
# ::::
#
# ## What you have now
#
# - The loss with its shift, and two numbers to hold it against: ln V at the start, and the entropy of the language, below which no model stays on new texts.
# - A loop of which each line is known, that goes on after a stop as if there had been none, and whose gradients may be shared in equal parts.
# - A model that writes acceptable couplets for keywords it has never seen, a bound that ties this to the loss, and comparisons that name their seed, size and rate.
#
# It can learn. With that the route is complete: a shell was filled part by part, the parts were counted and compared with other implementations, the checks were checked, and the model was made to write, to write fast, and to learn. What the book leaves out is what makes such a model useful: a tokenizer that is itself trained, texts that people wrote and their cleaning, evaluation where no grammar judges, fine-tuning, and scale, with all the engineering it asks for. None of these changes the route from ids to logits. For GPT-2 they are described in the report of Radford et al.; S. Raschka's book goes on with training on text and with fine-tuning.
#
# **Sources.** D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2015, arXiv:1412.6980, algorithm 1. I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019, arXiv:1711.05101, algorithm 2; "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017, arXiv:1608.03983, equation 5. R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", 2013, arXiv:1211.5063 (clipping the length of the gradient). A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 (the initial weights of residual layers); its reference code, `src/model.py` of openai/gpt-2 (0.02 and 0.01). T. Brown et al., "Language Models are Few-Shot Learners", 2020, arXiv:2005.14165, appendix B (the betas 0.9 and 0.95, clipping at 1, weight decay 0.1, warm-up and cosine). R. Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020, arXiv:2002.04745. K. He et al., "Deep Residual Learning for Image Recognition", 2016, arXiv:1512.03385. Y. Dong, J.-B. Cordonnier, A. Loukas, "Attention is Not All You Need: Pure Attention Loses Rank Doubly Exponentially with Depth", 2021, arXiv:2103.03404. T. M. Cover, J. A. Thomas, "Elements of Information Theory", 2nd edition, 2006, chapter 2. A. Karpathy, "A Recipe for Training Neural Networks", 2019 (the loss at the start, overfitting one batch). S. Raschka, "Build a Large Language Model (From Scratch)", 2024, chapter 5.
