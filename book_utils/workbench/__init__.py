"""What serves the book and not the model: parameters, exercises, figures, execution, the site.

No model module imports it.
"""

from importlib import import_module

_HOME = {
    "check_parameters": "parameters",
    "check": "exercises",
    "figure": "figures",
    "diagram": "diagrams",
    "show_table": "tables",
    "rounded": "tables",
}
__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
