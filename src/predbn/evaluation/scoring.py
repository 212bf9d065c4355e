"""What is measured while a split is predicted: metrics, which images were predicted correctly, finite logits.

If batches are attacked, that is measured on the other rows, and whether the attack succeeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.metrics import ScoreHistogram, Scores, ranks
from predbn.shifts import Attack, target_class

_LOGIT_SCALE = 8.0
"""Log odds are divided by this before they are ranked between 0 and 1. The order stays the same, and they do not crowd
at the ends, where a histogram would count them as ties."""
_NO_INDEX = torch.iinfo(torch.int64).max


class Hits:
    """Which images were predicted correctly, one bit each. Confidence intervals over images need it.

    All splits of a benchmark have the same images, so their errors are correlated, and the accuracies of the splits
    are not enough for such an interval. At one bit per image, 95 splits of 50,000 images take 0.6 MB.
    """

    def __init__(self) -> None:
        self._correct: list[Tensor] = []
        self._index: list[Tensor] = []

    def update(self, probabilities: Tensor, labels: Tensor, index: Tensor) -> None:
        """Add a batch, without waiting for the GPU. Batches may come in any order."""
        self._correct.append(ranks(probabilities.double(), labels) == 0)
        self._index.append(index)

    def pack(self) -> bytes:
        """The bits in the order of the images' indices, starting with the highest bit of the first byte.

        If a stream visits images several times, the bits of each image are in the order of the visits.
        """
        index, correct = (torch.cat(parts).cpu().numpy() for parts in (self._index, self._correct))
        return np.packbits(correct[np.argsort(index, kind="stable")]).tobytes()


def unpack_hits(packed: bytes, images: int) -> npt.NDArray[np.bool_]:
    """The inverse of `Hits.pack`, bool [images], or [images · visits] if a stream visits each image several times."""
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=images).astype(bool)


class CellScores:
    """The scores of one cell of the plan, added up over the batches of a split."""

    def __init__(self, classes: int, *, bins: int, diagram_bins: int | None, auc: bool, hits: bool) -> None:
        self._scores = Scores(classes, bins=bins, diagram_bins=diagram_bins)
        self._ranking = ScoreHistogram() if auc else None
        self._hits = Hits() if hits else None

    def update(self, log_probabilities: Tensor, labels: Tensor, index: Tensor) -> None:
        """Add a batch."""
        probabilities = log_probabilities.exp()
        self._scores.update(probabilities, labels, log_probabilities=log_probabilities)
        if self._ranking is not None:
            log_odds = (log_probabilities[:, 1] - log_probabilities[:, 0]).double()
            self._ranking.update((log_odds / _LOGIT_SCALE).sigmoid(), labels)
        if self._hits is not None:
            self._hits.update(probabilities, labels, index)

    def metrics(self) -> dict[str, float]:
        """All metrics by name."""
        scores = self._scores.compute()
        return scores if self._ranking is None else {**scores, "auc": self._ranking.auc()}

    def reliability(self) -> list[dict[str, Any]]:
        """The reliability diagram, one row per bin."""
        return self._scores.reliability().rows()

    def hits(self) -> bytes | None:
        """The packed hits, if they are kept."""
        return None if self._hits is None else self._hits.pack()


class AttackedScores(CellScores):
    """The scores of the rows that are not the attacker's, in batches of one size.

    A targeted attack has one metric more: `success`, the share of the attacked batches in which the chosen row is
    predicted as the attacker wants.
    """

    def __init__(self, attack: Attack, batch_size: int, classes: int, **options: Any) -> None:
        super().__init__(classes, **options)
        self._attack, self._batch_size, self._classes = attack, batch_size, classes
        self._is_reached: list[Tensor] = []

    def update(self, log_probabilities: Tensor, labels: Tensor, index: Tensor) -> None:
        """Add the rows of several batches, one after the other. Only the last one may be smaller than the others."""
        benign, chosen = [], []
        for batch in torch.arange(len(labels)).split(self._batch_size):
            attack = self._attack.on_batches_of(len(batch))
            benign.append(batch[attack.benign])
            chosen.append(batch[: min(1, attack.malicious)])  # a batch of a single row is not attacked
        rows, first = torch.cat(benign).to(labels.device), torch.cat(chosen).to(labels.device)
        super().update(log_probabilities[rows], labels[rows], index[rows])
        self._is_reached.append(log_probabilities[first].argmax(1) == target_class(labels[first], self._classes))

    def metrics(self) -> dict[str, float]:
        """All metrics by name."""
        is_reached = torch.cat(self._is_reached).double()
        success = {"success": float(is_reached.mean())} if self._attack.kind == "targeted" else {}
        return {**super().metrics(), **success}


class FiniteCheck:
    """Raises an error if logits are not finite. On a GPU only at the end, so that it is not waited for."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._first_wrong: dict[str, Tensor] = {}

    def update(self, model: str, logits: Tensor, index: Tensor) -> None:
        """Look at the logits of the images with these indices, on the same device."""
        is_wrong = ~torch.isfinite(logits).all(1)
        first = torch.where(is_wrong, index, _NO_INDEX).amin()
        before = self._first_wrong.get(model)
        self._first_wrong[model] = first if before is None else torch.minimum(before, first)
        if logits.device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Raise the error if there is a reason for it."""
        for model, first in self._first_wrong.items():
            index = int(first)
            if index != _NO_INDEX:
                raise EvaluationError(
                    f"{model} gives logits that are not finite on {self._data}, first for the image with index "
                    f"{index}: look for an overflow (use precision fp32 instead of a half format) or a wrong std."
                )
