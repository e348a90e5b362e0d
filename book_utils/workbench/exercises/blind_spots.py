"""The exercises of chapter 10."""

import math

import torch
from torch import nn

from book_utils import GPTConfig, GPTModel, mutate
from book_utils.workbench.exercises import Exercise

_CFG = GPTConfig(vocab_size=7, context_length=6, emb_dim=8, n_heads=2, n_layers=1)
_IDS = torch.tensor([[3, 0, 6, 1, 0, 5], [2, 2, 4, 0, 0, 6]])  # [B, T]; both have 0 at position 4


class _Leak(nn.Module):
    """One position sees one later id, and nothing else is wrong."""

    def __init__(self, model, position, seen):
        super().__init__()
        self.model, self.position, self.seen = model, position, seen

    def forward(self, ids):
        logits = self.model(ids)
        if ids.shape[1] > self.seen:
            logits[:, self.position] += self.model.tok_emb(ids[:, self.seen])[:, : logits.shape[-1]]
        return logits


def _models():
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        right = GPTModel(_CFG).double().eval().requires_grad_(False)
    wrong = [mutate(right, name) for name in ("mask off by one", "no causal mask", "softmax inside")]
    return [right, *wrong, *(_Leak(right, *where) for where in [(1, 3), (2, 4), (2, 5), (2, 3)])]


def _moved(model, ids, changed_at, V):
    """How far each position moves, [T], when the ids at one position are others."""
    changed = ids.clone()
    changed[:, changed_at] = (changed[:, changed_at] + 1) % V
    return (model(changed) - model(ids)).abs().amax(dim=(0, 2))


def _with(ids, position, value):
    changed = ids.clone()
    changed[:, position] = value
    return changed


def _looks_ahead(model, ids, V):
    return any(_moved(model, ids, t, V)[:t].max().item() > 1e-9 for t in range(1, ids.shape[1]))


def _suspects(matrix, row):
    return [name for name in matrix if matrix[name] == row]


def _rows(**seen):
    return {name: {check: check in checks for check in "PQRS"} for name, checks in seen.items()}


_SMALL = _rows(k="PQ", l="PQR", m="Q", n="PQ", o="S")


def _off_by(variance, eps):
    return math.sqrt(variance + eps) / (math.sqrt(variance) + eps) - 1


EXERCISES = {
    "10.1": Exercise(
        answer=_looks_ahead,
        inputs=[(model, _IDS, _CFG.vocab_size) for model in _models()],
        mistakes={
            "This accuses nobody. The first id has none before it; ids changed in place are the same.": (
                lambda model, ids, V: _moved(model, ids, 0, V)[:0].sum().item() > 1e-9
            ),
            "Writing one fixed id changes nothing where it stands already; take another id at each place.": (
                lambda model, ids, V: any(
                    (model(_with(ids, t, 0)) - model(ids))[:, :t].abs().max().item() > 1e-9
                    for t in range(1, ids.shape[1])
                )
            ),
            "This accuses the right model too: only the positions before the changed one may not move.": (
                lambda model, ids, V: any(
                    _moved(model, ids, t, V)[: t + 1].max().item() > 1e-9 for t in range(1, ids.shape[1])
                )
            ),
            "A mask that is off by one moves the neighbour and not position 0; look at all earlier positions.": (
                lambda model, ids, V: _moved(model, ids, ids.shape[1] - 1, V)[0].item() > 1e-9
            ),
            "Only the last id is changed; a leak from an id before it goes unseen. Change one after the other.": (
                lambda model, ids, V: _moved(model, ids, ids.shape[1] - 1, V)[:-1].max().item() > 1e-9
            ),
            "Only the position just before the changed id is looked at; a leak may reach farther back.": (
                lambda model, ids, V: any(_moved(model, ids, t, V)[t - 1].item() > 1e-9 for t in range(1, ids.shape[1]))
            ),
            "Only the id at position 1 is changed (is there a `return` inside the loop?); later ones can leak, too.": (
                lambda model, ids, V: _moved(model, ids, 1, V)[0].item() > 1e-9
            ),
            "Only the id in the middle is changed; a leak from another one goes unseen.": lambda model, ids, V: (
                _moved(model, ids, ids.shape[1] // 2, V)[: ids.shape[1] // 2].max().item() > 1e-9
            ),
            "The verdict is turned round: True is for a model that looks ahead.": lambda *args: not _looks_ahead(*args),
        },
    ),
    "10.2": Exercise(
        answer=_suspects,
        inputs=[(_SMALL, _SMALL[name]) for name in "klmo"] + [(_SMALL, _rows(x="R")["x"])],
        mistakes={
            "A check that sees nothing says something too: these rows are seen by more checks than the given one.": (
                lambda matrix, row: [
                    name for name in matrix if all(matrix[name][check] for check, seen in row.items() if seen)
                ]
            ),
            "One check in common is too little; the whole row must be the same.": lambda matrix, row: [
                name for name in matrix if any(matrix[name][check] and seen for check, seen in row.items())
            ],
            "These are seen by fewer checks than the given row; it must be the same.": lambda matrix, row: [
                name for name in matrix if all(row[check] for check, seen in matrix[name].items() if seen)
            ],
            "These are the right names, in a set; a list has the order of the matrix.": lambda matrix, row: set(
                _suspects(matrix, row)
            ),
            "Several mistakes can have the same row; return all their names.": lambda matrix, row: _suspects(
                matrix, row
            )[:1],
            "These are places in the matrix; the names are wanted.": lambda matrix, row: [
                place for place, name in enumerate(matrix) if matrix[name] == row
            ],
            "These are the rows; the names of the mistakes are wanted.": lambda matrix, row: [
                seen for seen in matrix.values() if seen == row
            ],
            "This counts how many checks see the mistake; it matters which.": lambda matrix, row: [
                name for name in matrix if sum(matrix[name].values()) == sum(row.values())
            ],
        },
    ),
    "10.3": Exercise(
        answer="BC",
        mistakes={
            "A sees most, but nobody is left to see mistakes 5 and 6.": "A",
            "These are the right ones; write them in order of the alphabet.": "CB",
            "These are the right ones; write them as one string, not as a list.": ["B", "C"],
            "These are the right ones; write capital letters.": "bc",
            "These are the right ones; write the letters with nothing between them.": "B, C",
            "Mistakes 3, 4 and 6 are still unseen.": "B",
            "Mistakes 1, 2 and 5 are still unseen.": "C",
            "These see everything, with one check too many; B alone has 1, 2 and 5.": "ABE",
            "These see everything, with one check too many; C alone has 3, 4 and 6.": "ACD",
            "Mistake 6 is still unseen.": "AB",
            "Mistake 5 is still unseen.": "AC",
            "These see everything, but two checks are enough: B and C do without A.": "ABC",
            "These see everything. To begin with the check that sees most costs one too many; try without A.": "ADE",
        },
    ),
    "10.4": Exercise(
        answer=_off_by,
        inputs=[(1.0, 1e-5), (0.01, 1e-5), (1e-4, 1e-5), (4.0, 1e-3)],
        atol=1e-10,
        mistakes={
            "The other way round: the right divisor, √(variance + eps), goes above, since outputs are divided by it.": (
                lambda v, eps: (math.sqrt(v) + eps) / math.sqrt(v + eps) - 1
            ),
            "This is the ratio of the outputs; subtract 1 for the share by which they differ.": lambda v, eps: (
                math.sqrt(v + eps) / (math.sqrt(v) + eps)
            ),
            "The sign is turned: wrong less right is asked for.": lambda v, eps: -_off_by(v, eps),
            "The share is of the right output; this is one of the wrong.": lambda v, eps: (
                1 - (math.sqrt(v) + eps) / math.sqrt(v + eps)
            ),
            "These are percent; a share of 1 is the whole.": lambda v, eps: 100 * _off_by(v, eps),
            "This is near the share for a variance near 1 only.": lambda v, eps: -eps / 2,
            "This is the difference of the divisors; the share is asked, so divide.": lambda v, eps: (
                math.sqrt(v + eps) - math.sqrt(v) - eps
            ),
            "Outside the root eps is added as it is; no root is taken of it.": lambda v, eps: (
                math.sqrt(v + eps) / (math.sqrt(v) + math.sqrt(eps)) - 1
            ),
            "These are squares; outputs are divided by the root, not by the variance.": lambda v, eps: (
                (v + eps) / (math.sqrt(v) + eps) ** 2 - 1
            ),
            "The amount is right, but the sign is lost: a smaller output is off by less than 0.": lambda v, eps: abs(
                _off_by(v, eps)
            ),
            "Both divisors are standard deviations: take the root of the variance too.": lambda v, eps: (
                math.sqrt(v + eps) / (v + eps) - 1
            ),
            "This holds for eps = 0 in the right layer; its eps stands inside the root.": lambda v, eps: (
                math.sqrt(v) / (math.sqrt(v) + eps) - 1
            ),
        },
    ),
}
