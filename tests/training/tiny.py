"""What the tests of this folder share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from predbn.models.preprocessing import SIGNED
from predbn.models.resnet import ResNet
from predbn.training import Cifar10Recipe
from predbn.training.trainer import Trainer

PREPROCESSING = replace(SIGNED, size=(8, 8))
DEVICE = torch.device("cpu")
TINY = Cifar10Recipe(learning_rate=1e-2, weight_decay=1e-4, epochs=4, batch_size=8)


def small_resnet(norm: str = "batch", *, eps: float = 1e-3, classes: int = 10) -> ResNet:
    """A ResNet of 8 weighted layers. Fewer than 16 channels would meet oneDNN issue 6035: memory overwritten."""
    return ResNet((1, 1, 1), (16, 16, 16), classes=classes, norm=norm, eps=eps)


def same_weights(a: Trainer, b: Trainer) -> bool:
    """Whether weights, running statistics and moments agree to the bit."""
    first, second = a.network.state_dict(), b.network.state_dict()
    moments = [
        [tensor for state in trainer.optimiser.state_dict()["state"].values() for tensor in state.values()]
        for trainer in (a, b)
    ]
    return all(torch.equal(first[name], second[name]) for name in first) and all(map(torch.equal, *moments))


def same_metrics(a: Trainer, b: Trainer) -> bool:
    """Whether the last epochs ended with the same numbers, apart from their time."""
    return {**a.metrics, "seconds": 0} == {**b.metrics, "seconds": 0}


class Interrupted(Exception):
    pass


def interrupt_after(steps: int) -> Callable[..., None]:
    """A function that raises `Interrupted` at a call, whatever its arguments are."""
    calls = []

    def interrupt(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == steps:
            raise Interrupted

    return interrupt


def flip_a_bit(path: Path) -> None:
    """Damage a file in its middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
