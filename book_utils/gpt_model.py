"""GPTModel: from token ids to logits (chapter 7)."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from book_utils import _checks
from book_utils.attention import LayerCache
from book_utils.config import GPTConfig
from book_utils.layer_norm import LayerNorm
from book_utils.transformer_block import TransformerBlock


@runtime_checkable
class Cache(Protocol):
    """What GPTModel asks of a cache: the `length` tokens before in_idx, layer by layer (chapter 12 builds one)."""

    length: int
    layers: Sequence[LayerCache]

    def expect(self, cfg: GPTConfig, batch_size: int, num_tokens: int) -> None:
        """ValueError unless the cache was made for these sizes and has room for so many tokens more."""

    def advance(self, num_tokens: int) -> None:
        """Count the tokens that every layer has appended."""


class GPTModel(nn.Module):
    """From ids [B, T] to logits [B, T, V]: embeddings, L blocks, a last LayerNorm, an output head without bias.

    The logits are scores, not probabilities. With `tie_weights` the head and the token embedding are one Parameter,
    and stay one through casts, moves, `to_empty` and loading. With a `cache` the ids are those after the tokens
    that it holds, and their keys and values are added to it.

    Raises, before anything is computed, TypeError for ids that are not integers, and ValueError for ids outside
    0 .. V - 1, for a shape other than [B, T], for T = 0 or T > context_length, and for a cache that does not fit.
    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3; GPT-2's model.py,
    `model`; for tying Press and Wolf 2017, "Using the Output Embedding to Improve Language Models".
    """

    def __init__(self, cfg: GPTConfig | Mapping):
        super().__init__()
        cfg = self.cfg = GPTConfig.from_dict(cfg)
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.emb_dim)
        self.pos_emb = nn.Embedding(cfg.context_length, cfg.emb_dim)
        self.drop_emb = nn.Dropout(cfg.rate("emb"))
        self.trf_blocks = nn.ModuleList(TransformerBlock(cfg) for _ in range(cfg.n_layers))
        self.final_norm = LayerNorm(cfg.emb_dim)
        self.out_head = nn.Linear(cfg.emb_dim, cfg.vocab_size, bias=False)
        self._tie()
        self.register_load_state_dict_pre_hook(_one_head)
        self.register_load_state_dict_post_hook(_tie_again)

    def forward(self, in_idx: Integer[Tensor, "B T"], cache: Cache | None = None) -> Float[Tensor, "B T V"]:
        weight = self.tok_emb.weight
        in_idx = _checks.token_ids(in_idx, self.cfg.vocab_size, self.cfg.context_length, weight.device)
        B, T = in_idx.shape
        past = 0
        if cache is not None:
            if not isinstance(cache, Cache):
                raise TypeError(f"cache must be a KVCache, got {type(cache).__name__}")
            cache.expect(self.cfg, B, T)
            past = cache.length
        positions = torch.arange(past, past + T, device=weight.device)  # [T]
        x = self.drop_emb(self.tok_emb(in_idx) + self.pos_emb(positions))  # [B, T, D]
        for number, block in enumerate(self.trf_blocks):
            x = block(x) if cache is None else block(x, cache.layers[number])  # [B, T, D]
        logits = self.out_head(self.final_norm(x))  # [B, T, V]
        if cache is not None:
            cache.advance(T)  # last, so that after an error in any layer the cache holds what it held
        return logits

    def _shares_table(self) -> bool:
        """Whether head and embedding are to be one Parameter: as configured, unless another head took its place."""
        head = getattr(self.out_head, "weight", None)
        return self.cfg.tie_weights and head is not None and head.shape == self.tok_emb.weight.shape

    def _tie(self):
        if self._shares_table():
            self.out_head.weight = self.tok_emb.weight

    def _apply(self, fn, recurse=True):
        # Every move and cast ends here. to_empty gives each use of a Parameter a copy of its own, so tie again.
        super()._apply(fn, recurse)
        self._tie()
        return self


def _one_head(model, state_dict, prefix, *_):
    """Before loading a tied model: one name stands for both, and two different values are refused."""
    names = [f"{prefix}{name}" for name in ("tok_emb.weight", "out_head.weight")]
    given = [state_dict[name] for name in names if name in state_dict]
    if not given or not model._shares_table():
        return
    if tables_differ(given[0], given[-1]):
        raise ValueError("tie_weights is True, but tok_emb.weight and out_head.weight differ in the state dict")
    for name in names:
        state_dict[name] = given[0]


def tables_differ(a: Tensor, b: Tensor) -> bool:
    """Whether two tables, of any precision, hold other values; not on the meta device, where there are none."""
    if a is b or a.is_meta or b.is_meta:
        return False
    return a.shape != b.shape or not torch.allclose(a.double(), b.double(), rtol=0, atol=0, equal_nan=True)


def _tie_again(model, _):
    model._tie()  # load_state_dict(assign=True) replaces both Parameters
