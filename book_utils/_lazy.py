"""Public names that load their module at first use, so that importing a package costs next to nothing (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module


def names_from(package: str, home: Mapping[str, str]) -> Callable[[str], object]:
    """A module-level `__getattr__` for `package`: `home` maps each public name to the module that defines it."""

    def __getattr__(name: str):  # noqa: N807 - this is what Python calls
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return __getattr__
