"""All metrics of one stream of predictions, in constant memory."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import MetricError

from .calibration import Reliability, bin_sums, calibration_gap, equal_width_edges
from .checks import check_positive, check_shapes, probability_faults, probability_messages
from .classification import brier_units, of_label, ranks
from .exact_sums import UNIT_BITS, ExactSums, to_units

_BIN_SUMS = ("examples", "right", "confidence")
_INFINITE_NATS = 1 << 31
_TOP = 5


class Scores(ExactSums):
    """Accuracy, top-5 accuracy, NLL, Brier score, ECE and mean confidence of a stream of predictions.

    An update on a GPU does not wait for it: there, wrong values raise an error when a result is computed; on the CPU
    at once. Results are bit for bit the same however the stream is divided into batches (see `exact_sums`):

    Brier       integers also within an example, see `brier_units`
    NLL         whole nats and their fraction are summed separately, so that no sum overflows; infinite values (2^31
                nats or more) are counted, and one of them makes the mean infinite
    confidence  max_c p_c, summed by bin; the bins are those of `calibration`

    The reliability diagram may have other bins than the ECE: `diagram_bins`, which then have their own sums.
    """

    def __init__(self, classes: int, *, bins: int = 10, diagram_bins: int | None = None) -> None:
        self.classes, self.bins = classes, bins
        self.diagram_bins = bins if diagram_bins is None else diagram_bins
        for name in ("classes", "bins", "diagram_bins"):
            check_positive(name, getattr(self, name))
        self._prefixes = {"": bins, **({"diagram_": self.diagram_bins} if self.diagram_bins != bins else {})}
        by_bin = {prefix + name: bins for prefix, bins in self._prefixes.items() for name in _BIN_SUMS}
        scalars = dict.fromkeys(("top", "brier", "nll_whole", "nll_fraction", "nll_infinite"), 1)
        messages = (
            *probability_messages(classes),
            "{} log-probabilities of labels are NaN or above 0; give the log-softmax of the logits",
        )
        super().__init__({**by_bin, **scalars}, messages)

    def update(self, probabilities: Tensor, labels: Tensor, *, log_probabilities: Tensor | None = None) -> None:
        """Add a batch: [n, classes] probabilities and [n] labels on the same device, any floating dtype.

        `log_probabilities` of the same shape give a finite NLL where the probability itself rounds to 0.
        """
        check_shapes(probabilities, labels, self.classes)
        if log_probabilities is not None and log_probabilities.shape != probabilities.shape:
            raise MetricError(
                f"log-probabilities have shape {tuple(log_probabilities.shape)}; give {tuple(probabilities.shape)}"
            )
        with torch.no_grad():
            self._update(probabilities, labels.long(), log_probabilities)

    def _update(self, probabilities: Tensor, labels: Tensor, log_probabilities: Tensor | None) -> None:
        faults = probability_faults(probabilities, labels)
        # Wrong input has been counted; from here on it must only not crash.
        labels = labels.clamp(0, self.classes - 1)
        probabilities = probabilities.double().nan_to_num(0.0)
        log_p = (
            of_label(probabilities, labels).log()
            if log_probabilities is None
            else of_label(log_probabilities, labels).double()
        )
        nats = (-log_p).clamp_min(0)
        is_finite = nats < _INFINITE_NATS
        nats = torch.where(is_finite, nats, 0)
        rank, confidence = ranks(probabilities, labels), probabilities.amax(1)
        sums = {
            "top": (rank < _TOP).sum()[None],
            "brier": brier_units(probabilities, labels).sum()[None],
            "nll_whole": nats.floor().long().sum()[None],
            "nll_fraction": to_units(nats.frac()).sum()[None],
            "nll_infinite": (~is_finite).sum()[None],
        }
        for prefix, bins in self._prefixes.items():
            edges = equal_width_edges(bins, confidence.device)
            binned = bin_sums(edges, confidence, rank == 0, to_units(confidence))
            sums |= {prefix + name: values for name, values in zip(_BIN_SUMS, binned, strict=True)}
        self._add(len(labels), torch.cat((faults, (~(log_p <= 1e-2)).sum()[None])), sums)

    def compute(self) -> dict[str, float]:
        """The means so far: accuracy, top5 (if there are more than 5 classes), nll, brier (summed over the classes),
        ece, confidence."""
        sums = self._totals()
        total = {name: int(values.sum()) for name, values in sums.items()}
        n, n_units = self.count, self.count << UNIT_BITS
        nll_units = (total["nll_whole"] << UNIT_BITS) + total["nll_fraction"]
        return {
            "accuracy": total["right"] / n,
            **({f"top{_TOP}": total["top"] / n} if self.classes > _TOP else {}),
            "nll": float("inf") if total["nll_infinite"] else nll_units / n_units,
            "brier": total["brier"] / n_units,
            "ece": int(calibration_gap(sums["right"] << UNIT_BITS, sums["confidence"])) / n_units,
            "confidence": total["confidence"] / n_units,
        }

    def reliability(self) -> Reliability:
        """The reliability diagram: examples, mean confidence and accuracy of each bin."""
        sums, prefix = self._totals(), list(self._prefixes)[-1]
        count, correct, confidence = (sums[prefix + name] for name in _BIN_SUMS)
        edges = equal_width_edges(self.diagram_bins)
        return Reliability.from_sums(edges, count, correct, confidence.double() / (1 << UNIT_BITS))
