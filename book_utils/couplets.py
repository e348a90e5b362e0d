"""A small language to learn: rhyming couplets that must hold a given keyword, from a grammar (chapter 13).

    moon light : the quiet moon light sleeps beside the bay , beyond a golden heron waits the day .

The grammar draws couplets and accepts them, so that what a model has learned can be measured. A keyword is two words,
so that a pair kept out of training is made of words that were in it.
"""

import math
import random
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product

import torch
from jaxtyping import Integer
from torch import Tensor, nn

from book_utils import _checks
from book_utils.generation import generate

FIRST = ["moon", "star", "sun", "snow", "rain", "storm", "sea", "river", "cliff", "wood", "fire", "wind"]
SECOND = ["light", "stone", "flower", "song", "bird", "shade", "field", "path", "bell", "cloud", "gate", "spring"]
RHYMES = [
    ["day", "bay", "way", "clay"],
    ["night", "height", "sight", "flight"],
    ["hill", "mill", "rill", "sill"],
    ["tree", "lea", "bee", "knee"],
    ["ground", "sound", "mound", "round"],
    ["pair", "lair", "stair", "chair"],
]
CLASSES = {
    "article": ["the", "a"],
    "adjective": ["quiet", "golden", "silver", "gentle", "lonely", "distant", "patient", "hidden"],
    "noun": ["heron", "fox", "child", "shepherd", "dreamer", "swallow", "sailor", "badger"],
    "verb": ["waits", "rests", "sings", "sleeps", "drifts", "shines", "turns", "stays"],
    "preposition": ["beside", "beyond", "beneath", "above", "behind", "before"],
    "end": [word for rhyme in RHYMES for word in rhyme],
}
# "subject" is the keyword in one line, and a noun in the other. Every line has as many words.
FORMS = (
    ["article", "adjective", "subject", "verb", "preposition", "article", "end"],
    ["preposition", "article", "adjective", "subject", "verb", "article", "end"],
)
AFTER_KEYWORD, BETWEEN, END = ":", ",", "."
VOCABULARY = [
    *(AFTER_KEYWORD, BETWEEN, END),
    *(*FIRST, *SECOND),
    *(word for words in CLASSES.values() for word in words),
]
_ID = {word: number for number, word in enumerate(VOCABULARY)}
EOS_ID = _ID[END]

Keyword = tuple[str, str]


def encode(text: str) -> list[int]:
    """The ids of words and signs that are separated by spaces. ValueError for one that the language has not."""
    words = text.split()
    unknown = [word for word in words if word not in _ID]
    if unknown:
        raise ValueError(f"the language has no word {unknown[0]!r}")
    return [_ID[word] for word in words]


def decode(ids: Iterable[int]) -> str:
    """The words and signs of ids, separated by spaces."""
    return " ".join(VOCABULARY[number] for number in ids)


def split_keywords(seed: int) -> tuple[list[Keyword], list[Keyword]]:
    """All pairs of a first and a second word: those for training, and 24 kept out of it.

    Of every word two pairs are kept out, so that ten remain from which it is known.
    """
    draw = random.Random(seed)
    partners = draw.sample(SECOND, len(SECOND))
    kept_out = [(first, partners[(place + step) % len(SECOND)]) for place, first in enumerate(FIRST) for step in (0, 1)]
    return [pair for pair in product(FIRST, SECOND) if pair not in kept_out], kept_out


@cache
def _patterns(keyword: Keyword) -> list[list[Sequence[str]]]:
    """For every form that a couplet with this keyword can have: the words that may stand at each place."""
    patterns = []
    for forms in product(FORMS, repeat=2):
        for holder in range(2):  # the line that holds the keyword
            places: list[Sequence[str]] = []
            for line, (form, sign) in enumerate(zip(forms, (BETWEEN, END), strict=True)):
                for name in form:
                    subject = [[word] for word in keyword] if line == holder else [CLASSES["noun"]]
                    places += subject if name == "subject" else [CLASSES[name]]
                places.append([sign])
            patterns.append(places)
    return patterns


def write(keyword: Keyword, draw: random.Random) -> str:
    """A couplet with the keyword; every one that the grammar accepts is as likely as any other."""
    places = draw.choice(_patterns(keyword))
    words = [draw.choice(place) for place in places]
    ends = draw.sample(draw.choice(RHYMES), 2)
    words[words.index(BETWEEN) - 1], words[-2] = ends
    return " ".join(words)


def accepts(couplet: str, keyword: Keyword) -> bool:
    """Whether the grammar can write this couplet for this keyword: form, words, keyword, and two ends that rhyme."""
    words = couplet.split()
    for places in _patterns(keyword):
        fits = len(words) == len(places) and all(word in place for word, place in zip(words, places, strict=True))
        if fits:
            ends = {words[words.index(BETWEEN) - 1], words[-2]}
            return len(ends) == 2 and any(ends <= set(rhyme) for rhyme in RHYMES)
    return False


def least_loss() -> float:
    """The mean loss per predicted token that no model can beat on average, in nats.

    All choices of the grammar are even, so it is the logarithm of their number: ten second words for a first one in
    training, and the couplets for a keyword. It is shared by the tokens after the first, which nothing predicts.
    """
    patterns = _patterns((FIRST[0], SECOND[0]))
    free = [len(place) for place in patterns[0] if place is not CLASSES["end"]]
    ends = len(RHYMES) * math.perm(len(RHYMES[0]), 2)
    second = len(SECOND) - 2
    return (math.log(second) + math.log(len(patterns)) + math.log(math.prod(free)) + math.log(ends)) / (TOKENS - 1)


def texts(keywords: Sequence[Keyword], number: int, seed: int) -> Integer[Tensor, "N T"]:
    """So many examples, keyword and couplet, as ids; the keywords in turn, the couplets drawn from the seed."""
    _checks.positive_int("number", number)
    draw = random.Random(seed)
    rows = [keywords[n % len(keywords)] for n in range(number)]
    return torch.tensor([encode(f"{' '.join(keyword)} {AFTER_KEYWORD} {write(keyword, draw)}") for keyword in rows])


TOKENS = len(_patterns((FIRST[0], SECOND[0]))[0]) + 3  # of an example: a keyword, a colon, a couplet


def accepted_share(
    model: nn.Module, keywords: Sequence[Keyword], per_keyword: int = 4, *, temperature: float = 1.0, seed: int = 0
) -> float:
    """The share of the couplets that the model writes for these keywords which the grammar accepts, 0 .. 1."""
    couplets = written(model, keywords, per_keyword, temperature=temperature, seed=seed)
    return sum(accepts(couplet, keyword) for keyword, couplet in couplets) / len(couplets)


def written(
    model: nn.Module, keywords: Sequence[Keyword], per_keyword: int = 1, *, temperature: float = 1.0, seed: int = 0
) -> list[tuple[Keyword, str]]:
    """What the model writes, each with its keyword: up to the first full stop, or as long as a couplet is."""
    device = next(model.parameters()).device
    rows = [keyword for keyword in keywords for _ in range(per_keyword)]
    prompts = torch.tensor([encode(f"{' '.join(row)} {AFTER_KEYWORD}") for row in rows], device=device)  # [B, 3]
    drawing = torch.Generator(device).manual_seed(seed)
    ids = generate(
        model, prompts, TOKENS - prompts.shape[1], temperature=temperature, eos_id=EOS_ID, generator=drawing
    )[:, prompts.shape[1] :]
    return [
        (row, decode(text[: text.index(EOS_ID) + 1] if EOS_ID in text else text))
        for row, text in zip(rows, ids.tolist(), strict=True)
    ]
