"""GELU and the position-wise feed-forward network (chapter 3)."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from book_utils import _checks
from book_utils.config import GPTConfig


class GELU(nn.Module):
    """x * Phi(x) in its tanh form, element by element, as GPT-2 was trained with.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2; GPT-2's model.py, `gelu`.
    """

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return F.gelu(x, approximate="tanh")


class FeedForward(nn.Module):
    """Linear D -> 4D, GELU, linear 4D -> D, for each position on its own: [..., D] -> [..., D].

    No dropout inside: the block has it on its shortcut branches.

    cfg  the model's sizes; emb_dim is D

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 2, with GELU for the maximum; GPT-2's model.py,
    `mlp`.
    """

    def __init__(self, cfg: GPTConfig | Mapping):
        super().__init__()
        emb_dim = GPTConfig.from_dict(cfg).emb_dim
        self.layers = nn.Sequential(nn.Linear(emb_dim, 4 * emb_dim), GELU(), nn.Linear(4 * emb_dim, emb_dim))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        _checks.features("FeedForward", x, self.layers[0].in_features)
        return self.layers(x)
