"""The empty shell of a GPT: the right sizes, placeholders inside (chapter 1)."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from book_utils import _checks
from book_utils.config import GPTConfig


class DummyTransformerBlock(nn.Module):
    """A placeholder for TransformerBlock: returns its input."""

    def __init__(self, cfg: GPTConfig | Mapping):
        super().__init__()

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return x


class DummyLayerNorm(nn.Module):
    """A placeholder for LayerNorm, with its arguments: returns its input."""

    def __init__(self, normalized_shape: int, eps: float = 1e-5):
        super().__init__()

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return x


class DummyGPTModel(nn.Module):
    """From ids [B, T] to logits [B, T, V] with empty blocks: checks that the sizes fit, and nothing else.

    Embeddings and output head are real, and never tied. A bad input raises as in GPTModel.
    Source: Raschka, "Build a Large Language Model (From Scratch)", section 4.1.
    """

    def __init__(self, cfg: GPTConfig | Mapping):
        super().__init__()
        cfg = self.cfg = GPTConfig.from_dict(cfg)
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.emb_dim)
        self.pos_emb = nn.Embedding(cfg.context_length, cfg.emb_dim)
        self.drop_emb = nn.Dropout(cfg.rate("emb"))
        self.trf_blocks = nn.Sequential(*[DummyTransformerBlock(cfg) for _ in range(cfg.n_layers)])
        self.final_norm = DummyLayerNorm(cfg.emb_dim)
        self.out_head = nn.Linear(cfg.emb_dim, cfg.vocab_size, bias=False)

    def forward(self, in_idx: Integer[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        weight = self.tok_emb.weight
        in_idx = _checks.token_ids(in_idx, self.cfg.vocab_size, self.cfg.context_length, weight.device)
        positions = torch.arange(in_idx.shape[1], device=weight.device)  # [T]
        x = self.drop_emb(self.tok_emb(in_idx) + self.pos_emb(positions))  # [B, T, D]
        return self.out_head(self.final_norm(self.trf_blocks(x)))  # [B, T, V]
