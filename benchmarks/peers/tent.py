"""TENT (Wang et al. 2021, "Tent: Fully test-time adaptation by entropy minimization", ICLR).

Statistics are those of the batch. After each batch, one step of Adam on the weights and biases of the batch norm layers
makes its predictions more certain: it lowers the mean entropy −Σ_c p_c·log p_c. A batch is predicted before its own
step, and the parameters stay changed for the rest of the stream.

Learning rate 0.001, β = (0.9, 0.999), no weight decay, as published for CIFAR-10-C (there in batches of 200).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import predbn
from predbn.norm import named_layers


class Tent:
    """A copy of a network whose affine parameters are trained on the stream."""

    def __init__(self, network: nn.Module, learning_rate: float = 1e-3) -> None:
        self._source, self._learning_rate = network, learning_rate
        self.reset()

    def reset(self) -> None:
        """Begin with the parameters of the source again."""
        self.network = predbn.adapt(copy.deepcopy(self._source), "batch").requires_grad_(False)
        self.parameters = [p for _, layer in named_layers(self.network) for p in (layer.weight, layer.bias)]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self._optimiser = torch.optim.Adam(self.parameters, lr=self._learning_rate)

    def __call__(self, images: Tensor) -> Tensor:
        with torch.enable_grad():
            logits: Tensor = self.network(images)
            mean_entropy(logits).backward()
        self._optimiser.step()
        self._optimiser.zero_grad()
        return logits.detach()


def mean_entropy(logits: Tensor) -> Tensor:
    """The mean over the examples of −Σ_c p_c·log p_c."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1).mean()
