"""The exercises of chapter 2."""

import torch

from book_utils.workbench.exercises import Exercise

_X = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [2.0, -1.0, 0.5, 7.0]]], dtype=torch.float64)  # [B, T, D]


def _normalize(x, eps=1e-5, unbiased=False):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=unbiased) + eps)


def _layer_norm(x, scale, shift, eps, unbiased=False):
    return scale * _normalize(x, eps, unbiased) + shift


def _eps_outside(x, scale, shift, eps):
    return scale * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False).sqrt() + eps) + shift


def _over_tokens(x, scale, shift, eps):
    return scale * (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + eps) + shift


def _over_the_whole(x, scale, shift, eps):
    return scale * (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + eps) + shift


_ONES, _ZEROS = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
_SCALE, _SHIFT = 0.5 + torch.arange(4, dtype=torch.float64), torch.arange(4, dtype=torch.float64) - 1
_SAMPLE = "This is the sample variance (÷ (D − 1)); GPT-2 uses the population's: unbiased=False."

EXERCISES = {
    "2.1": Exercise(
        answer=lambda x, offset: _normalize(x + offset),
        inputs=[(_X, 100.0), (_X, -3.0)],
        mistakes={
            "The offset is added after normalizing; add it to x before.": lambda x, offset: _normalize(x) + offset,
            "x + offset is not normalized yet.": lambda x, offset: x + offset,
            _SAMPLE: lambda x, offset: _normalize(x + offset, unbiased=True),
        },
    ),
    "2.2": Exercise(
        answer=_layer_norm,
        inputs=[
            (_X, _SCALE, _SHIFT, 1e-5),
            (_X * 1e-3, _ONES, _ZEROS, 1e-5),
            (torch.full_like(_X, 7), _SCALE, _SHIFT, 1e-5),
        ],
        mistakes={
            _SAMPLE: lambda x, scale, shift, eps: _layer_norm(x, scale, shift, eps, unbiased=True),
            "eps stands outside the root; it belongs inside: sqrt(variance + eps).": _eps_outside,
            "eps is missing: a flat vector divides 0 by 0.": lambda x, scale, shift, eps: _layer_norm(
                x, scale, shift, 0.0
            ),
            "The statistics run along the tokens; they belong to the last axis, dim=-1.": _over_tokens,
            "One mean and one variance for the whole tensor; each position has its own, dim=-1.": _over_the_whole,
            "The result is not multiplied by scale and moved by shift.": lambda x, scale, shift, eps: _normalize(
                x, eps
            ),
            "The shift is inside the product with scale; it is added last.": lambda x, scale, shift, eps: (
                scale * (_normalize(x, eps) + shift)
            ),
        },
    ),
    "2.3": Exercise(
        answer=lambda d: ((d - 1) / d) ** 0.5,
        inputs=[(2,), (5,), (768,)],
        mistakes={
            "This is the ratio of the variances; the features are divided by the root.": lambda d: (d - 1) / d,
            "This is the ratio the other way round: a larger variance gives smaller features.": lambda d: (
                (d / (d - 1)) ** 0.5
            ),
            "This is the ratio of the variances, the other way round; take the root, and turn it over.": lambda d: (
                d / (d - 1)
            ),
        },
    ),
}
