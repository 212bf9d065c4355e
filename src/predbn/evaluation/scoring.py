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
from predbn.metrics import ScoreHistogram, Scores, own_metrics, ranks
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


class Predictions:
    """What was predicted for each image, in the order of the stream: the same order for all cells of a stream.

    index       of the image in its data set, int64 [N]
    predicted   the most probable class, int32 [N]
    confidence  its probability, float32 [N]
    label       the right class, int32 [N]; empty without labels, and so are the next two
    brier       Σ_c (p_c − y_c)², float32 [N]
    nll         −log p of the label, float32 [N]
    """

    def __init__(self, *, labelled: bool) -> None:
        self._is_labelled = labelled
        self._parts: dict[str, list[Tensor]] = {name: [] for name in PREDICTED}

    def update(self, log_probabilities: Tensor, labels: Tensor, index: Tensor) -> None:
        """Add a batch, without waiting for the GPU."""
        log_p = log_probabilities.double()
        confidence, predicted = log_p.exp().max(1)
        values = {"index": index, "predicted": predicted, "confidence": confidence}
        if self._is_labelled:
            of_label = log_p.gather(1, labels[:, None]).squeeze(1)
            # Σ_c (p_c − y_c)² = Σ_c p_c² − 2·p_y + 1
            brier = log_p.exp().square().sum(1) - 2 * of_label.exp() + 1
            values |= {"label": labels, "brier": brier, "nll": -of_label}
        for name, value in values.items():
            self._parts[name].append(value)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        joined = {name: torch.cat(parts).cpu().numpy() if parts else np.zeros(0) for name, parts in self._parts.items()}
        return {name: values.astype(PREDICTED[name]) for name, values in joined.items()}


PREDICTED: dict[str, Any] = {
    "index": np.int64,
    "predicted": np.int32,
    "confidence": np.float32,
    "label": np.int32,
    "brier": np.float32,
    "nll": np.float32,
}
"""What `Predictions` keeps of each image, and its type."""


class CellScores:
    """The scores of one cell of the plan, added up over the batches of a split.

    Without labels only the confidence is measured, and the bins of the reliability diagram have no accuracy.
    """

    def __init__(
        self,
        classes: int,
        *,
        bins: int,
        diagram_bins: int | None,
        auc: bool,
        hits: bool,
        labelled: bool = True,
        predictions: bool = False,
    ) -> None:
        self._scores = Scores(classes, bins=bins, diagram_bins=diagram_bins)
        self._ranking = ScoreHistogram() if auc else None
        self._hits = Hits() if hits and labelled else None
        self._predictions = Predictions(labelled=labelled) if predictions else None
        self._is_labelled = labelled
        self._own = dict.fromkeys(own_metrics().values(), 0.0) if labelled else {}
        self._count = 0

    def update(self, log_probabilities: Tensor, labels: Tensor, index: Tensor) -> None:
        """Add a batch."""
        probabilities = log_probabilities.exp()
        if not self._is_labelled:
            labels = probabilities.argmax(1)  # stands for labels; what it says about them is not returned
        self._scores.update(probabilities, labels, log_probabilities=log_probabilities)
        self._count += len(labels)
        for metric in self._own:
            self._own[metric] += metric.sum(probabilities, labels)
        if self._ranking is not None:
            log_odds = (log_probabilities[:, 1] - log_probabilities[:, 0]).double()
            self._ranking.update((log_odds / _LOGIT_SCALE).sigmoid(), labels)
        if self._hits is not None:
            self._hits.update(probabilities, labels, index)
        if self._predictions is not None:
            self._predictions.update(log_probabilities, labels, index)

    def metrics(self) -> dict[str, float]:
        scores = self._scores.compute()
        if not self._is_labelled:
            return {"confidence": scores["confidence"]}
        user_metrics = {metric.name: total / self._count for metric, total in self._own.items()}
        return {**scores, **({} if self._ranking is None else {"auc": self._ranking.auc()}), **user_metrics}

    def reliability(self) -> list[dict[str, Any]]:
        """The reliability diagram, one row per bin."""
        rows = self._scores.reliability().rows()
        return rows if self._is_labelled else [{**row, "accuracy": None} for row in rows]

    def hits(self) -> bytes | None:
        return None if self._hits is None else self._hits.pack()

    def predictions(self) -> dict[str, npt.NDArray[Any]] | None:
        return None if self._predictions is None else self._predictions.arrays()


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
