"""The ledger: every parameter of a GPT predicted from its sizes, and compared with a model line by line (chapter 8)."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from book_utils import _tables
from book_utils.config import GPTConfig

# Where the parameters of each line are: module -> line. Upstream's three projections are one line, as the fused one is.
_OUTSIDE = {
    "tok_emb": "token embedding",
    "pos_emb": "position embedding",
    "final_norm": "final norm",
    "out_head": "output head",
}
_IN_BLOCK = {
    "norm1": "norm 1",
    **dict.fromkeys(("att.qkv", "att.W_query", "att.W_key", "att.W_value"), "QKV projection"),
    "att.out_proj": "attention output",
    "norm2": "norm 2",
    "ff.layers.0": "FFN expansion",
    "ff.layers.2": "FFN contraction",
}
_BLOCK = slice(2, 8)  # the lines of a block among those of the ledger


@dataclass(frozen=True)
class Line:
    """One line of the ledger: `count` parameters, by `formula`, which the model has `times` times."""

    name: str
    formula: str
    count: int
    times: int = 1

    @property
    def total(self) -> int:
        """All parameters of this line."""
        return self.times * self.count


@dataclass(frozen=True, repr=False)
class Ledger:
    """The parameters of a GPT, line by line. `print` shows it as text, a notebook as a table.

    Lines whose name begins with "block: " stand for L equal ones, one in each block.
    """

    cfg: GPTConfig
    lines: tuple[Line, ...]

    @property
    def total(self) -> int:
        """All parameters, each once."""
        return sum(line.total for line in self.lines)

    def memory(self, dtype: torch.dtype = torch.float32) -> int:
        """Bytes of the parameters alone in `dtype`: no gradients, optimizer states, buffers or activations."""
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype must be a torch.dtype, got {dtype!r} ({type(dtype).__name__})")
        return self.total * dtype.itemsize

    def check(self, model: nn.Module) -> None:
        """ValueError where `model` and the ledger differ: every such line, with its block, both numbers, what is there.

        Takes GPTModel, upstream's, and any model with the names of either, also on the meta device. Each Parameter
        counts once, in the first line that holds it. Parameters that no line predicts are named. Values are not looked
        at: a model that passes may still compute something else.
        """
        found = defaultdict(dict)  # place -> name -> Parameter
        for name, parameter in _module(model).named_parameters(remove_duplicate=False):
            found[self._place(name)][name] = parameter
        predicted = self._predicted(found)
        owner = {}  # Parameter -> the name it was counted under
        differences = []
        for place in predicted | found:  # the ledger's lines first, in their order
            count, parts = 0, []
            for name, parameter in found.get(place, {}).items():
                first = owner.setdefault(parameter, name)
                count += parameter.numel() if first == name else 0
                parts.append(f"{name} {parameter.numel():,}" if first == name else f"{name} is {first}")
            line = predicted.get(place, Line(place, "none", 0))
            if count != line.count:
                formula = f"{line.formula} = {line.count:,}" if line.count else line.formula
                detail = f" ({', '.join(parts)})" if parts and place in predicted else ""
                differences.append(f"{place}: {formula} predicted, {count:,} found{detail}")
        if differences:
            raise ValueError("\n  ".join(["the model differs from the ledger:", *differences]))

    def _place(self, name: str) -> str:
        """Where parameter `name` is looked for: a line, with its block, a block too many, or, for no line, `name`."""
        number, module = re.fullmatch(r"(?:trf_blocks\.(\d+)\.)?(?:(.*)\.)?[^.]+", name).groups()
        if number is None:
            return _OUTSIDE.get(module, name)
        if int(number) >= self.cfg.n_layers:
            return f"block {int(number) + 1}"
        return f"block {int(number) + 1}: {_IN_BLOCK[module]}" if module in _IN_BLOCK else name

    def _predicted(self, found: Mapping) -> dict[str, Line]:
        """What each place should hold, in order. A block of which no line is found is one place."""
        inside = self.lines[_BLOCK]
        whole = Line("block", f"12·D² + {13 if self.cfg.qkv_bias else 10}·D", sum(line.count for line in inside))
        places = {line.name: line for line in self.lines[: _BLOCK.start]}
        for number in range(1, self.cfg.n_layers + 1):
            lines = {line.name.replace("block", f"block {number}"): line for line in inside}
            places |= lines if lines.keys() & found else {f"block {number}": whole}
        return places | {line.name: line for line in self.lines[_BLOCK.stop :]}

    def __repr__(self) -> str:
        return repr(self._table())

    def _repr_markdown_(self) -> str:
        return self._table().markdown()

    def _table(self) -> _tables.Table:
        rows = [[line.name, line.formula, line.count, line.times, line.total] for line in self.lines]
        total = ["total", "", "", "", self.total]
        return _tables.Table(["line", "formula", "numbers", "times", "together"], [*rows, total], int_format=",")


def ledger(cfg: GPTConfig | Mapping) -> Ledger:
    """The parameters of a GPT of this configuration, predicted: no model is built, no tensor made.

    Query, key and value have a bias with `qkv_bias` only; the output head has none and, with `tie_weights`, no
    parameters of its own. All other linear layers have a bias. `n_heads` and dropout change nothing.
    """
    cfg = GPTConfig.from_dict(cfg)
    V, C, D, L = cfg.vocab_size, cfg.context_length, cfg.emb_dim, cfg.n_layers
    qkv = ("3·D² + 3·D", 3 * D**2 + 3 * D) if cfg.qkv_bias else ("3·D²", 3 * D**2)
    head = ("0 (tied)", 0) if cfg.tie_weights else ("V·D", V * D)
    lines = (
        Line("token embedding", "V·D", V * D),
        Line("position embedding", "C·D", C * D),
        Line("block: norm 1", "2·D", 2 * D, L),
        Line("block: QKV projection", *qkv, L),
        Line("block: attention output", "D² + D", D**2 + D, L),
        Line("block: norm 2", "2·D", 2 * D, L),
        Line("block: FFN expansion", "4·D² + 4·D", 4 * D**2 + 4 * D, L),
        Line("block: FFN contraction", "4·D² + D", 4 * D**2 + D, L),
        Line("final norm", "2·D", 2 * D),
        Line("output head", *head),
    )
    return Ledger(cfg, lines)


def parameter_formula(cfg: GPTConfig | Mapping) -> int:
    """The sum of the ledger in one formula: 2VD + CD + L(12D² + 10D) + 2D; + 3DL with `qkv_bias`, − VD when tied."""
    cfg = GPTConfig.from_dict(cfg)
    V, C, D, L = cfg.vocab_size, cfg.context_length, cfg.emb_dim, cfg.n_layers
    N = 2 * V * D + C * D + L * (12 * D**2 + 10 * D) + 2 * D
    return N + 3 * D * L * cfg.qkv_bias - V * D * cfg.tie_weights


def count_parameters(model: nn.Module) -> int:
    """All numbers in the Parameters of `model`, each Parameter once, trained or frozen; no buffers."""
    return sum(parameter.numel() for parameter in _module(model).parameters())


def count_buffers(model: nn.Module) -> int:
    """All numbers in the buffers of `model`, which take memory and are not trained: upstream's masks, say."""
    return sum(buffer.numel() for buffer in _module(model).buffers())


def _module(model: object) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    return model
