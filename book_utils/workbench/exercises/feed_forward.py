"""The exercises of chapter 3."""

import math

import torch

from book_utils.workbench.exercises import Exercise

_Z = torch.tensor([-3.0, -2.7, -1.0, -0.5, 0.0, 0.5, 1.0, 2.7, 3.0], dtype=torch.float64)


def _gelu_erf(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def _gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _wave(*shape):
    """Fixed numbers between -1 and 1 without a pattern that would hide a mistake."""
    return torch.sin(torch.arange(1, math.prod(shape) + 1, dtype=torch.float64) * 1.7).reshape(shape)


_D = 3
_X = 2 * _wave(2, 4, _D)  # [B, T, D]
_W1, _B1 = _wave(_D, 4 * _D), 0.5 * _wave(4 * _D)
_W2, _B2 = _wave(4 * _D, _D).flip(0), 0.5 * _wave(_D) + 1
_HIDDEN = _gelu_tanh(_X @ _W1 + _B1)  # [B, T, 4D]


def _in_quarters(hidden):
    return hidden.unflatten(-1, (4, hidden.shape[-1] // 4))  # [B, T, 4, D]


EXERCISES = {
    "3.1": Exercise(
        answer=_gelu_erf,
        inputs=[(_Z,), (_Z.reshape(3, 3) / 2,)],
        mistakes={
            "This is the tanh form; the definition has erf.": _gelu_tanh,
            "This is ReLU: it cuts all negative inputs to 0.": torch.relu,
            "This is Φ(x) alone; multiply it by x.": lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))),
            "erf takes x / √2, not x.": lambda x: 0.5 * x * (1 + torch.erf(x)),
            "erf takes x / √2; here x is divided by 2.": lambda x: 0.5 * x * (1 + torch.erf(x / 2)),
            "erf takes x / √2; here x is multiplied by √2.": lambda x: 0.5 * x * (1 + torch.erf(x * math.sqrt(2))),
            "The √2 stands outside erf; it divides x inside: erf(x / √2).": lambda x: (
                0.5 * x * (1 + torch.erf(x) / math.sqrt(2))
            ),
            "This is x times the density φ(x); Φ is the probability up to x, with erf.": lambda x: (
                x * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
            ),
            "The factor ½ is missing: Φ runs from 0 to 1, 1 + erf from 0 to 2.": lambda x: (
                x * (1 + torch.erf(x / math.sqrt(2)))
            ),
            "The 1 is missing: Φ(x) is ½ (1 + erf(x / √2)).": lambda x: 0.5 * x * torch.erf(x / math.sqrt(2)),
            "This is x times a sigmoid (SiLU), another function.": lambda x: x * torch.sigmoid(x),
            "This is the sigmoid approximation, x σ(1.702 x); the definition has erf.": lambda x: (
                x * torch.sigmoid(1.702 * x)
            ),
        },
    ),
    "3.2": Exercise(
        answer=lambda x, W1, b1, W2, b2: _gelu_tanh(x @ W1 + b1) @ W2 + b2,
        inputs=[(_X, _W1, _B1, _W2, _B2), (_X[0, 0], _W1, _B1, _W2, _B2)],
        mistakes={
            "GELU is missing: without it the two maps are one linear map.": lambda x, W1, b1, W2, b2: (
                (x @ W1 + b1) @ W2 + b2
            ),
            "This is the erf form of GELU; GPT-2 uses the tanh form.": lambda x, W1, b1, W2, b2: (
                _gelu_erf(x @ W1 + b1) @ W2 + b2
            ),
            "The activation here is ReLU; GPT-2 uses GELU.": lambda x, W1, b1, W2, b2: (
                torch.relu(x @ W1 + b1) @ W2 + b2
            ),
            "The first bias is missing.": lambda x, W1, b1, W2, b2: _gelu_tanh(x @ W1) @ W2 + b2,
            "The first bias is added after GELU; it belongs before.": lambda x, W1, b1, W2, b2: (
                (_gelu_tanh(x @ W1) + b1) @ W2 + b2
            ),
            "The second bias is missing.": lambda x, W1, b1, W2, b2: _gelu_tanh(x @ W1 + b1) @ W2,
            "Both biases are missing.": lambda x, W1, b1, W2, b2: _gelu_tanh(x @ W1) @ W2,
            "The activation is x times a sigmoid (SiLU); GPT-2 uses GELU's tanh form.": lambda x, W1, b1, W2, b2: (
                torch.nn.functional.silu(x @ W1 + b1) @ W2 + b2
            ),
            "The activation is tanh alone; GPT-2 uses GELU's tanh form.": lambda x, W1, b1, W2, b2: (
                torch.tanh(x @ W1 + b1) @ W2 + b2
            ),
            "GELU is applied twice; the second map is the end.": lambda x, W1, b1, W2, b2: _gelu_tanh(
                _gelu_tanh(x @ W1 + b1) @ W2 + b2
            ),
            "GELU stands after the second map; it belongs between the two.": lambda x, W1, b1, W2, b2: _gelu_tanh(
                (x @ W1 + b1) @ W2 + b2
            ),
            "GELU stands before the first map; it belongs between the two.": lambda x, W1, b1, W2, b2: (
                (_gelu_tanh(x) @ W1 + b1) @ W2 + b2
            ),
            "The input is added too; that is the block's part, not the network's.": lambda x, W1, b1, W2, b2: (
                x + _gelu_tanh(x @ W1 + b1) @ W2 + b2
            ),
            "The result is still 4D wide; the second map is missing.": lambda x, W1, b1, W2, b2: _gelu_tanh(
                x @ W1 + b1
            ),
        },
    ),
    "3.3": Exercise(
        answer=lambda W1, b1, W2, b2: (W1 @ W2, b1 @ W2 + b2),
        inputs=[(_W1, _B1, _W2, _B2)],
        mistakes={
            "The first bias is lost; it passes through the second map: b1 @ W2.": lambda W1, b1, W2, b2: (W1 @ W2, b2),
            "The second bias is lost.": lambda W1, b1, W2, b2: (W1 @ W2, b1 @ W2),
            "The matrices stand in the wrong order: x meets W1 first, from the left.": lambda W1, b1, W2, b2: (
                W2 @ W1,
                b1 @ W2 + b2,
            ),
            "This W is transposed; here x stands on the left, x @ W.": lambda W1, b1, W2, b2: (
                (W1 @ W2).T,
                b1 @ W2 + b2,
            ),
            "The bias is right; the matrix is only W1, without W2.": lambda W1, b1, W2, b2: (W1, b1 @ W2 + b2),
            "Both biases are lost; the merged map has one: b1 @ W2 + b2.": lambda W1, b1, W2, b2: (
                W1 @ W2,
                torch.zeros_like(b2),
            ),
            "The bias comes first here; return (W, b).": lambda W1, b1, W2, b2: (b1 @ W2 + b2, W1 @ W2),
            "This is the matrix alone; return the bias too, (W, b).": lambda W1, b1, W2, b2: W1 @ W2,
        },
    ),
    "3.4": Exercise(
        answer=lambda x, hidden, W2, b2: x + hidden @ W2 + b2,
        inputs=[(_X, _HIDDEN, _W2, _B2)],
        mistakes={
            "This is the branch alone; add it to x.": lambda x, hidden, W2, b2: hidden @ W2 + b2,
            "The bias b2 is missing.": lambda x, hidden, W2, b2: x + hidden @ W2,
            "This is the branch alone, and without its bias.": lambda x, hidden, W2, b2: hidden @ W2,
            "The sizes fit, the meaning does not: the first D of 4D features are not the features of x. Use W2.": (
                lambda x, hidden, W2, b2: x + hidden[..., : x.shape[-1]]
            ),
            "The sizes fit, the meaning does not: a mean over four groups of features is not learned. Use W2.": (
                lambda x, hidden, W2, b2: x + _in_quarters(hidden).mean(-2)
            ),
            "The sizes fit, the meaning does not: a sum over four groups of features is not learned. Use W2.": (
                lambda x, hidden, W2, b2: x + _in_quarters(hidden).sum(-2)
            ),
            "x was made four times as wide; the sum is 4D wide, and the next layer takes D. Bring hidden back to D.": (
                lambda x, hidden, W2, b2: x.repeat(1, 1, 4) + hidden
            ),
            "GELU is applied a second time; hidden has it already.": lambda x, hidden, W2, b2: (
                x + _gelu_tanh(hidden) @ W2 + b2
            ),
            "GELU stands after the second map too; it belongs between the two, and hidden has it already.": (
                lambda x, hidden, W2, b2: x + _gelu_tanh(hidden @ W2 + b2)
            ),
            "x was mapped to 4D with W2 transposed; it is hidden that has to come back to D.": (
                lambda x, hidden, W2, b2: x @ W2.T + hidden
            ),
            "x is added twice.": lambda x, hidden, W2, b2: 2 * x + hidden @ W2 + b2,
            "x is multiplied by the result; it is added.": lambda x, hidden, W2, b2: x * (hidden @ W2 + b2),
        },
    ),
    "3.5": Exercise(
        answer=lambda d: 8 * d**2 + 5 * d,
        inputs=[(4,), (16,), (768,)],
        mistakes={
            "These are the matrices; the biases have 4D and D numbers more.": lambda d: 8 * d**2,
            "This is the first map alone.": lambda d: 4 * d**2 + 4 * d,
            "This is the second map alone.": lambda d: 4 * d**2 + d,
            "The second bias is missing; it has D numbers.": lambda d: 8 * d**2 + 4 * d,
            "The first bias is missing; it has 4D numbers.": lambda d: 8 * d**2 + d,
            "The second bias is as long as the output, D, not 4D.": lambda d: 8 * d**2 + 8 * d,
            "The first bias is as long as the wide middle, 4D, not D.": lambda d: 8 * d**2 + 2 * d,
            "One matrix of D × 4D is missing; there are two.": lambda d: 4 * d**2 + 5 * d,
            "Each matrix has D × 4D numbers, not D × D; the middle is four times as wide.": lambda d: 2 * d**2 + 5 * d,
            "Each matrix has D × 4D numbers; 4D × 4D would keep the width.": lambda d: 32 * d**2 + 5 * d,
            "5D is the number of the biases; the matrices are missing.": lambda d: 5 * d,
        },
    ),
}
