"""What Hypothesis draws in several test files."""

from hypothesis import strategies as st

from book_utils import GPTConfig


def configs(**changes):
    """Small configurations of every kind; `changes` maps a size to another strategy for it (head_dim is D / H)."""
    sizes = {
        "heads": st.integers(1, 4),
        "head_dim": st.integers(1, 4),
        "vocab_size": st.integers(1, 20),
        "context_length": st.integers(1, 8),
        "n_layers": st.integers(1, 3),
        "qkv_bias": st.booleans(),
        "tie_weights": st.booleans(),
        **changes,
    }
    return st.builds(
        lambda heads, head_dim, **rest: GPTConfig(n_heads=heads, emb_dim=heads * head_dim, **rest), **sizes
    )
