"""The past of a stream in `auto_stream`, against a slow reference and closed forms."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.models import load
from predbn.norm import Observation, Statistics
from predbn.norm.auto.auto import Auto, mixture
from predbn.norm.auto.stream_classes import StreamClasses

from ..models import randomise
from .models import accuracy_if_sorted, calibrate_on_clean_images, calibrated, images

MOMENTUM = 0.1


class SlowStream:
    """The equations of `auto_stream.py`, `stream_past.py` and `stream_classes.py`, one number at a time.

    `layers` has the past of each layer and its last batch, `batches` the shares, doubt and expectation of each batch.
    """

    def __init__(self, momentum: float = MOMENTUM) -> None:
        self.momentum = momentum
        self.past: dict[str, tuple[np.ndarray, np.ndarray, float, float]] = {}
        self.last: dict[str, tuple[np.ndarray, np.ndarray, int]] = {}
        self.believed: list[np.ndarray] = []
        self.predicted: list[np.ndarray] = []
        self.expected: list[np.ndarray] = []
        self.doubts: list[float] = []

    def weight(self, past: Any, batch: Any, size: float, clean: Any, eps: float) -> float:
        mean, var, total, squares = past
        chance = 1 / size + squares / total**2
        difference = 0.0
        for c, h in enumerate(clean["weight"]):
            share = size / (total + size)
            delta = batch[0][c] - mean[c]
            both = (1 - share) * var[c] + share * batch[1][c] + share * (1 - share) * delta**2 + eps
            growth = (batch[1][c] + delta**2 - var[c]) / both
            difference += h * (delta**2 / both + growth**2 / 2)
        q = max(1.0, difference / chance)
        freedom = 12 / (1 + 5 * chance)
        ratio = np.exp(freedom / 2 * (q - 1 - np.log(q)))
        return (1 - self.momentum) / (1 - self.momentum + self.momentum * ratio)

    def combine(self, past: Any, batch: Any, size: float, clean: Any, eps: float) -> Any:
        if past is None:
            return *batch, size, size
        w = self.weight(past, batch, size, clean, eps)
        mean, var, total, squares = past
        total = w * total
        new_mean = (total * mean + size * batch[0]) / (total + size)
        square = (total * (var + mean**2) + size * (batch[1] + batch[0] ** 2)) / (total + size)
        return new_mean, square - new_mean**2, total + size, w**2 * squares + size

    def corrected(self, batch: Any, n: int, shares: Any, error: float, clean: Any, eps: float) -> Any:
        b = clean["between"]
        size = 1 / ((1 - b) / n + b * error)
        if shares is None:
            return batch, size
        mean = sum(p * m for p, m in zip(shares, clean["class_means"], strict=True))
        var = sum(p * q for p, q in zip(shares, clean["class_squares"], strict=True)) - mean**2
        scaled = (batch[1] + eps) * (clean["var"] + eps) / (var + eps) - eps
        return (batch[0] - mean + clean["mean"], scaled), size

    def layer(self, name: str, batch: Any, n: int, clean: Any, eps: float) -> Any:
        """The statistics of the stream with this batch, and their n."""
        if self.predicted:
            distance = ((self.predicted[-1] - self.source) ** 2).sum()
            error = min(self.doubts[-1] ** 2, distance)
            last = self.corrected(self.last[name][:2], self.last[name][2], self.believed[-1], error, clean, eps)
            self.past[name] = self.combine(self.past.get(name), *last, clean, eps)
            new = self.corrected(batch, n, self.expected[-1], max(self.error(), 1 / n), clean, eps)
        else:
            new = self.corrected(batch, n, None, 1.0, clean, eps)
        self.last[name] = *batch, n
        mean, var, total, squares = self.combine(self.past.get(name), *new, clean, eps)
        return mean, var, total**2 / squares

    def decayed(self, values: list[float]) -> float:
        return sum(v * (1 - self.momentum) ** i for i, v in enumerate(reversed(values)))

    def error(self) -> float:
        expected = [self.source, *self.expected]
        misses = [((p - e) ** 2).sum() for p, e in zip(self.predicted, expected, strict=False)]
        return (self.decayed(misses) + 0.2) / (self.decayed([1.0] * len(misses)) + 0.2)

    def end(self, logits: np.ndarray, class_sizes: np.ndarray) -> None:
        self.source = class_sizes / class_sizes.sum()
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        shares = np.bincount(logits.argmax(1), minlength=logits.shape[1]) / len(logits)
        doubt = 1 - probabilities.max(1).mean()
        distance = ((shares - self.source) ** 2).sum()
        before = [self.source, *self.believed]
        self.believed.append(self.source + max(0.0, 1 - doubt**2 / max(distance, 1e-12)) * (shares - self.source))
        self.predicted.append(shares)
        self.doubts.append(doubt)
        pairs = list(zip(self.predicted, before, strict=False))
        above = self.decayed([((p - self.source) * (b - self.source)).sum() for p, b in pairs])
        below = self.decayed([((b - self.source) ** 2).sum() for _, b in pairs])
        persistence = min(max(above / (below + 0.1), 0.0), 1.0)
        self.expected.append(self.source + persistence * (self.believed[-1] - self.source))


@dataclass(frozen=True)
class Slow(Auto):
    """`auto` on what the slow reference says."""

    reference: SlowStream = field(default_factory=SlowStream)

    def statistics(self, observation: Observation) -> Statistics:
        n, eps, clean = observation.size, observation.eps, observation.calibration
        batch = tuple(t.double().numpy() for t in observation.moments(allow_single_value=True).statistics)
        values = {k: v.double().numpy() if isinstance(v, Tensor) else v for k, v in clean._asdict().items()}
        mean, var, n = self.reference.layer(observation.layer, batch, n, values, eps)
        combined = Statistics(*(torch.from_numpy(a).float() for a in (mean, var)))
        network = clean.network**2 / 5 / (n + 1)
        slow = self.reference
        doubt = slow.decayed(slow.doubts) / slow.decayed([1.0] * len(slow.doubts)) if slow.doubts else 0.0
        sampling = 1 / n + 1 / clean.size + 2 * clean.between * doubt
        return mixture(combined, clean, observation.source, eps, float(sampling), network)


def stream_of_batches() -> list[Tensor]:
    """Batches of different sizes; the shift jumps in the middle, and the last ones hold few classes."""
    calm = [images(n, seed=n) for n in (8, 3, 1, 6)]
    shifted = [images(n, seed=n, shift=2.0) for n in (7, 2, 1, 9)]
    return [*calm, *shifted, shifted[-1][:1].expand(5, -1, -1, -1), shifted[-1][:1].expand(6, -1, -1, -1)]


@torch.no_grad()
def test_a_stream_equals_the_equations():
    model = calibrated("auto_stream", robust=False)
    reference = SlowStream()
    slow = predbn.adapt(copy.deepcopy(model), Slow(reference=reference, passes=1), robust=False)
    sizes = next(iter(predbn.state_dict(model)["calibration"].values()))["class_sizes"].double().numpy()
    for x in stream_of_batches():
        expected = slow(x)
        torch.testing.assert_close(model(x), expected, atol=2e-4, rtol=2e-4)
        reference.end(expected.double().numpy(), sizes)


def one_layer(momentum: float = MOMENTUM) -> nn.Module:
    layer = randomise(nn.BatchNorm2d(5)).double().eval()
    clean = torch.randn((400, 5, 4, 4), generator=torch.Generator().manual_seed(0)).double()
    return predbn.adapt(predbn.calibrate(layer, clean.split(100)), "auto_stream", momentum=momentum, robust=False)


def size_of_past(layer: nn.Module) -> float:
    (state,) = predbn.state_dict(layer)["streams"]["default"].values()
    total, squares = state["counts"].tolist()
    return total**2 / squares


@pytest.mark.parametrize("momentum", [0.05, 0.1, 0.5])
@torch.no_grad()
def test_batches_that_fit_the_past_add_up(momentum):
    """Where nothing contradicts the past, n grows to (2 − momentum)/momentum batches."""
    layer = one_layer(momentum)
    x = torch.randn((7, 5, 4, 4), generator=torch.Generator().manual_seed(1)).double()
    for _ in range(400):
        layer(x)
    assert size_of_past(layer) == pytest.approx(7 * (2 - momentum) / momentum, rel=1e-4)


@pytest.mark.parametrize("momentum", [0.1, 0.5])
@torch.no_grad()
def test_what_a_stream_remembers(momentum):
    """The examples of earlier batches, weighted by what each later batch has left of them."""
    layer, slow = one_layer(momentum), SlowStream(momentum)
    generator = torch.Generator().manual_seed(1)
    batches = [0.4 + 1.5 * torch.randn((n, 5, 4, 4), generator=generator).double() for n in (3, 1, 4, 1, 2, 1)]
    calibration = next(iter(predbn.state_dict(layer)["calibration"].values()))
    past, weights = None, torch.ones(0).double()
    for x in batches:
        layer(x)
        batch = x.mean((0, 2, 3)).numpy(), x.var((0, 2, 3), correction=0).numpy()
        clean = {"weight": calibration["weight"].tolist()}
        w = 1.0 if past is None else slow.weight(past, batch, len(x), clean, layer.eps)
        past = slow.combine(past, batch, len(x), clean, layer.eps)
        weights = torch.cat([w * weights, torch.ones(len(x)).double()])
    (state,) = predbn.state_dict(layer)["streams"]["default"].values()
    examples = torch.cat(batches)
    mean = (weights[:, None] * examples.mean((2, 3))).sum(0) / weights.sum()
    square = (weights[:, None] * examples.square().mean((2, 3))).sum(0) / weights.sum()
    torch.testing.assert_close(state["seen_mean"], mean)
    torch.testing.assert_close(state["seen_var"], square - mean**2)
    torch.testing.assert_close(state["counts"], torch.stack([weights.sum(), weights.square().sum()]))


@torch.no_grad()
def test_a_stream_that_jumps_begins_anew():
    layer, fresh = one_layer(), one_layer()
    generator = torch.Generator().manual_seed(1)
    calm, jumped = (torch.randn((40, 5, 4, 4), generator=generator).double() for _ in range(2))
    for x in calm.split(10):
        layer(x)
    assert size_of_past(layer) > 25
    jumped = 3 + 2 * jumped
    torch.testing.assert_close(layer(jumped), fresh(jumped), atol=1e-3, rtol=1e-3)
    assert size_of_past(layer) == pytest.approx(40, rel=1e-3)


@torch.no_grad()
def test_random_batches_of_one_stream_are_not_forgotten():
    """Chance alone must not look like a change: n stays near that of batches that fit exactly."""
    layer = one_layer()
    generator = torch.Generator().manual_seed(1)
    sizes = []
    for _ in range(200):
        layer(1 + 2 * torch.randn((10, 5, 4, 4), generator=generator).double())
        sizes.append(size_of_past(layer))
    assert sum(sizes[100:]) / 100 > 0.6 * 10 * 19


def logits_of(classes: list[int], count: int, confidence: float = 1.0) -> Tensor:
    """Scores whose probabilities are `confidence` for the class and equal for the others."""
    one = torch.eye(count)[classes]
    return (one * confidence + (1 - one) * max((1 - confidence) / (count - 1), 1e-30)).log()


SIZES = torch.tensor([30.0, 30, 30, 10])


def classes_after(batches: list[Tensor], momentum: float = MOMENTUM) -> StreamClasses:
    classes = StreamClasses.of(SIZES)
    for logits in batches:
        classes = classes.after(logits, SIZES, None, momentum, False, None)
    return classes


def test_a_sorted_stream_goes_on_with_its_class():
    classes = classes_after([logits_of([2] * 5, 4)] * 20)
    torch.testing.assert_close(classes.shares, torch.tensor([0.0, 0, 1, 0]))
    assert classes.expected[2] > 0.95
    believed, expected, _ = classes.errors.tolist()
    assert believed == pytest.approx(0, abs=1e-9)
    assert expected < 0.1


def test_a_mixed_stream_keeps_the_classes_of_the_source():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(SIZES, 50 * 40, replacement=True, generator=generator).view(40, 50)
    classes = classes_after([logits_of(row.tolist(), 4, 0.7) for row in drawn], momentum=0.02)
    torch.testing.assert_close(classes.shares, SIZES / 100)
    torch.testing.assert_close(classes.expected, SIZES / 100)
    # Chance: Σ p·(1 − p)/n.
    shares = SIZES / 100
    assert classes.errors[1].item() == pytest.approx(float((shares * (1 - shares)).sum()) / 50, rel=0.6)


def test_predictions_in_doubt_are_not_believed():
    classes = classes_after([logits_of([3] * 5, 4, 0.3)])
    shares = torch.tensor([0.0, 0, 0, 1]) - SIZES / 100
    torch.testing.assert_close(classes.shares, SIZES / 100 + (1 - 0.7**2 / (shares @ shares)) * shares)
    assert classes.errors[0].item() == pytest.approx(0.49)


def test_rows_that_are_not_finite_have_no_class():
    good = logits_of([0, 1, 1], 4, 0.9)
    bad = torch.cat([good, torch.full((2, 4), torch.nan)])
    torch.testing.assert_close(classes_after([bad]).shares, classes_after([good]).shares)


@torch.no_grad()
def test_compiled_streams_with_classes():
    model, compiled = calibrated("auto_stream"), calibrated("auto_stream")
    graph = torch.compile(compiled, backend="eager", fullgraph=True)
    for x in images(24, seed=4, shift=1.0).split(8):
        torch.testing.assert_close(graph(x), model(x), atol=1e-4, rtol=1e-4)


def test_gradients_flow_through_a_stream():
    model = calibrated("auto_stream")
    for x in images(12, shift=1.0).split(4):
        x.requires_grad_()
        model(x).sum().backward()
        assert x.grad.isfinite().all()


@torch.no_grad()
def test_single_images_sorted_by_class_keep_their_accuracy():
    model = calibrate_on_clean_images(load("zoo:resnet20-cifar10/batch/0").eval())
    train = accuracy_if_sorted(model, "train", batch=100, every=20)
    assert accuracy_if_sorted(model, "auto_stream", batch=1, every=20) >= train - 0.02
