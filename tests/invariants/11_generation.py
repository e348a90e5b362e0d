import math

SETS = [
    {"prompt": "ab", "context_length": 4, "emb_dim": 4, "n_heads": 1, "n_layers": 1, "max_new_tokens": 2}
    | {"temperature": 0.1, "top_k": 1, "top_p": 0.05, "seed": 0},
    {"prompt": "“日本語” 🙂\n\\ 'and' \"so\" on, שלום", "context_length": 7, "emb_dim": 5, "n_heads": 5, "n_layers": 3}
    | {"max_new_tokens": 31, "temperature": 10.0, "top_k": 8, "top_p": 1.0, "seed": 4294967295},
    {"prompt": "\t🙂", "context_length": 33, "emb_dim": 12, "n_heads": 3, "max_new_tokens": 5}
    | {"temperature": 1.0, "top_k": 3, "top_p": 0.5, "seed": 8},
]


def holds(p, r, text):
    T, C, n = len(p["prompt"].encode()), p["context_length"], p["max_new_tokens"]  # the tokenizer is "bytes"
    below = max(0, min(n, C - T))  # steps before the window is full
    assert r["prompt_ids"] == T and f"ids [2, {T}] -> [2, {T + n}]" in text
    assert r["positions_computed"] == below * T + below * (below - 1) // 2 + (n - below) * C
    weights = [math.exp(z / p["temperature"]) for z in (2, 1.2, 0.9, 0.3, 0, -0.4, -1.1, -2)]
    entropy = math.log2(sum(weights)) - sum(w * math.log2(w) for w in weights) / sum(weights)
    assert math.isclose(r["entropy_bits"], entropy, rel_tol=1e-5)
    kept = weights[: p["top_k"]]
    reached = [sum(kept[: i + 1]) / sum(kept) for i in range(len(kept))]
    nucleus = len(kept) if p["top_p"] == 1 else 1 + sum(share < p["top_p"] for share in reached)
    assert r["ids_left"] == nucleus
    assert f"temperature {p['temperature']:g} · k = {p['top_k']} · p = {p['top_p']:g}\n" in text
    inputs = 16 * min(T, C) * p["emb_dim"] * (7 * p["n_layers"] + 1)  # of all linear layers, in bytes
    assert f"{inputs:,} or more" in text
    assert r["moved_window"] > 0 and r["cross_entropy"] > 0
    assert f"characters: {len(p['prompt'])} · ids: {T}\n" in text and repr(p["prompt"]) in text
    assert f"context_size {C}: the same ids" in text and f"context_size {C // 2}: the same ids" in text
