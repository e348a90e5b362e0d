"""The final forms of what the book builds: one module per chapter, every public name importable from here.

Names are loaded at their first use, so that importing the package costs next to nothing and has no side effect.
"""

from importlib import import_module

_HOME = {
    "GPTConfig": "config",
    "get_config": "config",
    "DummyGPTModel": "shell",
    "DummyTransformerBlock": "shell",
    "DummyLayerNorm": "shell",
    "LayerNorm": "layer_norm",
    "GELU": "feed_forward",
    "FeedForward": "feed_forward",
    "ExampleDeepNeuralNetwork": "shortcuts",
    "gradient_means": "shortcuts",
    "print_gradients": "shortcuts",
    "MultiHeadAttention": "attention",
    "TransformerBlock": "transformer_block",
    "GPTModel": "gpt_model",
}
__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__():
    return sorted({*globals(), *_HOME})
