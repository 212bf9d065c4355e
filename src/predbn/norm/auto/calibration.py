"""What one pass over unlabelled source data tells about each layer.

Below, *chance* is how far single source examples differ from the source's mean statistics although nothing has
shifted. A strategy needs it to tell a shift from sampling noise.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from predbn.common import AdaptationError

from ..robust import NARROW, clipping_of, min_scatter, robust_moments
from ..statistics import Statistics, pool_central_moments
from ..tracing import is_readable
from .composition import shares_of_groups

DEFAULT_CLASS_SHARE = 0.25
"""The share of the variance of examples that lies between classes, if it could not be measured."""

MIN_CHANCE = 1e-12
"""Chance is at least this, so that nothing is divided by zero."""

MIN_CLASS_SHARE = 0.01
"""Where classes hardly differ, their moments are drawn towards all of the data by at most about a hundred examples."""

MAX_GROUPS = 128
"""More classes than these are put into groups of similar ones: the moments of each of a thousand classes would take too
much memory, and too few examples tell them. 128 groups take 27 MB for ResNet-50."""

GROUP_SIZE = 32
"""How many examples there are for each group of classes, on average: with more groups each is known less well, with
fewer their classes are less alike (measured on EfficientNet-Lite0 with 500 and 1,000 examples)."""

MAX_CLASSES = 1024
"""With more classes, nothing is measured about them: until the groups are known, calibration adds up the moments of
each class, which takes 0.2 GB for a thousand classes of ResNet-50."""


_FIRST_EXAMPLES = 500
"""The moments of so many examples are kept to the end of the pass: 100 MB for ResNet-50."""


class Calibration(NamedTuple):
    """The statistics of clean source data in one layer, and how much single examples scatter around them.

    They are measured with all layers before this one normalising as in training. Example i has in each channel a mean
    m_i and a mean square q_i. A batch of n source examples has the mean Σm_i/n, whose sampling variance is Var[m_i]/n;
    likewise for the mean square.
    """

    size: int
    """M: the number of examples."""
    network: float
    """V: the typical chance of a layer, summed over all layers that were calibrated together."""
    between: float
    """The share of the chance that lies between the classes that the model predicts. One number for the whole layer:
    a few pairs of examples per class are not enough to tell it for a channel."""
    offset: float
    """o: how far the stored statistics are from these (`difference`), because of augmentation and the moving average
    of training."""
    mean: Tensor
    """μ = E[m_i]: for maps of one size, the mean of all values."""
    var: Tensor
    """σ² = E[q_i] − μ²."""
    weight: Tensor
    """h: how much a difference counts in each channel (`channel_weights`), computed from the chance
    t = Var[m_i]/σ² + ½·Var[q_i − 2μ·m_i]/σ⁴ of its mean and of its mean square about μ. eps is added to σ²."""
    class_sizes: Tensor | None = None
    """M_g: how many examples were predicted as a class of each group, [G]. Up to `MAX_GROUPS` classes are groups of
    their own. None if the model's output is not classes, or more than `MAX_CLASSES`, or if there were too few examples
    to group them. The same holds for the next two."""
    class_means: Tensor | None = None
    """E[m_i] of each group, [G, C]. A group with few examples is drawn towards all of the data, which counts as many
    examples as the variance within groups is larger than that between them."""
    class_squares: Tensor | None = None
    """E[q_i] of each group, [G, C], likewise."""
    class_groups: Tensor | None = None
    """The group of each class, [K]; None if each is a group of its own."""
    between_groups: float | None = None
    """b_g: the share of the chance that lies between the groups of classes; None if each class is a group of its own,
    and this is `between`."""
    scatter: Tensor | float = 1.0
    """Robust moments take Var[m_i]/σ² for at least this, [C] (`min_scatter`); 1 if it was not measured."""
    clipping: Tensor | None = None
    """What the clipping of robust moments does to clean examples, [3, C] (`clipping_of`); None if not measured."""

    def compare(self, other: Statistics, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """δ = μ_b − μ, z² = δ²/σ² and r = (σ_b² + δ²)/σ² of other statistics μ_b, σ_b².

        r compares mean squares about μ. eps is added to variances.
        """
        scale = self.var + eps
        delta = other.mean - self.mean
        z2 = delta * delta / scale
        return delta, z2, torch.addcdiv(z2, other.var + eps, scale)

    def difference(self, z2: Tensor, r: Tensor) -> Tensor | float:
        """Σ h·(z² + (r − 1)²/2) over the channels: how far apart two statistics are, in units of chance."""
        growth = r - 1
        return weighted_sum(self.weight, torch.addcmul(z2, growth, growth, value=0.5))

    def to(self, target: torch.device | torch.dtype | Tensor) -> Calibration:
        """On a device, in a dtype, or with both taken from a tensor.

        Every call of a layer asks for it; mostly nothing has to be done, and looking at one tensor is enough.
        """
        if isinstance(target, Tensor) and self.mean.dtype == target.dtype and self.mean.device == target.device:
            return self
        if isinstance(target, torch.device) and self.mean.device == target:
            return self
        moved = (value.to(target) if isinstance(value, Tensor) else value for value in self)
        calibration = Calibration(*moved)  # type: ignore[arg-type]
        if self.class_groups is not None:  # they are positions, and stay integers
            groups = self.class_groups.to(calibration.mean.device)
            calibration = calibration._replace(class_groups=groups)
        return calibration

    def group_shares(self, shares: Tensor) -> Tensor:
        """The shares of the groups of classes, […, G], from those of the classes, […, K]."""
        assert self.class_sizes is not None
        classes = len(self.class_sizes if self.class_groups is None else self.class_groups)
        if shares.shape[-1] != classes:
            raise AdaptationError(
                f"the model predicts {shares.shape[-1]} classes, but was calibrated with {classes}: the calibration "
                "belongs to another model; call predbn.calibrate(model, loader) again"
            )
        if self.class_groups is None:
            return shares
        return shares_of_groups(shares, self.class_groups, len(self.class_sizes))

    def with_source_classes(self, batch: Statistics, shares: Tensor, eps: float) -> Statistics:
        """What the statistics of a batch would be if it had its classes in the proportions of the source.

        With the shares π of the batch's groups of classes, clean data of this composition has μ_π = Σ π_k·m_k and
        σ_π² = Σ π_k·q_k − μ_π². By how much that differs from all clean data is taken out of the batch:

            μ = μ_b − (μ_π − μ_c),    σ² = σ_b²·σ_c²/σ_π².
        """
        assert self.class_means is not None
        assert self.class_squares is not None
        with torch.autocast(shares.device.type, enabled=False):  # half precision has too few digits for the difference
            mean, square = shares @ self.class_means, shares @ self.class_squares
        var = (square - mean * mean).clamp(min=0)
        ratio = (self.var + eps) / (var + eps)
        return Statistics(batch.mean - (mean - self.mean), ((batch.var + eps) * ratio - eps).clamp(min=0))


def channel_weights(chance: Tensor) -> Tensor:
    """h ∝ 1/(t + t̄) with Σ h·t = 1, for the chance t of each channel, [C], or [G, C] for G groups.

    A channel that varies much by chance gets a small weight; one that hardly varies gets up to twice the usual weight.
    In a sum with these weights the chance of an example counts 1, so that 1/Σh is the layer's typical chance.
    """
    weight = 1 / (chance + chance.mean(-1, keepdim=True))
    return weight / (weight * chance).sum(-1, keepdim=True)


def weighted_sum(weight: Tensor, values: Tensor) -> Tensor | float:
    """Σ h·x over the channels, […, 1]; one for each group of [G, C].

    That of [C] is a Python number if it can be read without waiting: later steps with it take a tenth of the time.
    """
    if weight.dim() == values.dim() == 1 and is_readable(weight) and is_readable(values):
        return float(weight.dot(values))
    return (weight * values).sum(-1, keepdim=True)


class CalibrationAccumulator:
    """Computes a `Calibration` batch by batch in double precision; how the data is cut makes no difference."""

    def __init__(self) -> None:
        self.size = 0
        self._first: list[Tensor] = []
        self._mean = torch.zeros(())
        self._covariance = torch.zeros(())
        self._within_class = torch.zeros(())
        self._degrees_of_freedom = 0
        self._class_sizes = torch.zeros(())
        self._class_sums = torch.zeros(())
        self._class_groups: Tensor | None = None

    def update(self, mean: Tensor, square: Tensor) -> None:
        """Add the mean and mean square of each example and channel, [N, C] each."""
        examples = torch.stack([mean, square]).double()
        n = examples.shape[1]
        if n == 0:
            return
        missing = _FIRST_EXAMPLES - self.size
        if missing > 0:
            first_mean, first_square = examples[:, :missing]
            first_var = (first_square - first_mean * first_mean).clamp(min=0)
            self._first.append(torch.stack([first_mean, first_var]).float())
        batch_mean = examples.mean(1)
        batch = batch_mean, _covariance_sums(examples - batch_mean[:, None]) / n
        if self.size == 0:
            self._mean, self._covariance = batch
        else:
            earlier = self._mean, self._covariance
            self._mean, self._covariance = pool_central_moments(earlier, batch, n / (self.size + n), _products)
        self.size += n

    def update_classes(self, mean: Tensor, square: Tensor, classes: Tensor, count: int) -> None:
        """Add the same moments again when the classes [N] of the examples, of `count`, have been predicted.

        For the share of the chance that lies between classes, differences between examples of one class in one batch
        are enough, so that nothing has to be stored per class.
        """
        examples = torch.stack([mean, square]).double()
        _, class_index, sizes = classes.unique(return_inverse=True, return_counts=True)
        sums = torch.zeros_like(examples[:, : len(sizes)]).index_add_(1, class_index, examples)
        class_means = sums / sizes[:, None]
        self._within_class = self._within_class + _covariance_sums(examples - class_means[:, class_index])
        self._degrees_of_freedom += len(classes) - len(sizes)
        if count <= MAX_CLASSES:
            if self._class_sizes.dim() == 0:  # single precision is enough for a few examples each, and takes half
                self._class_sums = examples.new_zeros(2, count, examples.shape[2], dtype=torch.float32)
            self._class_sums.index_add_(1, classes, examples.float())
            self._class_sizes = self._class_sizes + torch.bincount(classes, minlength=count)

    def group_classes(self, groups: Tensor | None) -> None:
        """Put the classes into groups, [K], when all examples have been added; None drops what is known about them."""
        if groups is None:
            self._class_sizes = self._class_sums = torch.zeros(())
        elif self._class_sizes.dim():
            count = int(groups.max()) + 1
            self._class_groups = groups
            self._class_sizes = self._class_sizes.new_zeros(count).index_add_(0, groups, self._class_sizes)
            shape = 2, count, self._class_sums.shape[2]
            self._class_sums = self._class_sums.new_zeros(shape).index_add_(1, groups, self._class_sums)

    def result(self, eps: float, stored: Statistics | None) -> Calibration:
        """The calibration of a layer with the `stored` statistics. `network` is the chance of this layer alone."""
        mean, square = self._mean
        var = (square - mean * mean).clamp(min=0)
        chance = _chance(self._covariance, mean, var + eps)
        weight = channel_weights(chance)
        between = DEFAULT_CLASS_SHARE
        if self._degrees_of_freedom:
            within = _chance(self._within_class / self._degrees_of_freedom, mean, var + eps)
            between = min(max(0.0, 1 - float(weight @ within)), 1.0)
        calibration = Calibration(self.size, float(1 / weight.sum()), between, 0.0, mean, var, weight)
        calibration = self._with_class_moments(calibration, eps)
        if self._first:
            scatter, clipping = self._clipping(var, eps)
            calibration = calibration._replace(scatter=scatter, clipping=clipping)
        if stored is not None:
            _, z2, r = calibration.compare(Statistics(*(t.to(mean) for t in stored)), eps)
            calibration = calibration._replace(offset=float(calibration.difference(z2, r)))
        return calibration.to(torch.float32)

    def _clipping(self, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """The scatter of the first examples, and what clipping to narrow bounds does to them."""
        means, variances = torch.cat(self._first, 1).double()
        scatter = min_scatter(means, var + eps)
        is_finite = torch.ones(len(means), dtype=torch.bool, device=means.device)  # others were left out before
        clipped = robust_moments(means, variances, is_finite, eps, var, scatter, limit=NARROW)
        return scatter, clipping_of(means, variances, clipped)

    def _with_class_moments(self, calibration: Calibration, eps: float) -> Calibration:
        if self._class_sizes.dim() == 0:
            return calibration
        sizes, sums = self._class_sizes.double(), self._class_sums.double()
        between = calibration.between
        if self._class_groups is not None:
            between = self._between_groups(calibration, sizes, sums, eps)
            calibration = calibration._replace(
                class_groups=self._class_groups, between_groups=between, between=max(between, calibration.between)
            )
        prior = (1 - between) / max(between, MIN_CLASS_SHARE)
        means, squares = (sums + prior * self._mean[:, None]) / (sizes + prior)[:, None]
        return calibration._replace(class_sizes=sizes, class_means=means, class_squares=squares)

    def _between_groups(self, calibration: Calibration, sizes: Tensor, sums: Tensor, eps: float) -> float:
        """1 − Σ h·t_w, where t_w is the chance within groups: what is left of all squares without those of their means.

        For M examples in G groups the latter also have (G − 1)/(M − 1) of the chance within groups.
        """
        known = sizes > 0
        offsets = sums[:, known] / sizes[known, None] - self._mean[:, None]
        examples, groups = float(sizes.sum()), int(known.sum())
        squares = (_products(offsets, offsets) * sizes[known, None]).sum(1)
        within = (self._covariance * examples - squares) / max(examples - groups, 1)
        chance = _chance(within, calibration.mean, calibration.var + eps)
        return min(max(0.0, 1 - float(calibration.weight @ chance)), 1.0)


def _chance(covariance: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """t of `Calibration.weight` from Var[m], Var[q] and Cov[m, q], [3, C]."""
    mean_var, square_var, mean_square_cov = covariance.unbind()
    about_mean = (square_var - 4 * mean * mean_square_cov + 4 * mean * mean * mean_var).clamp(min=0)
    return (mean_var / scale + about_mean / (2 * scale * scale)).clamp(min=MIN_CHANCE)


def _covariance_sums(centred: Tensor) -> Tensor:
    """Σm², Σq² and Σm·q over the examples, [3, C], of centred pairs (m, q), [2, N, C]."""
    return _products(centred, centred).sum(1)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """m·m, q·q and m·q, [3, …], of two pairs (m, q), [2, …]."""
    return torch.stack([*(a * b), a[0] * b[1]])
