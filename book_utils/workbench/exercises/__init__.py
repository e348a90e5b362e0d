"""`check`: says at once whether an exercise is not attempted, right, or which mistake it looks like.

The exercises of chapter NN_name are defined in the module `name` of this package, as data: a right answer, the inputs
it is tried on, and the likely mistakes, each a wrong answer with the sentence that the reader gets for it.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from numbers import Real

import torch
from torch import Tensor

from book_utils.workbench.files import chapter_scripts
from book_utils.workbench.hints import Raised, explain, is_blank, same, shown


def call(attempt: Callable, *args: object) -> object:
    """How most functions are tried."""
    return attempt(*args)


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    answer    the right function, or the right value
    inputs    argument tuples to try a function on; empty where the answer is a value
    mistakes  sentence for the reader -> the wrong function or value that it describes (it may raise an error)
    run       how a function is tried on one tuple of arguments
    recorded  whether `run` gives a record of what happened, in place of what the function returned
    atol      the largest difference between two equal numbers
    """

    answer: object
    inputs: Sequence[tuple] = ()
    mistakes: Mapping[str, object] = field(default_factory=dict)
    run: Callable = call
    recorded: bool = False
    atol: float = 1e-9

    def results(self, attempt: object) -> list[object]:
        """What `attempt` gives: its value on each input, `Raised` where it raises an error; or itself."""
        with _settings():
            return self._try(attempt)[0]

    def judge(self, attempt: object) -> str:
        """One sentence on `attempt`. It leaves no trace: inputs are copied, settings and random states are put back."""
        if attempt is ...:
            return "not attempted yet."
        if self.inputs and not callable(attempt):
            return (
                f"not yet. A function is wanted, and this is {shown(attempt)}. "
                "Give the function's name, without calling it."
            )
        _ = self._expected, self._mistaken  # before the attempt, which might change what they read
        with _settings(torch.get_default_dtype()):
            results, changed_input = self._try(attempt)
        with _settings():
            if is_blank(attempt) and all(r is None or r is ... or isinstance(r, Raised) for r in results):
                return "not attempted yet."
            try:
                return self._compare(attempt, results, changed_input)
            except Exception as error:
                reason = Raised.by(attempt, error)
                return f"not yet. Your result cannot be compared with the answer ({reason.name}: {reason.text})."

    def _try(self, attempt: object) -> tuple[list[object], bool]:
        """The results, and whether an input was changed."""
        if not self.inputs:
            return [attempt], False
        torch.default_generator.manual_seed(0)  # attempt and answer draw the same, if they draw
        random.seed(0)
        results, changed = [], False
        for args in self.inputs:
            given = deepcopy(args)
            try:
                results.append(self.run(attempt, *given))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                results.append(Raised.by(attempt, error))
            changed = changed or _is_changed(given, args)
        return results, changed

    def _compare(self, attempt: object, results: list[object], changed_input: bool) -> str:
        if same(results, self._expected, self.atol):
            if changed_input:
                return "not yet. The values are right, but your code changed its input in place."
            return "right."
        for sentence, wrong in self._mistaken.items():
            if same(results, wrong, self.atol):
                return f"not yet. {sentence}"
        hint = explain(attempt, self.inputs, results, self._expected, changed_input, self.recorded, self.atol)
        return f"not yet. {hint}"

    @cached_property
    def _expected(self) -> list[object]:
        results = self.results(self.answer)
        if any(isinstance(result, Raised) for result in results):
            raise RuntimeError(f"the answer of this exercise fails: {results}")
        return results

    @cached_property
    def _mistaken(self) -> dict[str, list[object]]:
        return {sentence: self.results(mistake) for sentence, mistake in self.mistakes.items()}


@contextmanager
def _settings(precision: torch.dtype = torch.float32) -> Iterator[None]:
    """Gradients on, the CPU, and this precision; afterwards the reader's settings and random states are as before."""
    state, before, device = random.getstate(), torch.get_default_dtype(), torch.get_default_device()
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"), torch.random.fork_rng(devices=[]):
            torch.set_default_dtype(precision)
            yield
    finally:
        random.setstate(state)
        torch.set_default_dtype(before)
        if torch.get_default_device() != device:
            torch.set_default_device(device)


def _is_changed(now: object, before: object) -> bool:
    """Whether data are other than before. What a call may well change, say a model's gradients, does not count."""
    if isinstance(before, Mapping):
        return list(now) != list(before) or any(_is_changed(now[key], before[key]) for key in before)
    if isinstance(before, (list, tuple)):
        return len(now) != len(before) or any(map(_is_changed, now, before))
    return isinstance(before, (Tensor, Real, str)) and not same(now, before, 0.0)


def find_exercise(number: str) -> Exercise:
    """The exercise with this number, say "2.1". ValueError for an unknown one."""
    for script in chapter_scripts():
        if script.stem.startswith(f"{number.partition('.')[0]:0>2}_"):
            with _settings():  # the module's tensors are made now, if this is its first import
                exercises = import_module(f"{__name__}.{script.stem[3:]}").EXERCISES
            if number in exercises:
                return exercises[number]
            raise ValueError(f"no exercise {number!r}; this chapter has {', '.join(exercises)}")
    raise ValueError(f"no chapter has an exercise {number!r}")


def check(number: str | float, attempt: object) -> None:
    """Print whether `attempt`, a function or a value, answers exercise `number`; an error in it is told, not raised."""
    print(f"Exercise {number}: {find_exercise(str(number)).judge(attempt)}")
