"""Packages that only a part of predbn needs: which extra to install if one is missing.

``pip install predbn`` brings torch and numpy, which is all that the method needs. Everything else imports its packages
inside of `needs_extra`, so that a missing one is a sentence and not a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import MissingPackageError


@contextmanager
def needs_extra(extra: str, *, what: str = "", otherwise: str = "") -> Iterator[None]:
    """Around imports of packages that come with ``predbn[extra]``.

    `what` is the thing that needs them, if the user has named it, and `otherwise` what can be done without them.

    >>> with needs_extra("eval"):
    ...     import scipy
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "predbn"):  # a mistake in predbn itself
            raise
        missing = f"{what} needs {package}" if what else f"{package} is not installed"
        alternative = f", or {otherwise}" if otherwise else ""
        sentence = f'{missing}: run `pip install "predbn[{extra}]"`{alternative}.'
        raise MissingPackageError(sentence, name=package) from None
