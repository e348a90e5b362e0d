"""LayerNorm: zero mean and nearly unit variance for each position, then a trained scale and shift (chapter 2)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from book_utils import _checks


class LayerNorm(nn.Module):
    """scale * (x - mean) / sqrt(variance + eps) + shift, along the last axis: [..., D] -> [..., D].

    The variance is the population's (divided by D), and eps stands inside the root.

    emb_dim  D, the number of features
    eps      the small number under the root; a flat vector would divide 0 by 0 without it

    Source: Ba, Kiros, Hinton 2016, "Layer Normalization", equation 4 and section 3.1; GPT-2's model.py, `norm`.
    """

    def __init__(self, emb_dim: int, eps: float = 1e-5):
        super().__init__()
        emb_dim = _checks.positive_int("emb_dim", emb_dim)
        self.eps = _checks.epsilon("eps", eps)
        self.scale = nn.Parameter(torch.ones(emb_dim))
        self.shift = nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        _checks.features("LayerNorm", x, self.scale.shape[0])
        return F.layer_norm(x, self.scale.shape, self.scale, self.shift, self.eps)
