"""The exercises of chapter 2."""

import torch

from book_utils.workbench.exercises import Exercise

# [B, T, D] with B = 1 and T = D, so that a forgotten keepdim shows in the values rather than in an error
_X = torch.tensor(
    [[[1.0, 2.0, 3.0, 4.0], [2.0, -1.0, 0.5, 7.0], [0.0, -2.0, 5.0, 1.0], [9.0, 8.0, 6.0, 8.5]]], dtype=torch.float64
)


def _normalize(x, eps=1e-5, unbiased=False):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=unbiased) + eps)


def _layer_norm(x, scale, shift, eps, unbiased=False):
    return scale * _normalize(x, eps, unbiased) + shift


def _eps_outside(x, scale, shift, eps):
    return scale * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False).sqrt() + eps) + shift


def _over_tokens(x, scale, shift, eps):
    return scale * (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + eps) + shift


def _without_keepdim(x, scale, shift, eps):
    return scale * (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + eps) + shift


def _by_std(x, scale, shift, eps):
    return scale * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) + shift


def _by_variance(x, scale, shift, eps):
    return scale * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + eps) + shift


def _mean_kept(x, scale, shift, eps):
    return scale * x / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + eps) + shift


def _mean_square(x, scale, shift, eps):
    return scale * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) + shift


def _sum_of_squares(x, scale, shift, eps):
    centered = x - x.mean(-1, keepdim=True)
    return scale * centered / torch.sqrt(centered.square().sum(-1, keepdim=True) + eps) + shift


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
            "x is multiplied by the offset; add it, and mind the sign of the result.": (
                lambda x, offset: _normalize(x * offset)
            ),
            "Only the mean is subtracted; divide by the root of the variance too.": (
                lambda x, offset: x - x.mean(-1, keepdim=True)
            ),
            "The offset is added to the normalized features and these are normalized again; add it to x, once.": (
                lambda x, offset: _normalize(_normalize(x) + offset)
            ),
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
            "Mean and variance have lost their last axis, and with T = D they meet the wrong features: keepdim=True.": (
                _without_keepdim
            ),
            "x.std divides by D − 1, and here eps stands outside the root: sqrt(variance + eps), unbiased=False.": (
                _by_std
            ),
            "This divides by the variance; divide by its root.": _by_variance,
            "The mean is not subtracted.": _mean_kept,
            "The mean square stands where the variance belongs (this is RMSNorm): subtract the mean first.": (
                _mean_square
            ),
            "The squares are summed; the variance is their mean, the sum divided by D.": _sum_of_squares,
            "scale and shift are swapped: scale multiplies, shift is added.": lambda x, scale, shift, eps: _layer_norm(
                x, shift, scale, eps
            ),
            "The shift is not added.": lambda x, scale, shift, eps: scale * _normalize(x, eps),
            "The result is not multiplied by scale.": lambda x, scale, shift, eps: _normalize(x, eps) + shift,
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
            "This is 0 for every D; `//` and `int()` cut (d - 1) / d down to 0.": lambda d: ((d - 1) // d) ** 0.5,
            "The root covers d − 1 alone; put (d - 1) / d in brackets.": lambda d: (d - 1) ** 0.5 / d,
            "The root covers d alone: ** binds before /. Put (d - 1) / d in brackets.": lambda d: (d - 1) / d**0.5,
            "The wrong variance divides by D − 1, the right one by D; there is no D + 1 here.": lambda d: (
                (d / (d + 1)) ** 0.5
            ),
            "The ratio depends on D.": lambda d: 1.0,
        },
    ),
}
