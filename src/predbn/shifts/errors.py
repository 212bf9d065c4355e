"""The one exception that a shift raises on a bad input."""

from __future__ import annotations

__all__ = ["ShiftError"]


class ShiftError(ValueError):
    """A bad input: the message is one sentence that says what is wrong and what to do."""
