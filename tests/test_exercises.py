"""Every exercise: blank is not attempted, its page's answer is right, each listed mistake gets its own sentence."""

import ast
import dis
import random
import re
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from io import StringIO
from textwrap import indent
from types import CodeType

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

from book_utils.workbench import check
from book_utils.workbench.exercises import Exercise, find_exercise
from book_utils.workbench.files import chapter_scripts
from book_utils.workbench.pairs import read_source

OF_CHAPTER = {
    script: import_module(f"book_utils.workbench.exercises.{script.stem[3:]}").EXERCISES for script in chapter_scripts()
}
EXERCISES = {number: exercise for exercises in OF_CHAPTER.values() for number, exercise in exercises.items()}
each_chapter = pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)
each_exercise = pytest.mark.parametrize("number", EXERCISES)


@pytest.fixture(autouse=True)
def precision():
    """A chapter may choose another one for itself."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@each_exercise
def test_every_exercise_tells_blank_right_and_each_mistake_apart(number):
    exercise = EXERCISES[number]
    assert exercise.judge(...) == "not attempted yet."
    if exercise.inputs:
        assert exercise.judge(lambda *_: None) == "not attempted yet."
    assert exercise.judge(exercise.answer) == "right."
    for sentence, mistake in exercise.mistakes.items():
        assert exercise.judge(mistake) == f"not yet. {sentence}"


@each_exercise
def test_every_exercise_knows_likely_mistakes(number):
    """Three at least; two for a plain choice."""
    exercise = EXERCISES[number]
    assert len(exercise.mistakes) >= (3 if exercise.inputs else 2)


# The pattern on the page: prompt, cell, check, answer.

PROMPT = re.compile(r"::::\{admonition\} Exercise (\d+\.\d+) · \S.*\n\n\S[\s\S]*?\n\n::::\Z")
BLANK = re.compile(r"^( *)(?:(\w+) = )?\.\.\.(?: *#.*)?$", re.MULTILINE)
CHECK = re.compile(r'^check\("(\d+\.\d+)", (\w+)\)\Z', re.MULTILINE)
ANSWER = re.compile(r"\A::::\{dropdown\} Answer\n\n```python\n([\s\S]+?)\n```\n")


def exercises_on(cells):
    """number -> the place of its cell, and the first block of its answer; and what is not in the one pattern."""
    found, faults = {}, []
    for place, cell in enumerate(cells):
        if "exercise" not in cell.metadata.get("tags", []):
            continue
        prompt = list(re.finditer(r"^::::\{admonition\}", cells[place - 1].source, re.MULTILINE))
        prompt = PROMPT.match(cells[place - 1].source, prompt[-1].start()) if prompt else None
        asked, blanks = CHECK.search(cell.source), BLANK.findall(cell.source)
        answer = ANSWER.match(cells[place + 1].source) if place + 1 < len(cells) else None
        name = prompt[1] if prompt else cell.source.splitlines()[0]
        if not prompt:
            faults.append(f"{name}: no prompt ends right above the cell")
        if len(blanks) != 1:
            faults.append(f"{name}: {len(blanks)} lines `...`; one is to be filled in")
        if not asked or (prompt and asked[1] != prompt[1]):
            faults.append(f"{name}: the cell does not end with its check")
        if not answer:
            faults.append(f"{name}: the cell below does not begin with a folded answer that begins with a python block")
        if answer and not is_python(answer[1]):
            faults.append(f"{name}: its answer is no Python")
        elif prompt and asked and answer and len(blanks) == 1:
            found[name] = (place, answer[1])
    return found, faults


@each_chapter
def test_every_chapter_keeps_to_the_one_pattern(script):
    cells = read_source(script).cells
    found, faults = exercises_on(cells)
    assert faults == []
    assert list(found) == list(OF_CHAPTER[script]) and len(found) >= 2
    assert sum(cell.source.count('check("') for cell in cells) == len(found)


@each_chapter
def test_the_committed_checks_say_that_nothing_is_attempted(script):
    cells = nbformat.read(script.with_suffix(".ipynb"), as_version=4).cells
    said = [cell.outputs for cell in cells if "exercise" in cell.metadata.get("tags", [])]
    assert [[output.get("text") for output in outputs] for outputs in said] == [
        [f"Exercise {number}: not attempted yet.\n"] for number in OF_CHAPTER[script]
    ]


@each_chapter
def test_filled_with_the_answers_of_the_page_every_check_says_right(script):
    cells = read_source(script).cells
    found, _ = exercises_on(cells)
    filled = {place: fill(cells[place].source, answer) for place, answer in found.values()}
    said = dict.fromkeys(OF_CHAPTER[script], "out of the pattern") | told(cells, filled)
    wrong = {number: line for number, line in said.items() if line != f"Exercise {number}: right.\n"}
    assert wrong == {}, f"{script.name}: put into its cell, the first block of the folded answer is not right"


@each_chapter
def test_left_blank_no_check_fails_or_passes(script):
    cells = read_source(script).cells
    blank = {place: cell.source for place, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])}
    assert told(cells, blank) == {number: f"Exercise {number}: not attempted yet.\n" for number in OF_CHAPTER[script]}


def fill(cell, answer):
    """The cell with the answer in place of its line `...`."""

    def filled(blank):
        margin, name = blank[1], blank[2]
        if not name:
            return indent(answer, margin)
        return f"{name} = (\n{answer}\n)" if is_expression(answer) else answer

    return BLANK.sub(filled, cell, count=1)


def is_expression(text):
    try:
        return bool(ast.parse(text, mode="eval"))
    except SyntaxError:
        return False


def is_python(text):
    try:
        return bool(ast.parse(f"def answer():\n{indent(text, ' ')}"))
    except SyntaxError:
        return False


def told(cells, exercises):
    """What the check of each exercise prints, by number; `exercises` are the cells' texts, by place.

    Of the rest of the chapter only those cells run, in order, that bind a name which is needed.
    """
    code = {place: cell.source for place, cell in enumerate(cells) if cell.cell_type == "code"} | exercises
    names, said = {}, {}
    for place in sorted(needed(code, set(exercises))):
        with redirect_stdout(StringIO()) as out:
            try:
                exec(compile(code[place], f"cell {place}", "exec"), names)
            except Exception as error:
                print(f"{type(error).__name__}: {error}")
        if place in exercises:
            said[CHECK.search(exercises[place])[1]] = out.getvalue()
    return said


def needed(code, places):
    """`places`, the place of the last cell above one of these that binds a name which it reads, and so on."""
    cells = {place: names_in(source) for place, source in code.items()}
    last, found, to_read = max(places, default=0), set(), list(places)
    while to_read:
        reader = to_read.pop()
        if reader not in found:
            found.add(reader)
            _, at_once, when_called = cells[reader]
            to_read += last_binders(cells, at_once, reader) | last_binders(cells, when_called, last)
    return found


def last_binders(cells, names, end):
    """For each name the last place above `end` that binds it, where there is one."""
    found = {name: place for place in sorted(cells) if place < end for name in cells[place][0] & names}
    return set(found.values())


def names_in(source):
    """The names that a cell binds; that it reads before; that its functions read when they are called."""
    bound, at_once = set(), set()
    code = compile(source, "a cell", "exec")
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            bound.add(step.argval)
        elif step.opname == "LOAD_NAME" and step.argval not in bound:
            at_once.add(step.argval)
    return bound, at_once, read_inside(code) - bound


def read_inside(code):
    """The global names that the functions and classes in a piece of code read."""
    names = set()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= {s.argval for s in dis.get_instructions(inner) if s.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
            names |= read_inside(inner)
    return names


# Each of these tests must be able to fail.

PAGE = """# %% [markdown]
# ::::{admonition} Exercise 2.3 · Title
#
# Prompt.
#
# ::::

# %% tags=["exercise"]
def factor(d):
    \"\"\"[..., D] -> [..., D]\"\"\"
    ...  # your line here


check("2.3", factor)

# %% [markdown]
# ::::{dropdown} Answer
#
# ```python
# share = (d - 1) / d
# return root(share)
# ```
#
# Because.
#
# ::::
"""
ABOVE = """# %%
from book_utils.workbench import check

# %%
raise RuntimeError("this cell is not needed")

# %%
def root(x):
    return x**exponent

# %%
exponent = 0.5

"""


def page(tmp_path, text):
    script = tmp_path / "02_page.py"
    header = "# ---\n# jupyter:\n#   jupytext:\n#     formats: ipynb,py:percent\n# ---\n\n"
    script.write_text(header + text, "utf-8")
    return read_source(script).cells


def said_when_filled(cells):
    found, _ = exercises_on(cells)
    return told(cells, {place: fill(cells[place].source, answer) for place, answer in found.values()})


def test_a_page_is_run_with_what_its_exercise_needs_and_a_wrong_answer_is_seen(tmp_path):
    cells = page(tmp_path, ABOVE + PAGE)
    assert exercises_on(cells) == ({"2.3": (5, "share = (d - 1) / d\nreturn root(share)")}, [])
    assert said_when_filled(cells) == {"2.3": "Exercise 2.3: right.\n"}
    assert told(cells, {5: cells[5].source}) == {"2.3": "Exercise 2.3: not attempted yet.\n"}
    for old, new, said in [
        ("return root(share)", "return share", "not yet. This is the ratio of the variances;"),
        ("return root(share)", "root(share)", "not yet. Your code returns nothing, and"),
        ("exponent = 0.5", "exponent = 0.5\nroot = None", "not yet. Your code raised TypeError"),  # bound anew
    ]:
        assert said in said_when_filled(page(tmp_path, (ABOVE + PAGE).replace(old, new)))["2.3"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("{admonition} Exercise 2.3 · Title", "{admonition} Exercise 2.3", "no prompt"),
        ("# Prompt.\n#\n", "", "no prompt"),
        ("# ::::\n\n# %% tags", "# ::::\n#\n# More.\n\n# %% tags", "no prompt"),
        ("...  # your line here", "pass", "2.3: 0 lines `...`"),
        ("...  # your line here", "...\n    ...", "2.3: 2 lines `...`"),
        ('check("2.3", factor)', "", "2.3: the cell does not end with its check"),
        ('check("2.3", factor)', 'check("2.2", factor)', "2.3: the cell does not end with its check"),
        ('check("2.3", factor)', 'check("2.3", factor)\nprint()', "2.3: the cell does not end with its check"),
        ("# ```python\n", "# Because.\n#\n# ```python\n", "2.3: the cell below does not begin with a folded answer"),
        ("root(share)", "root(share", "2.3: its answer is no Python"),
        ("{dropdown} Answer", "{admonition} Answer", "2.3: the cell below does not begin with a folded answer"),
        ('\n# %% tags=["exercise"]', '\n# %%\n1\n\n# %% tags=["exercise"]', "no prompt"),
    ],
)
def test_a_page_out_of_the_pattern_is_seen(tmp_path, old, new, fault):
    assert PAGE.count(old) == 1
    _, faults = exercises_on(page(tmp_path, PAGE.replace(old, new)))
    assert len(faults) == 1 and fault in faults[0]


def test_a_value_is_filled_by_an_expression_or_by_an_assignment():
    cell = 'best = ...  # your string here\n\ncheck("10.3", best)'
    for answer in (
        '"BC"',
        'best = "BC"',
        '(\n    "BC"\n)',
        '"B" + (  # both\n"C")',
        'letters = "CB"\nbest = letters[::-1]',
    ):
        names = {"check": lambda number, value: None}
        exec(fill(cell, answer), names)
        assert names["best"] == "BC"


# The judge itself.


def test_check_prints_one_line_and_knows_its_exercises(capsys):
    check("2.3", lambda d: (d - 1) / d)
    assert capsys.readouterr().out.startswith("Exercise 2.3: not yet. This is the ratio of the variances;")
    with pytest.raises(ValueError, match=r"no exercise '2.9'; this chapter has 2.1, 2.2, 2.3"):
        find_exercise("2.9")
    with pytest.raises(ValueError, match="no chapter has an exercise 'x'"):
        find_exercise("x")


_X = torch.tensor([[1.0, 2.0], [5.0, 7.0]], dtype=torch.float64)
twice = Exercise(
    answer=lambda x, n: 2 * x + n, inputs=[(_X, 1), (_X + 3, 0)], mistakes={"Too much.": lambda x, n: 3 * x + n}
)
total = Exercise(answer=lambda a, b: a + b, inputs=[(0, 0), (2, 3), (7, 1)])
pair = Exercise(answer=(1, [2, 3]))
value = Exercise(answer=1264, mistakes={"That is the tied one.": 1104})
offset, offsets = 1, [1]  # of no use to `twice`: the check has other numbers


def empty(x, n):
    """Nothing but this."""
    # and this
    pass
    ...


class Empty(nn.Module):
    def forward(self, x, n): ...


class Twice(nn.Module):
    def forward(self, x, n):
        return 2 * x + n


def test_blank_is_not_attempted_and_code_without_a_return_is():
    assert {twice.judge(blank) for blank in (..., empty, Empty, lambda x, n: ..., lambda x, n: None)} == {
        "not attempted yet."
    }

    def returns_nothing(x, n):
        y = 2 * x + n  # noqa: F841

    def prints(x, n):
        print(2 * x + n)

    def sometimes(x, n):
        if n:
            return 2 * x + n

    def in_place(x, n):
        x *= 2
        x += n

    assert twice.judge(returns_nothing) == (
        "not yet. Your code returns nothing, and changes nothing that the check looks at. Is a `return` missing?"
    )
    assert twice.judge(prints) == "not yet. Your code prints, and returns nothing: a `return` is missing."
    listed = Exercise(answer=lambda x: [x], inputs=[(1,)], run=lambda attempt, x: list(attempt(x)))
    assert listed.judge(lambda x: ...) == "not attempted yet." and "raised TypeError" in listed.judge(lambda x: 5)
    assert twice.judge(in_place).startswith("not yet. Your code changes its input in place and returns nothing.")
    assert twice.judge(sometimes).startswith("not yet. For some inputs your code returns nothing.")


def test_classes_and_other_callables_are_tried_like_functions():
    called = Exercise(answer=Twice, inputs=twice.inputs, run=lambda made, x, n: made()(x, n))
    assert called.judge(Twice) == "right." and called.judge(Empty) == "not attempted yet."

    class Inherits(Twice):
        pass

    assert called.judge(Inherits) == "right."

    class NoForward(nn.Module):
        def __init__(self):
            super().__init__()

    assert 'missing the required "forward" function' in called.judge(NoForward)
    assert twice.judge(Twice()) == "right."
    wanted = "not yet. A function is wanted, and this is {}. Give the function's name, without calling it."
    assert twice.judge(_X) == wanted.format("a tensor") and twice.judge(7) == wanted.format("a number, 7")


def uses_notebook(x, n):
    return 2 * x + offset


def uses_notebook_too(x, n):
    return 2 * x + n * max(offsets for _ in range(2))[0] * 3


def wrong_line(x, n):
    y = x @ x
    return y.view(3, n)


def transposed(x, n):
    return (2 * x + n).T


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (lambda x, n: 3 * x + n, "Too much."),
        (lambda x, n: 1 / 0, "Your code raised ZeroDivisionError: division by zero"),
        (lambda x, n: exit("no"), "Your code raised SystemExit: no"),
        (lambda x: x, "Your code raised TypeError"),
        (wrong_line, "in the line `return y.view(3, n)`"),
        (uses_notebook, "Your code reads `offset` of the notebook, and its argument `n` is never used."),
        (uses_notebook_too, "Your code reads `offsets` of the notebook; the check has other inputs"),
        (lambda x, n: x.mul_(2).add_(n), "The values are right, but your code changed its input in place."),
        (lambda x, n: x.mul_(7), "Your code changes its input in place, and the result is not right."),
        (lambda x, n: (2 * x + n)[None], "shape [1, 2, 2]; [2, 2] is wanted. Mind the axes of length 1."),
        (lambda x, n: (2 * x + n)[0], "shape [2]; [2, 2] is wanted."),
        (lambda x, n: (2 * x + n)[:1].T, "shape [2, 1]; [2, 2] is wanted."),
        (lambda x, n: (2 * x + n).tolist(), "Your result is a list; a tensor is wanted. `torch.stack` or"),
        (lambda x, n: (2 * x + n,), "Your result is a tuple; a tensor is wanted. Is there a comma too many?"),
        (lambda x, n: (2 * x + n).numpy(), "Your result is a NumPy array; a tensor is wanted. Stay in torch"),
        (lambda x, n: (2 * x + n).sum().item(), "Your result is a number, 34.0; a tensor is wanted. `.item()`"),
        (lambda x, n: (row for row in 2 * x + n), "Your result is a generator; a tensor is wanted."),
        (lambda x, n: (2 * x + n).long(), "holds whole numbers; floating-point numbers are wanted."),
        (lambda x, n: (2 * x + n) > 0, "holds True and False; floating-point numbers are wanted."),
        (lambda x, n: (2 * x + n) / 0, "Your result holds infinity"),
        (lambda x, n: (2 * x + n) * float("nan"), "Your result holds NaN"),
        (lambda x, n: 2 * x + n + 0.3 - torch.tensor(0.3), "The difference is of the size of float32's rounding"),
        (lambda x, n: -2 * x - n, "The sign is turned"),
        (lambda x, n: 5 * x + 2.5 * n, "Your result is 2.5 times the right one, everywhere."),
        (lambda x, n: 2 * x + n - 4, "Your result is too small by 4, everywhere."),
        (transposed, "Shape kept, meaning lost: this is the right tensor with its axes -2 and -1 exchanged."),
        (
            lambda x, n: (2 * x + n).flip(0),
            "Shape kept, meaning lost: the values are right, but stand in other places.",
        ),
        (lambda x, n: x**2, "The result differs from the answer, and from the mistakes this check knows."),
        (lambda x, n: x.to_sparse(), "Your result cannot be compared with the answer"),
    ],
)
def test_the_judge_sees_what_is_wrong_about_an_unknown_attempt(attempt, sentence):
    said = twice.judge(attempt)
    assert said.startswith("not yet. ") and sentence in said


def test_the_judge_takes_what_is_right_in_another_form():
    assert twice.judge(lambda x, n: (2 * x + n).requires_grad_()) == "right."
    whole = Exercise(answer=lambda x: x.sum(), inputs=[(_X,)])
    assert whole.judge(lambda x: x.sum().item()) == whole.judge(lambda x: np.float64(x.sum().item())) == "right."
    assert value.judge(1264.0) == value.judge(torch.tensor(1264)) == pair.judge([1, (2, 3)]) == "right."
    assert Exercise(answer=float("nan")).judge(float("nan")) == "right."
    assert Exercise(answer=torch.tensor([1.0, torch.nan])).judge(torch.tensor([1.0, torch.nan])) == "right."


def test_the_judge_on_plain_values():
    assert total.judge(lambda a, b: a * b) == "not yet. For the arguments 2, 3 your result is 6, which is not right."
    assert (
        total.judge(lambda a, b: (a, b))
        == "not yet. Your result is a tuple, (0, 0); a number is wanted. Is there a comma too many?"
    )
    assert "For the arguments 0, 0 your code raised ZeroDivisionError" in total.judge(lambda a, b: a + b + 0 // b)
    assert total.judge(lambda a, b: str(a + b)) == (
        "not yet. Your result is a text, '0'; a number is wanted. Leave out the quotation marks."
    )
    assert total.judge(lambda a, b: 2 * (a + b)) == "not yet. Your result is 2 times the right one, everywhere."
    assert total.judge(lambda a, b: a + b + 1) == "not yet. Your result is too large by 1, everywhere."
    assert pair.judge((1, [2, 3, 4])) == (
        "not yet. Item 1 of your result, counted from 0, has the length 3; a list or tuple of the length 2 is wanted."
    )
    assert "Item 1 of your result, counted from 0, is a number, 2; a list is wanted." in pair.judge((1, 2))
    assert (
        "Your result has the length 1; a list or tuple of the length 2 is wanted. Is there a comma too many?"
        in pair.judge(((1, [2, 3]),))
    )
    assert "Item 1 of your result, counted from 0, is not right." in pair.judge((1, [2, 4]))
    assert "order is not" in Exercise(answer=["a", "b", "c"]).judge(("c", "a", "b"))
    positive = Exercise(answer=lambda a: a > 0, inputs=[(1,), (-1,), (2,)])
    assert positive.judge(lambda a: a < 0) == "not yet. For the argument 1 your result is False, which is not right."
    inside = Exercise(
        answer=lambda a: [a, 2], inputs=[(1,)], run=lambda attempt, a: ["seen", attempt(a)], recorded=True
    )
    unknown = "not yet. What your code does is not right, nor a mistake that this check knows."
    assert inside.judge(lambda a: [a, 3]) == inside.judge(lambda a: "seen") == unknown  # what the check saw is not told
    column = Exercise(answer=lambda: torch.ones(3, 1), inputs=[()])
    assert "[3]; [3, 1] is wanted. An axis of length 1 is missing; `keepdim=True`" in column.judge(
        lambda: torch.ones(3)
    )
    assert total.judge(lambda a, b: "so many words that they fill a line").startswith(
        "not yet. Your result is a text, 'so"
    )
    assert total.judge(lambda a, b: 9 * "and so on ") == (
        "not yet. Your result is a text; a number is wanted. Leave out the quotation marks."
    )
    assert "differs" not in total.judge(lambda a, b: 1.001 * (a + b) + b / 1000)
    assert "times" not in total.judge(lambda a, b: 1.001 * (a + b) + b / 1000)
    wide = Exercise(answer=lambda: torch.arange(6.0).view(2, 3), inputs=[()])
    assert wide.judge(lambda: torch.ones(3, 2)) == "not yet. Your result has the shape [3, 2]; [2, 3] is wanted."
    assert value.judge(1104) == "not yet. That is the tied one."
    assert value.judge(7) == "not yet. Your answer is 7, which is not right."
    for odd, kind in [
        (True, "True"),
        ("1264", "a text, '1264'"),
        ([1264], "a list"),
        ({1264}, "a set"),
        (None, "None"),
    ]:
        assert f"Your result is {kind}; a number is wanted." in value.judge(odd)
    assert "Your result is a tensor; a number is wanted. `.item()` takes" in value.judge(torch.tensor([1264]))
    assert "Your result is True; a number is wanted." in Exercise(answer=1).judge(True)
    assert "Your result holds NaN" in value.judge(float("nan"))
    large = Exercise(answer=lambda n: n, inputs=[(163_009_536,), (124_439_808,)])
    assert "too large by 1, everywhere" in large.judge(lambda n: n + 1)  # far below float32's rounding, and no rounding
    assert "your result is 0, which" in large.judge(lambda n: 0)
    endless = Exercise(answer=lambda n: float("inf"), inputs=[(1,), (2,)])
    assert "your result is nan, which" in endless.judge(lambda n: float("nan"))
    masks = Exercise(answer=lambda n: torch.ones(n, n).tril().bool(), inputs=[(3,), (4,)])
    assert "exchanged" in masks.judge(lambda n: torch.ones(n, n).triu().bool())
    assert "differs" in masks.judge(lambda n: torch.ones(n, n).tril().bool().flip(0))


def test_a_listed_mistake_may_raise_and_goes_before_every_other_sentence():
    listed = Exercise(
        answer=twice.answer,
        inputs=twice.inputs,
        mistakes={
            "These axes do not meet.": lambda x, n: x + x[:, :1].expand(2, 3),
            "Nothing.": lambda x, n: print(end=""),
        },
    )
    assert listed.judge(lambda x, n: x + x[:, :1].repeat(1, 3)) == "not yet. These axes do not meet."
    assert listed.judge(lambda x, n: [][n:] or None) == "not yet. Nothing."


@pytest.mark.parametrize(
    "change", [lambda d: d.pop("a"), lambda d: d["b"].append(1), lambda d: d.update(a=torch.ones(2))]
)
def test_a_change_of_any_input_is_seen(change):
    given = [({"a": torch.zeros(2), "b": []}, False), ({"a": torch.zeros(2), "b": [0]}, True), ({}, False)]
    sized = Exercise(answer=lambda settings, now: len(settings), inputs=given)
    kept = Exercise(answer=lambda numbers: 2, inputs=[([1.0, float("nan")],)])

    def changes(settings, now):
        size = len(settings)
        if now:
            change(settings)
        return size

    assert sized.judge(changes) == "not yet. The values are right, but your code changed its input in place."
    assert kept.judge(len) == "right." and "in place" in kept.judge(lambda numbers: numbers.__setitem__(0, 7.0) or 2)


def test_a_check_leaves_no_trace():
    kept = _X.clone()
    torch.manual_seed(5), random.seed(5)
    states = torch.get_rng_state(), random.getstate()

    def disturbs(x, n):
        torch.manual_seed(1), random.seed(1), torch.set_grad_enabled(False), torch.set_default_dtype(torch.float64)
        x.zero_()
        return torch.rand(2) + random.random()

    assert "in place" in twice.judge(disturbs)
    assert torch.equal(_X, kept) and torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    draws = Exercise(answer=lambda n: torch.randn(n) + random.random(), inputs=[(3,), (4,)])
    assert draws.judge(lambda n: random.random() + torch.randn(n)) == "right."  # both draw the same
    learns = Exercise(answer=lambda x: torch.is_grad_enabled(), inputs=[(1,)])
    with torch.no_grad():
        assert learns.judge(lambda x: True) == "right."


@each_exercise
def test_an_answer_leaves_no_trace_either(number):
    states = torch.get_rng_state(), random.getstate()
    EXERCISES[number].judge(EXERCISES[number].answer)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1] and torch.is_grad_enabled()


def _settings_off(model, x):
    torch.set_grad_enabled(False)
    torch.set_default_device("meta")
    return 12345


def test_the_settings_of_an_attempt_and_those_around_a_check_change_no_answer():
    for number in ("4.5", "7.2", "12.1"):
        for around in (torch.inference_mode(), torch.device("meta"), torch.no_grad()):
            exercise = replace(EXERCISES[number])  # as in a new kernel: nothing is computed yet
            with around:
                assert exercise.judge(exercise.answer) == "right."
            assert exercise.judge(exercise.answer) == "right."
    look = replace(EXERCISES["4.5"])
    assert "right" not in look.judge(_settings_off).split(".")[0] and look.judge(look.answer) == "right."
    assert torch.is_grad_enabled() and torch.get_default_device() == torch.device("cpu")
    torch.set_default_device("meta")
    try:
        assert "not yet" in look.judge(_settings_off) and torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)
    assert torch.get_default_device() == torch.device("cpu")
    with pytest.raises(RuntimeError, match="the answer of this exercise fails"):
        Exercise(answer=lambda x: 1 / 0, inputs=[(1,)]).judge(len)


def test_the_notebooks_precision_is_that_of_an_attempt():
    torch.set_default_dtype(torch.float64)
    assert twice.judge(lambda x, n: 2 * x + n + torch.tensor(0.3) - 0.3) == "right."


def _with_the_model(change):
    def tie(model):
        change(model, model.tok_emb.weight)

    return tie


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m, w: setattr(m.out_head, "weight", nn.Parameter(w.T)), "The model cannot be trained any more"),
        (lambda m, w: setattr(m, "out_head", nn.Linear(8, 4)), "The model cannot be trained any more"),
        (lambda m, w: setattr(m, "out_head", nn.Linear(4, 8, bias=False)), "The model cannot be trained any more"),
        (lambda m, w: setattr(m, "tok_emb", m.out_head), "The model cannot be trained any more"),
        (lambda m, w: delattr(m, "out_head"), "The model cannot be trained any more"),
        (lambda m, w: m.requires_grad_(False), "Head and token embedding have the Parameters that they had"),
        (lambda m, w: setattr(m, "pos_emb", m.tok_emb), "Head and token embedding have the Parameters that they had"),
        (lambda m, w: setattr(m, "out_head", m.tok_emb), "The whole module was replaced"),
    ],
)
def test_a_tie_is_told_what_it_did(change, sentence):
    assert EXERCISES["7.2"].judge(_with_the_model(change)).startswith(f"not yet. {sentence}")


def test_a_result_is_described_as_it_was_returned():
    shapes, parts, modes = EXERCISES["1.1"], EXERCISES["9.1"], EXERCISES["11.4"]
    assert "Item 0 of your result, counted from 0, is a text, 'BTD'; a list" in shapes.judge(lambda *_: ["BTD"] * 5)
    assert "Your result is a number, 7; a list is wanted." in parts.judge(lambda w: 7)
    assert "Your result is a tensor; a list is wanted." in parts.judge(lambda w: w)
    assert "Your result is a dictionary; a list is wanted." in parts.judge(lambda w: dict(zip("qkv", w.chunk(3))))  # noqa: B905
    assert parts.judge(lambda w: w.view(3, -1, w.shape[1])) == "right."
    assert modes.judge(lambda model, work: [work(model), work(model)][0]).startswith("not yet. What your code does")

    def fails_once(model, work):
        return modes.answer(model, work) if model.training else 1 / 0

    assert modes.judge(fails_once).startswith("not yet. Your code raised ZeroDivisionError")  # no arguments are told
    with_no_grad = torch.no_grad()(modes.answer)
    assert "leave out `evaluating` and `no_grad`" in modes.judge(with_no_grad)


def test_numbers_of_numpy_are_compared_as_they_are():
    ratio = EXERCISES["2.3"]
    assert ratio.judge(lambda d: np.float64(ratio.answer(d))) == "right."
    assert ratio.judge(lambda d: np.float16(ratio.answer(d))) != "right."
    assert "float32's rounding" in ratio.judge(lambda d: np.float32(ratio.answer(d)))
    assert EXERCISES["9.5"].judge(lambda *args: np.bool_(EXERCISES["9.5"].answer(*args))) == "right."
    assert Exercise(answer=True).judge(np.bool_(True)) == "right."


def test_a_sentence_tells_the_result_and_not_a_cause_that_is_not_there():
    assert "This is 0 for every D" in EXERCISES["2.3"].judge(lambda d: 0)
    assert "no for every pair" in EXERCISES["9.5"].judge(lambda a, b, tolerance: False)


constant, kind, gelu = 3.14159, torch.float64, nn.GELU()


def test_constants_of_the_notebook_are_not_taken_for_its_data():
    assert "differs" in twice.judge(lambda x, n: gelu(x.to(kind)) * constant + n)


def test_decorated_functions_are_read_as_they_are_written():
    @torch.no_grad()
    def blank(x, n): ...

    @torch.no_grad()
    def wrong(x, n):
        return x.view(3, n)

    assert twice.judge(blank) == "not attempted yet."
    assert "in the line `return x.view(3, n)`" in twice.judge(wrong)


class MuteError(Exception):
    def __str__(self):
        raise ValueError

    __repr__ = __str__
    __call__ = None


class Base(BaseException):
    pass


def test_an_attempt_that_cannot_be_shown_gets_a_sentence():
    def raises(error):
        def attempt(x, n):
            raise error

        return attempt

    assert "Your code raised MuteError, in the line `raise error`" in twice.judge(raises(MuteError()))
    assert "Your code raised Base" in twice.judge(raises(Base()))
    assert "Your result is of the type MuteError; a tensor is wanted." in twice.judge(lambda x, n: MuteError())
    assert "of the type MuteError" in value.judge(MuteError())
    with pytest.raises(KeyboardInterrupt):
        twice.judge(raises(KeyboardInterrupt()))
