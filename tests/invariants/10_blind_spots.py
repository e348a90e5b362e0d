import re

SETS = [
    {"vocab_size": 4, "num_tokens": 4, "emb_dim": 8, "n_heads": 4, "seed": 0},
    {"vocab_size": 7, "num_tokens": 5, "emb_dim": 30, "n_heads": 3, "n_layers": 3, "seed": 4294967295},
    {"vocab_size": 23, "num_tokens": 9, "emb_dim": 12, "n_heads": 2, "seed": 5},
]


def holds(p, r, text):
    V, T, D, L = p["vocab_size"], p["num_tokens"], p["emb_dim"], p["n_layers"]
    tied = (V + 2 * T + 2) * D + L * (12 * D + 10) * D  # tables, last norm, blocks
    assert f"ids [4, {T}] -> logits [4, {T}, {V}]" in text
    assert f"parameters of the right model: {tied}\n" in text
    assert re.search(rf"copied head +\[4, {T}, {V}\] +{tied + V * D} +0\.000\n", text)
    assert re.search(r"float64 logits +32 of 34 +detached shortcut, copied head", text)
    assert f"1 head in place of {p['n_heads']}, seen by:" in text
    assert f"different ids in a text of {2 * T - 1}, on average" in text
    assert "count + " not in text and "gradients + float64 logits\n" in text  # the smallest sets
    assert 0 <= r["seen_by_worst_text"] <= r["seen_by_greedy_texts"] <= 31  # blind to equal values, softmax
    assert r["seen_by_greedy_texts"] <= r["seen_by_float32_logits"] <= 32 and r["seen_by_statistics"] <= 32
    assert 1 <= r["seen_by_gradients"] <= 34 and 1 <= r["seen_by_loss"] <= 34
