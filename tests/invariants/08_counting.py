SETS = [
    {"vocab_size": 2, "context_length": 2, "emb_dim": 64, "n_heads": 1, "n_layers": 1, "seed": 1},
    {"vocab_size": 100, "context_length": 7, "emb_dim": 6, "n_heads": 2, "n_layers": 5, "seed": 4294967295},
    {"vocab_size": 13, "context_length": 36, "emb_dim": 12, "n_heads": 12, "n_layers": 3, "seed": 1},
]


def holds(p, r, text):
    from math import isclose

    V, C, D, L = (p[name] for name in ("vocab_size", "context_length", "emb_dim", "n_layers"))
    block = 3 * D**2 + (D**2 + D) + (4 * D**2 + 4 * D) + (4 * D**2 + D) + 4 * D
    N = 2 * V * D + C * D + L * block + 2 * D
    assert r["parameters"] == r["predicted"] == N and r["parameters_tied"] == N - V * D
    assert isclose(r["block_share"], L * block / N, rel_tol=1e-5) and isclose(r["head_share"], V * D / N, rel_tol=1e-5)
    assert r["mask_numbers"] == L * C * C and f"parameters: 0 · in buffers: {L * C * C} · L·C·C: {L * C * C}" in text
    assert f"sum of the ledger: {N} · all of the model: {N}" in text
    assert f"block {L}: 12·D² + 10·D = {block:,} predicted, 0 found" in text  # the first is lost, the last is named
    assert f"block {L + 1}: none predicted, {block:,} found" in text
    assert f"parameters, gradients, states: {N - V * D} {N - V * D} {2 * (N - V * D)}" in text
    assert f"total: {N} · predicted: {N}" in text  # two mistakes that cancel out
