"""KVCache: the keys and values of the tokens before, kept so that they are not computed again (chapter 12)."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from book_utils import _checks
from book_utils.config import GPTConfig


class KVCache:
    """Room for the keys and values of up to `max_length` tokens, in each layer of a GPTModel.

        cache = KVCache(model.cfg, batch_size=2)
        with torch.no_grad():
            logits = model(prompt, cache)  # [B, T, V]: fills the first T places
            logits = model(next_ids, cache)  # [B, 1, V]: computes one position, at place T

    An object of the caller's: no model keeps it, and no state dict holds it. `keys` and `values` are [L, B, H,
    max_length, D/H]; only the first `length` places count. All rows of the batch have the same length. It holds for as
    long as the weights stay the same, and keeps no gradients.

    cfg         the model's sizes
    batch_size  B, the number of texts
    max_length  the number of tokens that it has room for; by default context_length, which is the most
    dtype, device  as the model's keys have them; by default torch's

    TypeError or ValueError, naming it, for a size that is not a positive whole number.
    Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4; Pope et al. 2022,
    "Efficiently Scaling Transformer Inference", section 2.
    """

    def __init__(
        self,
        cfg: GPTConfig | Mapping,
        batch_size: int = 1,
        max_length: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        self.cfg = cfg = GPTConfig.from_dict(cfg)
        self.batch_size = _checks.integer("batch_size", batch_size, 0)
        self.max_length = _checks.positive_int("max_length", cfg.context_length if max_length is None else max_length)
        if self.max_length > cfg.context_length:
            raise ValueError(f"max_length = {max_length} is more than context_length = {cfg.context_length}")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating-point torch.dtype, got {dtype!r}")
        shape = (cfg.n_layers, self.batch_size, cfg.n_heads, self.max_length, cfg.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0
        self.layers = [KVLayer(self, number) for number in range(cfg.n_layers)]

    @property
    def nbytes(self) -> int:
        """Bytes that the room takes: 2 · L · B · max_length · D numbers."""
        return self.keys.nbytes + self.values.nbytes

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens. ValueError where the cache holds fewer."""
        length = _checks.integer("length", length, 0)
        if length > self.length:
            raise ValueError(f"the cache holds {self.length} tokens, so it cannot keep the first {length}")
        self.length = length

    def expect(self, cfg: GPTConfig, batch_size: int, num_tokens: int) -> None:
        """ValueError unless the cache was made for a model of these sizes and has room for so many tokens more."""
        names = ("context_length", "emb_dim", "n_heads", "n_layers")
        others = [f"{name} = {self.cfg[name]}, not {cfg[name]}" for name in names if self.cfg[name] != cfg[name]]
        if others:
            raise ValueError(f"the cache was made for another model: {'; '.join(others)}")
        if batch_size != self.batch_size:
            raise ValueError(f"the cache was made for batch_size = {self.batch_size}, the input has {batch_size} rows")
        if self.length + num_tokens > self.max_length:
            raise ValueError(
                f"the cache holds {self.length} tokens of max_length = {self.max_length}; "
                f"there is no room for {num_tokens} more"
            )

    def advance(self, num_tokens: int) -> None:
        """Count the tokens that every layer has appended."""
        self.length += num_tokens


class KVLayer:
    """One layer's share of a KVCache: what its attention is given."""

    def __init__(self, cache: KVCache, number: int):
        self._cache, self._number = cache, number

    @property
    def length(self) -> int:
        """The number of tokens that count."""
        return self._cache.length

    def append(
        self, key: Float[Tensor, "B H T head_dim"], value: Float[Tensor, "B H T head_dim"]
    ) -> tuple[Float[Tensor, "B H S head_dim"], Float[Tensor, "B H S head_dim"]]:
        """Write T keys and values behind the `length` that count, and return all S = length + T.

        They count from `KVCache.advance` on. ValueError for another shape, precision or device than the cache's, for
        more than it has room for, and for a key that asks for gradients.
        """
        keys, values = self._cache.keys[self._number], self._cache.values[self._number]  # [B, H, max_length, D/H]
        B, H, T, head_dim = key.shape
        end = self.length + T
        if key.requires_grad:
            raise ValueError("a cache keeps no gradients; call the model under torch.no_grad()")
        if (B, H, head_dim) != (keys.shape[0], keys.shape[1], keys.shape[3]) or end > keys.shape[2]:
            raise ValueError(
                f"keys of the shape {list(key.shape)} do not fit into a cache of the shape {list(keys.shape)} "
                f"behind the {self.length} that it holds"
            )
        if (key.dtype, key.device) != (keys.dtype, keys.device):
            raise ValueError(
                f"the keys are {key.dtype} on {key.device}, the cache is {keys.dtype} on {keys.device}; "
                "give KVCache the model's dtype and device"
            )
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]
