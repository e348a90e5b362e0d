"""The exercises of chapter 8."""

from book_utils.workbench.exercises import Exercise


def _lines(V, C, D, L, qkv_bias, tied, change=None):
    """The ten lines; `change` maps a place among them to another number, for all L blocks."""
    block = [2 * D, 3 * D * D + 3 * D * qkv_bias, D * D + D, 2 * D, 4 * D * D + 4 * D, 4 * D * D + D]
    lines = [V * D, C * D, *(L * number for number in block), 2 * D, V * D * (not tied)]
    return [(change or {}).get(place, number) for place, number in enumerate(lines)]


_NAMES = [
    "token embedding",
    "position embedding",
    "norm 1",
    "QKV projection",
    "attention output",
    "norm 2",
    "FFN expansion",
    "FFN contraction",
    "final norm",
    "output head",
]


def _suspects(short, V, C, D, change=None):
    lines = _lines(V, C, D, 1, False, False, change)
    return [name for name, number in zip(_NAMES, lines, strict=True) if number == short]


def _majority(V, C, D, tables=2, positions=True, norm=True, block=None):
    rest = tables * V * D + positions * C * D + 2 * D * norm
    return rest // (block or 12 * D * D + 10 * D) + 1


EXERCISES = {
    "8.1": Exercise(
        answer=_lines,
        inputs=[
            (20, 10, 8, 1, False, False),
            (20, 10, 8, 1, False, True),
            (11, 7, 6, 3, True, False),
            (11, 7, 6, 3, True, True),
        ],
        mistakes={
            "The lines of a block count once; the model has L of each.": lambda V, C, D, L, *switches: _lines(
                V, C, D, 1, *switches
            ),
            "Only the lines of a block are there L times; the tables, the final norm and the head stand once.": (
                lambda V, C, D, L, *switches: [L * number for number in _lines(V, C, D, 1, *switches)]
            ),
            "Query, key and value have a bias with `qkv_bias` only.": lambda V, C, D, L, qkv_bias, tied: _lines(
                V, C, D, L, True, tied
            ),
            "The expansion of the FFN has a bias, 4·D numbers.": lambda V, C, D, L, *switches: _lines(
                V, C, D, L, *switches, {6: L * 4 * D * D}
            ),
            "The contraction of the FFN has a bias, D numbers.": lambda V, C, D, L, *switches: _lines(
                V, C, D, L, *switches, {7: L * 4 * D * D}
            ),
            "`tied` changes nothing yet; a tied head has 0 parameters of its own.": lambda V, C, D, L, qkv_bias, tied: (
                _lines(V, C, D, L, qkv_bias, False)
            ),
            "The tie is subtracted on the wrong line: the table stays, and the head's line becomes 0.": (
                lambda V, C, D, L, qkv_bias, tied: _lines(
                    V, C, D, L, qkv_bias, False, {0: 0 if tied else V * D, 9: V * D}
                )
            ),
            "`qkv_bias` changes nothing yet; it adds 3·D in each block.": lambda V, C, D, L, qkv_bias, tied: _lines(
                V, C, D, L, False, tied
            ),
            "`qkv_bias` adds D for each of query, key and value, 3·D in a block.": (
                lambda V, C, D, L, qkv_bias, tied: _lines(
                    V, C, D, L, qkv_bias, tied, {3: L * (3 * D * D + D * qkv_bias)}
                )
            ),
            "The QKV projection is three maps of D·D, not one.": lambda V, C, D, L, qkv_bias, tied: _lines(
                V, C, D, L, qkv_bias, tied, {3: L * (D * D + 3 * D * qkv_bias)}
            ),
            "The attention output has a bias, D numbers.": lambda V, C, D, L, *switches: _lines(
                V, C, D, L, *switches, {4: L * D * D}
            ),
            "A LayerNorm has a scale and a shift, 2·D in all.": lambda V, C, D, L, *switches: _lines(
                V, C, D, L, *switches, {2: L * D, 5: L * D, 8: D}
            ),
            "The two layers of the FFN have a bias each: 4·D in the expansion, D in the contraction.": (
                lambda V, C, D, L, *switches: _lines(V, C, D, L, *switches, {6: L * 4 * D * D, 7: L * 4 * D * D})
            ),
            "A bias has one number for each output: 4·D in the expansion, D in the contraction.": (
                lambda V, C, D, L, *switches: _lines(
                    V, C, D, L, *switches, {6: L * (4 * D * D + D), 7: L * (4 * D * D + 4 * D)}
                )
            ),
            "The final norm stands once, after the last block.": lambda V, C, D, L, *switches: _lines(
                V, C, D, L, *switches, {8: L * 2 * D}
            ),
            "The head has no bias.": lambda V, C, D, L, qkv_bias, tied: _lines(
                V, C, D, L, qkv_bias, tied, {9: (V * D + V) * (not tied)}
            ),
            "The two tables are swapped: V rows for tokens, C rows for positions.": lambda V, C, D, L, *switches: (
                _lines(V, C, D, L, *switches, {0: C * D, 1: V * D})
            ),
            "This is the sum; the ten lines are wanted.": lambda *sizes: sum(_lines(*sizes)),
            "A tied head keeps its line, with the number 0; ten numbers are wanted.": lambda V, C, D, L, bias, tied: (
                _lines(V, C, D, L, bias, tied)[: 9 if tied else 10]
            ),
            "One norm of the block is missing; it has two, norm 1 and norm 2.": lambda V, C, D, L, *switches: (
                _lines(V, C, D, L, *switches)[:5] + _lines(V, C, D, L, *switches)[6:]
            ),
            "The tables have no bias; each is rows times D.": lambda V, C, D, L, *switches: _lines(
                V, C, D, L, *switches, {0: V * D + D, 1: C * D + D}
            ),
            "These are ten numbers for one number of blocks too many; the model has L blocks, not L + 1.": (
                lambda V, C, D, L, *switches: _lines(V, C, D, L + 1, *switches)
            ),
        },
    ),
    "8.2": Exercise(
        answer=_suspects,
        inputs=[
            (32, 16, 16, 16),  # a norm
            (256, 16, 16, 16),  # a table, with V = C
            (192, 20, 24, 8),  # C = 3D
            (72, 9, 10, 8),  # V = D + 1
            (64, 20, 10, 8),  # none: a weight without its bias
            (288, 20, 10, 8),
            (264, 20, 10, 8),
        ],
        mistakes={
            "This names the first layer that fits; all of them are wanted.": lambda *sizes: _suspects(*sizes)[:1],
            "This names the last layer that fits; all of them are wanted.": lambda *sizes: _suspects(*sizes)[-1:],
            "The final norm has 2·D, as the two norms of a block.": lambda *sizes: [
                name for name in _suspects(*sizes) if name != "final norm"
            ],
            "The model is untied: its output head is a table of V·D as well.": lambda *sizes: [
                name for name in _suspects(*sizes) if name != "output head"
            ],
            "The attention output has a bias: D² + D.": lambda short, V, C, D: _suspects(short, V, C, D, {4: D * D}),
            "The QKV projection is three maps of D·D, not one.": lambda short, V, C, D: _suspects(
                short, V, C, D, {3: D * D}
            ),
            "The QKV projection has no bias here.": lambda short, V, C, D: _suspects(
                short, V, C, D, {3: 3 * D * D + 3 * D}
            ),
            "These are the right names, in a set; a list has the order of the ledger.": lambda *sizes: set(
                _suspects(*sizes)
            ),
            "Both layers of the FFN have a bias.": lambda short, V, C, D: _suspects(
                short, V, C, D, {6: 4 * D * D, 7: 4 * D * D}
            ),
            "A norm has 2·D: scale and shift.": lambda short, V, C, D: _suspects(short, V, C, D, {2: D, 5: D, 8: D}),
            "The order is that of the ledger, not of the alphabet.": lambda *sizes: sorted(_suspects(*sizes)),
            "This counts the suspects; their names are wanted.": lambda *sizes: len(_suspects(*sizes)),
            "A smaller layer leaves a part of `short` unexplained; compare with ==, not <=.": lambda short, V, C, D: [
                name for name, size in zip(_NAMES, _lines(V, C, D, 1, False, False), strict=True) if size <= short
            ],
            "The two tables are swapped: V rows for tokens, C rows for positions.": lambda short, V, C, D: _suspects(
                short, V, C, D, {0: C * D, 1: V * D}
            ),
            "The norms of a block are missing; there are two of them, and one more behind the last block.": (
                lambda *sizes: [name for name in _suspects(*sizes) if name not in ("norm 1", "norm 2")]
            ),
        },
    ),
    "8.3": Exercise(
        answer=lambda N, C, L: 4 * (4 * N + L * C * C),
        inputs=[(1264, 10, 1), (7264, 16, 2), (163_009_536, 1024, 12)],
        mistakes={
            "These are numbers; in float32 each has 4 bytes.": lambda N, C, L: 4 * N + L * C * C,
            "The masks are missing, C·C numbers in each block.": lambda N, C, L: 16 * N,
            "A mask is a buffer: it has no gradient and no optimizer state, and counts once.": lambda N, C, L: (
                16 * (N + L * C * C)
            ),
            "The gradients, or one of Adam's two states, are missing.": lambda N, C, L: 4 * (3 * N + L * C * C),
            "The gradients, or one of Adam's states, are counted twice.": lambda N, C, L: 4 * (5 * N + L * C * C),
            "This is the memory without training: gradients and Adam's states are missing.": lambda N, C, L: (
                4 * (N + L * C * C)
            ),
            "Adam's two states are missing.": lambda N, C, L: 4 * (2 * N + L * C * C),
            "The masks are numbers in float32, too, 4 bytes each.": lambda N, C, L: 16 * N + L * C * C,
            "Every block keeps a mask of its own, L in all.": lambda N, C, L: 4 * (4 * N + C * C),
            "A mask has C·C numbers, not C.": lambda N, C, L: 4 * (4 * N + L * C),
            "float32 has 4 bytes; these are those of float64.": lambda N, C, L: 8 * (4 * N + L * C * C),
            "float32 has 4 bytes; these are those of bfloat16.": lambda N, C, L: 2 * (4 * N + L * C * C),
            "These are GiB; bytes are wanted.": lambda N, C, L: 4 * (4 * N + L * C * C) / 2**30,
            "These are MiB; bytes are wanted.": lambda N, C, L: 4 * (4 * N + L * C * C) / 2**20,
            "These are bits; a byte has 8 of them.": lambda N, C, L: 32 * (4 * N + L * C * C),
        },
    ),
    "8.4": Exercise(
        answer=_majority,
        inputs=[
            (50257, 1024, 768),
            (50257, 1024, 1600),
            (20, 64, 8),  # a draw at L = 1: 2V + C + 2 = 12D + 10
            (16, 16, 16),
            (1000, 3000, 8),
            (44, 17, 8),  # one more than a draw: the final norm decides
        ],
        mistakes={
            "At a draw the blocks have half, not more than half; one more is needed.": lambda V, C, D: (
                -(-(2 * V + C + 2) // (12 * D + 10))
            ),
            "This is the largest L for which the blocks do not have the majority; the next one is wanted.": (
                lambda V, C, D: _majority(V, C, D) - 1
            ),
            "The model is untied: there are two tables of V rows.": lambda V, C, D: _majority(V, C, D, tables=1),
            "The position embedding is missing on the other side.": lambda V, C, D: _majority(V, C, D, positions=False),
            "The final norm, 2·D, is missing on the other side.": lambda V, C, D: _majority(V, C, D, norm=False),
            "The biases and norms of a block, 10·D, are missing.": lambda V, C, D: _majority(V, C, D, block=12 * D * D),
            "This is a quotient; L is a whole number.": lambda V, C, D: (2 * V + C + 2) / (12 * D + 10),
            "This is the quotient plus one; divide with // for a whole number.": lambda V, C, D: (
                (2 * V + C + 2) / (12 * D + 10) + 1
            ),
            "Query, key and value have no bias here: a block has 12·D² + 10·D, not 3·D more.": lambda V, C, D: (
                _majority(V, C, D, block=12 * D * D + 13 * D)
            ),
            "The blocks are compared with half of the rest; they must exceed all of it.": lambda V, C, D: (
                (2 * V + C + 2) // (2 * (12 * D + 10)) + 1
            ),
        },
    ),
}
