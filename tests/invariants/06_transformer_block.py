SETS = [
    {"emb_dim": 8, "n_heads": 1, "num_tokens": 2, "batch_size": 1, "n_layers": 1, "drop_rate": 0.01, "seed": 0},
    {
        "emb_dim": 33,
        "n_heads": 11,
        "num_tokens": 7,
        "batch_size": 3,
        "n_layers": 2,
        "drop_rate": 0.9,
        "seed": 4294967295,
    },
    {"emb_dim": 64, "n_heads": 16, "num_tokens": 5, "batch_size": 8, "n_layers": 4, "drop_rate": 0.5, "seed": 1},
]


def holds(p, r, text):
    B, T, D, L, rate = (p[name] for name in ("batch_size", "num_tokens", "emb_dim", "n_layers", "drop_rate"))
    parameters = 12 * D**2 + 10 * D
    assert r["parameters"] == parameters
    assert f"x [{B}, {T}, {D}] -> y [{B}, {T}, {D}]" in text and f"[{B}, {T}, {4 * D}]" in text
    assert f"own norms: {parameters:,} parameters · one shared norm: {parameters - 2 * D:,}" in text
    assert str(list(range((T - 1) // 2, T))) in text  # where attention hands a change on
    # The stream is drawn with variance 1, of which (D - 1) / D is around a position's own mean; about 1000 T numbers.
    assert abs(r["input_variance"] - (D - 1) / D) < 6 * (2 / (1024 // D * T * (D - 1))) ** 0.5
    assert r["stream_variance"] > r["input_variance"] and 0.99 < r["copy_variance"] < 1
    assert r["old_shortcut_moves"] > 1e-6 and r["post_norm_moves"] > 1e-6
    assert f"blocks passed, from 0 to {L}." in text
    assert f"p = {rate:g}: every 1 became 0 or {1 / (1 - rate):.4f}" in text
