"""The exercises of chapter 4."""

import torch
from torch import nn
from torch.nn import functional as F

from book_utils.workbench.exercises import Exercise


def _numbers(*shape: int, start: float = 1.0) -> torch.Tensor:
    """Fixed numbers between -1 and 1, drawn without touching the reader's random state."""
    count = torch.Size(shape).numel()
    return torch.sin(start * torch.arange(1, count + 1, dtype=torch.float64)).reshape(shape)


def _tenth(x):
    return x * 0.1


_PAIR, _X = torch.tensor([1.0, 2.0], dtype=torch.float64), _numbers(2, 3, 4)  # [D], [B, T, D]
_WIDER, _BACK, _ONE = _numbers(16, 4, start=2.0), _numbers(4, 16, start=3.0), _numbers(1, 4, start=5.0)


def _expand(x):
    return F.gelu(F.linear(x, _WIDER), approximate="tanh")  # [..., 4D]


def _contract(x):
    return F.linear(x, _BACK)  # [..., D]


def _equal_width(x):
    return _contract(_expand(x))


def _one_feature(x):
    return F.linear(x, _ONE)  # [..., 1]


def _mean_over_tokens(x):
    return x.mean(dim=1, keepdim=True)  # [B, 1, D]


def _hand_on(x, layer):
    out = layer(x)
    return x + out if out.shape == x.shape else out


def _last_axis_alone(x, layer):
    out = layer(x)
    return x + out if out.shape[-1] == x.shape[-1] else out


def _input_where_they_differ(x, layer):
    out = layer(x)
    return x + out if out.shape == x.shape else x


def _small_model() -> nn.Module:
    """Two layers with fixed weights."""
    model = nn.Sequential(nn.Linear(4, 3, device="meta"), nn.Tanh(), nn.Linear(3, 2, device="meta"))
    model = model.to_empty(device="cpu").double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters(), 1):
            parameter.copy_(_numbers(*parameter.shape, start=float(number)))
    return model


def _look_again(attempt, x, looks):
    """What the attempt returns at the last of several looks at one model."""
    model = _small_model()
    return [attempt(model, x) for _ in range(looks)][-1]


def _mean_weights(model, x):
    return [p.abs().mean().item() for name, p in model.named_parameters() if name.endswith("weight")]


def _look(model, x, clear=True, size=torch.abs, end="weight", reduce=torch.mean, loss=torch.mean):
    if clear:
        model.zero_grad()
    loss(model(x).square()).backward()
    return [reduce(size(p.grad)).item() for name, p in model.named_parameters() if name.endswith(end)]


EXERCISES = {
    "4.1": Exercise(
        answer=lambda x, branch: x + branch(x),
        inputs=[(_PAIR, _tenth), (_X, _equal_width)],
        mistakes={
            "This is the branch alone; the input is not added back.": lambda x, branch: branch(x),
            "This is the input alone; the branch is missing.": lambda x, branch: x,
            "The input is multiplied by the branch; a shortcut adds.": lambda x, branch: x * branch(x),
            "The branch is subtracted; a shortcut adds.": lambda x, branch: x - branch(x),
            "The branch is applied twice.": lambda x, branch: x + branch(branch(x)),
            "The branch is to read x; here it reads x + x.": lambda x, branch: x + branch(x + x),
            "The branch's result is added twice.": lambda x, branch: x + 2 * branch(x),
            "This is the mean of both; a shortcut adds, without a factor ½.": lambda x, branch: (x + branch(x)) / 2,
            "Input and branch are joined end to end; add them feature by feature.": (
                lambda x, branch: torch.cat([x, branch(x)], dim=-1)
            ),
        },
    ),
    "4.2": Exercise(
        answer=lambda x, expand, contract: x + contract(expand(x)),
        inputs=[(_X, _expand, _contract), (_X[0], _expand, _contract)],
        mistakes={
            "The branch is right; the input is not added back.": lambda x, expand, contract: contract(expand(x)),
            "The result still has 4D features; the branch must lead back to D.": lambda x, expand, contract: expand(x),
            "The input was repeated to 4D features; the next layer expects D. Bring the branch back instead.": (
                lambda x, expand, contract: torch.cat([x] * 4, dim=-1) + expand(x)
            ),
            "The wide result was cut off at D features, and the rest is lost; contract it.": (
                lambda x, expand, contract: x + expand(x)[..., : x.shape[-1]]
            ),
            "The sizes fit, the meaning does not: a mean over four groups of features is not learned. Use contract.": (
                lambda x, expand, contract: x + expand(x).unflatten(-1, (4, -1)).mean(-2)
            ),
            "The branch is multiplied by the input; a shortcut adds.": (
                lambda x, expand, contract: x * contract(expand(x))
            ),
            "The input went through contract as well; the shortcut leaves it as it is.": (
                lambda x, expand, contract: contract(torch.cat([x] * 4, dim=-1) + expand(x))
            ),
            "The input is added before the branch; it is added to the branch's result.": (
                lambda x, expand, contract: contract(expand(x + x))
            ),
        },
    ),
    "4.3": Exercise(
        answer=_hand_on,
        inputs=[(_X, _equal_width), (_X, _one_feature), (_X[0], _one_feature), (_X, _mean_over_tokens)],
        mistakes={
            "This never adds; where the shapes are equal, x belongs to the result.": lambda x, layer: layer(x),
            "This always adds: one feature was repeated along the axis, without an error.": (
                lambda x, layer: x + layer(x)
            ),
            "Only the last axis was compared; [B, 1, D] was repeated along the tokens. Compare the whole shape.": (
                _last_axis_alone
            ),
            "Where the shapes differ, the layer's output is wanted, not its input.": _input_where_they_differ,
        },
    ),
    "4.4": Exercise(
        answer=lambda a, n: (1 + a) ** n,
        inputs=[(0.1, 10), (-1.0, 3), (-0.5, 4), (1.0, 8), (0.0, 5)],
        mistakes={
            "This is the path through all branches alone; each layer multiplies by 1 + a.": lambda a, n: a**n,
            "This is the direct path and the one through all branches; the paths between are missing.": (
                lambda a, n: 1 + a**n
            ),
            "This counts the direct path and those through one branch; longer paths are missing.": (
                lambda a, n: 1 + n * a
            ),
            "The factors of the layers are added here; the chain rule multiplies them.": lambda a, n: n * (1 + a),
            "One layer is missing: there are n factors, not n − 1.": lambda a, n: (1 + a) ** (n - 1),
            "The sign of a is turned: the derivative of x + a x is 1 + a.": lambda a, n: (1 - a) ** n,
            "This counts the paths; each of them carries a factor a for every branch on it.": lambda a, n: 2.0**n,
            "This is one layer; there are n of them.": lambda a, n: 1 + a,
            "This is the direct path alone; the branches count too.": lambda a, n: 1.0,
        },
    ),
    "4.5": Exercise(
        answer=_look,
        inputs=[(_numbers(5, 4, start=7.0), looks) for looks in (1, 2)],
        mistakes={
            "The second look has doubled: clear the gradients before each, model.zero_grad().": (
                lambda model, x: _look(model, x, clear=False)
            ),
            "These are means with sign, in which plus and minus cancel; take the absolute values first.": (
                lambda model, x: _look(model, x, size=lambda grad: grad)
            ),
            "This is the absolute value of a mean; take the mean of the absolute values.": (
                lambda model, x: _look(model, x, size=lambda grad: grad.mean().abs())
            ),
            "The biases are in the list; only weights are asked for.": lambda model, x: _look(model, x, end=""),
            "These are the biases; the weights are asked for.": lambda model, x: _look(model, x, end="bias"),
            "These are sums of absolute gradients; take the means.": (
                lambda model, x: _look(model, x, reduce=torch.sum)
            ),
            "These are means of squares; take those of the absolute values.": (
                lambda model, x: _look(model, x, size=torch.square)
            ),
            "These are lengths, roots of sums of squares; take the means of the absolute values.": (
                lambda model, x: _look(model, x, reduce=torch.linalg.vector_norm)
            ),
            "These are the largest absolute gradients; take the means.": (
                lambda model, x: _look(model, x, reduce=torch.max)
            ),
            "The loss here is the sum of the squared outputs; their mean is asked for.": (
                lambda model, x: _look(model, x, loss=torch.sum)
            ),
            "The last weight comes first here; the order of named_parameters() is asked for.": (
                lambda model, x: _look(model, x)[::-1]
            ),
            "These are means of the weights themselves; the gradients, p.grad, are asked for.": _mean_weights,
        },
        run=_look_again,
    ),
}
