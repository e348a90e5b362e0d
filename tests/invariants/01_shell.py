SETS = [
    {"vocab_size": 2, "context_length": 2, "emb_dim": 2, "n_heads": 1, "n_layers": 1, "batch_size": 1, "num_tokens": 2},
    {"vocab_size": 11, "context_length": 9, "emb_dim": 15, "n_heads": 3, "n_layers": 5, "batch_size": 3, "seed": 0},
    {"vocab_size": 1000, "context_length": 7, "emb_dim": 64, "n_heads": 64, "num_tokens": 7, "seed": 4294967295},
]


def holds(p, r, text):
    V, C, D, B, T = (p[name] for name in ("vocab_size", "context_length", "emb_dim", "batch_size", "num_tokens"))
    assert r["parameters"] == V * D + C * D + D * V
    assert r["head_width"] * p["n_heads"] == D
    assert r["logit_count"] == B * T * V
    assert (r["added_rows"], r["combined_rows"]) == (V + C, V * C)
    assert r["noticing_positions"] == 1
    assert f"ids [{B}, {T}] -> logits [{B}, {T}, {V}]" in text
    assert f"the shell: 1 of {T} positions notice: [0]" in text
    assert f"with mixing: {T} of {T} positions notice" in text
    assert f"transformer blocks (L = {p['n_layers']})" in text
