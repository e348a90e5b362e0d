"""Implementations that this project did not write: how to build them, and where their weights and stages are."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from book_utils.config import GPTConfig
from book_utils.gpt_model import GPTModel
from book_utils.layouts import HUGGING_FACE, TORCH, UPSTREAM, Layout, raise_unless_fitting
from book_utils.parity.stages import BOOK_PLACES, Places, stages


@dataclass(frozen=True)
class Reference:
    """An implementation to compare with.

    build   configuration -> a model with weights of its own
    layout  the names of its weights
    places  where its stages are seen
    exact   whether its constants are exact. Upstream's are not: in float64, too, GELU's is rounded to float32
    """

    name: str
    build: Callable[[GPTConfig], nn.Module]
    layout: Layout
    places: Places
    exact: bool = True

    def copy_of(self, model: GPTModel) -> nn.Module:
        """This implementation with the weights of `model`, in their precision, on their device, in eval mode.

        ValueError, naming all of them, where it has other weights than it should.
        """
        theirs = self.build(model.cfg).to(model.tok_emb.weight)
        state = self.layout.from_ours(model.state_dict(), model.cfg)
        raise_unless_fitting(_parameters(theirs), {name: list(value.shape) for name, value in state.items()})
        theirs.load_state_dict(state, strict=False)  # all but buffers, which are constants such as a mask
        return theirs.eval()

    def copy_to(self, model: GPTModel, theirs: nn.Module) -> None:
        """Give `model` the weights of `theirs`. ValueError, naming all that do not fit, before anything changes."""
        model.load_state_dict(self.layout.to_ours(_parameters(theirs), model.cfg))

    def stages(self, theirs: nn.Module, in_idx: Integer[Tensor, "B T"], cfg: GPTConfig) -> dict[str, Tensor]:
        """The stages of `theirs`, under the names that `book_utils.parity.stages` gives those of a GPTModel."""
        return stages(theirs, in_idx.clone(), cfg.n_layers, self.places)  # theirs might change its ids in place


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    """By name; one that has two names under both."""
    return {name: parameter.detach() for name, parameter in model.named_parameters(remove_duplicate=False)}


def upstream(model_class: type[nn.Module] | None = None, name: str = "llms-from-scratch") -> Reference:
    """Upstream's GPTModel: that of the installed package `llms-from-scratch`, module `ch04`, or the class given."""
    if model_class is None:
        from llms_from_scratch import ch04

        model_class = ch04.GPTModel
    places = {
        **BOOK_PLACES,
        "QKV": ("output", *(f"trf_blocks.{{}}.att.W_{part}" for part in ("query", "key", "value"))),
    }
    return Reference(name, partial(_build_upstream, model_class), UPSTREAM, places, exact=False)


def _build_upstream(model_class: type[nn.Module], cfg: GPTConfig) -> nn.Module:
    rates = {f"drop_rate_{place}": cfg.rate(place) for place in ("emb", "attn", "shortcut")}
    return model_class({**asdict(cfg), **rates})


def transformers() -> Reference:
    """GPT2LMHeadModel of the installed package `transformers`."""
    block = "transformer.h.{}"
    places = {
        "embeddings": ("input", "transformer.h.0"),
        "norm 1": ("output", f"{block}.ln_1"),
        "QKV": ("output", f"{block}.attn.c_attn"),
        "attention": ("output", f"{block}.attn"),
        "after attention": ("input", f"{block}.ln_2"),
        "norm 2": ("output", f"{block}.ln_2"),
        "feed-forward": ("output", f"{block}.mlp"),
        "after feed-forward": ("output", block),
        "final norm": ("output", "transformer.ln_f"),
    }
    return Reference("transformers", _build_transformers, HUGGING_FACE, places)


def _build_transformers(cfg: GPTConfig) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=cfg.vocab_size,
            n_positions=cfg.context_length,
            n_embd=cfg.emb_dim,
            n_head=cfg.n_heads,
            n_layer=cfg.n_layers,
            embd_pdrop=cfg.rate("emb"),
            attn_pdrop=cfg.rate("attn"),
            resid_pdrop=cfg.rate("shortcut"),
            tie_word_embeddings=cfg.tie_weights,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def torch_nn() -> Reference:
    """A GPT of PyTorch's own layers: nn.TransformerEncoderLayer, and with it nn.MultiheadAttention and nn.LayerNorm."""
    layer = "layers.{}"
    places = {
        "embeddings": ("input", "layers.0"),
        "norm 1": ("output", f"{layer}.norm1"),
        "QKV": ("projection", f"{layer}.self_attn"),
        "attention": ("output", f"{layer}.self_attn"),
        "after attention": ("input", f"{layer}.norm2"),
        "norm 2": ("output", f"{layer}.norm2"),
        "feed-forward": ("output", f"{layer}.linear2"),
        "after feed-forward": ("output", layer),
        "final norm": ("output", "final_norm"),
    }
    return Reference("torch.nn", TorchGPT, TORCH, places)


class TorchGPT(nn.Module):
    """From ids [B, T] to logits [B, T, V], with nn.TransformerEncoderLayer for a block.

    An encoder's layer and a GPT's block differ in the mask alone, which the caller gives. It is of the opposite kind
    to the one in scaled_dot_product_attention: True marks what must not be seen. The activation is a function, since
    the layer takes any nn.GELU for the exact one on its short path (in eval mode, without gradients).
    """

    def __init__(self, cfg: GPTConfig):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg.vocab_size, cfg.emb_dim)
        self.pos_emb = nn.Embedding(cfg.context_length, cfg.emb_dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                cfg.emb_dim,
                cfg.n_heads,
                dim_feedforward=4 * cfg.emb_dim,
                dropout=0.0,
                activation=partial(F.gelu, approximate="tanh"),
                batch_first=True,
                norm_first=True,
            )
            for _ in range(cfg.n_layers)
        )
        self.final_norm = nn.LayerNorm(cfg.emb_dim)
        self.out_head = nn.Linear(cfg.emb_dim, cfg.vocab_size, bias=False)

    def forward(self, in_idx: Integer[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        T = in_idx.shape[1]
        future = torch.ones(T, T, dtype=torch.bool, device=in_idx.device).triu(1)  # [T, T]
        x = self.tok_emb(in_idx) + self.pos_emb.weight[:T]  # [B, T, D]
        for layer in self.layers:
            x = layer(x, src_mask=future)  # [B, T, D]
        return self.out_head(self.final_norm(x))  # [B, T, V]


REFERENCES: dict[str, Callable[[], Reference]] = {
    "upstream": upstream,
    "transformers": transformers,
    "torch.nn": torch_nn,
}
