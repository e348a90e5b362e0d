import math
import re

SETS = [
    {"emb_dim": 8, "num_tokens": 2, "n_layers": 2, "x_max": 3.0, "seed": 0},
    {"emb_dim": 9, "num_tokens": 7, "n_layers": 24, "x_max": 3.14159, "seed": 4294967295},
    {"emb_dim": 256, "num_tokens": 3, "n_layers": 3, "x_max": 20.0, "seed": 5},
]


def holds(p, r, text):
    D, T, L, end = p["emb_dim"], p["num_tokens"], p["n_layers"], f"{p['x_max']:g}"
    assert r["parameters"] == (D * 4 * D + 4 * D) + (4 * D * D + D)
    assert abs(r["gelu_difference"] - 0.000473236) < 1e-9  # at |x| = 2.70, inside every range
    printed = dict(re.findall(r"^(ReLU|erf form) +(\S+ +\S+)$", text, re.MULTILINE))
    numbers = [float(number) for name in ("erf form", "ReLU") for number in printed[name].split()]
    results = [r["erf_after_first"], r["erf_after_last"], r["relu_after_last"]]
    assert all(math.isclose(a, b, rel_tol=0.5) for a, b in zip(results, [*numbers[:2], numbers[3]], strict=True))
    assert 0 < 100 * r["erf_after_last"] < r["relu_after_last"]
    assert r["bend"] > 0.01 and f"up to {r['bend']:.1f} with GELU,\nand below 1e-11 without it" in text
    assert f"[2, {T}, {4 * D}]" in text and f"{2 * T} calls with one vector each" in text
    assert f"{r['parameters']:,}" in text and f"after layer {L}" in text
    assert f"GELU and ReLU from -{end} to {end}" in text
