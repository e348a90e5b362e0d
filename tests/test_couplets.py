"""The grammar of the couplets: what it writes it accepts, and nothing else; its least loss is its entropy."""

import math
import random
from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from book_utils import GPTModel, couplets, get_config
from book_utils.couplets import CLASSES, FIRST, RHYMES, SECOND, VOCABULARY, accepts, decode, encode, texts, write

KEYWORD = ("moon", "light")
GOOD = "the quiet moon light sleeps beside the bay , beyond a golden heron waits the day ."


def test_every_word_has_one_id_and_one_class():
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert len({len(rhyme) for rhyme in RHYMES}) == 1 and min(map(len, RHYMES)) >= 2


@given(seed=st.integers(0, 2**32), keyword=st.sampled_from(list(product(FIRST, SECOND))))
def test_what_the_grammar_writes_it_accepts_for_this_keyword_alone(seed, keyword):
    couplet = write(keyword, random.Random(seed))
    assert accepts(couplet, keyword) and " ".join(keyword) in couplet
    assert len(encode(couplet)) + 3 == couplets.TOKENS and decode(encode(couplet)) == couplet
    others = [("river", "path"), ("wind", "gate"), keyword[::-1]]
    assert not any(accepts(couplet, other) for other in others if other != keyword)


@given(seed=st.integers(0, 2**32), place=st.integers(0, 16), word=st.sampled_from(VOCABULARY))
def test_a_changed_word_is_accepted_only_where_its_class_stands(seed, place, word):
    words = write(KEYWORD, random.Random(seed)).split()
    old, words[place] = words[place], word
    same_class = any({old, word} <= set(members) for name, members in CLASSES.items() if name != "end")
    ends = {words[words.index(",") - 1], words[-2]} if words.count(",") == 1 else set()
    rhymes = len(ends) == 2 and any(ends <= set(rhyme) for rhyme in RHYMES)
    in_place = old == word or same_class or (old in CLASSES["end"] and word in CLASSES["end"])
    assert accepts(" ".join(words), KEYWORD) == (in_place and rhymes)


@pytest.mark.parametrize(
    "spoiled",
    [
        "",
        GOOD.replace("day", "night"),  # no rhyme
        GOOD.replace("day", "bay"),  # the same end twice
        GOOD.replace("moon light", "heron"),  # no keyword
        GOOD.replace("heron", "moon light"),  # the keyword twice
        GOOD.replace("moon light", "light moon"),
        GOOD.replace(" ,", ""),
        GOOD + " .",
        GOOD.removesuffix(" ."),
        GOOD.replace("sleeps beside", "beside sleeps"),
        GOOD.replace("quiet", "loud"),
        GOOD.upper(),
    ],
)
def test_spoiled_couplets_are_refused(spoiled):
    assert accepts(GOOD, KEYWORD) and not accepts(spoiled, KEYWORD)


def test_each_word_is_known_from_ten_pairs_and_none_is_in_both_parts():
    for seed in range(5):
        training, kept_out = couplets.split_keywords(seed)
        assert len(training) == 120 and len(kept_out) == 24 and not set(training) & set(kept_out)
        for place, words in enumerate((FIRST, SECOND)):
            counts = Counter(keyword[place] for keyword in training)
            assert counts == dict.fromkeys(words, 10)
    assert couplets.split_keywords(1) != couplets.split_keywords(2)


def test_the_least_loss_is_the_entropy_counted_by_hand():
    # a line: 2 articles twice, 8 adjectives, 8 verbs, 6 prepositions; 8 nouns in one of them; 2 lines to hold the
    # keyword; 2 forms of each; 6 rhymes with 4 · 3 pairs of ends; and ten second words
    number = (2 * 2 * 8 * 8 * 6) ** 2 * 8 * 2 * 2**2 * 6 * 12
    assert couplets.least_loss() == pytest.approx((math.log(number) + math.log(10)) / 19, rel=1e-12)


def test_the_choices_are_even():
    draw = random.Random(0)
    ends = Counter(write(KEYWORD, draw).split()[-2] for _ in range(24_000))
    # 1,000 of each expected, with a standard deviation of 31
    assert set(ends) == set(CLASSES["end"]) and all(abs(count - 1000) < 160 for count in ends.values())


def test_the_texts_are_those_of_the_seed_and_take_the_keywords_in_turn():
    keywords = [KEYWORD, ("sea", "song")]
    a, b = (texts(keywords, 5, seed=3) for _ in range(2))
    assert torch.equal(a, b) and a.shape == (5, couplets.TOKENS) and not torch.equal(a, texts(keywords, 5, seed=4))
    assert [decode(row[:3]) for row in a.tolist()] == ["moon light :", "sea song :"] * 2 + ["moon light :"]
    assert all(accepts(decode(row[3:]), keywords[n % 2]) for n, row in enumerate(a.tolist()))


class Parrot(GPTModel):
    """Writes given texts, whatever it is asked."""

    def __init__(self, rows):
        super().__init__({**get_config("tiny"), "vocab_size": len(VOCABULARY), "context_length": couplets.TOKENS})
        self.rows = rows

    def forward(self, in_idx, cache=None):
        place = in_idx.shape[1] if cache is None else cache.length + in_idx.shape[1]
        if cache is not None:
            cache.advance(in_idx.shape[1])
        following = torch.tensor([row[min(place, len(row) - 1)] for row in self.rows])
        return torch.nn.functional.one_hot(following, len(VOCABULARY))[:, None].expand(-1, in_idx.shape[1], -1) * 1e4


def test_the_share_counts_what_is_accepted_up_to_the_first_full_stop():
    good, bad = encode(f"moon light : {GOOD}"), encode(f"moon light : {GOOD.replace('day', 'night')}")
    model = Parrot([good, bad, good, encode("moon light : the .")])
    assert couplets.accepted_share(model, [KEYWORD], per_keyword=4) == 0.5
    assert couplets.written(model, [KEYWORD], 4)[3] == (KEYWORD, "the .")


def test_temperature_and_seed_reach_the_loop(monkeypatch):
    given = []

    def loop(model, prompts, number, *, temperature, eos_id, generator):
        given.append((prompts[:, :2].tolist(), temperature, eos_id, generator.initial_seed()))
        return prompts.repeat(1, 2)

    monkeypatch.setattr(couplets, "generate", loop)
    keywords = [KEYWORD, ("sea", "song")]
    assert couplets.accepted_share(Parrot([]), keywords, 2, temperature=0.3, seed=9) == 0
    rows = [encode(" ".join(keyword)) for keyword in keywords for _ in range(2)]
    assert given == [(rows, 0.3, couplets.EOS_ID, 9)]


def test_what_is_no_word_or_no_number_is_named():
    with pytest.raises(ValueError, match="number must be at least 1, got 0"):
        texts([KEYWORD], 0, seed=0)
    with pytest.raises(ValueError, match="the language has no word 'loud'"):
        encode("the loud moon")
