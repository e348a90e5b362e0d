"""The same weights under other names: how upstream, Hugging Face and torch.nn keep what GPTModel holds (chapter 9)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from book_utils.config import GPTConfig
from book_utils.gpt_model import GPTModel, tables_differ


@dataclass(frozen=True)
class Layout:
    """Where another implementation keeps each parameter of GPTModel.

    renamed     pairs (part of our name, part of theirs)
    qkv         their projections for query, key and value: one that is fused, or three
    transposed  pattern of their names whose weight is kept as [in, out], not as [out, in]
    ignored     pattern of their names that hold constants (causal masks), and are no parameters
    prefix      part of their names that a file may leave out, in all of them
    qkv_bias    whether they always have a bias for query, key and value; without one of ours, theirs is zero
    head        whether they always keep the output head; where not, the token embedding may stand for it
    """

    name: str
    renamed: tuple[tuple[str, str], ...] = ()
    qkv: tuple[str, ...] = ("att.qkv",)
    transposed: str = r"$^"  # nothing
    ignored: str = r"$^"
    prefix: str = ""
    qkv_bias: bool = False
    head: bool = True

    def from_ours(self, state: Mapping[str, Tensor], cfg: GPTConfig) -> dict[str, Tensor]:
        """Our state dict as theirs. ValueError, naming all keys, unless `state` fits a GPTModel with `cfg`."""
        ours = shapes(cfg)
        raise_unless_fitting(state, ours, optional=("out_head.weight",) if cfg.tie_weights else ())
        out = {}
        for name, parts in self._names(cfg).items():
            value = state.get(name)
            if name == "out_head.weight" and value is None:
                value = state["tok_emb.weight"]  # tied, and kept once
            if value is None:  # a bias that only they have
                value = state["tok_emb.weight"].new_zeros(3 * cfg.emb_dim)
            for part, rows in zip(parts, value.chunk(len(parts)), strict=True):
                out[part] = rows.T if re.search(self.transposed, part) else rows
        return out

    def to_ours(self, state: Mapping[str, Tensor], cfg: GPTConfig) -> dict[str, Tensor]:
        """Their state dict as ours, the head included.

        ValueError, naming all of them, for missing, unknown and misshapen keys, and for values that GPTModel has no
        place for (a bias of query, key and value that is not zero where `cfg` has none, two tables where it has one).
        """
        state = self.without_constants(state)
        names = self._names(cfg)
        if self.prefix and not any(key.startswith(self.prefix) for key in state):
            names = {ours: [part.removeprefix(self.prefix) for part in parts] for ours, parts in names.items()}
        ours = shapes(self._widest(cfg))
        expected = {part: self._shape(part, ours[name], len(parts)) for name, parts in names.items() for part in parts}
        without_head = not self.head or cfg.tie_weights
        raise_unless_fitting(state, expected, optional=names["out_head.weight"] if without_head else ())
        out = {}
        for name, parts in names.items():
            if parts[0] in state:
                rows = [state[part].T if re.search(self.transposed, part) else state[part] for part in parts]
                out[name] = (torch.cat(rows) if len(rows) > 1 else rows[0]).contiguous()
        table = out["tok_emb.weight"]
        if cfg.tie_weights:
            if tables_differ(table, out.get("out_head.weight", table)):
                both = " and ".join(names[name][0] for name in ("tok_emb.weight", "out_head.weight"))
                raise ValueError(f"tie_weights is True, but {both} differ")
            out["out_head.weight"] = table
        out.setdefault("out_head.weight", table.clone())
        self._drop_extra_bias(out, names, cfg)
        return out

    def without_constants(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict without what is no parameter."""
        return {key: value for key, value in state.items() if not re.search(self.ignored, key)}

    def _names(self, cfg: GPTConfig) -> dict[str, list[str]]:
        """Our name -> their names."""
        return {name: list(self._parts(name)) for name in shapes(self._widest(cfg))}

    def _widest(self, cfg: GPTConfig) -> GPTConfig:
        return replace(cfg, qkv_bias=cfg.qkv_bias or self.qkv_bias)

    def _parts(self, name: str) -> Iterable[str]:
        for projection in self.qkv if "att.qkv" in name else [""]:
            part = name.replace("att.qkv", projection)
            for old, new in self.renamed:
                part = part.replace(old, new)
            yield part

    def _shape(self, part: str, shape: list[int], parts: int) -> list[int]:
        shape = [shape[0] // parts, *shape[1:]]
        return shape[::-1] if re.search(self.transposed, part) else shape

    def _drop_extra_bias(self, state: dict[str, Tensor], names: Mapping[str, list[str]], cfg: GPTConfig) -> None:
        extra = [name for name in state if name not in shapes(cfg)]
        wrong = [names[name][0] for name in extra if state.pop(name).any()]
        if wrong:
            raise ValueError(f"qkv_bias is False, but the weights have a bias that is not zero: {', '.join(wrong)}")


@cache
def shapes(cfg: GPTConfig) -> dict[str, list[int]]:
    """The names and shapes in the state dict of a GPTModel, without making one."""
    with torch.device("meta"):
        return {name: list(value.shape) for name, value in GPTModel(cfg).state_dict().items()}


def raise_unless_fitting(
    state: Mapping[str, Tensor], expected: Mapping[str, list[int]], optional: Iterable[str] = ()
) -> None:
    """ValueError that names every key which is missing, unknown, of another shape, or no tensor of real numbers."""
    faults = [f"missing: {key}" for key in expected if key not in state and key not in optional]
    faults += [f"unknown: {key}" for key in state if key not in expected]
    for key in expected:
        value = state.get(key)
        if value is None:
            continue
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            faults.append(f"no floating-point tensor: {key} is {kind}")
        elif list(value.shape) != expected[key]:
            faults.append(f"another shape: {key} is {list(value.shape)}, not {expected[key]}")
    if faults:
        raise ValueError("the weights do not fit the configuration\n  " + "\n  ".join(faults))


BOOK = Layout("book")
UPSTREAM = Layout("upstream", qkv=("att.W_query", "att.W_key", "att.W_value"), ignored=r"\.att\.mask$")
# GPT-2's own files keep the weight of a linear layer transposed (a convolution of width 1), and call a mask attn.bias.
HUGGING_FACE = Layout(
    "Hugging Face",
    renamed=(
        ("tok_emb", "transformer.wte"),
        ("pos_emb", "transformer.wpe"),
        ("trf_blocks", "transformer.h"),
        ("norm1.scale", "ln_1.weight"),
        ("norm1.shift", "ln_1.bias"),
        ("att.out_proj", "attn.c_proj"),
        ("norm2.scale", "ln_2.weight"),
        ("norm2.shift", "ln_2.bias"),
        ("ff.layers.0", "mlp.c_fc"),
        ("ff.layers.2", "mlp.c_proj"),
        ("final_norm.scale", "transformer.ln_f.weight"),
        ("final_norm.shift", "transformer.ln_f.bias"),
        ("out_head", "lm_head"),
    ),
    qkv=("attn.c_attn",),
    transposed=r"\.c_\w+\.weight$",
    ignored=r"\.attn\.(bias|masked_bias)$",
    prefix="transformer.",
    qkv_bias=True,
    head=False,
)
TORCH = Layout(
    "torch.nn",
    renamed=(
        ("trf_blocks", "layers"),
        ("scale", "weight"),
        ("shift", "bias"),
        ("in_proj.", "in_proj_"),
        ("att.out_proj", "self_attn.out_proj"),
        ("ff.layers.0", "linear1"),
        ("ff.layers.2", "linear2"),
    ),
    qkv=("self_attn.in_proj",),
    qkv_bias=True,
)


def layout_of(keys: Iterable[str]) -> Layout:
    """The layout that these names belong to: the book's, upstream's or Hugging Face's. ValueError for any other."""
    keys = list(keys)
    if any(re.match(r"(transformer\.)?(wte|wpe|h\.\d+|ln_f)\.", key) for key in keys):
        return HUGGING_FACE
    if any(re.match(r"(tok_emb|pos_emb|trf_blocks|final_norm|out_head)\.", key) for key in keys):
        return UPSTREAM if any(".att.W_" in key for key in keys) else BOOK
    raise ValueError(f"these are not the weights of a GPT-2: {', '.join(keys[:5]) or 'there are none'}")
