"""LayerNorm, GELU, FeedForward and the shortcut network, each against something that this project did not write."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llms_from_scratch import ch04 as upstream
from torch import nn

from book_utils import (
    GELU,
    ExampleDeepNeuralNetwork,
    FeedForward,
    LayerNorm,
    get_config,
    gradient_means,
    print_gradients,
)

CLOSE = {"rtol": 0, "atol": 1e-12}  # float64 on values of size 1 to 10: the same sums in another order


def float64(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# LayerNorm


@given(width=st.integers(1, 40), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_layer_norm_equals_torch_and_upstream(width, scale, seed):
    torch.manual_seed(seed)
    ours, theirs, upstreams = (
        LayerNorm(width).double(),
        nn.LayerNorm(width).double(),
        upstream.LayerNorm(width).double(),
    )
    weights = {"scale": float64(width), "shift": float64(width)}
    ours.load_state_dict(weights)
    upstreams.load_state_dict(weights)
    theirs.load_state_dict({"weight": weights["scale"], "bias": weights["shift"]})
    x = scale * float64(2, 3, width)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)
    torch.testing.assert_close(ours(x), upstreams(x), rtol=0, atol=1e-9)  # upstream's variance cancels for large x


def test_layer_norm_of_one_and_three():
    result = LayerNorm(2, eps=1e-12).double()(torch.tensor([[1.0, 3.0]], dtype=torch.float64))
    torch.testing.assert_close(result, torch.tensor([[-1.0, 1.0]], dtype=torch.float64), **CLOSE)


def test_layer_norm_variance_is_just_below_one():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    assert LayerNorm(4).double()(x).var(unbiased=False).item() == pytest.approx(1.25 / (1.25 + 1e-5), abs=1e-12)


def test_layer_norm_of_a_flat_row_is_finite_forward_and_backward():
    x = torch.full((1, 2, 8), 3.0, requires_grad=True)
    result = LayerNorm(8)(x)
    result.sum().backward()
    assert torch.equal(result, torch.zeros_like(result)) and x.grad.isfinite().all()


# GELU and FeedForward


@given(st.floats(-30, 30))
def test_gelu_is_the_tanh_form(x):
    formula = 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    given = torch.tensor(x, dtype=torch.float64)
    assert GELU()(given).item() == pytest.approx(formula, abs=1e-12)
    assert torch.equal(GELU()(given), nn.GELU(approximate="tanh")(given))
    assert abs(GELU()(given).item() - nn.GELU()(given).item()) < 5e-4  # the two forms, never further apart


def test_feed_forward_loads_upstream_and_computes_the_same(cfg):
    theirs = upstream.FeedForward(cfg)
    ours = FeedForward(cfg)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, cfg.emb_dim)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6)  # float32, values below 1


def test_feed_forward_has_the_sizes_of_the_paper_and_no_dropout(cfg):
    ff = FeedForward(cfg)
    D = cfg.emb_dim
    assert [list(p.shape) for p in ff.parameters()] == [[4 * D, D], [4 * D], [D, 4 * D], [D]]
    assert not any(isinstance(module, nn.Dropout) for module in ff.modules())


@given(st.permutations(range(5)))
def test_feed_forward_works_on_each_position_alone(order):
    torch.manual_seed(0)
    ff = FeedForward({"vocab_size": 4, "context_length": 5, "emb_dim": 6, "n_heads": 2, "n_layers": 1}).double()
    x = float64(2, 5, 6)
    torch.testing.assert_close(ff(x)[:, order], ff(x[:, order]), **CLOSE)


# shortcuts


def plain_shortcut_network(model, x, use_shortcut):
    for linear, _ in model.layers:
        out = nn.functional.gelu(x @ linear.weight.T + linear.bias, approximate="tanh")
        x = out + x if use_shortcut and linear.in_features == linear.out_features else out
    return x


@given(st.lists(st.integers(1, 6), min_size=2, max_size=7), st.booleans(), st.integers(0, 99))
def test_the_network_adds_a_shortcut_exactly_where_shapes_agree(layer_sizes, use_shortcut, seed):
    torch.manual_seed(seed)
    model = ExampleDeepNeuralNetwork(layer_sizes, use_shortcut).double()
    x = float64(3, layer_sizes[0])
    torch.testing.assert_close(model(x), plain_shortcut_network(model, x, use_shortcut), rtol=1e-12, atol=1e-12)


def test_gradients_are_cleared_before_each_look(capsys):
    model = ExampleDeepNeuralNetwork([3, 3, 3, 1], True)
    x = torch.tensor([[1.0, 0.0, -1.0]])
    first = gradient_means(model, x)
    assert first == gradient_means(model, x)
    assert list(first) == [f"layers.{i}.0.weight" for i in range(3)] and all(mean > 0 for mean in first.values())
    target = nn.functional.mse_loss(model(x), torch.zeros(1, 1))
    by_autograd = torch.autograd.grad(target, model.layers[0][0].weight)[0].abs().mean().item()
    assert first["layers.0.0.weight"] == pytest.approx(by_autograd, rel=1e-6)
    print_gradients(model, x)
    assert capsys.readouterr().out.splitlines()[0] == f"layers.0.0.weight has gradient mean of {by_autograd:.6g}"


def test_gradient_means_are_those_of_the_mean_squared_output():
    model = ExampleDeepNeuralNetwork([3, 4, 2], False).double()
    x = float64(5, 3)
    gradients = torch.autograd.grad(model(x).square().mean(), [layer[0].weight for layer in model.layers])
    assert list(gradient_means(model, x).values()) == pytest.approx(
        [g.abs().mean().item() for g in gradients], rel=1e-12
    )


def test_shortcuts_strengthen_the_first_gradient_of_the_books_example():
    means = []
    for use_shortcut in (False, True):
        torch.manual_seed(123)
        model = ExampleDeepNeuralNetwork([3, 3, 3, 3, 3, 1], use_shortcut)
        means.append(gradient_means(model, torch.tensor([[1.0, 0.0, -1.0]]))["layers.0.0.weight"])
    assert means[1] > 100 * means[0]


# what they refuse


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: LayerNorm(0), ValueError, "emb_dim must be at least 1, got 0"),
        (lambda: LayerNorm(2.0), TypeError, "emb_dim must be an integer, got 2.0"),
        (lambda: LayerNorm(4, eps=-1.0), ValueError, "eps must be at least 0 and finite, got -1.0"),
        (lambda: LayerNorm(4, eps=float("inf")), ValueError, "eps must be at least 0 and finite, got inf"),
        (lambda: LayerNorm(4, eps=float("nan")), ValueError, "eps must be at least 0 and finite, got nan"),
        (lambda: LayerNorm(1)(torch.tensor(1.0)), ValueError, r"takes 1 features .* \[\]"),
        (lambda: LayerNorm(4)(torch.ones(2, 3)), ValueError, r"LayerNorm takes 4 features .* \[2, 3\]"),
        (
            lambda: LayerNorm(4)(torch.ones(2, 4, dtype=torch.int64)),
            TypeError,
            "floating-point features, got torch.int64",
        ),
        (lambda: LayerNorm(4)([1.0, 2.0]), TypeError, "got list"),
        (lambda: FeedForward({"emb_dim": 4}), ValueError, "lacks vocab_size"),
        (
            lambda: FeedForward(get_config("tiny"))(torch.ones(2, 5)),
            ValueError,
            r"FeedForward takes 16 features .* \[2, 5\]",
        ),
        (lambda: ExampleDeepNeuralNetwork([3], True), ValueError, r"at least 2 widths, got \[3\]"),
        (lambda: ExampleDeepNeuralNetwork([3, 0], True), ValueError, "layer_sizes must be at least 1, got 0"),
        (lambda: ExampleDeepNeuralNetwork([3, 3], 1), TypeError, "use_shortcut must be True or False, got 1"),
        (lambda: ExampleDeepNeuralNetwork([3, 3], True)(torch.ones(1, 2)), ValueError, r"takes 3 features .* \[1, 2\]"),
    ],
)
def test_bad_input_gets_one_clear_error(call, error, words):
    with pytest.raises(error, match=words):
        call()
