"""The exercises of chapter 7."""

import math

import torch
from torch.nn import functional as F

from book_utils import GPTConfig, GPTModel
from book_utils.workbench.exercises import Exercise

_TOK = torch.arange(33, dtype=torch.float64).view(11, 3).sin()  # [V, D]
_POS = torch.arange(21, dtype=torch.float64).view(7, 3).cos()  # [C, D]
_IDS = torch.tensor([[5, 0, 5, 2], [1, 6, 3, 3]])  # [B, T]; ids below C, so that swapped tables run too
_TIE = GPTConfig(vocab_size=8, context_length=8, emb_dim=4, n_heads=2, n_layers=1)  # V = C: both tables fit the head


def _positions(ids):
    return torch.arange(ids.shape[1])


def _embed(ids, tok_table, pos_table):
    return tok_table[ids] + pos_table[_positions(ids)]


def _try_tie(tie, seed):
    """What a tie has done to a fresh model, after one step of training; None where it did nothing."""
    torch.manual_seed(seed)
    model = GPTModel(_TIE).double()
    head, table = model.out_head, model.tok_emb
    before = (head.weight, table.weight, head.weight.detach().clone(), table.weight.detach().clone())
    tie(model)
    if getattr(model, "out_head", None) is head and getattr(model, "tok_emb", None) is table:
        now = (head.weight, table.weight)
        if all(w is old and torch.equal(w, kept) for w, old, kept in zip(now, before[:2], before[2:], strict=True)):
            return None
    ids = torch.arange(_TIE.vocab_size)[None]  # [1, T]
    try:
        with torch.enable_grad():
            F.cross_entropy(model(ids)[0, :-1], ids[0, 1:]).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        head, table = model.out_head.weight, model.tok_emb.weight
        return [head is table, sum(p.numel() for p in model.parameters()), torch.equal(head, table)]
    except Exception:
        return "an embedding as head" if model._modules.get("out_head") is table else "the model cannot be trained"


def _assign(model):
    model.out_head.weight = model.tok_emb.weight


def _copy_values(model):
    with torch.no_grad():
        model.out_head.weight.copy_(model.tok_emb.weight)


def _share_memory(model):
    model.out_head.weight.data = model.tok_emb.weight.data


def _position_table(model):
    model.out_head.weight = model.pos_emb.weight


def _all_three(model):
    model.out_head.weight = model.tok_emb.weight = model.pos_emb.weight


def _whole_module(model):
    model.out_head = model.tok_emb


def _transposed(model):
    model.out_head.weight = torch.nn.Parameter(model.tok_emb.weight.T)


def _count(V, C, D, L, qkv_bias, tied, block=None, positions=True, norm=True, tables=None):
    block = 12 * D**2 + 10 * D if block is None else block
    tables = (1 if tied else 2) if tables is None else tables
    return tables * V * D + positions * C * D + L * (block + 3 * D * qkv_bias) + 2 * D * norm


EXERCISES = {
    "7.1": Exercise(
        answer=_embed,
        inputs=[(_IDS, _TOK, _POS), (_IDS[:, :1], _TOK, _POS)],
        mistakes={
            "The positions are missing: a token gets the same vector wherever it stands.": lambda ids, tok, pos: tok[
                ids
            ],
            "The position table is indexed with the ids; its index is the place, 0 .. T - 1.": lambda ids, tok, pos: (
                tok[ids] + pos[ids]
            ),
            "The tables are swapped: ids belong to tok_table, places to pos_table.": lambda ids, tok, pos: (
                pos[ids] + tok[_positions(ids)]
            ),
            "Both rows come from the token table; places have a table of their own.": lambda ids, tok, pos: (
                tok[ids] + tok[_positions(ids)]
            ),
            "Id and place are added before the look-up, so different pairs share a row; look up both, then add.": (
                lambda ids, tok, pos: tok[ids + _positions(ids)]
            ),
            "The positions start at 1; they start at 0.": lambda ids, tok, pos: tok[ids] + pos[_positions(ids) + 1],
            "One row of the position table goes to all tokens; each place has a row of its own.": (
                lambda ids, tok, pos: tok[ids] + pos[ids.shape[1] - 1]
            ),
            "Every token gets row 0 of the position table; place t gets row t.": lambda ids, tok, pos: (
                tok[ids] + pos[0]
            ),
            "The places are counted along the batch; they are counted along the text, ids.shape[1].": (
                lambda ids, tok, pos: tok[ids] + pos[torch.arange(ids.shape[0])][:, None]
            ),
            "The two vectors are multiplied; they are added.": lambda ids, tok, pos: tok[ids] * pos[_positions(ids)],
            "The two vectors stand side by side, which makes 2D features; they are added.": lambda ids, tok, pos: (
                torch.cat([tok[ids], pos[_positions(ids)].expand(*ids.shape, -1)], dim=-1)
            ),
        },
    ),
    "7.2": Exercise(
        answer=_assign,
        inputs=[(1,), (2,)],
        run=_try_tie,
        recorded=True,
        mistakes={
            "Head and token embedding have the Parameters that they had: assign one's weight to the other.": (
                lambda model: model.eval()
            ),
            "The values are copied: two Parameters, equal before the step and different after it.": _copy_values,
            "The memory is shared, but there are still two Parameters with two gradients; assign the Parameter.": (
                _share_memory
            ),
            "The head is tied to the position table; its rows belong to ids, so tie it to tok_emb.": _position_table,
            "Head and token embedding were both given the position table; leave pos_emb alone.": (_all_three),
            "The whole module was replaced, and an embedding cannot do the head's work; tie the weights only.": (
                _whole_module
            ),
            "The model cannot be trained any more: give the head the table's Parameter, and change nothing else.": (
                _transposed
            ),
        },
    ),
    "7.3": Exercise(
        answer=lambda V: math.log(math.e + V - 1) - 1,
        inputs=[(2,), (16,), (50257,)],
        mistakes={
            "0 is the floor for logits; probabilities, taken for scores, cannot differ by more than 1.": lambda V: 0.0,
            "This is the loss of an undecided model, with all probabilities 1 / V.": lambda V: math.log(V),
            "This is the loss of a model that is sure and wrong; the right id has the score 1.": lambda V: math.log(
                math.e + V - 1
            ),
            "The right id adds e to the sum, in place of 1; only V - 1 others have the score 0.": lambda V: (
                math.log(V) - 1
            ),
            "There are V - 1 other ids, not V.": lambda V: math.log(math.e + V) - 1,
            "The sign is missing: the loss is the negative logarithm of the probability.": lambda V: (
                1 - math.log(math.e + V - 1)
            ),
            "This is in bits; F.cross_entropy takes the natural logarithm.": lambda V: (
                (math.log(math.e + V - 1) - 1) / math.log(2)
            ),
            "This is the probability of the right id; the loss is its negative logarithm.": lambda V: (
                math.e / (math.e + V - 1)
            ),
        },
    ),
    "7.4": Exercise(
        answer=_count,
        inputs=[
            (20, 10, 8, 1, False, False),
            (20, 10, 8, 1, False, True),
            (16, 16, 16, 2, True, False),
            (50257, 1024, 768, 12, True, True),
        ],
        mistakes={
            "The position embedding, C·D, is missing.": lambda *sizes: _count(*sizes, positions=False),
            "The last LayerNorm, 2·D, is missing.": lambda *sizes: _count(*sizes, norm=False),
            "`tied` changes nothing yet; it takes away one V·D.": lambda *sizes: _count(*sizes, tables=2),
            "The untied model has two tables of V·D: the token embedding and the head.": lambda *sizes: _count(
                *sizes, tables=1
            ),
            "`qkv_bias` changes nothing yet; it adds 3·D for each block.": lambda V, C, D, L, qkv_bias, tied: _count(
                V, C, D, L, False, tied
            ),
            "`qkv_bias` adds 3·D in each block, not once.": lambda V, C, D, L, qkv_bias, tied: (
                _count(V, C, D, L, False, tied) + 3 * D * qkv_bias
            ),
            "A block has two LayerNorms, 4·D in all.": lambda V, C, D, L, *switches: _count(
                V, C, D, L, *switches, block=12 * D**2 + 8 * D
            ),
            "The output projection of attention, D·D, is missing.": lambda V, C, D, L, *switches: _count(
                V, C, D, L, *switches, block=11 * D**2 + 10 * D
            ),
            "The feed-forward network has two matrices, D to 4D and back: 8·D·D in all.": (
                lambda V, C, D, L, *switches: _count(V, C, D, L, *switches, block=8 * D**2 + 10 * D)
            ),
            "The feed-forward network is counted as if it kept the width D; it goes to 4D and back.": (
                lambda V, C, D, L, *switches: _count(V, C, D, L, *switches, block=6 * D**2 + 7 * D)
            ),
            "The output projection of attention has a bias, D numbers.": lambda V, C, D, L, *switches: _count(
                V, C, D, L, *switches, block=12 * D**2 + 9 * D
            ),
            "The two biases of the feed-forward network are missing, 4·D and D.": lambda V, C, D, L, *switches: _count(
                V, C, D, L, *switches, block=12 * D**2 + 5 * D
            ),
            "The head has no bias.": lambda V, C, D, L, *switches: _count(V, C, D, L, *switches) + V,
            "The causal mask, C·C in each block, is no parameter.": lambda V, C, D, L, *switches: (
                _count(V, C, D, L, *switches) + L * C**2
            ),
            "This counts one block, whatever L is.": lambda V, C, D, L, *switches: _count(V, C, D, 1, *switches),
        },
    ),
}
