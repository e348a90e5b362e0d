"""What every boundary of the book refuses, each with one message that names the value, the limit and the parameter."""

from numbers import Integral, Real

import torch
from torch import Tensor


def integer(name: str, value: object, least: int) -> int:
    """Return `value` as an int. TypeError unless it is an integer (a bool is not), ValueError below `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def positive_int(name: str, value: object) -> int:
    """Return `value` as an int. TypeError unless it is an integer (a bool is not), ValueError below 1."""
    return integer(name, value, 1)


def boolean(name: str, value: object) -> bool:
    """Return `value`. TypeError unless it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r} ({type(value).__name__})")
    return value


def number(name: str, value: object) -> Real:
    """Return `value`. TypeError unless it is a number (a bool is not)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} ({type(value).__name__})")
    return value


def dropout_rate(name: str, value: object) -> float:
    """Return `value` as a float. TypeError unless it is a number, ValueError outside [0, 1)."""
    if not 0 <= number(name, value) < 1:  # NaN fails this too
        raise ValueError(f"{name} must be at least 0 and less than 1, got {value}")
    return float(value)


def epsilon(name: str, value: object) -> float:
    """Return `value` as a float. TypeError unless it is a number, ValueError unless it is finite and at least 0."""
    if not 0 <= number(name, value) < float("inf"):
        raise ValueError(f"{name} must be at least 0 and finite, got {value}")
    return float(value)


def divisible(name: str, value: int, by_name: str, by: int) -> None:
    """ValueError, with the remainder, unless `by` divides `value`."""
    if value % by:
        raise ValueError(f"{name} must be divisible by {by_name}: {value} = {value // by} x {by} + {value % by}")


def features(layer: str, x: Tensor, width: int) -> None:
    """TypeError unless `x` is a floating-point tensor, ValueError unless its last axis has the length `width`."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{layer} takes a tensor of floating-point features, got {kind}")
    if x.ndim == 0 or x.shape[-1] != width:
        raise ValueError(f"{layer} takes {width} features along the last axis, got the shape {list(x.shape)}")


def sequence_length(num_tokens: int, context_length: int, past: int = 0) -> None:
    """ValueError unless the number of tokens T is in 1 .. context_length - past, with `past` tokens in a cache."""
    if num_tokens == 0:
        raise ValueError("the input has no tokens (T = 0); at least 1 is needed")
    if past + num_tokens > context_length:
        held = f", and the cache {past}; together" if past else ","
        raise ValueError(f"the input has {num_tokens} tokens{held} more than context_length = {context_length}")


def token_ids(in_idx: Tensor, vocab_size: int, context_length: int, device: torch.device) -> Tensor:
    """Return `in_idx` [B, T] as ids that an embedding accepts: integers in 0 .. vocab_size - 1, T in its limits."""
    in_idx = ids_within(in_idx, vocab_size, device)
    sequence_length(in_idx.shape[1], context_length)
    return in_idx


def ids_within(in_idx: Tensor, vocab_size: int, device: torch.device, name: str = "in_idx") -> Tensor:
    """Return `in_idx` [B, T], of any length, as int32 or int64 ids in 0 .. vocab_size - 1 on `device`.

    The values are looked at in one pass over the ids. On the meta device, and while torch.compile traces, there are no
    values to look at, and only the type and the shape are checked.
    """
    in_idx = ids(in_idx, name)
    if in_idx.device != device:
        raise ValueError(f"{name} is on {in_idx.device}, the model is on {device}; move one to the other")
    if in_idx.numel() and not in_idx.is_meta and not torch.compiler.is_compiling():
        low, high = (bound.item() for bound in in_idx.aminmax())
        if low < 0 or high >= vocab_size:
            raise ValueError(
                f"token id {low if low < 0 else high} is outside 0 .. {vocab_size - 1} (vocab_size = {vocab_size})"
            )
    return in_idx


def ids(in_idx: Tensor, name: str) -> Tensor:
    """Return `in_idx` as int32 or int64. TypeError unless it holds integers, ValueError unless it has two axes."""
    if not isinstance(in_idx, Tensor):
        raise TypeError(f"{name} must be a tensor of token ids, got {type(in_idx).__name__}")
    if in_idx.is_floating_point() or in_idx.is_complex() or in_idx.dtype == torch.bool:
        raise TypeError(f"{name} must hold integer token ids, got {in_idx.dtype}")
    if in_idx.ndim != 2:
        raise ValueError(f"{name} must have the shape [B, T], got {list(in_idx.shape)}")
    return in_idx if in_idx.dtype in (torch.int32, torch.int64) else in_idx.long()
