"""Small models for the tests, with statistics that differ from any batch's."""

from typing import Any

import torch
from torch import Tensor, nn


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every batch norm layer distinct statistics and affine parameters, as training would."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
            if getattr(module, "num_batches_tracked", None) is not None:
                module.num_batches_tracked.fill_(17)
        if getattr(module, "running_mean", None) is not None and getattr(module, "weight", None) is not None:
            with torch.no_grad():
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.bias.normal_(generator=generator)
    return model


class Net(nn.Module):
    """Two blocks, a residual connection, dropout, and a batch norm on features before the last layer."""

    def __init__(self, width: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=1e-3)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.5)
        self.fc1 = nn.Linear(width, width)
        self.bn3 = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(x + self.bn2(self.conv2(x)))
        x = self.drop(x.mean((2, 3)))
        return self.fc2(torch.relu(self.bn3(self.fc1(x))))


def net(**options: Any) -> nn.Module:
    torch.manual_seed(3)
    return randomise(Net(**options)).eval()


def images(n: int = 8, size: int = 6, seed: int = 1, shift: float = 0.0) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed)) + shift
