SETS = [
    {
        "vocab_size": 2,
        "context_length": 2,
        "emb_dim": 64,
        "n_heads": 1,
        "n_layers": 1,
        "batch_size": 1,
        "num_tokens": 2,
        "seed": 1,
    },
    {
        "vocab_size": 3,
        "context_length": 5,
        "emb_dim": 5,
        "n_heads": 5,
        "n_layers": 3,
        "batch_size": 3,
        "num_tokens": 5,
        "seed": 4294967295,
    },
    {
        "vocab_size": 1000,
        "context_length": 9,
        "emb_dim": 12,
        "n_heads": 2,
        "n_layers": 1,
        "batch_size": 4,
        "num_tokens": 3,
        "seed": 42,
    },
]


def holds(p, r, text):
    from math import e, isclose, log, sqrt

    V, C, D, L = (p[name] for name in ("vocab_size", "context_length", "emb_dim", "n_layers"))
    B, T = p["batch_size"], p["num_tokens"]
    tied = (V + C + 2) * D + L * (12 * D**2 + 10 * D)
    assert r["parameters_tied"] == tied and r["parameters"] == tied + V * D
    assert f"by formula: {tied + V * D:,} untied, {tied:,} tied" in text
    assert f"ids [{B}, {T}] -> logits [{B}, {T}, {V}]" in text
    # A normalized vector is no longer than sqrt(D), a row of the untied head no longer than 1.
    assert 0 < r["logit_spread"] < sqrt(D) and r["logit_spread_tied"] > 0
    assert abs(r["own_logit_tied"]) < D + 6 * sqrt(D)  # a row of the table is hardly longer than sqrt(D) + 6
    assert isclose(r["loss_floor"], log(e + V - 1) - 1, rel_tol=1e-5)
    assert text.count(f"{log(V):.4f}") >= 2  # the loss of a model that is sure of nothing, with a softmax or without
    assert f"[{V}, {D}]" in text and f"the input has {C + 1} tokens, more than context_length = {C}" in text
    assert f"{8 * (tied + V * D) / 1024:.1f}" in text  # KiB in float64
