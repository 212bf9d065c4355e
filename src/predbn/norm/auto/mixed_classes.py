"""Whether a batch that looks like few classes is rather one of all classes that has shifted.

A network may be wrong and sure: under a strong shift it calls every digit an 8. The classes that it predicts then
explain the shift away, so that it stays as wrong as it was. Therefore two explanations of a batch are compared:

    few      the batch holds the classes that the network predicts,
    mixed    it holds the classes of the source, and all of the difference is shift.

Each gets a pass through the network. The last layer that knows classes tells them apart best, because most of what its
values differ by is a matter of classes. What an explanation leaves of the difference there is d (step 1 of `auto`),
once after the correction for the predicted classes, once without. Of clean images of one class `few` leaves a tenth as
much as `mixed`; of digits that all look like an 8 but are not, it leaves five times as much. `few` is given up if

    d_few > 2·d_mixed    and    ‖π − π_s‖² > 1/4 + 1/n,

where π are the predicted shares, π_s those of the source, and n the number of examples. The second condition says that
there are fewer classes than chance would leave; otherwise the two explanations hardly differ. 2 and 1/4 are chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..statistics import Statistics
from .calibration import Calibration
from .composition import Composition, source_shares

_MIN_UNEVENNESS = 0.25
_MIN_RATIO = 2.0


class SeenLayer(NamedTuple):
    """The statistics that a batch, or each of its groups or streams, had in a layer, [C] or [G, C]."""

    statistics: Statistics
    clean: Calibration
    eps: float

    def difference(self, composition: Composition | None) -> Tensor | float:
        """d, after the correction for these classes; […, 1], or a number (`Calibration.difference`)."""
        batch, clean = self.statistics, self.clean.to(self.statistics.mean)
        if composition is not None and composition.shares is not None:
            shares = clean.group_shares(composition.shares.to(batch.mean))
            batch = clean.with_source_classes(batch, shares, self.eps)
        _, z2, r = clean.compare(batch, self.eps)
        return clean.difference(z2, r)


def source_composition(clean: Calibration, composition: Composition, n: Tensor | float) -> Composition:
    """The composition of `mixed`: the classes of the source, and a doubt that stands for drawing n examples of them.

    Between classes lies the share b of the chance, of which a draw has b/n, and step 0 of `auto` has 2·b·u·Σ π² for it.
    Classes of one group have equal shares.
    """
    assert composition.shares is not None
    assert clean.class_sizes is not None
    clean.group_shares(composition.shares)  # raises an error if the calibration has other classes
    shares = source_shares(clean.class_sizes.to(composition.shares))
    squares = (shares * shares).sum(-1, keepdim=True)
    if clean.class_groups is not None:
        groups = clean.class_groups.to(shares.device)
        members = torch.zeros_like(shares).index_add(0, groups, torch.ones_like(groups, dtype=shares.dtype))
        shares = (shares / members.clamp(min=1)).index_select(0, groups)
    doubt = (torch.ones_like(composition.shares[..., :1]) / (2 * n * squares)).clamp(max=1)
    return Composition(shares.expand_as(composition.shares), doubt)


def is_few(composition: Composition, source: Composition, n: Tensor | float) -> Tensor:
    """Whether the predicted classes are fewer than chance would leave, […, 1]."""
    assert composition.shares is not None
    assert source.shares is not None
    step = composition.shares - source.shares
    return (step * step).sum(-1, keepdim=True) > _MIN_UNEVENNESS + 1 / n


def better_explanation(
    few: Composition,
    mixed: Composition,
    suspicious: Tensor,
    difference_few: Tensor | float,
    difference_mixed: Tensor | float,
) -> Composition:
    """The composition that is followed, of each group or stream by itself."""
    assert few.shares is not None
    assert mixed.shares is not None
    is_mixed = suspicious & (difference_few > _MIN_RATIO * difference_mixed)
    assert isinstance(few.doubt, Tensor)
    assert isinstance(mixed.doubt, Tensor)
    shares, doubt = torch.where(is_mixed, mixed.shares, few.shares), torch.where(is_mixed, mixed.doubt, few.doubt)
    return Composition(shares, doubt)
