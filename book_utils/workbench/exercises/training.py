"""The exercises of chapter 13."""

import math

import torch
from torch.nn import functional as F

from book_utils.workbench.exercises import Exercise

_IDS = torch.tensor([[3, 0, 4, 1], [2, 2, 4, 0], [1, 4, 0, 3]])  # [B, T]
_LOGITS = torch.arange(60, dtype=torch.float64).view(3, 4, 5).sin() * 3  # [B, T, V]


def _loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _right_chances(logits, ids):
    """The probability that each right next id was given."""
    return logits[:, :-1].softmax(dim=-1).gather(-1, ids[:, 1:, None])


def _rate(step, steps, warmup, largest, smallest, first=1, ends=1, halves=1.0, since=None, floor=None):
    """The schedule; what the keywords change is a mistake each."""
    if step < warmup:
        return largest * (step + first) / warmup
    since = warmup if since is None else since
    done = (step - since) / (steps - ends - since)
    floor = smallest if floor is None else floor
    return floor + (largest - floor) * (1 + math.cos(halves * math.pi * done)) / 2


def _first_step(p, g, lr, decay, eps):
    return p - lr * decay * p - lr * g / (abs(g) + eps)


def _old_adam(p, g, lr, decay, eps):
    g = g + decay * p
    return p - lr * g / (abs(g) + eps)


def _floor(rows, start=1, context=None, alike=None, mean=True, base=math.e):
    """The least mean loss; what the keywords change is a mistake each."""
    total, terms = 0.0, 0
    for row in rows:
        for t in range(start, len(row)):
            first = 0 if context is None else max(0, t - context)
            others = [other for other in rows if other[first:t] == row[first:t]]
            total -= math.log(sum(other[t] == row[t] for other in others) / (alike or len(others)), base)
            terms += 1
    return total / (terms if mean else len(rows))


def _per_beginning(rows):
    """Every different beginning counts once, whatever the number of rows that have it."""
    terms = {}
    for row in rows:
        for t in range(1, len(row)):
            alike = [other for other in rows if other[:t] == row[:t]]
            terms[tuple(row[: t + 1])] = -math.log(sum(other[t] == row[t] for other in alike) / len(alike))
    return sum(terms.values()) / len(terms)


def _mean_share(rows):
    """The share itself in place of its negative logarithm."""
    shares = []
    for row in rows:
        for t in range(1, len(row)):
            alike = [other for other in rows if other[:t] == row[:t]]
            shares.append(sum(other[t] == row[t] for other in alike) / len(alike))
    return sum(shares) / len(shares)


_ROWS = [
    [[1, 2, 3], [1, 2, 4], [1, 5, 3], [1, 2, 4]],
    [[0, 7, 1, 1], [0, 7, 2, 5], [3, 7, 1, 2], [3, 7, 1, 2], [3, 4, 1, 6]],
    [[4, 1, 2], [5, 1, 3]],
]

EXERCISES = {
    "13.1": Exercise(
        answer=lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:]),
        inputs=[(_LOGITS, _IDS), (_LOGITS[:1, :2], _IDS[:1, :2])],
        mistakes={
            "No shift: each position is asked for the id that it reads.": _loss,
            "Logits and ids both lose their last, so nothing is shifted: cut the last logits and the first id.": (
                lambda logits, ids: _loss(logits[:, :-1], ids[:, :-1])
            ),
            "Logits and ids both lose their first, so nothing is shifted: cut the last logits and the first id.": (
                lambda logits, ids: _loss(logits[:, 1:], ids[:, 1:])
            ),
            "The shift goes over the flattened batch, so a text's last position predicts the next text's first id.": (
                lambda logits, ids: F.cross_entropy(logits.flatten(0, 1)[:-1], ids.flatten()[1:])
            ),
            "The shift is by two: the logits at t score the id at t + 1.": lambda logits, ids: _loss(
                logits[:, :-2], ids[:, 2:]
            ),
            "This is the mean of the probabilities; take −ln of each first.": lambda logits, ids: _right_chances(
                logits, ids
            ).mean(),
            "The mean was taken before the logarithm; the loss is the mean of the logarithms.": lambda logits, ids: (
                -_right_chances(logits, ids).mean().log()
            ),
            "The shift is turned round: logits at t + 1 against the id at t. They have seen it.": lambda logits, ids: (
                _loss(logits[:, 1:], ids[:, :-1])
            ),
            "The last position predicts the first id of its text here; it has no successor, so leave it out.": (
                lambda logits, ids: _loss(logits, ids.roll(-1, dims=1))
            ),
            "These are probabilities, taken for scores: cross_entropy does softmax itself.": lambda logits, ids: _loss(
                logits[:, :-1].softmax(dim=-1), ids[:, 1:]
            ),
            "This is the sum over all predictions; the mean is asked for.": lambda logits, ids: F.cross_entropy(
                logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"
            ),
            "The sum over the positions, then the mean over the texts; take the mean over all predictions.": (
                lambda logits, ids: _loss(logits[:, :-1], ids[:, 1:]) * (ids.shape[1] - 1)
            ),
            "Only the last prediction of each text counts here; all T - 1 do.": lambda logits, ids: F.cross_entropy(
                logits[:, -2], ids[:, -1]
            ),
            "These are the losses one by one; return their mean.": lambda logits, ids: F.cross_entropy(
                logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
            ),
            "The sign is turned: a loss is the negative logarithm, 0 at best.": lambda logits, ids: (
                -_loss(logits[:, :-1], ids[:, 1:])
            ),
        },
    ),
    "13.2": Exercise(
        answer=_rate,
        inputs=[(step, 20, 5, 0.1, 0.01) for step in (0, 2, 4, 5, 6, 11, 19)]
        + [(step, 8, 0, 0.5, 0.0) for step in (0, 3, 7)],
        atol=1e-10,
        mistakes={
            "The rate is 0 at step 0; the first step should have largest / warmup.": (
                lambda *args: _rate(*args, first=0)
            ),
            "The last step has the number steps - 1, so the curve should be at its end there.": (
                lambda *args: _rate(*args, ends=0)
            ),
            "The cosine should begin where the warm-up ends, not at step 0.": lambda *args: _rate(*args, since=0),
            "The fall begins one step too early: the step after the warm-up has the largest rate once more.": (
                lambda step, steps, warmup, *rates: _rate(step, steps, warmup, *rates, since=warmup - 1)
            ),
            "The cosine rises from the smallest to the largest; it should fall: 1 + cos, from 1 to -1.": (
                lambda *args: _rate(*args) if args[0] < args[2] else args[3] + args[4] - _rate(*args)
            ),
            "These are degrees; `math.cos` wants radians, from 0 to math.pi.": lambda *args: _rate(
                *args, halves=180 / math.pi
            ),
            "1 + cos goes from 2 to 0; halve it.": lambda step, steps, warmup, largest, smallest: (
                _rate(step, steps, warmup, largest, smallest)
                if step < warmup
                else 2 * _rate(step, steps, warmup, largest, smallest) - smallest
            ),
            "A whole cosine comes back up; take half of one, from 0 to π.": lambda *args: _rate(*args, halves=2.0),
            "A quarter of a cosine ends half-way; take half of one, from 0 to π.": lambda *args: _rate(
                *args, halves=0.5
            ),
            "The curve ends at 0; it should end at the smallest.": lambda *args: _rate(*args, floor=0.0),
            "There is no warm-up yet.": lambda step, steps, warmup, largest, smallest: _rate(
                step, steps, 0, largest, smallest
            ),
            "This is a straight line down; the fall is half a cosine.": (
                lambda step, steps, warmup, largest, smallest: (
                    _rate(step, steps, warmup, largest, smallest)
                    if step < warmup
                    else largest + (smallest - largest) * (step - warmup) / (steps - 1 - warmup)
                )
            ),
            "The smallest is added on top, so the largest is exceeded; only the difference is to be scaled.": (
                lambda step, steps, warmup, largest, smallest: (
                    _rate(step, steps, warmup, largest, smallest)
                    if step < warmup
                    else smallest + largest * (1 + math.cos(math.pi * (step - warmup) / (steps - 1 - warmup))) / 2
                )
            ),
        },
    ),
    "13.3": Exercise(
        answer=_first_step,
        inputs=[
            (2.0, 0.5, 0.1, 0.1, 1e-8),
            (-1.0, -30.0, 0.01, 0.2, 1e-8),
            (3.0, 0.001, 0.1, 0.0, 0.001),
            (1.5, 0.0, 0.1, 0.5, 1e-8),
        ],
        atol=1e-10,
        mistakes={
            "The decay is missing.": lambda p, g, lr, decay, eps: _first_step(p, g, lr, 0.0, eps),
            "The decay is multiplied by the learning rate as well.": lambda p, g, lr, decay, eps: (
                p - decay * p - lr * g / (abs(g) + eps)
            ),
            "This adds the decay to the gradient, where the division takes its size away; that is Adam, not AdamW.": (
                _old_adam
            ),
            "This is plain gradient descent; Adam divides by the size of the gradient.": lambda p, g, lr, decay, eps: (
                p - lr * decay * p - lr * g
            ),
            "The averages are not corrected: m is (1 - β₁)·g and v is (1 - β₂)·g² until they are divided.": (
                lambda p, g, lr, decay, eps: p - lr * decay * p - lr * 0.1 * g / (math.sqrt(0.05) * abs(g) + eps)
            ),
            "m is corrected here, v is not: its root is √(1 - β₂)·|g| until v is divided by 1 - β₂.": (
                lambda p, g, lr, decay, eps: p - lr * decay * p - lr * g / (math.sqrt(0.05) * abs(g) + eps)
            ),
            "v is corrected here, m is not: it is (1 - β₁)·g until it is divided by 1 - β₁.": (
                lambda p, g, lr, decay, eps: p - lr * decay * p - lr * 0.1 * g / (abs(g) + eps)
            ),
            "The sign of the gradient is lost: the numerator is g, only the divisor is |g|.": (
                lambda p, g, lr, decay, eps: p - lr * decay * p - lr * abs(g) / (abs(g) + eps)
            ),
            "The decay takes a share of p, so it is lr * decay * p.": lambda p, g, lr, decay, eps: (
                p - lr * decay - lr * g / (abs(g) + eps)
            ),
            "The decay takes a share of the old value, not of what the step has left.": lambda p, g, lr, decay, eps: (
                (p - lr * g / (abs(g) + eps)) * (1 - lr * decay)
            ),
            "The decay pulls towards 0: it is subtracted.": lambda p, g, lr, decay, eps: (
                p + lr * decay * p - lr * g / (abs(g) + eps)
            ),
            "eps stands beside the root, not inside.": lambda p, g, lr, decay, eps: (
                p - lr * decay * p - lr * g / math.sqrt(g * g + eps)
            ),
            "v is an average of squares, so its root divides: |g| and not g².": lambda p, g, lr, decay, eps: (
                p - lr * decay * p - lr * g / (g * g + eps)
            ),
            "eps is missing. It matters where the gradient is as small as eps, or 0.": lambda p, g, lr, decay, eps: (
                p - lr * decay * p - lr * ((g > 0) - (g < 0))
            ),
            "This goes up: the step is subtracted.": lambda p, g, lr, decay, eps: (
                p - lr * decay * p + lr * g / (abs(g) + eps)
            ),
            "This is the change; the new value is asked for.": lambda p, g, lr, decay, eps: (
                _first_step(p, g, lr, decay, eps) - p
            ),
        },
    ),
    "13.4": Exercise(
        answer=_floor,
        inputs=[(rows,) for rows in _ROWS],
        atol=1e-10,
        mistakes={
            "The first id is not predicted, since nothing comes before it.": lambda rows: _floor(rows, start=0),
            "A model sees all ids before, not only the last one.": lambda rows: _floor(rows, context=1),
            "This is the entropy of the ids at each place; what came before tells more.": lambda rows: _floor(
                rows, context=0
            ),
            "The share is among the rows that began alike, not among all rows.": lambda rows: _floor(
                rows, alike=len(rows)
            ),
            "This is the loss of a whole row; divide by its predictions as well.": lambda rows: _floor(
                rows, mean=False
            ),
            "These are bits; a nat has the natural logarithm.": lambda rows: _floor(rows, base=2),
            "Divide by the T - 1 predictions of a row, not by its T ids.": lambda rows: (
                _floor(rows) * (len(rows[0]) - 1) / len(rows[0])
            ),
            "The sign is turned: the loss is the negative logarithm of the share.": lambda rows: -_floor(rows),
            "This is the mean of the shares; the loss is the mean of their negative logarithms.": _mean_share,
            "A beginning that several rows share counts for each of them.": _per_beginning,
            "0 can be reached only where no two rows part after the same beginning.": lambda rows: 0.0,
        },
    ),
}
