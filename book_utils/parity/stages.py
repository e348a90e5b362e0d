"""What a model computes on its way from ids to logits, stage by stage, seen from outside by hooks."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import torch
from jaxtyping import Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

BLOCK_STAGES = ("norm 1", "QKV", "attention", "after attention", "norm 2", "feed-forward", "after feed-forward")
# Stage -> what of a module's call is meant ("input", "output", or "projection": query, key and value of its input), and
# the module's name ({} is the number of the block). The outputs of several modules are joined along the last axis.
Places = Mapping[str, tuple[str, ...]]
BOOK_PLACES: Places = {
    "embeddings": ("input", "trf_blocks.0"),
    "norm 1": ("output", "trf_blocks.{}.norm1"),
    "QKV": ("output", "trf_blocks.{}.att.qkv"),
    "attention": ("output", "trf_blocks.{}.att"),
    "after attention": ("input", "trf_blocks.{}.norm2"),
    "norm 2": ("output", "trf_blocks.{}.norm2"),
    "feed-forward": ("output", "trf_blocks.{}.ff"),
    "after feed-forward": ("output", "trf_blocks.{}"),
    "final norm": ("output", "final_norm"),
}


def stages(
    model: nn.Module, in_idx: Integer[Tensor, "B T"], n_layers: int | None = None, places: Places = BOOK_PLACES
) -> dict[str, Tensor]:
    """Every stage of one forward pass of `model`, in order, without gradients: its name -> its tensor.

    "embeddings"; for each block "block 1: norm 1", "block 1: QKV", "block 1: attention", "block 1: after attention"
    (the residual state), "block 1: norm 2", "block 1: feed-forward", "block 1: after feed-forward"; "final norm";
    "logits" (what the call returns). All are [B, T, D], but for QKV [B, T, 3D] and the logits [B, T, V]. A stage that
    the pass does not reach is left out; of a module that it calls twice, the first call counts.

    n_layers  L; by default that of `model.cfg`
    places    where each stage is seen; by default those of a GPTModel
    """
    lines = list(_in_order(places, model.cfg.n_layers if n_layers is None else n_layers))
    seen: dict[tuple[str, str], Tensor] = {}
    with ExitStack() as hooks, torch.no_grad():
        for stage, view, names in lines:
            for name in names:
                hooks.callback(_watch(model.get_submodule(name), view, seen, (stage, name)).remove)
        result = model(in_idx)
    out = {}
    for stage, _, names in lines:
        if all((stage, name) in seen for name in names):
            out[stage] = torch.cat([seen[stage, name] for name in names], dim=-1)
    out["logits"] = getattr(result, "logits", result)
    return out


def _in_order(places: Places, n_layers: int) -> Iterator[tuple[str, str, list[str]]]:
    """All stages: title, view, module names."""
    inside = [(number, stage) for number in range(n_layers) for stage in BLOCK_STAGES]
    for number, stage in [(None, "embeddings"), *inside, (None, "final norm")]:
        view, *names = places[stage]
        title = stage if number is None else f"block {number + 1}: {stage}"
        yield title, view, [name.format(number) for name in names]


def _watch(module: nn.Module, view: str, seen: dict, key: tuple[str, str]) -> RemovableHandle:
    """Keep a copy of what goes into `module` or comes out of it, before any later step can change it in place."""

    def keep(tensor):
        seen.setdefault(key, tensor.clone())

    def before(module, args):
        # nn.MultiheadAttention projects inside its call; this is the same product
        keep(args[0] if view == "input" else F.linear(args[0], module.in_proj_weight, module.in_proj_bias))

    def after(module, args, result):
        keep(result[0] if isinstance(result, tuple) else result)

    if view == "output":
        return module.register_forward_hook(after)
    return module.register_forward_pre_hook(before)
