"""Predictions for the tests: ordinary ones, and those that are easy to get wrong."""

import numpy as np
import torch
from torch import Tensor

from predbn.metrics import Scores


def logits_and_labels(n: int = 257, classes: int = 10, seed: int = 0, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    return logits, labels


def predictions(n: int = 257, classes: int = 10, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Probabilities of all confidences, right about as often as not."""
    logits, labels = logits_and_labels(n, classes, seed)
    logits += 4 * torch.nn.functional.one_hot(labels, classes)
    return logits.softmax(1), labels


def cases() -> dict[str, tuple[Tensor, Tensor]]:
    """A grid: sizes, dtypes, ties, probabilities of exactly 0 and 1, one class, one example."""
    made = {f"{n} of {classes}": predictions(n, classes, seed=n) for n in (1, 7, 300) for classes in (2, 3, 10, 100)}
    p, y = predictions(200, 6)
    made |= {str(dtype): (p.to(dtype), y) for dtype in (torch.float32, torch.float16, torch.bfloat16)}
    uniform = torch.full((60, 4), 0.25, dtype=torch.float64)
    made["all tied"] = uniform, torch.arange(60) % 4
    quarters = torch.tensor([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0.5, 0.25, 0.25]], dtype=torch.float64)
    made["some tied"] = quarters.repeat(8, 1), torch.arange(24) % 4
    made["certain and right"] = torch.eye(5, dtype=torch.float64), torch.arange(5)
    made["certain and wrong"] = torch.eye(5, dtype=torch.float64), torch.arange(5).flip(0)
    made["certain and not"] = torch.cat((torch.eye(6).double(), p)), torch.cat((torch.tensor([0, 1, 2, 3, 3, 0]), y))
    made["one class"] = torch.ones(9, 1), torch.zeros(9, dtype=torch.long)
    on_edges = torch.arange(5, 11).double() / 10
    made["on the edges"] = torch.stack((on_edges, 1 - on_edges), 1), torch.tensor([0, 1, 0, 1, 1, 0])
    return made


def reference_bins(confidences: np.ndarray, right: np.ndarray, edges: list[float]) -> list[tuple[int, float, float]]:
    """(count, sum of confidence, number right) of each bin, one example and one edge at a time."""
    bins = [[0, 0.0, 0] for _ in edges[1:]]
    for confidence, hit in zip(confidences, right, strict=True):
        which = 0
        while confidence > edges[which + 1]:
            which += 1
        bins[which][0] += 1
        bins[which][1] += float(confidence)
        bins[which][2] += int(hit)
    return [tuple(each) for each in bins]


def reference_ece(confidences: np.ndarray, right: np.ndarray, edges: list[float]) -> float:
    return sum(abs(hits - total) for _, total, hits in reference_bins(confidences, right, edges)) / len(confidences)


def confidences_and_right(p: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    wide = p.double().numpy()
    return wide.max(1), wide.argmax(1) == y.numpy()


def sums(scores: Scores) -> dict[str, list[int]]:
    """The integer sums of an accumulator."""
    return {name: values.tolist() for name, values in scores._sums.items()}
