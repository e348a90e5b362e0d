import math
import re

SETS = [
    {"emb_dim": 2, "offset": -5.5, "eps": 1e-12, "seed": 0},
    {"emb_dim": 2, "offset": 0.0, "eps": 1e-3, "seed": 7},
    {"emb_dim": 1024, "offset": -1e6, "eps": 1e-3, "seed": 4294967295},
]


def holds(p, r, text):
    D, eps, before = p["emb_dim"], p["eps"], r["least_variance"]
    assert math.isclose(r["least_variance_after"], before / (before + eps), rel_tol=1e-5)
    assert math.isclose(r["short_of_one"], eps / (before + eps), rel_tol=1e-5)
    assert math.isclose(r["sample_factor"] ** 2, 1 - 1 / D, rel_tol=1e-5)
    assert math.isclose(r["flat_factor"] ** 2 * eps, 1, rel_tol=1e-5)
    assert f"x [2, 3, {D}]" in text and f"[1, 2, 3, 4] {'−' if p['offset'] < 0 else '+'} {abs(p['offset']):g}" in text
    assert len(re.findall(r"batch row 0 +same +changed +same", text)) == 1
    assert text.count("agrees with the plain class") == 2
