"""Plugins: modules to import, and packages that register themselves by entry points.

A package registers strategies, corruptions or metrics when its module is imported. With an entry
point of the group `predbn.plugins` predbn imports it when such a name is looked up:

    [project.entry-points."predbn.plugins"]
    mine = "mypackage.predbn_plugin"
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from .errors import PredbnError, first_line

GROUP = "predbn.plugins"


def import_module(name: str) -> ModuleType:
    """A module by name. The current folder is searched too, as `python -m` does."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except (ImportError, TypeError, ValueError) as error:
        raise PredbnError(f"{name} cannot be imported ({error}); the current folder was searched too.") from None


def import_function(reference: str, *, error: type[PredbnError]) -> Callable[[], Any]:
    """The function that `package.module:function` names."""
    module, _, function = reference.partition(":")
    try:
        target: Any = import_module(module)
    except PredbnError as failure:
        raise error(f"{reference}: {failure}") from None
    for part in function.split("."):
        target = getattr(target, part, None)
    if not callable(target):
        raise error(f"{reference}: {module} has no function {function!r}.")
    return target  # type: ignore[no-any-return]


def load_plugins() -> tuple[str, ...]:
    """Import the modules that installed packages name in the group `predbn.plugins`, once; return their names.

    One that cannot be imported is an error that names the package, because results without it would be other results.
    """
    if not _loaded:
        _loaded.append(())  # a module that looks up a name while it is imported must not start again
        _loaded[0] = _load_all()
    return _loaded[0]


_loaded: list[tuple[str, ...]] = []


def _load_all() -> tuple[str, ...]:
    loaded = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist is not None else entry.value
            _loaded.clear()
            raise PredbnError(
                f"the package {package} plugs {entry.value} into predbn, which cannot be imported "
                f"({first_line(error)}): fix or uninstall it."
            ) from error
        loaded.append(entry.name)
    return tuple(loaded)
