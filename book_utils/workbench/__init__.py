"""What serves the book and not the model: parameters, exercises, figures, execution, the site.

No model module imports it.
"""

from book_utils._lazy import names_from

_HOME = {
    "check_parameters": "parameters",
    "check": "exercises",
    "figure": "figures",
    "diagram": "diagrams",
    "explore_gradients": "explorer",
    "publish": "results",
    "show_sweep": "sweep_figure",
    "show_table": "tables",
    "rounded": "tables",
    "get_tokenizer": "tokenizers",
    "Progress": "progress",
}
__all__ = list(_HOME)
__getattr__ = names_from(__name__, _HOME)
