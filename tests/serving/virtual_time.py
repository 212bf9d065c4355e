"""An event loop whose time passes only while nothing is left to do: what depends on times becomes deterministic."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class _Selector(selectors.SelectSelector):
    """Skips the time until the next timer instead of waiting for it."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.skipped += timeout or 0
        return super().select(0)


def run(test: Coroutine[Any, Any, R]) -> R:
    """As asyncio.run."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.skipped  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(test)
    finally:
        loop.close()
