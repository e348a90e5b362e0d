import math
import re

SETS = [
    {"depth": 2, "width": 2, "seed": 0, "use_shortcut": False},
    {"depth": 33, "width": 3, "seed": 5, "use_shortcut": True},  # its last GELU lets nothing back
    {"depth": 64, "width": 2, "seed": 4294967295, "use_shortcut": False},
]


def holds(p, r, text):
    depth, adds = p["depth"], int(p["use_shortcut"])
    assert r["adding_layers"] == adds * (depth - 1)
    assert r["last_gradient"] > 0 or r["last_gradient"] == r["first_gradient"] == 0
    # no weight is above 1/√width at the start and no slope of GELU above 1.13, which bounds each layer's Jacobian
    assert 0 < r["arriving_length"] < (adds + 1.13 * p["width"] ** 0.5) ** (depth - 1)
    printed = [float(number) for number in re.findall(r"has gradient mean of (\S+)", text)]
    assert len(printed) == depth and math.isclose(printed[0], r["first_gradient"], rel_tol=1e-5)
    assert math.isclose(printed[-1], r["last_gradient"], rel_tol=1e-5)
    name = "with shortcuts" if adds else "without shortcuts"
    output = float(re.search(rf"^{name} +(\S+)( +\S+){{4}}$", text, re.MULTILINE)[1])
    length = float(re.search(rf"^{name} +(\S+)$", text, re.MULTILINE)[1])
    assert math.isclose(r["loss"], output**2, rel_tol=0.02) and math.isclose(r["arriving_length"], length, rel_tol=0.01)
    assert f"{depth} layers, {p['width']} features, one output" in text
    assert f"{2 * depth} of {2 * depth} weights and biases are equal in both networks" in text
