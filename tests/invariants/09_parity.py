SETS = [
    {
        "emb_dim": 8,
        "n_heads": 1,
        "n_layers": 1,
        "vocab_size": 2,
        "context_length": 2,
        "num_tokens": 2,
        "batch_size": 1,
        "qkv_bias": True,
        "seed": 7,
    },
    {
        "emb_dim": 48,
        "n_heads": 3,
        "n_layers": 3,
        "vocab_size": 37,
        "context_length": 11,
        "num_tokens": 11,
        "batch_size": 3,
        "seed": 4294967295,
        "dtype": "float32",
    },
    {"emb_dim": 256, "n_heads": 4, "vocab_size": 100, "seed": 1},
]


def holds(p, r, text):
    from math import sqrt

    B, T, V, D, L = (p[name] for name in ("batch_size", "num_tokens", "vocab_size", "emb_dim", "n_layers"))
    bias = 3 * D if p["qkv_bias"] else 0
    parameters = 2 * V * D + p["context_length"] * D + L * (12 * D**2 + 10 * D + bias) + 2 * D
    assert f"ids [{B}, {T}] -> logits [{B}, {T}, {V}]" in text
    assert text.count(f"{parameters}  True    [{B}, {T}, {V}]") == 2  # also with the exact GELU
    assert f"{7 * L + 3} stages in {L} blocks" in text and f"{7 * L + 3} stages agree with NumPy" in text
    # a logit is a product with a normalized vector of length sqrt(D); scales are near 1, weights near 0.15
    assert 0 < r["largest_logit"] < 2 * D
    unit = {"float32": 2**-24, "float64": 2**-53}[p["dtype"]]
    room = 100 * sqrt(D * L) * unit * max(1, r["largest_logit"])
    assert 0 <= r["transformers_difference"] < room and 0 <= r["torch_difference"] < room
    constant = unit if p["dtype"] == "float32" else 1e-7  # of GELU: rounded to float32 upstream
    assert 0 <= r["upstream_difference"] < max(room, constant * max(1, r["largest_logit"]))
    parts = "block 1: feed-forward" if p["dtype"] == "float64" else "nowhere"
    assert r["upstream_parts_at"] == parts and r["greedy_differences"] == 0
    assert ("even: the fast path is open" in text) == (p["n_heads"] % 2 == 0)
