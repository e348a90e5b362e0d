"""Every exercise: blank is not attempted, the answer is right, each listed mistake gets its own sentence."""

from importlib import import_module

import pytest
import torch

from book_utils.workbench import check
from book_utils.workbench.exercises import Exercise, find_exercise
from book_utils.workbench.files import chapter_scripts

EXERCISES = {
    number: exercise
    for script in chapter_scripts()
    for number, exercise in import_module(f"book_utils.workbench.exercises.{script.stem[3:]}").EXERCISES.items()
}


@pytest.mark.parametrize("number", EXERCISES)
def test_every_exercise_tells_blank_right_and_each_mistake_apart(number):
    exercise = EXERCISES[number]
    assert exercise.judge(...) == "not attempted yet."
    if exercise.inputs:
        assert exercise.judge(lambda *_: None) == "not attempted yet."
    assert exercise.judge(exercise.answer) == "right."
    for sentence, mistake in exercise.mistakes.items():
        assert exercise.judge(mistake) == f"not yet. {sentence}"


@pytest.mark.parametrize("script", chapter_scripts(), ids=lambda script: script.stem)
def test_every_chapter_has_two_exercises_in_the_one_pattern(script):
    text = script.read_text("utf-8")
    chapter = str(int(script.stem[:2]))
    numbers = [number for number in EXERCISES if number.partition(".")[0] == chapter]
    assert len(numbers) >= 2
    for number in numbers:
        prompt = text.index(f"# ::::{{admonition}} Exercise {number} · ")
        cell = text.index('# %% tags=["exercise"]', prompt)
        asked = text.index(f'check("{number}", ', cell)
        assert text.index("# ::::{dropdown} Answer", asked) > asked
    assert text.count('check("') == len(numbers)


def test_check_prints_one_line_and_knows_its_exercises(capsys):
    check("2.3", lambda d: (d - 1) / d)
    assert capsys.readouterr().out.startswith("Exercise 2.3: not yet. This is the ratio of the variances;")
    with pytest.raises(ValueError, match=r"no exercise '2.9'; this chapter has 2.1, 2.2, 2.3"):
        find_exercise("2.9")
    with pytest.raises(ValueError, match="no chapter has an exercise 'x'"):
        find_exercise("x")


def test_the_judge_sees_what_is_wrong_about_an_unknown_attempt():
    double = Exercise(
        answer=lambda x: 2 * x, inputs=[(torch.tensor([1.0, 2.0]),)], mistakes={"Too much.": lambda x: 3 * x}
    )
    assert "raised ZeroDivisionError: division by zero" in double.judge(lambda x: 1 / 0)
    assert "shape [1, 2]; [2] is wanted" in double.judge(lambda x: 2 * x[None])
    assert "is a list; a tensor is wanted" in double.judge(lambda x: [2.0, 4.0])
    assert double.judge(lambda x: 3 * x) == "not yet. Too much."
    assert "differs from the answer" in double.judge(lambda x: 5 * x)
    total = Exercise(answer=lambda a, b: a + b, inputs=[(0, 0), (2, 3)])
    assert total.judge(lambda a, b: a * b) == "not yet. For the arguments 2, 3 your result is 6, which is not right."
    assert total.judge(lambda a, b: (a, b)).endswith("0, 0 your result is (0, 0), which is not right.")
    assert "changed its input in place" in double.judge(lambda x: x.mul_(2))
    assert "raised TypeError" in double.judge(7)
    assert "raised SystemExit" in double.judge(lambda x: exit("no"))
    assert double.judge(lambda x: 2 * x.double()) == "right."
    assert "differs" in double.judge(lambda x: (2 * x).long())
    pair = Exercise(answer=(1, [2, 3]))
    assert pair.judge([1, (2, 3)]) == "right." and "differs" in pair.judge((1, [2, 3, 4])) + pair.judge((1, [2]))
    value = Exercise(answer=1264, mistakes={"That is the tied one.": 1104})
    assert [value.judge(v) for v in (..., 1264, 1104)] == [
        "not attempted yet.",
        "right.",
        "not yet. That is the tied one.",
    ]
    assert value.judge(1264.0) == value.judge(torch.tensor(1264)) == "right."
    assert all("differs" in value.judge(odd) for odd in (True, "1264", float("nan"), [1264], torch.tensor([1264])))
