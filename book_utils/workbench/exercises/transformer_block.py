"""The exercises of chapter 6."""

import torch

from book_utils.workbench.exercises import Exercise

_X = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [2.0, -1.0, 0.5, 7.0], [0.0, 1.0, -3.0, 0.5]]], dtype=torch.float64)


def _normalize(x):
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)


def _norm1(x):
    return 1.5 * _normalize(x) + 0.25


def _norm2(x):
    return 0.5 * _normalize(x) - 0.75


def _att(x):
    """The mean over this position and those before it."""
    return 0.7 * x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]


def _ff(x):
    return torch.tanh(1.3 * x) + 0.1 * x**2


def _pre_norm(x, norm1, att, norm2, ff):
    u = x + att(norm1(x))
    return u + ff(norm2(u))


def _old_shortcut(x, norm1, att, norm2, ff):
    return x + ff(norm2(x + att(norm1(x))))


def _parallel(x, norm1, att, norm2, ff):
    return x + att(norm1(x)) + ff(norm2(x))


def _post_norm(x, norm1, att, norm2, ff):
    u = norm1(x + att(x))
    return norm2(u + ff(u))


def _shortcut_from_norm(x, norm1, att, norm2, ff):
    n1 = norm1(x)
    n2 = norm2(n1 + att(n1))
    return n2 + ff(n2)


def _no_first_shortcut(x, norm1, att, norm2, ff):
    u = att(norm1(x))
    return u + ff(norm2(u))


def _no_second_shortcut(x, norm1, att, norm2, ff):
    return ff(norm2(x + att(norm1(x))))


def _no_shortcut(x, norm1, att, norm2, ff):
    return ff(norm2(att(norm1(x))))


def _norm_after_sublayer(x, norm1, att, norm2, ff):
    u = x + norm1(att(x))
    return u + norm2(ff(u))


def _twice_x(x, norm1, att, norm2, ff):
    u = x + att(norm1(x))
    return x + u + ff(norm2(u))


def _other_sublayer_first(x, norm1, att, norm2, ff):
    u = x + ff(norm2(x))
    return u + att(norm1(u))


_PLACES = ("emb", "attn", "shortcut")


def _rates(settings):
    return tuple(settings.get(f"drop_rate_{place}", settings["drop_rate"]) for place in _PLACES)


EXERCISES = {
    "6.1": Exercise(
        answer=_pre_norm,
        inputs=[(_X, _norm1, _att, _norm2, _ff), (-2 * _X, _norm2, _att, _norm1, _ff)],
        mistakes={
            "The second shortcut starts from x; it starts from u, the sum of the first half.": _old_shortcut,
            "The feed-forward network reads x; it reads u, the sum of the first half.": _parallel,
            "This is post-norm: it normalizes after each sum. Normalize what each sublayer reads.": _post_norm,
            "The shortcuts start from the normalized copies; they carry x and u themselves.": _shortcut_from_norm,
            "The first shortcut is missing: x is not added to what attention returns.": _no_first_shortcut,
            "The second shortcut is missing: u is not added to what the FFN returns.": _no_second_shortcut,
            "Both shortcuts are missing: nothing is added.": _no_shortcut,
            "Attention comes first, the feed-forward network second.": _other_sublayer_first,
            "norm1 is used twice; the second half has its own, norm2.": lambda x, norm1, att, norm2, ff: _pre_norm(
                x, norm1, att, norm1, ff
            ),
            "The two norms have changed places; norm1 belongs to attention.": lambda x, norm1, att, norm2, ff: (
                _pre_norm(x, norm2, att, norm1, ff)
            ),
            "The norms are missing.": lambda x, norm1, att, norm2, ff: _pre_norm(x, lambda v: v, att, lambda v: v, ff),
            "The first norm is missing: attention reads norm1(x).": lambda x, norm1, att, norm2, ff: _pre_norm(
                x, lambda v: v, att, norm2, ff
            ),
            "The second norm is missing: the FFN reads norm2(u).": lambda x, norm1, att, norm2, ff: _pre_norm(
                x, norm1, att, lambda v: v, ff
            ),
            "Each norm stands after its sublayer; it stands before: att(norm1(x)), not norm1(att(x)).": (
                _norm_after_sublayer
            ),
            "x is added twice: u holds it already.": _twice_x,
            "This is u, the first half; the second half is missing.": lambda x, norm1, att, norm2, ff: (
                x + att(norm1(x))
            ),
        },
    ),
    "6.2": Exercise(
        answer=lambda a, f: (1 + f) * (1 + a),
        inputs=[(0.5, 0.25), (-0.3, 2.0), (3.0, -1.5)],
        mistakes={
            "The term f · a is missing: the second branch reads u, which holds a · x.": lambda a, f: 1 + a + f,
            "The second shortcut starts from x here; it starts from u.": lambda a, f: 1 + f * (1 + a),
            "The second shortcut is missing: u is added to f · u.": lambda a, f: f * (1 + a),
            "The first shortcut is missing: x is added to a · x.": lambda a, f: a * (1 + f),
            "Both shortcuts are missing.": lambda a, f: a * f,
            "Only one shortcut, around both branches: each half has its own.": lambda a, f: 1 + a * f,
            "This is u, the first half; the second half multiplies by 1 + f.": lambda a, f: 1 + a,
            "This is the second half alone; the first multiplies by 1 + a.": lambda a, f: 1 + f,
            "The halves follow one another, so their factors are multiplied, not added.": lambda a, f: (
                (1 + a) + (1 + f)
            ),
            "The two branches are added and both shortcuts are missing; multiply (1 + f) by (1 + a).": lambda a, f: (
                a + f
            ),
        },
    ),
    "6.3": Exercise(
        answer=_rates,
        inputs=[
            ({"drop_rate": 0.1},),
            ({"drop_rate": 0.1, "drop_rate_emb": 0.2, "drop_rate_attn": 0.3, "drop_rate_shortcut": 0.4},),
            ({"drop_rate": 0.5, "drop_rate_attn": 0.0},),
        ],
        mistakes={
            "The three new keys are never read.": lambda settings: (settings["drop_rate"],) * 3,
            "A rate that is given as 0 counts as missing here; ask whether the key is there.": lambda settings: tuple(
                settings.get(f"drop_rate_{place}") or settings["drop_rate"] for place in _PLACES
            ),
            "Where a key is missing, drop_rate stands for it, not 0.": lambda settings: tuple(
                settings.get(f"drop_rate_{place}", 0.0) for place in _PLACES
            ),
            "Where a key is missing, drop_rate stands for it, not None.": lambda settings: tuple(
                settings.get(f"drop_rate_{place}") for place in _PLACES
            ),
            "The shortcut branches still read the old key.": lambda settings: (
                *_rates(settings)[:2],
                settings["drop_rate"],
            ),
            "The order is embeddings, attention weights, shortcut branches.": lambda settings: _rates(settings)[::-1],
            "The rates of attention and shortcuts have changed places.": lambda settings: (
                _rates(settings)[0],
                _rates(settings)[2],
                _rates(settings)[1],
            ),
            "Where a key is missing, a number of your own stands for it; it is the drop_rate of the settings.": (
                lambda settings: tuple(settings.get(f"drop_rate_{place}", 0.1) for place in _PLACES)
            ),
            "A dictionary comes back; return the three numbers as a tuple.": lambda settings: dict(
                zip(_PLACES, _rates(settings), strict=True)
            ),
        },
    ),
    "6.4": Exercise(
        answer=lambda p: (1 - p) ** 2,
        inputs=[(0.1,), (0.5,), (0.2,)],
        mistakes={
            "This is the share that survives one dropout; a number must survive both.": lambda p: 1 - p,
            "This is the share that both set to 0.": lambda p: p**2,
            "This is the share that at least one of them spares; a number must survive both.": lambda p: 1 - p**2,
            "This counts a number that both set to 0 twice; multiply the two chances.": lambda p: 1 - 2 * p,
            "This is the share that is set to 0; the survivors are asked for.": lambda p: 1 - (1 - p) ** 2,
            "This is the share that survives the first and is dropped by the second.": lambda p: p * (1 - p),
            "Each dropout spares 1 - p of what reaches it; the share is not divided by 2.": lambda p: (1 - p) / 2,
            "This is the factor by which a survivor grows; the share of survivors is asked for.": lambda p: (
                1 / (1 - p) ** 2
            ),
        },
    ),
}
