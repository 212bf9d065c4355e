"""Sums that do not depend on how the work was divided.

Floating point addition does not associate, so two machines that divide a data set differently would
disagree in the last digits. Here every example's contribution is rounded once, to a whole number of
2^-32, and everything after is integer addition: batches, shards and machines add up to the very same
integers in any order, and the result is one correctly rounded division at the end. The rounding costs a
mean at most 2^-33 ≈ 1.2e-10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import torch
from torch import Tensor

from predbn.common import MetricError

from .checks import refuse

UNIT_BITS = 32
"""Contributions are whole numbers of 2^-UNIT_BITS."""

MOST_EXAMPLES = 1 << 29
"""How many examples fit: contributions up to 2 (+ rounding) then sum to less than 2^63."""

A = TypeVar("A", bound="Accumulator")


def units(values: Tensor) -> Tensor:
    """Values as whole numbers of 2^-32."""
    return (values.double() * (1 << UNIT_BITS)).round().long()


class Accumulator:
    """Named vectors of int64 sums: updated on whatever device the data is on, without waiting for it.

    A subclass says in `__init__` what its settings and its sums are, and calls `_add`.
    """

    def __init__(self, settings: Mapping[str, int], sizes: Mapping[str, int], messages: Sequence[str]) -> None:
        self.count = 0
        self._settings = dict(settings)
        self._messages = tuple(messages)
        sizes = {**sizes, "faults": len(self._messages)}
        self._sums = {name: torch.zeros(size, dtype=torch.int64) for name, size in sizes.items()}

    def merge(self: A, other: A) -> A:
        """A new accumulator that has seen what both have; bit for bit the same whatever the order."""
        if type(self) is not type(other) or self._settings != other._settings:
            raise MetricError(f"{self!r} and {other!r} cannot be merged; merge only what was set up alike")
        self._check_room(other.count)
        merged = copy(self)
        merged.count = self.count + other.count
        merged._sums = {name: own + other._sums[name].to(own.device) for name, own in self._sums.items()}
        return merged

    def state(self) -> dict[str, Any]:
        """All of it as numbers and lists, ready for JSON; `from_state` makes it an accumulator again."""
        return {
            **self._settings,
            "count": self.count,
            "sums": {name: values.tolist() for name, values in self._host().items()},
        }

    @classmethod
    def from_state(cls: type[A], state: Mapping[str, Any]) -> A:
        """The accumulator whose `state` this was."""
        settings = {name: value for name, value in state.items() if name not in ("count", "sums")}
        try:
            made, count, sums = cls(**settings), int(state["count"]), dict(state["sums"])
        except (KeyError, TypeError) as error:
            raise MetricError(f"this is no state of {cls.__name__}: {error}; give what its state() returned") from None
        sizes = {name: len(values) for name, values in sums.items()}
        if sizes != {name: len(own) for name, own in made._sums.items() if name != "faults"}:
            raise MetricError(f"this is no state of {made!r}: its sums do not fit; give what its state() returned")
        made.count = count
        made._sums |= {name: torch.tensor(values, dtype=torch.int64) for name, values in sums.items()}
        return made

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self._settings.items())
        return f"{type(self).__name__}({settings}) of {self.count} examples"

    def _add(self, examples: int, faults: Tensor, sums: Mapping[str, Tensor]) -> None:
        """Add a batch's sums. Faults are refused at once where that means no waiting, else on `_host`."""
        self._check_room(examples)
        if faults.device.type == "cpu":
            refuse(faults.tolist(), self._messages)
        for name, part in {**sums, "faults": faults}.items():
            self._sums[name] = self._sums[name].to(part.device) + part
        self.count += examples

    def _host(self) -> dict[str, Tensor]:
        """The sums on the CPU, brought over in one transfer and free of faults."""
        sizes = [len(values) for values in self._sums.values()]
        parts = torch.cat(list(self._sums.values())).cpu().split(sizes)
        host = dict(zip(self._sums, parts, strict=True))
        refuse(host.pop("faults").tolist(), self._messages)
        return host

    def _seen(self) -> dict[str, Tensor]:
        """The same, where a result needs at least one example."""
        if self.count == 0:
            raise MetricError("nothing was scored yet; call update first")
        return self._host()

    def _check_room(self, more: int) -> None:
        if self.count + more > MOST_EXAMPLES:
            raise MetricError(
                f"{self.count + more} examples are more than the {MOST_EXAMPLES} that can be summed exactly; "
                "keep the scores of parts of them apart"
            )
