"""Limits that clients share, so that none of them can take all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from .errors import OverloadError


class Shares:
    """A limit of which nobody may take more than is left for the others.

    So a single client gets at most half of it, each of two a third, and a new one always finds room (dynamic
    thresholds, Choudhury and Hahne 1998). An amount belongs to a client and, if that is known, to its stream: both
    together may have as much as is left, so that a stream leaves room for the other streams of its client.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._used_by: Counter[Hashable] = Counter()

    def take(self, amount: int, *owners: Hashable) -> bool:
        """Take an amount, or return False. If nothing is in use, any amount is given."""
        if self.used and amount + sum(self._used_by[owner] for owner in owners) > self._limit - self.used:
            return False
        self._add(amount, owners)
        return True

    @contextmanager
    def reserve(self, what_is_full: str) -> Iterator[Callable[..., None]]:
        """Have an amount for the length of a block, first none.

        Yields a function that sets it and its owners, or raises an OverloadError if it cannot be taken.
        """
        amount, owners = 0, tuple[Hashable, ...]()

        def resize(new_amount: int, *new_owners: Hashable) -> None:
            nonlocal amount, owners
            self.give_back(amount, *owners)
            amount, owners = 0, new_owners
            if not self.take(new_amount, *owners):
                raise OverloadError(what_is_full)
            amount = new_amount

        try:
            yield resize
        finally:
            self.give_back(amount, *owners)

    def give_back(self, amount: int, *owners: Hashable) -> None:
        """Return an amount to where it was taken from."""
        self._add(-amount, owners)

    def _add(self, amount: int, owners: tuple[Hashable, ...]) -> None:
        self.used += amount
        for owner in owners:
            self._used_by[owner] += amount
            if not self._used_by[owner]:
                del self._used_by[owner]
