"""The exercises of chapter 5."""

import torch
from torch.nn import functional as F

from book_utils.workbench.exercises import Exercise


def _numbers(*shape, step=0.7):
    """Fixed numbers of no pattern, between -1 and 1."""
    count = torch.Size(shape).numel()
    return torch.sin(step * torch.arange(1, count + 1, dtype=torch.float64) ** 1.5).view(shape)


def _weights(scores, diagonal=1, dim=-1, fill=-torch.inf, upper=True):
    T = scores.shape[-1]
    blocked = torch.ones(T, T, dtype=torch.bool)
    blocked = blocked.triu(diagonal) if upper else blocked.tril(-diagonal)
    return torch.softmax(scores.masked_fill(blocked, fill), dim)


def _zero_after(scores):
    return torch.softmax(scores, -1).tril()


def _renormalized_along_columns(scores):
    return _weights(scores, dim=-2)


def _multiplied_by_infinity(scores):
    return torch.softmax(scores + torch.ones_like(scores).triu(1) * -torch.inf, -1)


def _divided_again(scores):
    return _weights(scores / scores.shape[-1] ** 0.5)


def _merge(context, *order):
    B, H, T, d = context.shape
    return context.permute(0, *order).reshape(B, T, H * d)


def _heads_reversed(context):
    return _merge(context.flip(1), 2, 1, 3)


def _context(
    x,
    qkv_weight,
    num_heads,
    *,
    order=(0, 1, 2),
    by_head=False,
    split=True,
    scale=None,
    causal=True,
    turned_over=False,
    merge=True,
):
    B, T, D = x.shape
    d = D // num_heads
    qkv = x @ qkv_weight.T
    if by_head:
        parts = qkv.view(B, T, num_heads, 3, d).permute(3, 0, 2, 1, 4)
    elif split:
        parts = qkv.view(B, T, 3, num_heads, d).permute(2, 0, 3, 1, 4)
    else:
        parts = [part.reshape(B, num_heads, T, d) for part in qkv.chunk(3, dim=-1)]
    query, key, value = (parts[i] for i in order)
    mask = torch.ones(T, T, dtype=torch.bool)
    if causal:
        mask = mask.triu(1) if turned_over else mask.tril()
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    return (context.transpose(1, 2) if merge else context).reshape(B, T, D)


def _one_head(x, qkv_weight, num_heads):
    return _context(x, qkv_weight, 1)


def _mistake(**changes):
    return lambda x, qkv_weight, num_heads: _context(x, qkv_weight, num_heads, **changes)


def _scale_of_width(x, qkv_weight, num_heads):
    return _context(x, qkv_weight, num_heads, scale=x.shape[-1] ** -0.5)


def _divided_twice(x, qkv_weight, num_heads):
    return _context(x, qkv_weight, num_heads, scale=num_heads / x.shape[-1])


EXERCISES = {
    "5.1": Exercise(
        answer=_weights,
        inputs=[(2 * _numbers(4, 4),), (3 * _numbers(2, 2, 3, 3),), (_numbers(1, 1),)],
        mistakes={
            "These are the weights without a mask: the future is not blocked.": lambda scores: torch.softmax(
                scores, -1
            ),
            "The mask is turned over: the past is blocked, and the future may be seen.": lambda scores: _weights(
                scores, upper=False
            ),
            "The diagonal is blocked too, so the first row has nothing to see: triu(diagonal=1).": lambda scores: (
                _weights(scores, diagonal=0)
            ),
            "The future is set to 0 after the softmax, so the rows do not sum to 1; set its scores to -inf before.": (
                _zero_after
            ),
            "The future's scores are set to 0, and e to the power 0 is 1; set them to -inf.": lambda scores: _weights(
                scores, fill=0.0
            ),
            "The softmax runs along the wrong axis: each row sums to 1, dim=-1.": _renormalized_along_columns,
            "The softmax runs along axis 1, which holds the heads where there are heads; dim=-1 is always the last.": (
                lambda scores: _weights(scores, dim=1)
            ),
            "One position of the future may still be seen: triu(diagonal=1), not 2.": lambda scores: _weights(
                scores, diagonal=2
            ),
            "0 times -inf is NaN, so adding a mask times -inf spoils the open positions; use masked_fill.": (
                _multiplied_by_infinity
            ),
            "The scores are divided once more; they come divided already.": _divided_again,
            "These are the scores with the mask; the softmax is missing.": lambda scores: scores.masked_fill(
                torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf
            ),
        },
    ),
    "5.2": Exercise(
        answer=lambda context: _merge(context, 2, 1, 3),
        inputs=[(_numbers(2, 2, 3, 4),), (_numbers(1, 3, 3, 2),)],
        mistakes={
            "The heads are not transposed back: the token axis must come before the head axis.": lambda context: _merge(
                context, 1, 2, 3
            ),
            "The features of the heads are interleaved: the head axis must come before the features of a head.": (
                lambda context: _merge(context, 2, 3, 1)
            ),
            "The last two axes are exchanged; exchange heads and tokens, transpose(1, 2).": lambda context: _merge(
                context, 1, 3, 2
            ),
            "The heads are in reverse order.": _heads_reversed,
            "This is [B, T, H, D/H]; the last two axes are still to be joined.": lambda context: context.transpose(
                1, 2
            ),
            "Heads and tokens are joined into one axis; join heads and features, after transpose(1, 2).": (
                lambda context: context.flatten(1, 2)
            ),
            "The heads are added up, which leaves D/H features; put them side by side.": lambda context: context.sum(1),
            "The heads are averaged, which leaves D/H features; put them side by side.": lambda context: context.mean(
                1
            ),
        },
    ),
    "5.3": Exercise(
        answer=_context,
        inputs=[(2 * _numbers(2, 5, 12), _numbers(36, 12, step=0.9), 3), (_numbers(1, 4, 8), 2 * _numbers(24, 8), 4)],
        mistakes={
            "The mask is missing: positions look ahead.": _mistake(causal=False),
            "The mask is turned over: to scaled_dot_product_attention True means may be looked at.": _mistake(
                turned_over=True
            ),
            "The scores are not divided by the root of the head's width.": _mistake(scale=1.0),
            "The scores are divided by the root of D; the width of one head is D / num_heads.": _scale_of_width,
            "The scores are divided twice, so by the head's width; scaled_dot_product_attention divides by its root.": (
                _divided_twice
            ),
            "The heads are not transposed back before the last reshape.": _mistake(merge=False),
            "The heads are split by view alone: [B, T, H, D/H] first, then transpose.": _mistake(split=False),
            "The heads are neither transposed when they are split nor when they are merged.": _mistake(
                split=False, merge=False
            ),
            "Query and key are exchanged; the order is query, key, value.": _mistake(order=(1, 0, 2)),
            "Key and value are exchanged; the order is query, key, value.": _mistake(order=(0, 2, 1)),
            "Query and value are exchanged; the order is query, key, value.": _mistake(order=(2, 1, 0)),
            "The scores are divided by the root of the right width, but the features are never split into heads.": (
                lambda x, qkv_weight, num_heads: _context(x, qkv_weight, 1, scale=(x.shape[-1] / num_heads) ** -0.5)
            ),
            "The rows of qkv_weight are read head by head; they are query, key, value, each with all its heads.": (
                _mistake(by_head=True)
            ),
            "This is one head with all D features.": _one_head,
        },
    ),
    "5.4": Exercise(
        answer=lambda context_length, n_layers, bytes_per_entry: n_layers * context_length**2 * bytes_per_entry,
        inputs=[(16, 2, 4), (1024, 12, 4), (1024, 12, 1)],
        mistakes={
            "This is the mask of one layer.": lambda context_length, n_layers, bytes_per_entry: (
                context_length**2 * bytes_per_entry
            ),
            "The context length is doubled where it must be squared: the mask has a row for each position.": (
                lambda context_length, n_layers, bytes_per_entry: n_layers * 2 * context_length * bytes_per_entry
            ),
            "This is in KiB; bytes are asked for.": lambda context_length, n_layers, bytes_per_entry: (
                n_layers * context_length**2 * bytes_per_entry / 1024
            ),
            "This is one row of the mask in each layer; it has context_length rows.": (
                lambda context_length, n_layers, bytes_per_entry: n_layers * context_length * bytes_per_entry
            ),
            "This is the number of entries; each has bytes_per_entry bytes.": (
                lambda context_length, n_layers, bytes_per_entry: n_layers * context_length**2
            ),
            "Only the upper triangle is counted; the mask is stored as a full square.": (
                lambda context_length, n_layers, bytes_per_entry: (
                    n_layers * context_length * (context_length - 1) // 2 * bytes_per_entry
                )
            ),
            "This counts the triangle with the diagonal; the mask is stored as a full square.": (
                lambda context_length, n_layers, bytes_per_entry: (
                    n_layers * context_length * (context_length + 1) // 2 * bytes_per_entry
                )
            ),
        },
    ),
}
