"""The pre-norm transformer block (chapter 6)."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from book_utils.attention import LayerCache, MultiHeadAttention
from book_utils.config import GPTConfig
from book_utils.feed_forward import FeedForward
from book_utils.layer_norm import LayerNorm


class TransformerBlock(nn.Module):
    """u = x + drop(att(norm1(x))), then u + drop(ff(norm2(u))): [B, T, D] -> [B, T, D].

    Normalization comes before each sublayer, and the second shortcut starts from u, not from x. A `cache` is for the
    attention.

    cfg  the model's sizes and dropout rates

    Source: Radford et al. 2019, section 2.3 (the pre-norm order); Xiong et al. 2020, figure 1b; GPT-2's model.py,
    `block`.
    """

    def __init__(self, cfg: GPTConfig | Mapping):
        super().__init__()
        cfg = GPTConfig.from_dict(cfg)
        self.att = MultiHeadAttention(
            d_in=cfg.emb_dim,
            d_out=cfg.emb_dim,
            context_length=cfg.context_length,
            dropout=cfg.rate("attn"),
            num_heads=cfg.n_heads,
            qkv_bias=cfg.qkv_bias,
        )
        self.ff = FeedForward(cfg)
        self.norm1 = LayerNorm(cfg.emb_dim)
        self.norm2 = LayerNorm(cfg.emb_dim)
        self.drop_shortcut = nn.Dropout(cfg.rate("shortcut"))

    def forward(self, x: Float[Tensor, "B T D"], cache: LayerCache | None = None) -> Float[Tensor, "B T D"]:
        kept = () if cache is None else (cache,)  # so that an attention that knows no cache can stand here
        u = x + self.drop_shortcut(self.att(self.norm1(x), *kept))
        return u + self.drop_shortcut(self.ff(self.norm2(u)))
