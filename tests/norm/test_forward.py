"""Batches of every kind reach a model as its forward wants them."""

from collections import OrderedDict, UserDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.norm import BatchForward

X, MASK, LABELS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.ones(6, 1), torch.zeros(6)


class One(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(3)

    def forward(self, x, scale=1.0):
        return self.bn(scale * x)


class Two(One):
    def forward(self, x, mask):
        return self.bn(x * mask)


class Keywords(One):
    def forward(self, pixels=None, mask=None, **rest):
        return self.bn(pixels * mask)


class Whole(One):
    def forward(self, batch):
        return self.bn((batch["x"] if isinstance(batch, dict | UserDict) else batch.x) * 1)


class ImageList(One):
    def forward(self, images, targets=None):
        return [{"scores": row} for row in self.bn(torch.stack(images))]


@dataclass
class Sample:
    x: Tensor
    mask: Tensor
    size: int = field(default=0, init=False)


class Pair(NamedTuple):
    x: Tensor
    labels: Tensor


class Custom:
    """A batch that can be moved, as those of other packages."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: Any) -> "Custom":
        return Custom(self.x.to(device))


BATCHES = [
    (One, X),
    (One, (X, LABELS)),
    (One, [X, LABELS]),
    (One, Pair(X, LABELS)),
    (One, {"x": X, "label": LABELS}),
    (One, OrderedDict(x=X)),
    (One, Sample(X, MASK)),
    (One, (Sample(X, MASK), LABELS)),
    (One, ({"x": X}, LABELS)),
    (Two, (X, MASK)),
    (Two, (X, MASK, LABELS)),
    (Two, {"mask": MASK, "x": X}),
    (Two, Sample(X, MASK)),
    (Keywords, {"pixels": X, "mask": MASK, "other": LABELS}),
    (Keywords, UserDict(pixels=X, mask=MASK)),
    (Whole, {"x": X, "label": LABELS}),
    (Whole, UserDict(x=X)),
    (Whole, Sample(X, MASK)),
    (Whole, Custom(X)),
    (ImageList, (list(X), [{"boxes": LABELS}] * 6)),
]


@pytest.mark.parametrize(
    ("model", "batch"), BATCHES, ids=lambda value: getattr(value, "__name__", type(value).__name__)
)
def test_recompute_calibrate_and_population_with_batches_of_every_kind(model, batch):
    recomputed = predbn.recompute(model().eval(), [batch])
    torch.testing.assert_close(recomputed.bn.running_mean, X.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(recomputed.bn.running_var, X.var(0, correction=0), rtol=1e-5, atol=1e-5)
    calibrated = predbn.calibrate(model().eval(), [batch, batch])
    assert predbn.state_dict(calibrated)["calibration"]["bn"]["size"] == 12
    population = predbn.adapt(model().eval(), "population", loader=[batch])
    state = predbn.state_dict(population)["streams"]["default"]["bn"]
    torch.testing.assert_close(state["mean"], X.mean(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "batch"), BATCHES, ids=lambda value: getattr(value, "__name__", type(value).__name__)
)
def test_examples_are_counted(model, batch):
    predict = BatchForward(model().eval())
    with torch.no_grad():
        predict(batch)
    assert predict.examples == (0 if isinstance(batch, Custom) else 6)


def test_a_single_row_in_front_of_the_examples_is_an_option():
    predict = BatchForward(Two().eval())
    with torch.no_grad():
        for x, mask, examples in ((torch.ones(1, *X.shape[1:]), MASK, 6), (X[:1], MASK[:1], 1)):
            predict((x, mask))
            assert predict.examples == examples


def test_a_function_of_the_user():
    calls = []

    def forward(model, batch):
        calls.append(sorted(batch))
        return model(batch["img"].float() / 255)

    pixels = torch.randint(256, (8, 3), dtype=torch.uint8)
    model = predbn.recompute(One().eval(), [{"img": pixels, "name": "a.jpg"}], forward=forward)
    torch.testing.assert_close(model.bn.running_mean, (pixels / 255).mean(0), rtol=1e-5, atol=1e-5)
    assert calls[0] == ["img", "name"]
    with pytest.raises(predbn.AdaptationError, match="'batch' takes no forward"):
        predbn.adapt(One(), "batch", forward=forward)


@pytest.mark.parametrize("batch", ["a.jpg", None, 3, [], (), {}, ["a", "b"], {"x": 3}, ({"name": "a"}, X)])
def test_batches_without_tensors(batch):
    with pytest.raises(predbn.AdaptationError, match="without tensors"):
        predbn.recompute(One().eval(), [batch])
