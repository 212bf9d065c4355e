"""Sums that do not depend on how the examples were divided into batches.

Floating-point addition is not associative, so sums over different batches would differ in the last digits. Here the
contribution of every example is rounded once, to a multiple of 2^-32, and everything after that is integer
addition: any batches in any order add up to the same integers, and the result is one correctly rounded division at
the end. The rounding changes a mean by at most 2^-33 ≈ 1.2e-10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from predbn.common import MetricError

from .checks import raise_first

UNIT_BITS = 32
"""Contributions are multiples of 2^-UNIT_BITS."""

MAX_EXAMPLES = 1 << 29
"""Contributions of up to 2 (plus rounding) of so many examples sum to less than 2^63."""


def to_units(values: Tensor) -> Tensor:
    """Values as integer multiples of 2^-32."""
    return (values.double() * (1 << UNIT_BITS)).round().long()


class ExactSums:
    """Named vectors of int64 sums, kept on the device of the data and updated without waiting for it.

    sizes      the length of each vector
    messages   one error message for each kind of wrong input, with {} for how many there are

    A subclass calls `_add` in its `update`, and `_totals` when a result is computed.
    """

    def __init__(self, sizes: Mapping[str, int], messages: Sequence[str]) -> None:
        self.count = 0
        self._messages = tuple(messages)
        sizes = {**sizes, "faults": len(self._messages)}
        self._sums = {name: torch.zeros(size, dtype=torch.int64) for name, size in sizes.items()}

    def _add(self, examples: int, faults: Tensor, sums: Mapping[str, Tensor]) -> None:
        """Add the sums of a batch.

        Wrong input raises at once on the CPU. On a GPU that would force a synchronisation, so it raises in `_totals`.
        """
        if self.count + examples > MAX_EXAMPLES:
            raise MetricError(
                f"{self.count + examples} examples are more than the {MAX_EXAMPLES} that can be summed exactly; "
                "score them in several parts"
            )
        if faults.device.type == "cpu":
            raise_first(faults.tolist(), self._messages)
        for name, batch_sum in {**sums, "faults": faults}.items():
            # The first sums replace the zeros: copying these to a GPU would force a synchronisation.
            self._sums[name] = self._sums[name].to(batch_sum.device) + batch_sum if self.count else batch_sum
        self.count += examples

    def _totals(self) -> dict[str, Tensor]:
        """The sums on the CPU, copied in one transfer and checked for wrong input."""
        if self.count == 0:
            raise MetricError("nothing was scored yet; call update first")
        sizes = [len(values) for values in self._sums.values()]
        vectors = torch.cat(list(self._sums.values())).cpu().split(sizes)
        totals = dict(zip(self._sums, vectors, strict=True))
        raise_first(totals.pop("faults").tolist(), self._messages)
        return totals
