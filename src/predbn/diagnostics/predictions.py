"""Two predictions of the same examples: with the stored statistics and with those of the batch. No labels.

The information that a prediction carries about its example is the mutual information between example and class,

    I = mean_i KL(p_i ‖ p̄),    p̄ = mean_i p_i.

It is small if the model is undecided, and also if it predicts the same for every example, however confidently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_PREDICTIONS = 4096
"""The predictions of so many examples are compared; more would change nothing and take memory."""


class Mean(NamedTuple):
    """A mean over examples, in nats, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Tensor) -> Mean:
        return cls(float(values.mean()), float(values.std() / len(values) ** 0.5))


class PredictionPair:
    """Class probabilities with stored and with recomputed statistics, of the first examples of a set of data.

    Outputs that are not one row of class scores per example are ignored: then nothing is known about predictions.
    """

    def __init__(self) -> None:
        self.count = 0
        self._stored: list[Tensor] = []
        self._recomputed: list[Tensor] = []

    def update(self, stored: Any, recomputed: Any) -> None:
        if self.count < MAX_PREDICTIONS and _is_class_scores(stored):
            self._stored.append(_probabilities(stored))
            self._recomputed.append(_probabilities(recomputed))
            self.count += len(stored)

    @property
    def agreement(self) -> float:
        """The share of examples for which both predict the same class."""
        stored, recomputed = torch.cat(self._stored), torch.cat(self._recomputed)
        return float((stored.argmax(1) == recomputed.argmax(1)).double().mean())

    def gain(self) -> Mean:
        """The information with recomputed minus that with stored statistics."""
        return Mean.of(_information(torch.cat(self._recomputed)) - _information(torch.cat(self._stored)))

    def information(self) -> Mean:
        """The information with stored statistics."""
        return Mean.of(_information(torch.cat(self._stored)))

    def entropy(self) -> Mean:
        """The entropy −Σ p ln p of the predictions with stored statistics."""
        return Mean.of(torch.special.entr(torch.cat(self._stored).double()).sum(1))

    def class_count(self) -> float:
        """The effective number of classes predicted with stored statistics: e to the entropy of their shares."""
        return float(torch.special.entr(self._class_shares()).sum().exp())

    def most_predicted(self) -> tuple[int, float]:
        """The class that is predicted most often with stored statistics, and its share."""
        share, number = self._class_shares().max(0)
        return int(number), float(share)

    def _class_shares(self) -> Tensor:
        predicted = torch.cat(self._stored)
        return torch.bincount(predicted.argmax(1), minlength=predicted.shape[1]).double() / len(predicted)

    def to_dict(self) -> dict[str, float]:
        """Both predictions in numbers, ready for JSON; empty if the outputs are not class scores."""
        if not self.count:
            return {}
        gain, information = self.gain(), self.information().mean
        confidence = [float(torch.cat(side).amax(1).double().mean()) for side in (self._stored, self._recomputed)]
        return {
            "examples": self.count,
            "agreement": self.agreement,
            "confidence_stored": confidence[0],
            "confidence_recomputed": confidence[1],
            "information_stored": information,
            "information_recomputed": information + gain.mean,
            "gain": gain.mean,
            "gain_error": gain.error,
        }


def _is_class_scores(output: Any) -> bool:
    return isinstance(output, Tensor) and output.dim() == 2 and output.is_floating_point()


def _probabilities(logits: Tensor) -> Tensor:
    """[N, K]; a single column is binary classification, and a row that is not finite carries no information."""
    wide = logits.detach().float()
    if wide.shape[1] == 1:
        wide = torch.cat((torch.zeros_like(wide), wide), 1)
    wide = torch.where(wide.isfinite().all(1, keepdim=True), wide, 0.0)
    return wide.softmax(1).cpu()


def _information(p: Tensor) -> Tensor:
    """KL(p_i ‖ p̄) of every example, in nats."""
    p = p.double()
    tiny = torch.finfo(p.dtype).tiny
    return (p * (p.clamp(min=tiny).log() - p.mean(0).clamp(min=tiny).log())).sum(1)
