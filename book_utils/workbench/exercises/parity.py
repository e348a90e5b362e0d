"""The exercises of chapter 9."""

import torch

from book_utils.workbench.exercises import Exercise

_NAN = float("nan")


def _numbered(*shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape).sin()


def _parts(attempt, weight):
    """The attempt's parts; one tensor may hold all three."""
    parts = attempt(weight)
    return list(parts) if isinstance(parts, torch.Tensor) and parts.ndim == 3 else parts


def _in_the_file(name, tensor):
    layer, kind = name.split(".")[-2:]
    return tensor.T if layer.startswith("c_") and kind == "weight" else tensor


def _first(differences, tolerance):
    return next((stage for stage, d in differences.items() if not d <= tolerance), "none")


def _last(differences, tolerance):
    return next((stage for stage, d in reversed(differences.items()) if not d <= tolerance), "none")


def _largest(differences, tolerance):
    parted = {stage: d for stage, d in differences.items() if not d <= tolerance}
    return max(parted, key=parted.get, default="none")


def _same(ours, theirs, tolerance):
    return ours.shape == theirs.shape and ((ours - theirs).abs() <= tolerance).all().item()


_MAY_SEE = torch.ones(5, 5, dtype=torch.bool).tril()
_WINDOW = _MAY_SEE & ~_MAY_SEE.tril(-2)  # itself and one before
_PADDED = _MAY_SEE.clone()
_PADDED[:, 3] = False
_BOTH_SIDES = torch.ones(5, 5, dtype=torch.bool).tril(1).triu(-1)  # itself and both neighbours
EXERCISES = {
    "9.1": Exercise(
        answer=lambda w: list(w.chunk(3, dim=0)),
        inputs=[(_numbered(18, 6),), (_numbered(9, 3),)],
        run=_parts,
        mistakes={
            "These are columns, cut along the input axis; the outputs lie along axis 0.": lambda w: list(
                w.chunk(3, dim=1)
            ),
            "Each part is transposed; nn.Linear keeps [out, in], and so should the parts.": lambda w: [
                part.T for part in w.chunk(3, dim=0)
            ],
            "The order is key, query, value; it should be query, key, value.": lambda w: [
                w.chunk(3, dim=0)[i] for i in (1, 0, 2)
            ],
            "The order is value, key, query; it should be query, key, value.": lambda w: list(w.chunk(3, dim=0))[::-1],
            "`split` takes the size of a part, not the number of parts; these have three rows each.": lambda w: list(
                w.split(3)
            ),
            "Every third row is taken; the rows of one projection lie together.": lambda w: [w[i::3] for i in range(3)],
            "This is the query alone; three tensors are wanted.": lambda w: w[: w.shape[1]],
            "These have D + 1 rows; where a slice ends, the next one begins.": lambda w: [
                w[i * w.shape[1] : (i + 1) * w.shape[1] + 1] for i in range(3)
            ],
            "These are the numbers of the transposed weight poured into [D, D]; cut, do not reshape.": lambda w: list(
                w.T.reshape(3, w.shape[1], w.shape[1])
            ),
        },
    ),
    "9.2": Exercise(
        answer=_in_the_file,
        inputs=[
            ("transformer.h.0.attn.c_attn.weight", _numbered(12, 4)),
            ("transformer.h.0.attn.c_attn.bias", _numbered(12)),
            ("h.11.attn.c_proj.weight", _numbered(4, 4)),
            ("h.0.mlp.c_fc.weight", _numbered(16, 4)),
            ("h.0.mlp.c_proj.weight", _numbered(4, 16)),
            ("h.0.ln_1.weight", _numbered(4)),
            ("transformer.wte.weight", _numbered(7, 4)),
            ("transformer.wpe.weight", _numbered(4, 4)),
        ],
        mistakes={
            "The square matrix, attn.c_proj, stays as it is; it is transposed too, though its shape does not say so.": (
                lambda name, x: _in_the_file(name, x) if x.ndim != 2 or x.shape[0] != x.shape[1] else x
            ),
            "Every matrix is transposed, the tables wte and wpe too; these are no linear layers.": lambda name, x: (
                x.T if x.ndim == 2 else x
            ),
            "Every matrix that is not square is transposed; go by the name of the layer.": lambda name, x: (
                x.T if x.ndim == 2 and x.shape[0] != x.shape[1] else x
            ),
            "Nothing is transposed; the file keeps [in, out].": lambda name, x: x,
            "The numbers are poured into the other shape; transposing moves them.": lambda name, x: (
                x.reshape(x.shape[::-1]) if x.ndim == 2 and "c_" in name else x
            ),
            "c_attn is transposed, c_fc and c_proj are not; all three are kept as [in, out].": lambda name, x: (
                x.T if "c_attn" in name and x.ndim == 2 else x
            ),
            "c_proj stays as it is, in attention and in mlp; it is a linear layer like the others.": lambda name, x: (
                x.T if ("c_attn" in name or "c_fc" in name) and x.ndim == 2 else x
            ),
            "The layers of the feed-forward network stay as they are; mlp is kept like attn.": lambda name, x: (
                x.T if "attn" in name and x.ndim == 2 else x
            ),
        },
    ),
    "9.3": Exercise(
        answer=_first,
        inputs=[
            ({"embeddings": 0.0, "norm 1": 2e-16, "attention": 3e-9, "logits": 5e-8}, 1e-12),
            ({"embeddings": 0.0, "norm 1": 1e-15, "attention": _NAN, "logits": 2e-3}, 1e-12),
            ({"embeddings": 0.0, "norm 1": 1e-15, "attention": 4e-15, "logits": 1e-12}, 1e-12),
            ({"embeddings": 0.0, "norm 1": 4e-5, "attention": 3e-5, "logits": 1e-6}, 1e-7),
        ],
        mistakes={
            "NaN passes: every comparison with NaN is false. Ask `not difference <= tolerance`.": lambda ds, tol: next(
                (stage for stage, d in ds.items() if d > tol), "none"
            ),
            "This is the last stage that does not agree; the cause is at the first.": _last,
            "This is the place of the stage; its name is wanted.": lambda ds, tol: next(
                (place for place, d in enumerate(ds.values()) if not d <= tol), "none"
            ),
            "These are all stages that do not agree; the first of them is wanted.": lambda ds, tol: [
                stage for stage, d in ds.items() if not d <= tol
            ],
            "This is the stage with the largest difference, which often stands behind the cause.": _largest,
            'Where no stage parts, the text "none" is wanted, not None.': lambda ds, tol: next(
                (stage for stage, d in ds.items() if not d <= tol), None
            ),
            "This is the last stage that does agree; the one after it is wanted.": lambda ds, tol: (
                [None, *ds][list(ds).index(_first(ds, tol))] if _first(ds, tol) != "none" else "none"
            ),
            "A difference equal to the tolerance is within it.": lambda ds, tol: next(
                (stage for stage, d in ds.items() if not d < tol), "none"
            ),
            "Any difference above zero is taken; rounding is not a difference.": lambda ds, tol: next(
                (stage for stage, d in ds.items() if not d <= 0), "none"
            ),
            "This is the first stage that agrees.": lambda ds, tol: next(
                (stage for stage, d in ds.items() if d <= tol), "none"
            ),
        },
    ),
    "9.4": Exercise(
        answer=lambda mask: ~mask,
        inputs=[(_MAY_SEE,), (_WINDOW,), (_PADDED,), (_BOTH_SIDES,)],
        mistakes={
            "The mask is as it was; there True would block what may be seen.": lambda mask: mask.clone(),
            "The values are right, but these are whole numbers; the layer takes a boolean mask.": lambda mask: (
                1 - mask.int()
            ),
            "It is transposed: its diagonal is still True, which would hide each position from itself.": lambda mask: (
                mask.T
            ),
            "This is a new causal mask; what else the given one hides is forgotten.": lambda mask: torch.ones_like(
                mask
            ).triu(1),
            "This mask is to be added to the scores, 0 and −∞. The layer takes that too, but a boolean one was asked "
            "for.": lambda mask: torch.zeros(mask.shape).masked_fill(~mask, -torch.inf),
            "Later positions are hidden, too; the given mask may let them be seen.": lambda mask: ~mask.tril(),
            "It is turned over and transposed; positions that look are rows in both.": lambda mask: ~mask.T,
            "The diagonal is hidden as well; a position may see itself.": lambda mask: (
                ~mask | torch.eye(len(mask), dtype=torch.bool)
            ),
        },
    ),
    "9.5": Exercise(
        answer=_same,
        inputs=[
            (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, -2.0001, 3.0]), 1e-3),
            (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, -2.0, 3.002]), 1e-3),
            (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, -1.0, 3.0]), 1e-3),
            (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.5, -2.0, 3.0]), 1e-3),
            (torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, _NAN, 3.0]), 1e-3),
            (torch.tensor([1.0, _NAN, 3.0]), torch.tensor([1.0, _NAN, 3.0]), 1e-3),
            (torch.zeros(2, 2), torch.zeros(2), 1e-3),
            (torch.zeros(2, 2), torch.zeros(2, 1), 1e-3),
            (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 0.5),
            (torch.tensor([2048.0, 1.0]), torch.tensor([2048.0 + 2**-7, 1.0]), 1e-3),
            (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]), 1e-3),
        ],
        mistakes={
            "NaN passes, since no comparison with it is true; ask if all are small enough.": lambda a, b, tol: (
                a.shape == b.shape and not ((a - b).abs() > tol).any().item()
            ),
            "NaN beside NaN passes; a NaN on either side should not.": lambda a, b, tol: (
                a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=tol, equal_nan=True)
            ),
            "The sign is left in: a difference far below zero passes. Take the absolute value.": lambda a, b, tol: (
                a.shape == b.shape and ((a - b) <= tol).all().item()
            ),
            "Tensors of different shapes pass, since one is spread over the other; compare the shapes first.": (
                lambda a, b, tol: ((a - b).abs() <= tol).all().item()
            ),
            "The mean lets one large difference hide among many small ones; take the largest.": lambda a, b, tol: (
                a.shape == b.shape and ((a - b).abs().mean() <= tol).item()
            ),
            "torch.allclose adds a relative tolerance of 1e-5 unless it is told not to (rtol=0).": lambda a, b, tol: (
                a.shape == b.shape and torch.allclose(a, b, atol=tol)
            ),
            "torch.allclose spreads one tensor over the other, and its limit is wider (rtol).": lambda a, b, tol: (
                torch.allclose(a, b, atol=tol)
            ),
            "Exactly equal is too much to ask for; two right programs round differently.": lambda a, b, tol: (
                a.shape == b.shape and torch.equal(a, b)
            ),
            "The answer is no for every pair, also for equal ones.": lambda a, b, tol: False,
            "The answer is yes for every pair, also for those that differ.": lambda a, b, tol: True,
            "A difference equal to the tolerance is within it.": lambda a, b, tol: (
                a.shape == b.shape and ((a - b).abs() < tol).all().item()
            ),
            "NaN passes, and so do other shapes: say no unless the shapes agree and all differences are small.": (
                lambda a, b, tol: not ((a - b).abs() > tol).any().item()
            ),
        },
    ),
}
