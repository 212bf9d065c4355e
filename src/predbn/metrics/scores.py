"""Everything about one (model, method, strategy, split), in constant memory."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import MetricError

from .accumulator import UNIT_BITS, Accumulator, units
from .accuracy import ranks
from .calibration import Reliability, bin_of, equal_width_edges, sum_by_bin
from .checks import check_positive, check_shapes, probability_faults, probability_messages

_BY_BIN = ("examples", "right", "confidence")
_SQUARE_BITS = 52
_MOST_NATS = 1 << 31


class Scores(Accumulator):
    """Accuracy, top-k accuracy, NLL, Brier score, ECE and mean confidence of a stream of predictions.

    An update on a GPU does not wait for it: wrong values are then refused when a result is asked for, on
    the CPU at once. Merged scores are bit for bit those of the whole (see `accumulator`), also where the
    batches were divided otherwise. What makes that so inside an example:

    Brier       Σ_c p_c² − 2 p_y + 1, each term rounded to a whole number of 2^-52 and summed as integers
    NLL         whole nats and the fraction apart, so that no sum overflows; infinite values (2^31 nats or
                more) are counted apart, and one of them makes the mean infinite
    confidence  max_c p_c, summed by bin; bins as `calibration` says

    The reliability diagram may have other bins than the ECE: `diagram_bins`, whose sums are then kept beside.
    """

    def __init__(self, classes: int, *, bins: int = 10, top: int = 5, diagram_bins: int | None = None) -> None:
        settings = {"classes": classes, "bins": bins, "top": top}
        if diagram_bins is not None and diagram_bins != bins:
            settings["diagram_bins"] = diagram_bins
        for name, value in settings.items():
            check_positive(name, value)
        self.classes, self.bins, self.top = classes, bins, top
        self.diagram_bins = settings.get("diagram_bins", bins)
        self._diagram = "diagram_" if "diagram_bins" in settings else ""
        scalars = dict.fromkeys(("top", "brier", "nll_whole", "nll_fraction", "nll_infinite"), 1)
        messages = (
            *probability_messages(classes),
            "{} log-probabilities of labels are NaN or above 0; give the log-softmax of the logits",
        )
        by_bin = dict.fromkeys(_BY_BIN, bins)
        by_bin |= {f"{self._diagram}{name}": self.diagram_bins for name in _BY_BIN}
        super().__init__(settings, {**by_bin, **scalars}, messages)

    def update(self, probabilities: Tensor, labels: Tensor, *, log_probabilities: Tensor | None = None) -> None:
        """Add a batch: [n, classes] probabilities and [n] labels on the same device, any floating dtype.

        `log_probabilities` of the same shape gives the NLL where the probability itself rounds to 0.
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
        own = labels.clamp(0, self.classes - 1)
        wide = probabilities.double().nan_to_num(0.0)
        rank = ranks(wide, own)
        confidence = wide.amax(1)
        p = wide.gather(1, own[:, None])[:, 0]
        log_p = p.log() if log_probabilities is None else log_probabilities.gather(1, own[:, None])[:, 0].double()
        nats = (-log_p).clamp_min(0)
        finite = nats < _MOST_NATS
        nats = torch.where(finite, nats, 0)
        self._add(
            len(labels),
            torch.cat((faults, (~(log_p <= 1e-2)).sum()[None])),
            {
                **_by_bin("", confidence, rank == 0, self.bins),
                **(_by_bin(self._diagram, confidence, rank == 0, self.diagram_bins) if self._diagram else {}),
                "top": (rank < self.top).sum()[None],
                "brier": _brier_units(wide, p).sum()[None],
                "nll_whole": nats.floor().long().sum()[None],
                "nll_fraction": units(nats.frac()).sum()[None],
                "nll_infinite": (~finite).sum()[None],
            },
        )

    def compute(self) -> dict[str, float]:
        """The means so far: accuracy, top5 (where there are more classes), nll, brier (summed over classes),
        ece, confidence."""
        sums, n = {name: values.tolist() for name, values in self._seen().items()}, self.count
        pairs = zip(sums["right"], sums["confidence"], strict=True)
        gaps = sum(abs((right << UNIT_BITS) - confidence) for right, confidence in pairs)
        nats = (sums["nll_whole"][0] << UNIT_BITS) + sums["nll_fraction"][0]
        whole = n << UNIT_BITS
        return {
            "accuracy": sum(sums["right"]) / n,
            **({f"top{self.top}": sums["top"][0] / n} if self.classes > self.top > 1 else {}),
            "nll": float("inf") if sums["nll_infinite"][0] else nats / whole,
            "brier": sums["brier"][0] / whole,
            "ece": gaps / whole,
            "confidence": sum(sums["confidence"]) / whole,
        }

    def reliability(self) -> Reliability:
        """The reliability diagram: examples, mean confidence and accuracy of each bin."""
        sums = self._seen()
        count, right, confidence = (sums[f"{self._diagram}{name}"] for name in _BY_BIN)
        mean = confidence.double() / (1 << UNIT_BITS) / count
        return Reliability(equal_width_edges(self.diagram_bins), count, mean, right.double() / count)


def _by_bin(prefix: str, confidence: Tensor, right: Tensor, bins: int) -> dict[str, Tensor]:
    """Examples, hits and confidences, summed by bin."""
    which = bin_of(confidence, equal_width_edges(bins, confidence.device))
    values = (torch.ones_like(which), right.long(), units(confidence))
    return {f"{prefix}{name}": sum_by_bin(each, which, bins) for name, each in zip(_BY_BIN, values, strict=True)}


def _brier_units(wide: Tensor, p: Tensor) -> Tensor:
    """Σ_c p_c² − 2 p_y + 1 in units: the sum over classes is of integers, so its order does not matter."""
    scale = 1 << _SQUARE_BITS
    squares = (wide * wide * scale).round().long().sum(1)
    exact = squares - (2 * p * scale).round().long() + scale
    shift = _SQUARE_BITS - UNIT_BITS
    return (exact + (1 << (shift - 1))) >> shift
