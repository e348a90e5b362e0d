"""A progress bar that leaves nothing behind: in a notebook beside the cell, in a terminal on its last line."""

import sys
from collections.abc import Iterable, Iterator
from html import escape

from IPython import get_ipython
from IPython.display import display
from tqdm import tqdm


class Bar:
    """A bar in a notebook; as text its label alone."""

    def __init__(self, label: str, done: int | None = None, total: int = 0):
        self.label, self.done, self.total = label, done, total

    def _repr_html_(self) -> str:
        if self.done is None:
            return escape(self.label)
        bar = f'<progress value="{self.done}" max="{self.total}" aria-label="{escape(self.label)}"></progress>'
        return f"{bar} {escape(self.label)}: {self.done} of {self.total}"

    def __repr__(self) -> str:
        return self.label


class Progress:
    """Iterate and show how far it is.

        for step in Progress(range(600), "training"):
            ...

    In a notebook the bar is gone at the end, and the label remains: what a run leaves does not depend on its speed.
    In a terminal tqdm draws the bar, on stderr, and only where that is a terminal.
    """

    UPDATES = 50

    def __init__(self, steps: Iterable, label: str):
        self.steps, self.label = steps, label

    def __iter__(self) -> Iterator:
        if getattr(get_ipython(), "kernel", None) is None:
            yield from tqdm(self.steps, self.label, disable=None, leave=False, file=sys.stderr)
            return
        total = len(self.steps)
        handle = display(Bar(self.label), display_id=True)
        every = max(1, total // self.UPDATES)
        try:
            for number, step in enumerate(self.steps):
                if number % every == 0:
                    handle.update(Bar(self.label, number, total))
                yield step
        finally:
            handle.update(Bar(self.label))
