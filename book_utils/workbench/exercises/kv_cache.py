"""The exercises of chapter 12."""

import torch

from book_utils.workbench.exercises import Exercise


def _ones(past, new):
    return torch.ones(new, past + new, dtype=torch.bool)


def _mask(past, new):
    return _ones(past, new).tril(diagonal=past)


def _feed(num_ids, cached, C):
    return (num_ids - C, 0) if num_ids > C else (cached, cached)


def _bytes(layers, texts, tokens, emb_dim, _n_heads, bytes_per_number):
    return 2 * layers * texts * tokens * emb_dim * bytes_per_number


def _positions(T, n, C, use_cache, first=None, full=None, last_alone=0):
    """The first step computes `first` positions, one after the window has moved `full`; `last_alone` shifts the end."""
    total = 0
    for step in range(n):
        length = T + step
        if step == 0 and first is not None and use_cache:
            total += first
        elif use_cache and step > 0 and length <= C + last_alone:
            total += 1
        else:
            total += min(length, C) if full is None or length <= C or not use_cache else full
    return total


EXERCISES = {
    "12.1": Exercise(
        answer=_mask,
        inputs=[(5, 3), (0, 4), (7, 1), (2, 2)],
        mistakes={
            "This triangle starts in the upper left corner, as is_causal=True has it; shift its diagonal by `past`.": (
                lambda past, new: _ones(past, new).tril()
            ),
            "All queries see everything; an earlier one must not see the new ids after it.": _ones,
            "A query sees its own key too; the triangle needs one diagonal more.": lambda past, new: _ones(
                past, new
            ).tril(diagonal=past - 1),
            "Each query sees one key too many, that of the id after it.": lambda past, new: _ones(past, new).tril(
                diagonal=past + 1
            ),
            "The diagonal is shifted by the number of new ids; what lies before them is `past`.": (
                lambda past, new: _ones(past, new).tril(diagonal=new)
            ),
            "The mask is turned over: True is where a query may look.": lambda past, new: ~_mask(past, new),
            "This is the triangle on the wrong side; a query looks back, at its left.": lambda past, new: _ones(
                past, new
            ).triu(diagonal=past),
            "The kept keys are missing; there are past + new columns.": lambda past, new: _ones(0, new).tril(),
            "The rows are the new queries alone; there are `new` of them.": lambda past, new: _ones(
                0, past + new
            ).tril(),
            "The new queries must see the kept keys too, not the new ones alone.": lambda past, new: torch.cat(
                [~_ones(past, new)[:, :past], _ones(0, new).tril()], dim=1
            ),
            "Rows and columns are exchanged: a row belongs to a query.": lambda past, new: _mask(past, new).T,
            "The form is right, but these are whole numbers. Use dtype=torch.bool.": lambda past, new: _mask(
                past, new
            ).long(),
            "This blocks later positions of the square case; here True is where a query may look.": lambda past, new: (
                _ones(past, new).triu(diagonal=1)
            ),
            "The form is right, but these are numbers; PyTorch would add them to the scores. Use dtype=torch.bool.": (
                lambda past, new: _mask(past, new).float()
            ),
            "This is the form that is added to the scores, 0 and -inf; Booleans are asked for.": lambda past, new: (
                torch.zeros(new, past + new).masked_fill(~_mask(past, new), -torch.inf)
            ),
        },
    ),
    "12.2": Exercise(
        answer=_feed,
        inputs=[(7, 6, 16), (6, 0, 16), (9, 6, 16), (16, 15, 16), (17, 16, 16), (20, 16, 16), (40, 0, 16)],
        mistakes={
            "Beyond the window this asks for positions that the table does not have; feed the last C ids from 0.": (
                lambda num_ids, cached, C: (cached, cached)
            ),
            "This slides the cache: its keys were made at other positions and have seen what was dropped. Empty it.": (
                lambda num_ids, cached, C: (num_ids - 1, C - 1) if num_ids > C else (cached, cached)
            ),
            "The positions restart at 0 although the cache holds tokens; they go on after those.": (
                lambda num_ids, cached, C: (max(num_ids - C, 0), 0) if num_ids > C else (cached, 0)
            ),
            "One position is skipped: after `cached` tokens, at 0 .. cached - 1, comes the position `cached`.": (
                lambda num_ids, cached, C: (
                    (num_ids - C, 0) if num_ids > C else (cached, cached + 1 if cached else cached)
                )
            ),
            "A text of exactly C ids still fits, and its cache is good; empty it from C + 1 ids on.": (
                lambda num_ids, cached, C: (num_ids - C, 0) if num_ids >= C else (cached, cached)
            ),
            "The window is right, but its first id stands at position 0, wherever it is in the text.": (
                lambda num_ids, cached, C: (num_ids - C, num_ids - C) if num_ids > C else (cached, cached)
            ),
            "This is right, and it is the loop without a cache: what is cached need not be fed again.": (
                lambda num_ids, cached, C: (max(num_ids - C, 0), 0)
            ),
            "Only the last id is fed; several can be missing in the cache (after a chunk, or at the start).": (
                lambda num_ids, cached, C: (num_ids - C, 0) if num_ids > C else (num_ids - 1, num_ids - 1)
            ),
            "The second number is how many ids to feed; asked for is the position that the first of them gets.": (
                lambda num_ids, cached, C: (num_ids - C, C) if num_ids > C else (cached, num_ids - cached)
            ),
            "The two numbers are exchanged: first the place in the text, then the position in the model.": (
                lambda *args: _feed(*args)[::-1]
            ),
        },
    ),
    "12.3": Exercise(
        answer=_bytes,
        inputs=[(2, 1, 16, 16, 4, 4), (12, 3, 1024, 768, 12, 2), (1, 2, 5, 6, 3, 8)],
        mistakes={
            "Keys and values are kept: twice as much.": lambda *sizes: _bytes(*sizes) // 2,
            "Three times is too much: queries are not kept.": lambda *sizes: _bytes(*sizes) // 2 * 3,
            "emb_dim is all heads together; H does not multiply it.": lambda *sizes: _bytes(*sizes) * sizes[4],
            "This counts one head; all H are kept, D features together.": lambda *sizes: _bytes(*sizes) // sizes[4],
            "These are MiB; bytes are asked for.": lambda *sizes: _bytes(*sizes) / 2**20,
            "These are bits; a byte has eight.": lambda *sizes: _bytes(*sizes) * 8,
            "These are numbers; each takes some bytes.": lambda *sizes: _bytes(*sizes) // sizes[5],
            "This is one layer; each of them keeps its own.": lambda *sizes: _bytes(*sizes) // sizes[0],
            "This is one text; each text of the batch has its own.": lambda *sizes: _bytes(*sizes) // sizes[1],
            "This is one token.": lambda *sizes: _bytes(*sizes) // sizes[2],
            "The scores have a square of the tokens; keys and values have one vector for each.": lambda *sizes: (
                _bytes(*sizes) * sizes[2]
            ),
            "D² is a weight matrix; a key has D numbers.": lambda *sizes: _bytes(*sizes) * sizes[3],
        },
    ),
    "12.4": Exercise(
        answer=_positions,
        inputs=[
            *((6, 5, 16, use_cache) for use_cache in (False, True)),
            *((6, 16, 16, use_cache) for use_cache in (False, True)),
            *((20, 3, 16, use_cache) for use_cache in (False, True)),
            (16, 2, 16, True),
            (6, 0, 16, True),
        ],
        mistakes={
            "Once the text is longer than the window, the cache is filled again, with C positions at each step.": (
                lambda T, n, C, use_cache: _positions(T, n, C, use_cache, full=1)
            ),
            "The first step with a cache computes the whole prompt.": lambda T, n, C, use_cache: _positions(
                T, n, C, use_cache, first=1
            ),
            "A text of exactly C tokens still fits; the cache is filled again from C + 1 on.": (
                lambda T, n, C, use_cache: _positions(T, n, C, use_cache, last_alone=-1)
            ),
            "The cache is filled again one step too late: C + 1 tokens do not fit any more.": (
                lambda T, n, C, use_cache: _positions(T, n, C, use_cache, last_alone=1)
            ),
            "No step computes more than C positions: the text is cropped.": lambda T, n, C, use_cache: _positions(
                T, n, 10**6, use_cache
            ),
            "The prompt of the first step is cropped to C too.": lambda T, n, C, use_cache: _positions(
                T, n, C, use_cache, first=T
            ),
            "One step too many: the last id is chosen and not fed, so n ids need n calls.": (
                lambda T, n, C, use_cache: _positions(T, n + 1, C, use_cache)
            ),
            "The cache changes nothing yet; in later steps it leaves one position, while the text fits.": (
                lambda T, n, C, use_cache: _positions(T, n, C, False)
            ),
            "These sums hold while the text fits; beyond the window each step computes C positions.": (
                lambda T, n, C, use_cache: T + n - 1 if use_cache else n * T + n * (n - 1) // 2
            ),
            "This has no step that fills the cache again after the window has moved.": lambda T, n, C, use_cache: (
                min(T, C) + n - 1 if use_cache else _positions(T, n, C, False)
            ),
            "True and False of `use_cache` are exchanged.": lambda T, n, C, use_cache: _positions(
                T, n, C, not use_cache
            ),
            "This is one for each new id; the prompt, and each step after the window has moved, takes more.": (
                lambda T, n, C, use_cache: n if use_cache else _positions(T, n, C, False)
            ),
            "With no new ids nothing is computed, not even the prompt.": lambda T, n, C, use_cache: (
                _positions(T, n, C, use_cache) if n else min(T, C)
            ),
        },
    ),
}
