"""Small networks and data to evaluate."""

from collections.abc import Iterator

import torch
from torch import nn

from predbn.data import ImageBatch, rows_to_device
from predbn.data.batch import batch_positions
from predbn.models import Classifier, ModelInfo, Preprocessing

PREPROCESSING = Preprocessing((32, 32), mean=(120.0, 120.0, 120.0), std=(60.0, 60.0, 60.0))


def network(seed: int = 0, classes: int = 10) -> nn.Module:
    """Two batch norm layers whose stored statistics are not those of the data."""
    width = 8
    generator = torch.Generator().manual_seed(seed)
    made = nn.Sequential(
        nn.Conv2d(3, width, 5, stride=4),
        nn.BatchNorm2d(width, eps=1e-3),
        nn.ReLU(),
        nn.Conv2d(width, width, 3),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
        for layer in made:
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_var.fill_(0.7)
                layer.weight.fill_(1.3)
    return made.eval()


def classifier(seed: int = 0, classes: int = 10, ballast: int = 0) -> Classifier:
    """A classifier; `ballast` adds a buffer of that many unused numbers."""
    made = Classifier(network(seed, classes), ModelInfo(f"tiny/{seed}", classes, PREPROCESSING))
    if ballast:
        made.register_buffer("ballast", torch.ones(ballast))
    return made.eval()


def prepared() -> Classifier:
    """For the reference `tests.evaluation.tiny:prepared`."""
    return classifier(0)


def broken() -> Classifier:
    """A classifier with infinite logits."""
    made = classifier(0)
    with torch.no_grad():
        made.network[-1].bias[3] = float("inf")
    return made


class Made:
    """A set of splits of any length that takes no memory: pictures are computed from their index."""

    def __init__(self, count: int) -> None:
        self.name, self.classes = "made", tuple(str(k) for k in range(10))
        self.names = ["fog", "snow", "frost", "contrast", "brightness", "pixelate"]
        self.index = torch.arange(count)
        self.labels = self.index % 10

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, name, severity, size, *, order=None, device=None) -> Iterator[ImageBatch]:
        place = torch.device(device or "cpu")
        noise = torch.randint(
            256, (50, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(severity)
        )
        for step in batch_positions(order, len(self), size):
            yield ImageBatch(noise[step % 50].to(place), rows_to_device(self.labels, step, place), self.index[step])
