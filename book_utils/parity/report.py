"""`python -m book_utils parity`: the book's model beside upstream's classes, the verdict as a file."""

import json
import platform
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from math import isfinite
from pathlib import Path

import torch

from book_utils._files import write_whole
from book_utils.config import GPTConfig, get_config
from book_utils.gpt_model import GPTModel
from book_utils.parity import ROUNDING, UPSTREAM_THRESHOLD, Comparison, compare, stir, upstream
from book_utils.parity.references import Reference
from book_utils.parity.upstream_file import UpstreamFileError, upstream_classes

MADE_BY = "python -m book_utils parity"
PACKAGE = "llms-from-scratch"


@dataclass(frozen=True)
class Trial:
    """A configuration and the shape [B, T] of the ids."""

    cfg: GPTConfig
    shape: tuple[int, int]


# In the tiny configuration several sizes are equal, so that one may stand for another without being seen. In the second
# all differ; it has a bias and dropout, which eval() must silence, and T = C.
TRIALS = {
    "tiny": Trial(get_config("tiny"), (2, 6)),
    "uneven": Trial(GPTConfig(11, 7, 20, 5, 3, drop_rate=0.1, qkv_bias=True), (2, 7)),
}


def upstream_from(path: Path | None) -> Reference:
    """Upstream's classes from a reader's file or folder, or from the installed package where `path` is None.

    UpstreamFileError for a file that does more than define the six classes, and where the package is missing.
    """
    if path is not None:
        return upstream(upstream_classes(path)["GPTModel"], path.resolve().name)
    try:
        return upstream()
    except ModuleNotFoundError as error:
        raise UpstreamFileError(f"{error}; install it: pip install --no-deps -r tests/peers.txt") from None


def run(reference: Reference, seed: int, timeout: float = 60) -> dict[str, Comparison]:
    """Compare a stirred model in each of TRIALS, in float32 and float64; name -> comparison.

    UpstreamFileError where the reference's classes cannot be built, called, or given the weights, or take more than
    `timeout` seconds.
    """
    try:
        with _at_most(timeout):
            return {name: _compare(trial, reference, seed) for name, trial in TRIALS.items()}
    except Exception as error:  # the classes are a reader's: they may fail in any way
        raise UpstreamFileError(f"{reference.name} cannot be compared: {type(error).__name__}: {error}") from error


def _compare(trial: Trial, reference: Reference, seed: int) -> Comparison:
    torch.manual_seed(seed)
    model = stir(GPTModel(trial.cfg).double(), seed)
    return compare(model, reference, torch.randint(trial.cfg.vocab_size, trial.shape))


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError in the block after so many seconds; without a limit on Windows, and outside of the main thread."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise TimeoutError(f"it took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_same(comparison: Comparison) -> bool:
    """Whether every stage is within its tolerance and, in float64, no larger than the threshold, whatever its size."""
    return comparison.same and comparison.largest(torch.float64) <= UPSTREAM_THRESHOLD


def results(comparisons: Mapping[str, Comparison], seed: int, from_package: bool) -> dict:
    """All that the verdict rests on, as strict JSON types; a difference that is no finite number is null.

    The tiny configuration stands at the top level, the other under its name.
    """
    packages = ["torch", *([PACKAGE] if from_package else [])]
    tiny, others = comparisons["tiny"], {name: c for name, c in comparisons.items() if name != "tiny"}
    return {
        "made_by": MADE_BY,
        "reference": tiny.reference,
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
        "seed": seed,
        "threshold": UPSTREAM_THRESHOLD,  # in float64
        "threshold_float32": ROUNDING[torch.float32],  # of a stage's largest value, or of 1 if that is more
        "verdict": "same" if all(map(is_same, comparisons.values())) else "different",
        **_entry("tiny", tiny),
        **{name: _entry(name, comparison) for name, comparison in others.items()},
    }


def no_verdict(name: str, reason: str) -> dict:
    """What is written where there is nothing to compare, so that no earlier verdict stands for this one."""
    return {"made_by": MADE_BY, "reference": name, "verdict": "none", "reason": reason}


def _entry(name: str, comparison: Comparison) -> dict:
    stages: dict[str, dict[str, float | None]] = {}
    for line in comparison.differences:
        stages.setdefault(line.stage, {})[_short(line.dtype)] = _finite(line.difference)
    return {
        **({} if name == "tiny" else {"verdict": "same" if is_same(comparison) else "different"}),
        "configuration": asdict(TRIALS[name].cfg),
        "input": list(TRIALS[name].shape),
        "stages": stages,
        "largest_in_float64": _finite(comparison.largest(torch.float64)),
        "greedy_ids_that_differ": {_short(dtype): count for dtype, count in comparison.greedy.items()},
    }


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None


def check_place(path: Path) -> None:
    """ValueError where `path` holds anything but the results of an earlier run, or cannot hold them."""
    if path.exists() and not path.is_file():
        raise ValueError(f"results cannot be written to {path}: it is no file")
    if not path.parent.is_dir():
        raise ValueError(f"results cannot be written to {path}: there is no folder {path.parent}")
    if path.exists() and not _is_earlier(path):
        raise ValueError(f"{path} exists and was not written by this command; name another file with --results")


def _is_earlier(path: Path) -> bool:
    try:
        return json.loads(path.read_text("utf-8")).get("made_by") == MADE_BY
    except (ValueError, AttributeError, RecursionError):
        return False


def write_results(path: Path, content: Mapping) -> None:
    """Write `results` to `path`, whole or not at all."""
    write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
