"""Models whose activations are known in closed form."""

import torch
from torch import Tensor, nn


def normal(n: int, *shape: int, mean: float = 0.0, sd: float = 1.0, seed: int = 0) -> Tensor:
    return mean + sd * torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class OneLayer(nn.Module):
    """y = weight · (x − 2)/√(9 + eps) + bias on [N, C, positions] maps, a ReLU, and a linear read-out of 4 numbers."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(channels, eps=1e-3)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(channels, 4)
        self.bn.running_mean.fill_(2.0)
        self.bn.running_var.fill_(9.0)
        with torch.no_grad():
            self.bn.weight.copy_(torch.linspace(0.5, 1.5, channels))
            self.bn.bias.copy_(torch.linspace(-1, 1, channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.bn(x)).mean(2))


class Linear(nn.Module):
    """h = A x, logits = B h: on x ~ N(0, 1) the embeddings have covariance A Aᵀ."""

    def __init__(self, inputs: int = 6, hidden: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden, bias=False)
        self.last = nn.Linear(hidden, classes, bias=False)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for layer in (self.first, self.last):
                layer.weight.normal_(generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


def one_layer() -> OneLayer:
    torch.manual_seed(0)
    return OneLayer().double().eval()


def linear() -> Linear:
    return Linear().double().eval()
