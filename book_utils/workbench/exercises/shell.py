"""The exercises of chapter 1."""

import torch
from torch import Tensor

from book_utils.workbench.exercises import Exercise


def _shapes(B, T, V, C, D):
    return [[B, T, D], [T, D], [B, T, D], [B, T, D], [B, T, V]]


def _with(index, wrong):
    """The right shapes, with the one at `index` replaced by wrong(B, T, V, C, D)."""

    def shapes(B, T, V, C, D):
        result = _shapes(B, T, V, C, D)
        result[index] = wrong(B, T, V, C, D)
        return result

    return shapes


def _tables(B, T, V, C, D):
    result = _shapes(B, T, V, C, D)
    result[:2] = [[V, D], [C, D]]
    return result


def _in_range(ids, V):
    return bool(((ids >= 0) & (ids < V)).all())


def _fits(ids, V, C):
    return 1 <= ids.shape[1] <= C and _in_range(ids, V)


def _as_bool(attempt, *args):
    """A tensor of one truth value counts as a truth value."""
    result = attempt(*args)
    return bool(result) if isinstance(result, Tensor) and result.numel() == 1 else result


EXERCISES = {
    "1.1": Exercise(
        answer=_shapes,
        inputs=[(2, 6, 11, 7, 4), (3, 5, 20, 9, 8)],
        mistakes={
            "Of the C rows of the position table only the first T are read.": _with(1, lambda B, T, V, C, D: [C, D]),
            "The positions are the same for every text: before the sum their vectors have no batch axis.": _with(
                1, lambda B, T, V, C, D: [B, T, D]
            ),
            "The positions come as one list, 0 to T − 1, so that axis of length 1 is not there: [T, D].": _with(
                1, lambda B, T, V, C, D: [1, T, D]
            ),
            "The first two are the shapes of the two tables; the rows that are read from them are asked for.": _tables,
            "An embedding returns a row of D features for each id, not V numbers.": _with(
                0, lambda B, T, V, C, D: [B, T, V]
            ),
            "These are letters in quotation marks; return the numbers that they stand for.": lambda B, T, V, C, D: [
                list("BTD"),
                list("TD"),
                list("BTD"),
                list("BTD"),
                list("BTV"),
            ],
            "The two vectors are added, not joined end to end: the last axis stays D.": _with(
                2, lambda B, T, V, C, D: [B, T, 2 * D]
            ),
            "A block returns the shape it was given; V comes with the output head.": _with(
                3, lambda B, T, V, C, D: [B, T, V]
            ),
            "The output head changes the last axis: one score for each of the V tokens.": _with(
                4, lambda B, T, V, C, D: [B, T, D]
            ),
            "There is a vector of scores at every position, not at the last one alone.": _with(
                4, lambda B, T, V, C, D: [B, V]
            ),
        },
    ),
    "1.2": Exercise(
        answer=lambda token, position: (position, token),
        inputs=[(3, 5), (5, 2), (0, 4)],
        mistakes={
            "This is the same pair again; another one is wanted.": lambda token, position: (token, position),
            "This pair has the same sum of indices. Here two rows are added, not two indices.": (
                lambda token, position: (token + 1, position - 1)
            ),
            "This is the row with the number token + position. Here the two rows are added, not their numbers.": (
                lambda token, position: (token + position, 0)
            ),
            "This is the row `position` twice; the row `token` is missing from the sum.": (
                lambda token, position: (position, position)
            ),
            "This is the row `token` twice; the row `position` is missing from the sum.": (
                lambda token, position: (token, token)
            ),
        },
    ),
    "1.3": Exercise(
        answer=_fits,
        inputs=[
            (torch.tensor([[0, 10, 3]]), 11, 7),  # the largest id there is, above C
            (torch.tensor([[0, 11, 3]]), 11, 7),
            (torch.tensor([[0, -1, 3]]), 11, 7),
            (torch.tensor([[0, 1], [11, 1]]), 11, 7),  # the second text
            (torch.zeros(1, 7, dtype=torch.long), 11, 7),  # T = C
            (torch.zeros(1, 8, dtype=torch.long), 11, 7),
            (torch.zeros(1, 12, dtype=torch.long), 11, 7),
            (torch.zeros(1, 0, dtype=torch.long), 11, 7),
            (torch.zeros(8, 3, dtype=torch.long), 11, 7),  # more texts than C
            (torch.tensor([[11, 12]]), 11, 7),  # no id in range
        ],
        mistakes={
            "Ids run from 0 to V − 1; V itself is not one of them.": (
                lambda ids, V, C: 1 <= ids.shape[1] <= C and _in_range(ids, V + 1)
            ),
            "A negative id has no row either.": lambda ids, V, C: 1 <= ids.shape[1] <= C and bool((ids < V).all()),
            "T may be equal to C.": lambda ids, V, C: 1 <= ids.shape[1] < C and _in_range(ids, V),
            "At least one token is needed: T = 0 is not accepted.": (
                lambda ids, V, C: ids.shape[1] <= C and _in_range(ids, V)
            ),
            "The length of the input is not looked at.": lambda ids, V, C: _in_range(ids, V),
            "The ids are not looked at.": lambda ids, V, C: 1 <= ids.shape[1] <= C,
            "V and C are swapped: V limits the ids, C the length.": lambda ids, V, C: _fits(ids, C, V),
            "The length is compared with V; its limit is C.": lambda ids, V, C: _fits(ids, V, V),
            "The ids are compared with C; their limit is V.": lambda ids, V, C: _fits(ids, C, C),
            "A text may be shorter than C; its length need not be equal to C.": (
                lambda ids, V, C: ids.shape[1] == C and _in_range(ids, V)
            ),
            "shape[0] is B, the number of texts, which has no limit; the length T is shape[1].": (
                lambda ids, V, C: 1 <= ids.shape[0] <= C and _in_range(ids, V)
            ),
            "The tokens of all texts are counted together; C limits each text: shape[1].": (
                lambda ids, V, C: 1 <= ids.numel() <= C and _in_range(ids, V)
            ),
            "One id in range is not enough: every id has to be. all(), not any().": (
                lambda ids, V, C: 1 <= ids.shape[1] <= C and bool(((ids >= 0) & (ids < V)).any())
            ),
            "Only the first text is looked at.": lambda ids, V, C: _fits(ids[:1], V, C),
            "It is the other way round: True means that the input is accepted.": (
                lambda ids, V, C: not _fits(ids, V, C)
            ),
        },
        run=_as_bool,
    ),
}
