"""The glossary and the notation page say what the chapters, the configurations and PyTorch say."""

import re

import pytest
import torch

from book_utils import get_config
from book_utils.workbench.files import ROOT, chapter_scripts
from book_utils.workbench.pairs import read_source

# Terms that an earlier chapter may use, each with the reason.
ALLOWED_EARLY = {
    "attention": "the one idea that a reader brings along; the start page and chapter 1 state it in a sentence",
    "branch": "chapter 1 says in place that it is added to the input of a block",
    "loss": "an everyday word: the loss of digits",
    "tokenizer": "what stands before the model is named where its ids could be wrong",
    "training": "that it changes the weights is all that the chapters before the last ask for",
    "value": "an everyday word",
}
SYNONYM = re.compile(r"Another name for \*(.+?)\*")


def table(page, first_column):
    """The rows, as lists of cells, of the table whose header begins with `first_column`."""
    lines = iter((ROOT / "chapters" / page).read_text("utf-8").splitlines())
    next(line for line in lines if line.startswith(f"| {first_column} |"))
    next(lines)  # the line of dashes
    rows = []
    while (line := next(lines, "")).startswith("|"):
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def contains(text, term):
    """Whether `text` has the term, or its simple plural, as words of their own."""
    return re.search(rf"(?<![\w-]){re.escape(term)}(s|es)?(?![\w-])", text, re.IGNORECASE)


def prose(cells):
    """The Markdown, a line a paragraph, without code, the table of mistakes, and the end, which leads on."""
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    text = re.sub(r"(?ms)^## (When it goes wrong|What you have now).*?(?=^## |\Z)", "", text)
    return re.sub(r"(?s)```.*?```|`[^`\n]*`|\*", "", text).splitlines()


def used_unexplained(term, introduced_in):
    """The chapters before `introduced_in` that use the term, and do not link to it where they first do."""
    for name in PROSE:
        first = next((line for line in PROSE[name] if contains(line, term)), "")
        if name < introduced_in and first and f"]({introduced_in}.ipynb" not in first:
            yield name


ROWS = table("glossary.md", "Term")
TERMS = [term for term, _, _ in ROWS]
CELLS = {script.stem: read_source(script).cells for script in chapter_scripts()}
PROSE = {name: prose(cells) for name, cells in CELLS.items()}


def test_the_glossary_is_in_order_and_has_each_term_once():
    assert sorted({term.casefold() for term in TERMS}) == [term.casefold() for term in TERMS]
    assert ALLOWED_EARLY.keys() <= set(TERMS)


@pytest.mark.parametrize(("term", "meaning", "where"), ROWS, ids=TERMS)
def test_a_term_occurs_in_its_chapter_and_in_none_before(term, meaning, where):
    title, chapter = re.fullmatch(r"\[(.+)\]\((\w+)\.ipynb\)", where).groups()
    assert CELLS[chapter][0].source.startswith(f"# {title}\n")
    if synonym := SYNONYM.match(meaning):
        assert synonym[1] in TERMS
    else:
        assert contains("\n".join(cell.source for cell in CELLS[chapter]).replace("*", ""), term), "not in its chapter"
    assert term in ALLOWED_EARLY or list(used_unexplained(term, chapter)) == []


def test_the_sizes_in_notation_are_those_of_the_configurations():
    rows = [row for row in table("notation.md", "Letter") if row[2] != "–"]
    assert [row[0] for row in rows] == ["D", "H", "D/H", "V", "C", "L"]
    for _, _, key, *values in rows:
        sizes = [getattr(get_config(name), key.strip("`")) for name in ("tiny", "gpt2-small")]
        assert values == [f"{size:,}" for size in sizes], key


def test_the_dtypes_in_notation_are_those_of_pytorch():
    for name, size, roundoff, _ in table("notation.md", "dtype"):
        dtype = getattr(torch, name)
        assert int(size) == dtype.itemsize, name
        assert roundoff == (f"{torch.finfo(dtype).eps / 2:.1e}" if dtype.is_floating_point else "–"), name


@pytest.mark.parametrize("page", ["glossary.md", "notation.md"])
def test_the_links_lead_to_pages_and_to_the_chapters_they_number(page):
    links = re.findall(r"\[([^\]]+)\]\(([^)]+)\)", (ROOT / "chapters" / page).read_text("utf-8"))
    assert links
    for text, target in links:
        assert (ROOT / "chapters" / target).is_file(), target
        number = re.search(r"\d+", text)
        assert number is None or int(number[0]) == int(target[:2]), (text, target)
