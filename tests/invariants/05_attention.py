SETS = [
    {"emb_dim": 2, "n_heads": 2, "num_tokens": 2, "batch_size": 1, "context_length": 2, "seed": 0},
    {"emb_dim": 15, "n_heads": 3, "num_tokens": 7, "batch_size": 3, "context_length": 9, "seed": 4294967295},
    {"emb_dim": 64, "n_heads": 2, "num_tokens": 33, "batch_size": 2, "context_length": 33, "seed": 6},
]


def holds(p, r, text):
    B, T, D, H, C = (p[name] for name in ("batch_size", "num_tokens", "emb_dim", "n_heads", "context_length"))
    assert r["parameters"] == 3 * D * D + (D * D + D)
    assert r["head_width"] * H == D
    assert r["mask_bytes"] == C * C and r["open_pairs"] == sum(range(1, T + 1))
    # even weights are the least sharp, and larger scores make each row sharper
    assert sum(1 / (t + 1) for t in range(T)) / T < r["largest_weight"] <= r["largest_undivided"] <= 1
    assert f"[{B}, {T}, {D}] -> [{B}, {T}, {D}] · equal to the steps above" in text
    assert f"{H} heads in one call equal {H} heads one by one" in text
    assert f"above the diagonal, {T * (T - 1) // 2} in number" in text
