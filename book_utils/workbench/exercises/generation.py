"""The exercises of chapter 11."""

from copy import deepcopy

import torch
from torch import nn

from book_utils import evaluating
from book_utils.workbench.exercises import Exercise

_C = 4  # context_size of the model below


class _Scores(nn.Module):
    """Logits [B, t, V] from fixed tables of ids and of positions; each position sees all before it."""

    def forward(self, ids):
        t = ids.shape[1]
        if not 0 < t <= _C:
            raise ValueError(f"the model takes 1 to {_C} ids, got {t}")
        features = torch.arange(11 * 9, dtype=torch.float64).view(11, 9).sin()[ids]  # [B, t, V], V = 9
        places = torch.arange(5, 5 + _C * 9, dtype=torch.float64).view(_C, 9).cos()[:t]  # [t, V]
        return (features * (1 + places) + places.roll(2, -1)).cumsum(dim=1)


_MODEL = _Scores()
_LONG = torch.tensor([[3, 0, 8, 1, 5, 2], [7, 7, 2, 4, 0, 6]])  # [B, T], T > C
_SHORT = torch.tensor([[4, 1], [0, 8], [6, 3]])  # [B, T], T < C


def _step(model, ids, context_size, crop=None, position=-1, pick=torch.argmax, onto=None):
    """One greedy step, and its variants."""
    window = ids[:, -context_size:] if crop is None else crop(ids, context_size)
    new = pick(model(window)[:, position], dim=-1, keepdim=True)
    return torch.cat([ids if onto is None else onto(ids, window), new], dim=1)


def _first(ids, context_size):
    return ids[:, :context_size]


def _only_window(ids, window):
    return window


def _loop(model, ids, n, context_size, **changes):
    for _ in range(n):
        ids = _step(model, ids, context_size, **changes)
    return ids


def _fixed_window(model, ids, n, context_size):
    """The window is taken once, from the prompt, and its choice repeated."""
    new = _step(model, ids, context_size)[:, -1:]
    return torch.cat([ids, new.expand(-1, n)], dim=1)


def _order(p):
    return p.argsort(descending=True)


def _kept(probabilities, ids):
    """The probabilities of some ids, the rest 0, not scaled."""
    return torch.zeros_like(probabilities).index_copy(0, ids, probabilities[ids])


def _nucleus_ids(probabilities, p, more=1):
    order = _order(probabilities)
    return order[: (probabilities[order].cumsum(dim=-1) < p).sum() + more]


def _scaled(x):
    return x / x.sum()


def _nucleus(probabilities, p):
    return _scaled(_kept(probabilities, _nucleus_ids(probabilities, p)))


def _sorted_cut(probabilities, p):
    """The nucleus, the largest first."""
    return _nucleus(probabilities, p).sort(descending=True).values


def _from_the_least(probabilities, p):
    order = _order(probabilities).flip(0)
    return _scaled(_kept(probabilities, order[: (probabilities[order].cumsum(dim=-1) < p).sum() + 1]))


_P = torch.tensor([0.07, 0.4, 0.03, 0.25, 0.15, 0.1], dtype=torch.float64)  # [V]


class _Mixed(nn.Module):
    """Three dropouts; the modes are set one by one."""

    def __init__(self, own, *inner):
        super().__init__()
        self.layers = nn.ModuleList(nn.Dropout(0.5) for _ in inner)
        self.train(own)
        for layer, mode in zip(self.layers, inner, strict=True):
            layer.training = mode


def _modes(model):
    return [module.training for module in model.modules()]


def _try_in_eval(in_eval, own, inner, fails):
    """The result, what was the case during the work, the modes after it, whether the error got through; or None."""
    model, during = _Mixed(own, *inner), []

    def work(given):
        during.append([_modes(given), given is model, torch.is_grad_enabled()])
        if fails:
            raise KeyError("an error in the middle")
        return 7

    raised, result = False, None
    try:
        result = in_eval(model, work)
    except KeyError:
        raised = True
    if not during and result is None:
        return None
    return [result, during, _modes(model), raised]


def _given_back(model, work, reached=nn.Module.modules):
    modes = [(module, module.training) for module in reached(model)]
    model.eval()
    try:
        return work(model)
    finally:
        for module, mode in modes:
            module.training = mode


def _never_back(model, work):
    return work(model.eval())


def _always_train(model, work):
    model.eval()
    try:
        return work(model)
    finally:
        model.train()


def _whole_mode(model, work):
    was = model.training
    model.eval()
    try:
        return work(model)
    finally:
        model.train(was)


def _whole_mode_without_finally(model, work):
    was = model.training
    model.eval()
    result = work(model)
    model.train(was)
    return result


def _without_finally(model, work):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    result = work(model)
    for module, mode in modes:
        module.training = mode
    return result


def _swallowed(model, work):
    try:
        return _given_back(model, work)
    except KeyError:
        return None


def _no_eval(model, work):
    return work(model)


def _on_a_copy(model, work):
    return work(deepcopy(model).eval())


def _always_train_without_finally(model, work):
    model.eval()
    result = work(model)
    model.train()
    return result


def _with_evaluating(model, work):
    with evaluating(model):
        return work(model)


def _children_only(model, work):
    return _given_back(model, work, reached=nn.Module.children)


def _outermost_only(model, work):
    was, model.training = model.training, False
    try:
        return work(model)
    finally:
        model.training = was


def _result_lost(model, work):
    _given_back(model, work)


EXERCISES = {
    "11.1": Exercise(
        answer=_step,
        inputs=[(_MODEL, _LONG, _C), (_MODEL, _SHORT, _C), (_MODEL, _LONG, 3)],
        mistakes={
            "The window is the first ids of the text; the model is to read the last ones: a minus sign.": (
                lambda model, ids, C: _step(model, ids, C, crop=_first)
            ),
            "The window came back with the new id; append it to the whole text.": (
                lambda model, ids, C: _step(model, ids, C, onto=_only_window)
            ),
            "Only the new id is returned; append it to the text.": lambda model, ids, C: _step(model, ids, C)[:, -1:],
            "The new id stands in front of the text; it belongs behind it.": lambda model, ids, C: _step(
                model, ids, C
            ).roll(1, dims=1),
            "The logits at the first position score the second id; take those at the last position.": (
                lambda model, ids, C: _step(model, ids, C, position=0)
            ),
            "This is the id with the smallest logit.": lambda model, ids, C: _step(model, ids, C, pick=torch.argmin),
            "The last row of the batch chooses for all rows; take the last position, `[:, -1]`.": (
                lambda model, ids, C: torch.cat([ids, _step(model, ids[-1:], C)[:, -1:].expand(len(ids), 1)], dim=1)
            ),
            "The first row of the batch chooses for all rows; each row has an id of its own.": (
                lambda model, ids, C: torch.cat([ids, _step(model, ids[:1], C)[:, -1:].expand(len(ids), 1)], dim=1)
            ),
            "The window is one id too short.": lambda model, ids, C: _step(
                model, ids, C, crop=lambda ids, C: ids[:, -C + 1 :]
            ),
            "These are logits of every position; choose at the last one only.": lambda model, ids, C: torch.cat(
                [ids, model(ids[:, -C:]).argmax(dim=-1)], dim=1
            ),
        },
    ),
    "11.2": Exercise(
        answer=_nucleus,
        inputs=[(_P, 0.7), (_P, 0.3), (_P, 0.93), (_P, 0.985)],
        mistakes={
            "What is left must sum to 1 again.": lambda x, p: _kept(x, _nucleus_ids(x, p)),
            "The id that crosses p belongs to the nucleus too; without it the sum stays below p.": lambda x, p: _scaled(
                _kept(x, _nucleus_ids(x, p, more=0))
            ),
            "The id that crosses p is lost, unless it is the likeliest; it belongs to the nucleus.": lambda x, p: (
                _scaled(_kept(x, _order(x)[: max(1, len(_nucleus_ids(x, p)) - 1)]))
            ),
            "One id too many is kept: the sum reaches p without the last one.": lambda x, p: _scaled(
                _kept(x, _nucleus_ids(x, p, more=2))
            ),
            "p is a limit on the sum, not on each probability.": lambda x, p: _scaled(x * (x >= p)),
            "The cut begins with the least likely id; begin with the likeliest.": _from_the_least,
            "The ids are kept in the order of their places; go by probability, the largest first.": lambda x, p: (
                _scaled(_kept(x, torch.arange(len(x))[: (x.cumsum(dim=-1) < p).sum() + 1]))
            ),
            "The probabilities are sorted; each must stand at the place of its id.": lambda x, p: (
                _nucleus(x, p).sort(descending=True).values
            ),
            "A softmax of probabilities flattens them; divide by their sum.": lambda x, p: _scaled(
                _kept(x.exp(), _nucleus_ids(x, p))
            ),
            "Nothing is cut yet.": lambda x, p: x.clone(),
            "This applies the order once more; to go back, write to `kept[order]`.": lambda x, p: _sorted_cut(x, p)[
                _order(x)
            ],
            "The cut was found in sorted order and applied to the unsorted; use the ids in `order`.": lambda x, p: (
                _scaled(x * (_sorted_cut(x, p) > 0))
            ),
            "Divide by the sum of what is kept, which is p or more.": lambda x, p: _kept(x, _nucleus_ids(x, p)) / p,
        },
    ),
    "11.3": Exercise(
        answer=_loop,
        inputs=[(_MODEL, _SHORT, 5, _C), (_MODEL, _LONG, 4, _C), (_MODEL, _LONG, 3, 2), (_MODEL, _SHORT, 0, _C)],
        mistakes={
            "This is the loop as it was: the window is cut at the wrong end, and the id goes behind the window.": (
                lambda *args: _loop(*args, crop=_first, onto=_only_window)
            ),
            "The window is right now; the id is still appended to the window and not to the text.": lambda *args: _loop(
                *args, onto=_only_window
            ),
            "The text is whole now; the window is still its beginning, so the model never reads what is new.": (
                lambda *args: _loop(*args, crop=_first)
            ),
            "The window is one id too short.": lambda *args: _loop(*args, crop=lambda ids, C: ids[:, -C + 1 :]),
            "The new id stands in front of the text; it belongs behind it.": lambda model, ids, n, C: torch.cat(
                [_loop(model, ids, n, C)[:, ids.shape[1] :].flip(1), ids], dim=1
            ),
            "One id too many: the loop runs max_new_tokens times.": lambda model, ids, n, C: _loop(
                model, ids, n + 1, C
            ),
            "Only one id is new (is there a `return` inside the loop?).": lambda model, ids, n, C: _loop(
                model, ids, min(n, 1), C
            ),
            "The window is taken once, before the loop; take it at each step, from the longer text.": _fixed_window,
            "Only the new ids are returned; the prompt belongs in front.": lambda model, ids, n, C: _loop(
                model, ids, n, C
            )[:, ids.shape[1] :],
        },
    ),
    "11.4": Exercise(
        answer=_given_back,
        inputs=[
            (own, inner, fails)
            for own, inner in [(True, (True, True, True)), (True, (True, False, True)), (False, (False, False, True))]
            for fails in (False, True)
        ],
        run=_try_in_eval,
        recorded=True,
        mistakes={
            "The model stays in eval mode; give every module back the mode that it had before `eval()`.": _never_back,
            "Afterwards everything is in train mode, also what was not.": _always_train,
            "The mode of the whole model does not tell those of its parts; note each module's own.": _whole_mode,
            "The mode of the whole model does not tell those of its parts, and after an error nothing is given back.": (
                _whole_mode_without_finally
            ),
            "After an error nothing is given back: put it into a `finally`.": _without_finally,
            "The error is gone; the caller must hear of it. `finally` lets it pass.": _swallowed,
            "The work is not done in eval mode.": _no_eval,
            "Afterwards everything is in train mode, also what was not; and after an error nothing is given back.": (
                _always_train_without_finally
            ),
            "This works on a copy; put `model` itself into eval mode.": _on_a_copy,
            "The work is done without gradients; leave out `evaluating` and `no_grad`.": _with_evaluating,
            "`children()` leaves out the model itself and what lies deeper; use `modules()`.": _children_only,
            "Only the outermost module is in eval mode; `model.eval()` reaches all.": _outermost_only,
            "The result of the work is lost; return it.": _result_lost,
        },
    ),
}
