"""What an exercise says to an attempt that is neither right nor a listed mistake: one sentence."""

import dis
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from numbers import Integral, Real
from traceback import extract_tb
from types import CodeType, FunctionType, GeneratorType

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Raised:
    """An error, in place of a result. Two that say the same are the same."""

    name: str
    text: str
    line: str = field(compare=False)

    @classmethod
    def by(cls, attempt: object, error: BaseException) -> "Raised":
        """What `attempt` raised, with the last of its own lines that was reached."""
        code = getattr(written(attempt), "__code__", None)
        place = (code.co_filename, code.co_name) if code else None
        own = [frame.line for frame in extract_tb(error.__traceback__) if (frame.filename, frame.name) == place]
        try:
            text = str(error).strip().partition("\n")[0]
        except Exception:
            text = ""
        return cls(type(error).__name__, text, (own[-1] if own else "") or "")


def written(attempt: object) -> object:
    """A function as its author wrote it, without decorators such as `torch.no_grad()`."""
    return inspect.unwrap(attempt) if inspect.isfunction(attempt) else attempt


def same(a: object, b: object, atol: float) -> bool:
    """Equal in structure, shape and type of value; numbers to `atol`, and NaN equals NaN. Precision does not count."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        a, b = _bare(a), _bare(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and _values(a) == _values(b) and torch.allclose(*_plain(a, b), 0, atol, True)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, Real) and isinstance(b, Real) and isinstance(a, bool) == isinstance(b, bool):
        return bool(a == b or abs(a - b) <= atol or (a != a and b != b))
    return type(a) is type(b) and a == b


def _bare(value: object) -> object:
    """A number of NumPy's, and one that comes as a tensor without axes, as Python's."""
    return value.item() if isinstance(value, (Tensor, np.generic)) and value.ndim == 0 else value


def _values(tensor: Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "True and False"
    if tensor.is_complex():
        return "complex numbers"
    return "floating-point numbers" if tensor.is_floating_point() else "whole numbers"


def _plain(*tensors: Tensor) -> list[Tensor]:
    return [x.detach().cpu().to(torch.complex128 if x.is_complex() else torch.float64) for x in tensors]


def is_blank(attempt: object) -> bool:
    """Whether a function's body, or each of a class's, is only `...`, `pass`, a docstring, comments."""
    attempt = written(attempt)
    if inspect.isclass(attempt):
        return all(is_blank(method) for method in vars(attempt).values() if inspect.isfunction(method))
    return inspect.isfunction(attempt) and _steps(attempt) in (_steps(lambda: None), _steps(lambda: ...))


def _steps(function: FunctionType) -> list[tuple]:
    return [(i.opname, i.argval) for i in dis.get_instructions(function) if i.opname not in ("NOP", "RESUME")]


def explain(
    attempt: object,
    inputs: Sequence[tuple],
    results: list,
    expected: list,
    changed_input: bool,
    recorded: bool,
    atol: float,
) -> str:
    """One sentence: the first of these that is true. `recorded`: the results are not what was returned."""
    attempt = written(attempt)
    parts = [part for part in _parts(results, expected) if not same(*part[1:], atol)]
    pairs, wrong = [pair for _, *pair in _parts(results, expected)], [pair for _, *pair in parts]
    if how := (
        _raised(attempt, [] if recorded else inputs, results)
        or (inputs and _nothing_returned(attempt, results, expected, changed_input))
        or (changed_input and "Your code changes its input in place, and the result is not right.")
        or _argument_unread(attempt)
    ):
        return how
    if recorded:
        return _reads_the_notebook(attempt) or "What your code does is not right, nor a mistake that this check knows."
    return (
        _other_kind(*parts[0])
        or _other_shape(*parts[0])
        or _other_numbers(pairs)
        or _other_places(wrong)
        or _other_order(results, expected, atol)
        or _reads_the_notebook(attempt)
        or _wrong_call(inputs, results, expected, atol)
        or _wrong_item(results, expected, atol)
        or "The result differs from the answer, and from the mistakes this check knows."
    )


def _parts(result: object, right: object, *place: int) -> Iterator[tuple]:
    """The parts of all results that are to be compared: a name, the part, the right one."""
    if _are_lists(result, right) and len(result) == len(right):
        for i, (one, other) in enumerate(zip(result, right, strict=True)):
            yield from _parts(one, other, *place, i)
    else:
        items = " of ".join(f"item {i}" for i in reversed(place[1:]))  # the first is the number of the call
        yield f"I{items[1:]} of your result, counted from 0," if items else "Your result", result, right


def _are_lists(*values: object) -> bool:
    return all(isinstance(value, (list, tuple)) for value in values)


# How the code is written.

_DATA = (Tensor, np.ndarray, list, dict)  # a number may well be a constant


def _raised(attempt, inputs, results) -> str | None:
    for number, result in enumerate(results):
        if isinstance(result, Raised):
            where = _arguments(inputs[number]) if inputs and not all(isinstance(r, Raised) for r in results) else ""
            subject = f"For {where} your code" if where else "Your code"
            line = f", in the line `{result.line}`" if result.line else ""
            text = f": {result.text}" if result.text else ""
            hint = _reads_the_notebook(attempt)
            return f"{subject} raised {result.name}{text}{line}{'. ' + hint if hint else ''}"
    return None


def _nothing_returned(attempt, results, expected, changed_input) -> str | None:
    returned = [
        not (result is None or result is ...)
        for result, right in zip(results, expected, strict=True)
        if right is not None
    ]
    if all(returned):
        return None
    if any(returned):
        return "For some inputs your code returns nothing. Does every way through it end in a `return`?"
    if "print" in _mentioned(attempt, "LOAD_GLOBAL"):
        return "Your code prints, and returns nothing: a `return` is missing."
    if changed_input:
        return "Your code changes its input in place and returns nothing. Return a new result; keep the input as it is."
    return "Your code returns nothing, and changes nothing that the check looks at. Is a `return` missing?"


def _argument_unread(attempt) -> str | None:
    read = _from_the_notebook(attempt, *_DATA, nn.Module, int, float, str)
    if not read:
        return None
    code = attempt.__code__
    reading = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "STORE_FAST_LOAD_FAST")
    unread = set(code.co_varnames[: code.co_argcount]) - _mentioned(attempt, *reading)
    names = ", ".join(f"`{name}`" for name in sorted(unread))
    return names and f"Your code reads `{read[0]}` of the notebook, and its argument {names} is never used."


def _reads_the_notebook(attempt) -> str | None:
    read = _from_the_notebook(attempt, *_DATA)
    if not read:
        return None
    return f"Your code reads `{read[0]}` of the notebook; the check has other inputs, so use the arguments."


def _from_the_notebook(attempt, *kinds: type) -> list[str]:
    """The names of data that a function takes from outside."""
    values = getattr(attempt, "__globals__", {})
    return [name for name in sorted(_mentioned(attempt, "LOAD_GLOBAL")) if isinstance(values.get(name), kinds)]


def _mentioned(attempt: object, *kinds: str) -> set[str]:
    """The names in a function's instructions of these kinds, also in functions inside it."""
    found = set()
    for code in _codes(getattr(attempt, "__code__", None)):
        for step in dis.get_instructions(code):
            if step.opname.startswith(kinds):
                found.update(step.argval if isinstance(step.argval, tuple) else [step.argval])
    return found


def _codes(code: CodeType | None) -> Iterator[CodeType]:
    if code:
        yield code
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from _codes(inner)


# What the result is.

_HINTS = {
    ("a text", "a number"): " Leave out the quotation marks.",
    ("a generator", "a list"): " Use `list(…)`, or fill a list and return it.",
    ("a number", "a tensor"): " `.item()`, `float()` and the like take the number out of a tensor.",
    ("a NumPy array", "a tensor"): " Stay in torch all the way.",
    ("a list", "a tensor"): " `torch.stack` or `torch.cat` make one of several.",
    ("a tuple", "a tensor"): " Is there a comma too many?",
    ("a tuple", "a number"): " Is there a comma too many?",
    ("a tensor", "a number"): " `.item()` takes the number out of a tensor that holds one.",
    ("a tensor", "True or False"): " A tensor of them becomes one by `.all()` or `.any()`.",
}


def _other_kind(name, result, right) -> str | None:
    if _are_lists(result, right):
        comma = " Is there a comma too many?" if len(result) == 1 and isinstance(result, tuple) else ""
        return f"{name} has the length {len(result)}; a list or tuple of the length {len(right)} is wanted.{comma}"
    ours, wanted = _kind(result), _kind(right)
    if ours == wanted or (isinstance(result, Tensor) and result.ndim == 0 and wanted == "a number"):
        return None
    return f"{name} is {shown(result)}; {wanted} is wanted.{_HINTS.get((ours, wanted), '')}"


def shown(value: object) -> str:
    """What a value is, and itself where it is short."""
    if isinstance(value, bool):
        return str(value)
    return f"{_kind(value)}, {value!r}" if _is_short(value) else _kind(value)


def _kind(value: object) -> str:
    value = _bare(value) if isinstance(value, np.generic) else value
    kinds = {
        Tensor: "a tensor",
        bool: "True or False",
        Real: "a number",
        str: "a text",
        tuple: "a tuple",
        list: "a list",
        dict: "a dictionary",
        set: "a set",
        (GeneratorType, map, filter, zip): "a generator",
        FunctionType: "a function",
        type(None): "None",
    }
    name = type(value).__name__
    other = "a NumPy array" if name == "ndarray" else f"of the type {name}"
    return next((kind for types, kind in kinds.items() if isinstance(value, types)), other)


def _other_shape(name, result, right) -> str | None:
    if not (isinstance(result, Tensor) and isinstance(right, Tensor)):
        return None
    ours, wanted = list(result.shape), list(right.shape)
    if ours == wanted:
        if _values(result) == _values(right):
            return None
        return f"{name} holds {_values(result)}; {_values(right)} are wanted."
    hint = ""
    if [n for n in ours if n != 1] == [n for n in wanted if n != 1]:
        missing = len(ours) < len(wanted)
        hint = " An axis of length 1 is missing; `keepdim=True` keeps it." if missing else " Mind the axes of length 1."
    return f"{name} has the shape {ours}; {wanted} is wanted.{hint}"


def _other_numbers(pairs) -> str | None:
    """How all numbers together are related to the right ones."""
    numbers = [(_flat(result), _flat(right)) for result, right in pairs]
    if any(a is None or b is None or a.shape != b.shape for a, b in numbers):
        return None
    ours, right = (torch.cat(side) for side in zip(*numbers, strict=True))
    if not right.isfinite().all():
        return None
    if ours.isnan().any():
        return "Your result holds NaN, which is no number: 0 / 0 gives it, and a root or logarithm below 0."
    if ours.isinf().any():
        return "Your result holds infinity: a division by 0 gives it, the logarithm of 0, or too large an exponent."
    if all(_is_floating(x) for pair in pairs for x in pair) and all(_nearly(a, b) for a, b in numbers):
        return "The difference is of the size of float32's rounding: is a constant or a tensor made in float32?"
    return _constant_offset(ours, right) or _constant_factor(ours, right)


def _flat(value: object) -> Tensor | None:
    if isinstance(value, Tensor) and _values(value) in ("floating-point numbers", "whole numbers"):
        return _plain(value)[0].flatten()
    return torch.tensor([float(value)], dtype=torch.float64) if _kind(value) == "a number" else None


def _is_floating(value: object) -> bool:
    return value.is_floating_point() if isinstance(value, Tensor) else not isinstance(value, Integral)


def _nearly(a: Tensor, b: Tensor) -> bool:
    return a.numel() == 0 or bool((a - b).abs().max() <= 1e-6 * b.abs().max())


def _agree(a: Tensor, b: Tensor) -> bool:
    """Each number to nine digits."""
    return torch.allclose(a, b, rtol=1e-9, atol=1e-12 * b.abs().max().item())


def _constant_factor(ours: Tensor, right: Tensor) -> str | None:
    if right[right != 0].abs().unique().numel() < 2:  # one number is always some factor of another
        return None
    factor = (ours @ right / (right @ right)).item()
    if factor == 0 or not _agree(ours, factor * right):
        return None
    if abs(factor + 1) < 1e-6:
        return "The sign is turned: your result is the right one times −1."
    return f"Your result is {factor:.6g} times the right one, everywhere."


def _constant_offset(ours: Tensor, right: Tensor) -> str | None:
    offset = (ours - right).mean().item()
    if right.unique().numel() < 2 or not _agree(ours, right + offset):
        return None
    return f"Your result is too {'large' if offset > 0 else 'small'} by {abs(offset):.6g}, everywhere."


def _other_places(wrong) -> str | None:
    """Where each wrong part has the right values, in other places."""
    if not all(isinstance(x, Tensor) for pair in wrong for x in pair):
        return None
    for i, j in combinations(range(-min(right.ndim for _, right in wrong), 0), 2):
        if all(same(ours, right.transpose(i, j), 1e-9) for ours, right in wrong):
            return f"Shape kept, meaning lost: this is the right tensor with its axes {i} and {j} exchanged."
    if all(
        right.unique().numel() > 2 and same(*(x.flatten().sort().values for x in (ours, right)), 1e-9)
        for ours, right in wrong
    ):
        return "Shape kept, meaning lost: the values are right, but stand in other places. Mind the order of the axes."
    return None


def _other_order(results, expected, atol) -> str | None:
    wrong = [(ours, right) for ours, right in zip(results, expected, strict=True) if not same(ours, right, atol)]
    if all(_are_lists(*pair) and sorted(map(repr, pair[0])) == sorted(map(repr, pair[1])) for pair in wrong):
        return "The items are right, and their order is not."
    return None


def _wrong_call(inputs, results, expected, atol) -> str | None:
    """The first call that is not right, where arguments and result are short to show."""
    for args, result, right in zip(inputs or [()], results, expected, strict=True):
        if _is_short((*args, result, right)) and not same(result, right, atol):
            start = f"For {_arguments(args)} your result" if args else "Your answer"
            return f"{start} is {result!r}, which is not right."
    return None


def _wrong_item(results, expected, atol) -> str | None:
    for result, right in zip(results, expected, strict=True):
        if _are_lists(result, right) and len(result) == len(right) and not same(result, right, atol):
            wrong = [not same(one, other, atol) for one, other in zip(result, right, strict=True)]
            return f"Item {wrong.index(True)} of your result, counted from 0, is not right."
    return None


def _arguments(args: tuple) -> str:
    return f"the argument{'s' * (len(args) > 1)} {', '.join(map(repr, args))}" if _is_short(args) else ""


def _is_short(value: object) -> bool:
    """Numbers, texts, and tuples of these, if they fit into a line."""
    if type(value) is tuple:
        return all(map(_is_short, value))
    return type(value) in (int, float, bool, str) and len(repr(value)) <= 40
