import math

SETS = [
    {"emb_dim": 68, "steps": 600, "depth": 2, "couplets_shown": 1, "seed": 0},
    {"emb_dim": 72, "steps": 600, "depth": 3, "couplets_shown": 5, "seed": 4294967295},
]


def holds(p, r, text):
    D = p["emb_dim"]
    ways = 10 * 8 * 2**4 * 8**2 * 8**2 * 6**2 * 8 * 72  # second word, then the couplet's choices
    assert math.isclose(r["least_loss"], math.log(ways) / 19, rel_tol=1e-5)
    decayed, free = (2 * 83 + 20) * D + 24 * D * D, 22 * D  # tables, matrices; biases, scales, shifts
    assert f"{decayed + free:,} parameters: {decayed:,} with decay, {free:,} without" in text
    assert abs(r["new_texts_loss"] - r["least_loss"]) < 0.05
    assert 0.5 < r["share_bound"] < r["accepted_share"] + 0.1 <= 1.1
    assert r["loss_as_built"] < r["loss_no_shortcuts"] < math.log(83)
    assert text.count("(accepted)") + text.count("(refused)") == p["couplets_shown"]
    assert f"model with {p['depth']} blocks, over 80 steps" in text
    assert f"{D} · H 4 · L 2" in text and f"0 to {p['steps'] - 1}; the vertical one the learning rate" in text
