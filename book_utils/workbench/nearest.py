"""What to say of a name that does not exist: the nearest one that does, and all of them."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """A sentence: `no parameter 'dept'; did you mean depth? There are depth, width, seed`."""
    known, name = list(known), str(name)[:60]
    near = [other for other in known if name and other.startswith(name)] or get_close_matches(name, known, cutoff=0.5)
    guess = f"; did you mean {near[0]}?" if near else "."
    return f"no {what} {name!r}{guess} There are {', '.join(known) or 'none'}"
