"""A small network with batch norm, and labelled batches that it mostly predicts correctly."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..norm.models import images, net

STRATEGIES = ["train", "batch", "frozen", "ema", "population", "prior(N=16)"]


class Batch(NamedTuple):
    images: Tensor
    labels: Tensor
    index: int


def models(n: int) -> list[nn.Module]:
    """Members that differ in their last layer."""
    made = []
    for seed in range(n):
        model = net()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            model.fc2.weight.normal_(generator=generator)
        made.append(model)
    return made


def labelled(model: nn.Module, batches: int = 3, n: int = 24) -> list[Batch]:
    """Batches with labels: two in three are the model's predictions, the others are random."""
    made = []
    for seed in range(batches):
        x = images(n, seed=seed)
        with torch.no_grad():
            labels = model(x).argmax(1)
        chance = torch.randint(5, (n,), generator=torch.Generator().manual_seed(seed))
        made.append(Batch(x, torch.where(torch.arange(n) % 3 == 0, chance, labels), seed))
    return made


def snapshot(model: nn.Module) -> tuple[object, ...]:
    """What must not change: flags, classes, attributes, adaptation and state."""
    return (
        [(name, m.training, type(m), sorted(m.__dict__)) for name, m in model.named_modules()],
        [id(m.__dict__.get("_predbn")) for m in model.modules()],
        {name: t.clone().tolist() for name, t in model.state_dict().items()},
    )
