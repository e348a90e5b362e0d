"""The final forms of what the book builds: one module per chapter, every public name importable from here.

Names are loaded at their first use, so that importing the package costs next to nothing and has no side effect.
"""

from book_utils._lazy import names_from

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
    "save_model": "checkpoints",
    "load_model": "checkpoints",
    "load_weights": "checkpoints",
    "Line": "counting",
    "Ledger": "counting",
    "ledger": "counting",
    "parameter_formula": "counting",
    "count_parameters": "counting",
    "count_buffers": "counting",
    "Mutation": "mutations",
    "mutate": "mutations",
    "Check": "mutations",
    "right_model": "mutations",
    "run_matrix": "mutations",
    "smallest_sets": "mutations",
    "generate_text_simple": "generation",
    "generate": "generation",
    "choose": "generation",
    "evaluating": "generation",
    "KVCache": "kv_cache",
    "TrainingConfig": "training",
    "Trainer": "training",
    "initialize": "training",
    "next_token_loss": "training",
    "learning_rate": "training",
}
__all__ = list(_HOME)
__getattr__ = names_from(__name__, _HOME)


def __dir__():
    return sorted({*globals(), *_HOME})
