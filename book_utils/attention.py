"""Causal multi-head attention: the part that this book borrows (chapter 5)."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from book_utils import _checks


@runtime_checkable
class LayerCache(Protocol):
    """What attention asks of a cache: the keys and values of the `length` tokens before x (chapter 12 builds one)."""

    length: int

    def append(
        self, key: Float[Tensor, "B H T head_dim"], value: Float[Tensor, "B H T head_dim"]
    ) -> tuple[Float[Tensor, "B H S head_dim"], Float[Tensor, "B H S head_dim"]]:
        """Keep T more, and return all S = length + T, the new ones last."""


class MultiHeadAttention(nn.Module):
    """Each position gathers from itself and from those before it: [B, T, d_in] -> [B, T, d_out].

    Query, key and value come from one fused projection `qkv`, in this order along the output axis. A state dict with
    upstream's W_query, W_key and W_value loads as it is. `dropout` acts on the attention weights, in training only.
    With a `cache`, x is what follows the tokens that it holds, and each position gathers from those too.

    d_in, d_out     features of each position, in and out
    context_length  C, the longest input
    dropout         the probability with which an attention weight is set to 0 in training
    num_heads       H, which divides d_out
    qkv_bias        whether query, key and value have a bias

    Raises ValueError where num_heads does not divide d_out, or where T is 0 or more than context_length (less what a
    cache holds).
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2; GPT-2's model.py, `attn`.
    """

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False
    ):
        super().__init__()
        self.d_in = _checks.positive_int("d_in", d_in)
        self.d_out = _checks.positive_int("d_out", d_out)
        self.context_length = _checks.positive_int("context_length", context_length)
        self.num_heads = _checks.positive_int("num_heads", num_heads)
        _checks.divisible("d_out", self.d_out, "num_heads", self.num_heads)
        self.head_dim = self.d_out // self.num_heads
        self.qkv = nn.Linear(self.d_in, 3 * self.d_out, bias=_checks.boolean("qkv_bias", qkv_bias))
        self.out_proj = nn.Linear(self.d_out, self.d_out)
        self.dropout = nn.Dropout(_checks.dropout_rate("dropout", dropout))
        self.register_load_state_dict_pre_hook(_fuse_upstream_projections)

    def forward(self, x: Float[Tensor, "B T d_in"], cache: LayerCache | None = None) -> Float[Tensor, "B T d_out"]:
        _checks.features("MultiHeadAttention", x, self.d_in)
        if x.ndim != 3:
            raise ValueError(f"MultiHeadAttention takes the shape [B, T, {self.d_in}], got {list(x.shape)}")
        B, T, _ = x.shape
        past = 0 if cache is None else cache.length
        _checks.sequence_length(T, self.context_length, past)
        qkv = self.qkv(x).view(B, T, 3, self.num_heads, self.head_dim)  # [B, T, 3, H, D/H]
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # three times [B, H, T, D/H]
        if cache is not None:
            key, value = cache.append(key, value)  # twice [B, H, past + T, D/H]
        rate = self.dropout.p if self.dropout.training else 0.0
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=_mask(T, past, x.device), dropout_p=rate, is_causal=past == 0
        )  # [B, H, T, D/H]
        return self.out_proj(context.transpose(1, 2).reshape(B, T, self.d_out))  # [B, T, d_out]


def _mask(T: int, past: int, device: torch.device) -> Bool[Tensor, "T S"] | None:
    """True where position past + t may look: at 0 .. past + t. None where torch's own causal mask, or none, will do."""
    if past == 0 or T == 1:
        return None
    return torch.ones(T, past + T, dtype=torch.bool, device=device).tril(past)


def _fuse_upstream_projections(att, state_dict, prefix, _metadata, _strict, _missing, _unexpected, errors):
    """Before loading: join W_query, W_key, W_value along the output axis, and drop upstream's mask, a constant."""
    for kind, shape in ("weight", [att.d_out, att.d_in]), ("bias", [att.d_out]):
        fused = f"{prefix}qkv.{kind}"
        names = [f"{prefix}W_{part}.{kind}" for part in ("query", "key", "value")]
        if fused in state_dict or not all(name in state_dict for name in names):
            continue  # load_state_dict itself names what is missing or too much
        parts = {name: state_dict.pop(name) for name in names}
        wrong = [name for name, part in parts.items() if list(part.shape) != shape]
        errors.extend(f"{name} has the shape {list(parts[name].shape)}, not {shape}" for name in wrong)
        if not wrong:
            state_dict[fused] = torch.cat(list(parts.values()))
    state_dict.pop(f"{prefix}mask", None)
