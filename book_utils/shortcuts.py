"""A deep network with and without shortcuts, and a look at its gradients (chapter 4)."""

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from book_utils import _checks
from book_utils.feed_forward import GELU


class ExampleDeepNeuralNetwork(nn.Module):
    """Linear layers with GELU, [B, layer_sizes[0]] -> [B, layer_sizes[-1]].

    With `use_shortcut`, a layer whose input and output have the same width adds its input to its output.
    Source: Raschka, "Build a Large Language Model (From Scratch)", section 4.4.
    """

    def __init__(self, layer_sizes: Sequence[int], use_shortcut: bool):
        super().__init__()
        sizes = [_checks.positive_int("each of layer_sizes", size) for size in layer_sizes]
        if len(sizes) < 2:
            raise ValueError(f"layer_sizes must name at least 2 widths, got {list(layer_sizes)}")
        self.use_shortcut = _checks.boolean("use_shortcut", use_shortcut)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d_in, d_out), GELU()) for d_in, d_out in pairwise(sizes))

    def forward(self, x: Float[Tensor, "B D_in"]) -> Float[Tensor, "B D_out"]:
        _checks.features("ExampleDeepNeuralNetwork", x, self.layers[0][0].in_features)
        for layer in self.layers:
            out = layer(x)
            x = x + out if self.use_shortcut and out.shape == x.shape else out
        return x


def gradient_means(model: nn.Module, x: Float[Tensor, "B D_in"]) -> dict[str, float]:
    """The mean absolute gradient of each trained weight, by name, for a squared error against a target of zeros.

    Gradients are cleared first, so a second call gives the same result; those of this call stay in the model.
    """
    model.zero_grad()
    output = model(x)
    F.mse_loss(output, output.new_zeros(output.shape)).backward()
    weights = {name: p for name, p in model.named_parameters() if name.endswith("weight") and p.grad is not None}
    return {name: p.grad.abs().mean().item() for name, p in weights.items()}


def print_gradients(model: nn.Module, x: Float[Tensor, "B D_in"]) -> None:
    """Print what `gradient_means` returns, a line each."""
    for name, mean in gradient_means(model, x).items():
        print(f"{name} has gradient mean of {mean:.6g}")
