"""A tiny network in place of those of the zoo, and images for it."""

import torch
from torch import Tensor, nn

from peers import PixelNetwork
from predbn.models import SIGNED_PREPROCESSING, Classifier, ModelInfo

CLASSES = 3


class TinyNetwork(nn.Module):
    """Two convolutions with batch norm, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.ReLU()
        )
        self.fc = nn.Linear(5, CLASSES)

    def embed(self, x: Tensor) -> Tensor:
        return self.body(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.embed(x))


def tiny_network(seed: int = 0) -> PixelNetwork:
    """A network whose running statistics are those of some images, with random affine parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = PixelNetwork(Classifier(TinyNetwork(), ModelInfo("tiny", CLASSES, SIGNED_PREPROCESSING)))
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = None
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                nn.init.normal_(layer.bias)
        last = network.network.fc
        nn.init.normal_(last.weight, std=2.0)
    with torch.no_grad():  # logits of mean 0, so that no class is always predicted
        last.bias -= network.train()(images(64, seed=100)).mean(0)
    return network.eval().requires_grad_(False)


def images(count: int, seed: int = 0, size: int = 8) -> Tensor:
    """Noise on a colour of each image's own."""
    generator = torch.Generator().manual_seed(seed)
    colours = 255 * torch.rand(count, 3, 1, 1, generator=generator)
    noise = 40 * torch.randn(count, 3, size, size, generator=generator)
    return (colours + noise).clamp(0, 255).to(torch.uint8)
