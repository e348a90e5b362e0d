"""`check`: says at once whether an exercise is not attempted, right, or which mistake it looks like.

The exercises of chapter NN_name are defined in the module `name` of this package, as data: a right answer, the inputs
it is tried on, and the likely mistakes, each a wrong answer with the sentence that the reader gets for it.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from numbers import Real

import torch
from torch import Tensor

from book_utils.workbench.files import chapter_scripts


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    answer    the right function, or the right value
    inputs    argument tuples to try a function on; empty where the answer is a value
    mistakes  sentence for the reader -> the wrong function or value that it describes
    run       how a function is tried on one tuple of arguments
    atol      the largest difference between two equal numbers
    """

    answer: object
    inputs: Sequence[tuple] = ()
    mistakes: Mapping[str, object] = field(default_factory=dict)
    run: Callable = lambda attempt, *args: attempt(*args)
    atol: float = 1e-6

    def results(self, attempt: object) -> list[object]:
        """What `attempt` gives: its value on each input (on a copy: an exercise cannot damage another), or itself."""
        if not self.inputs:
            return [attempt]
        return [self.run(attempt, *deepcopy(args)) for args in self.inputs]

    def judge(self, attempt: object) -> str:
        """One sentence on `attempt`."""
        try:
            return self._compare(attempt)
        except (Exception, SystemExit) as error:
            return f"not yet. Your code raised {type(error).__name__}: {error}"

    def _compare(self, attempt: object) -> str:
        if attempt is ...:
            return "not attempted yet."
        results = self.results(attempt)
        if all(result is None or result is ... for result in results):
            return "not attempted yet."
        expected = self.results(self.answer)
        if _same(results, expected, self.atol):
            if self._changes_input(attempt):
                return "not yet. The values are right, but your code changed its input in place."
            return "right."
        for sentence, mistake in self.mistakes.items():
            if _same(results, self.results(mistake), self.atol):
                return f"not yet. {sentence}"
        return (
            f"not yet. {self._first_wrong_call(results, expected) or _first_difference(results, expected, self.atol)}"
        )

    def _first_wrong_call(self, results: list, expected: list) -> str | None:
        """For a function of plain values whose result is plain too: the call, and what came of it."""
        for args, result, right in zip(self.inputs, results, expected, strict=False):
            if _plain((*args, result, right)) and not _same(result, right, self.atol):
                return f"For the arguments {', '.join(map(repr, args))} your result is {result!r}, which is not right."
        return None

    def _changes_input(self, attempt: object) -> bool:
        for args in self.inputs:
            given = deepcopy(args)
            self.run(attempt, *given)
            if any(
                isinstance(arg, Tensor) and not torch.equal(arg, kept) for arg, kept in zip(given, args, strict=True)
            ):
                return True
        return False


def find_exercise(number: str) -> Exercise:
    """The exercise with this number, say "2.1". ValueError for an unknown one."""
    for script in chapter_scripts():
        if script.stem.startswith(f"{number.partition('.')[0]:0>2}_"):
            exercises = import_module(f"{__name__}.{script.stem[3:]}").EXERCISES
            if number in exercises:
                return exercises[number]
            raise ValueError(f"no exercise {number!r}; this chapter has {', '.join(exercises)}")
    raise ValueError(f"no chapter has an exercise {number!r}")


def check(number: str | float, attempt: object) -> None:
    """Print whether `attempt`, a function or a value, answers exercise `number`; an error in it is told, not raised."""
    print(f"Exercise {number}: {find_exercise(str(number)).judge(attempt)}")


def _same(a: object, b: object, atol: float) -> bool:
    """Equal in structure, shape and type of value; numbers to `atol`. Precision (float32 or float64) does not count."""
    if isinstance(a, Tensor) != isinstance(b, Tensor):  # a number may come as a tensor without axes
        a, b = (x.item() if isinstance(x, Tensor) and x.ndim == 0 else x for x in (a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or (a.is_floating_point(), a.dtype == torch.bool) != (
            b.is_floating_point(),
            b.dtype == torch.bool,
        ):
            return False
        return torch.allclose(a.detach().double(), b.detach().double(), rtol=0, atol=atol, equal_nan=True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y, atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, Real) and isinstance(b, Real) and isinstance(a, bool) == isinstance(b, bool):
        return a == b or abs(a - b) <= atol
    return type(a) is type(b) and a == b


def _plain(value: object) -> bool:
    return all(map(_plain, value)) if isinstance(value, tuple) else isinstance(value, (int, float, str))


def _first_difference(results: list, expected: list, atol: float) -> str:
    for result, right in zip(results, expected, strict=True):
        if _same(result, right, atol):
            continue
        if isinstance(right, Tensor) and isinstance(result, Tensor) and result.shape != right.shape:
            return f"Your result has the shape {list(result.shape)}; {list(right.shape)} is wanted."
        if isinstance(right, Tensor) and not isinstance(result, Tensor):
            return f"Your result is a {type(result).__name__}; a tensor is wanted."
        break
    return "The result differs from the answer, and from the mistakes this check knows."
