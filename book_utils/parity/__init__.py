"""The same weights, the same logits: GPTModel beside implementations that others wrote, stage by stage (chapter 9)."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Integer
from torch import Tensor, nn

from book_utils._tables import Table
from book_utils.gpt_model import GPTModel
from book_utils.parity.references import REFERENCES, Reference, torch_nn, transformers, upstream
from book_utils.parity.stages import stages

__all__ = [
    "REFERENCES",
    "Comparison",
    "Reference",
    "compare",
    "compare_stages",
    "stages",
    "stir",
    "torch_nn",
    "transformers",
    "upstream",
]

# What two right programs may differ by, as a share of a stage's largest value (or of 1, if that is more). A number is
# rounded to 6e-8 of itself in float32 and to 1.1e-16 in float64. A stage adds up to 4D products, in an order of its
# own, and a LayerNorm divides by the spread of its input, which enlarges what differs; some hundred roundings, in
# float64 some thousand, leave room for both.
ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}
# Upstream computes the constant of GELU in float32, also in a float64 model: it is off by 3e-8 or 5e-8 of itself, as
# the machine rounds the root. As a share of the largest value the difference stayed below a seventh of this limit in
# some hundred random models, up to D = 256.
UPSTREAM_THRESHOLD = 1e-7


@dataclass(frozen=True)
class StageDifference:
    """The largest difference at one stage in one precision, and what it may be.

    rounding   what two orders of the same operations explain
    tolerance  the most that is accepted; more than `rounding` where a reference is known to be inexact
    """

    stage: str
    dtype: torch.dtype
    difference: float
    rounding: float
    tolerance: float

    @property
    def same(self) -> bool:
        return self.difference <= self.tolerance  # False for NaN


@dataclass(frozen=True)
class Comparison:
    """A GPTModel and a reference with the same weights and ids: every stage's largest difference.

    greedy  precision -> at how many positions the largest logit is that of another id
    """

    reference: str
    differences: tuple[StageDifference, ...]
    greedy: Mapping[torch.dtype, int]

    @property
    def same(self) -> bool:
        """Whether every stage is within its tolerance and every greedy id the same."""
        return all(line.same for line in self.differences) and not any(self.greedy.values())

    def largest(self, dtype: torch.dtype) -> float:
        """The largest difference of all stages; NaN if there is one. ValueError for a precision not compared."""
        of_stages = [line.difference for line in self.differences if line.dtype == dtype]
        if not of_stages:
            raise ValueError(f"nothing was compared in {dtype}")
        return torch.tensor(of_stages, dtype=torch.float64).max().item()

    def table(self, measured: bool = True) -> Table:
        """A row for each stage, a column for each precision.

        measured  whether a difference within its tolerance is written with its digits, which are others on another
                  machine, or by its limits: less than what rounding explains, or more than that
        """
        dtypes = list(self.greedy)
        cells = {(line.stage, line.dtype): line for line in self.differences}
        rows = [
            [stage, *(_cell(cells[stage, dtype], measured) for dtype in dtypes)]
            for stage in dict.fromkeys(line.stage for line in self.differences)
        ]
        rows.append(["greedy ids", *(f"{self.greedy[dtype]} differ" for dtype in dtypes)])
        return Table(
            [f"largest difference to {self.reference}", *(str(d).removeprefix("torch.") for d in dtypes)], rows
        )

    def summary(self) -> str:
        """The largest difference in float64, and the first stage that is not the same, if there is one."""
        first = next((line.stage for line in self.differences if not line.same), None)
        largest = f"largest difference in float64: {self.largest(torch.float64):.1e}"
        return largest if first is None else f"they part at {first}; {largest}"

    def __repr__(self) -> str:
        return repr(self.table())


def _cell(line: StageDifference, measured: bool) -> str:
    if not line.same:
        return f"{line.difference:.1e}, more than {line.tolerance:.0e}"
    if measured:
        return f"{line.difference:.1e}"
    if line.difference <= line.rounding:
        return f"< {line.rounding:.0e}"
    return f"> {line.rounding:.0e}, < {line.tolerance:.0e}"


def compare(
    model: GPTModel,
    reference: Reference,
    in_idx: Integer[Tensor, "B T"],
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64),
) -> Comparison:
    """Copy the weights of `model` to `reference` and compare every stage of both on `in_idx`, once in each precision.

    Neither `model` nor its mode is changed. ValueError where the reference has other weights than it should, for a
    model without values (on the meta device), and for no ids. With two or three features a LayerNorm can enlarge any
    difference beyond its tolerance.
    """
    if model.tok_emb.weight.is_meta:
        raise ValueError("the model is on the meta device, and has no values to compare")
    if not in_idx.numel():
        raise ValueError(f"in_idx holds no ids: its shape is {list(in_idx.shape)}")
    pairs = {}
    for dtype in dtypes:
        ours = deepcopy(model).to(dtype).eval()
        theirs = reference.copy_of(ours)
        pairs[dtype] = stages(ours, in_idx), reference.stages(theirs, in_idx, model.cfg)
    return compare_stages(reference.name, pairs, exact=reference.exact)


def compare_stages(
    reference: str,
    pairs: Mapping[torch.dtype, tuple[Mapping[str, Tensor], Mapping[str, Tensor]]],
    exact: bool = True,
) -> Comparison:
    """Compare what `stages` gave for a GPTModel with the same of another: precision -> (ours, theirs).

    exact  whether the other's constants are exact; else it may differ by UPSTREAM_THRESHOLD

    A stage that one of them lacks, or has in another shape, differs by infinity. ValueError for no pair, for a
    precision other than float32 and float64, and where ours has no logits.
    """
    if not pairs:
        raise ValueError("there is nothing to compare")
    differences, greedy = [], {}
    for dtype, (ours, theirs) in pairs.items():
        if dtype not in ROUNDING:
            raise ValueError(f"the precision must be one of {', '.join(map(str, ROUNDING))}, got {dtype}")
        if "logits" not in ours:
            raise ValueError(f"our stages hold no logits, but {', '.join(ours) or 'nothing'}")
        for stage in {**ours, **theirs}:
            differences.append(_compare_one(stage, dtype, ours.get(stage), theirs.get(stage), exact))
        greedy[dtype] = _other_ids(ours["logits"], theirs.get("logits"))
    return Comparison(reference, tuple(differences), greedy)


def _compare_one(
    stage: str, dtype: torch.dtype, ours: Tensor | None, theirs: Tensor | None, exact: bool
) -> StageDifference:
    size = max(1.0, ours.abs().max().item()) if ours is not None else 1.0
    rounding = ROUNDING[dtype] * size
    tolerance = rounding if exact else max(rounding, UPSTREAM_THRESHOLD * size)
    if ours is None or theirs is None or theirs.shape != ours.shape:
        difference = float("inf")
    else:
        difference = (ours - theirs).abs().max().item()  # NaN where there is one
    return StageDifference(stage, dtype, difference, rounding, tolerance)


def _other_ids(ours: Tensor, theirs: Tensor | None) -> int:
    if theirs is None or theirs.shape != ours.shape:
        return ours[..., 0].numel()
    return (ours.argmax(dim=-1) != theirs.argmax(dim=-1)).sum().item()


def stir(model: nn.Module, seed: int, spread: float = 0.1) -> nn.Module:
    """Move every parameter of `model`, in place, by normal noise of this spread; `model` is returned.

    A fresh LayerNorm has scales of 1 and shifts of 0. What they do wrong shows only after they have moved.
    """
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
            parameter += (spread * drawn).to(parameter)
    return model
