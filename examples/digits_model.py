"""The network of `digits.py`, as a user would write it: how it is built, and how its pictures are prepared."""

from torch import nn

from predbn.models import Preprocessing


def build() -> nn.Module:
    """Six convolutions, each with batch norm, for digits of 28×28 pixels."""
    layers: list[nn.Module] = []
    channels = 3
    for width, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    network.preprocessing = Preprocessing((28, 28), mean=(127.5,) * 3, std=(127.5,) * 3)  # type: ignore[assignment]
    return network
