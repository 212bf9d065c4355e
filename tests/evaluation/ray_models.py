"""Networks for a cluster that is made to fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

from torch import Tensor, nn

from predbn.models import Classifier

from . import tiny

PAUSE = "PREDBN_TESTS_PAUSE"


class Slow(nn.Module):
    """Takes as many seconds as the environment says."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(float(os.environ.get(PAUSE, "0")))
        return x


def slow() -> Classifier:
    """What `tests.evaluation.ray_models:slow` names."""
    return behind(Slow())


class Gate(nn.Module):
    """Lets nothing through until processes on so many nodes stand before it; each leaves its node and process id.

    A process that came before there was the file `opened` gets through `most` times and then waits for its end.
    """

    def __init__(self, folder: Path, nodes: int, most: int, opened: Path) -> None:
        super().__init__()
        self.folder, self.nodes, self.most, self.opened = folder, nodes, most, opened
        self.left: int | None = None

    def shut(self) -> bool:
        nodes = {name.partition("-")[0] for name in os.listdir(self.folder)}
        return len(nodes) < self.nodes or self.left == 0

    def forward(self, x: Tensor) -> Tensor:
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.folder / f"{node}-{os.getpid()}").touch()
        if self.left is None:
            self.left = -1 if self.opened.exists() else self.most
        give_up = time.monotonic() + 100
        while self.shut():
            if time.monotonic() > give_up:
                raise TimeoutError("the gate did not open")
            time.sleep(0.02)
        self.left -= 1
        return x


class Fatal(nn.Module):
    """Takes the process with it, unless it is the one that has to survive."""

    def __init__(self) -> None:
        super().__init__()
        self.spared = os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.spared:
            os._exit(1)
        return x


def behind(door: nn.Module, seed: int = 0) -> Classifier:
    """The tiny classifier with something before its first layer."""
    made = tiny.classifier(seed)
    made.normalise = nn.Sequential(door, made.normalise)
    return made
