"""`python -m book_utils parity`: the book's tiny model beside upstream's classes, the verdict as a file."""

import json
import platform
from dataclasses import asdict
from importlib import metadata
from math import isfinite
from pathlib import Path

import torch

from book_utils._files import write_whole
from book_utils.config import get_config
from book_utils.gpt_model import GPTModel
from book_utils.parity import ROUNDING, UPSTREAM_THRESHOLD, Comparison, compare, stir, upstream
from book_utils.parity.references import Reference
from book_utils.parity.upstream_file import UpstreamFileError, upstream_classes

CONFIG = get_config("tiny")
BATCH_SIZE, NUM_TOKENS = 2, 6
MADE_BY = "python -m book_utils parity"


def upstream_from(path: Path | None) -> Reference:
    """Upstream's classes from a reader's file or folder, or from the installed package where `path` is None.

    UpstreamFileError for a file that does more than define the six classes.
    """
    return upstream() if path is None else upstream(upstream_classes(path)["GPTModel"], path.resolve().name)


def run(reference: Reference, seed: int) -> Comparison:
    """Compare the tiny model, stirred, in float32 and float64.

    UpstreamFileError where the reference's classes cannot be built, called, or given the weights.
    """
    torch.manual_seed(seed)
    model = stir(GPTModel(CONFIG).double(), seed)
    in_idx = torch.randint(CONFIG.vocab_size, (BATCH_SIZE, NUM_TOKENS))
    try:
        return compare(model, reference, in_idx)
    except Exception as error:  # the classes are a reader's: they may fail in any way
        raise UpstreamFileError(f"{reference.name} cannot be compared: {type(error).__name__}: {error}") from error


def results(comparison: Comparison, seed: int) -> dict:
    """All that the verdict rests on, as strict JSON types; a difference that is no finite number is null."""
    largest = comparison.largest(torch.float64)
    stages: dict[str, dict[str, float | None]] = {}
    for line in comparison.differences:
        stages.setdefault(line.stage, {})[_name(line.dtype)] = line.difference if isfinite(line.difference) else None
    packages = ["torch", "book_utils", *(["llms-from-scratch"] if comparison.reference == "llms-from-scratch" else [])]
    return {
        "made_by": MADE_BY,
        "reference": comparison.reference,
        "configuration": asdict(CONFIG),
        "seed": seed,
        "input": [BATCH_SIZE, NUM_TOKENS],
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
        "stages": stages,
        "greedy_ids_that_differ": {_name(dtype): count for dtype, count in comparison.greedy.items()},
        "threshold": UPSTREAM_THRESHOLD,  # in float64
        "threshold_float32": ROUNDING[torch.float32],  # of a stage's largest value, or of 1 if that is more
        "largest_in_float64": largest if isfinite(largest) else None,
        "verdict": "same" if is_same(comparison) else "different",
    }


def is_same(comparison: Comparison) -> bool:
    """Whether every stage is within its tolerance and, in float64, below the threshold whatever its size."""
    return comparison.same and comparison.largest(torch.float64) <= UPSTREAM_THRESHOLD


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_place(path: Path) -> None:
    """ValueError where `path` holds anything but the results of an earlier run, or cannot hold them."""
    if path.is_dir():
        raise ValueError(f"results cannot be written to {path}: it is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"results cannot be written to {path}: there is no folder {path.parent}")
    if path.exists() and not _is_earlier(path):
        raise ValueError(f"{path} exists and was not written by this command; name another file with --results")


def _is_earlier(path: Path) -> bool:
    try:
        return json.loads(path.read_text("utf-8")).get("made_by") == MADE_BY
    except (ValueError, AttributeError):
        return False


def write_results(path: Path, comparison: Comparison, seed: int) -> None:
    """Write `results` to `path`, whole or not at all."""
    write_whole(path, json.dumps(results(comparison, seed), indent=1, allow_nan=False) + "\n")
