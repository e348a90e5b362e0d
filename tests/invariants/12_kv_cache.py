import math

SETS = [
    {"vocab_size": 2, "context_length": 8, "emb_dim": 4, "n_heads": 1, "batch_size": 1, "num_tokens": 2, "seed": 0},
    {"vocab_size": 7, "context_length": 33, "emb_dim": 5, "n_heads": 5, "n_layers": 3, "batch_size": 3}
    | {"num_tokens": 30, "seed": 4294967295},
    {"vocab_size": 1000, "context_length": 11, "emb_dim": 24, "n_heads": 3, "n_layers": 5, "batch_size": 4}
    | {"num_tokens": 4, "seed": 7},
]


def holds(p, r, text):
    V, C, D, L = p["vocab_size"], p["context_length"], p["emb_dim"], p["n_layers"]
    B, T, H = p["batch_size"], p["num_tokens"], p["n_heads"]
    assert r["positions_without_cache"] == (T + C) * (C - T + 1) // 2
    assert r["positions_with_cache"] == C  # T at once, then one by one
    assert math.isclose(r["positions_ratio"], (T + C) * (C - T + 1) / (2 * C), rel_tol=1e-5)
    assert r["step_operations"] == 24 * L * D * D + 2 * V * D + 4 * L * C * D
    assert r["cache_bytes"] == 16 * L * B * C * D
    assert f"text [{B}, {C}] · prompt [{B}, {T}]" in text
    assert f"keys, and values, in all layers: [{L}, {B}, {H}, {C}, {D // H}]" in text
    assert r["slid_difference"] > 0 and "False" not in text.split("same ids")[-1]
