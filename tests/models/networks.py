"""Networks for the tests of this folder: every number is random, so that no layer can be mistaken for another."""

import torch
from torch import nn


@torch.no_grad()
def scrambled(network: nn.Module, seed: int = 0) -> nn.Module:
    """The network in evaluation mode with unchanged filters and random vectors, running statistics included."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and tensor.ndim <= 1:
            low = 0.5 if name.endswith(("weight", "running_var", "scale")) else -0.5
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + low)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.any():
            module.weight.normal_(0, 0.1, generator=generator)
    return network.eval()


def pictures(count: int = 2, size: int = 32, seed: int = 0) -> torch.Tensor:
    """uint8 [count, 3, size, size]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
