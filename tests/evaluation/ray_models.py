"""Networks for clusters that are slow or fail on purpose."""

import os
import time
from pathlib import Path

from torch import Tensor, nn

from predbn.models import Classifier

from . import tiny

PAUSE = 0.3


class Slow(nn.Module):
    """Sleeps, in any process but the one that made it, until there is time to interrupt the run."""

    def __init__(self) -> None:
        super().__init__()
        self.made_by = os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.made_by:
            time.sleep(PAUSE)
        return x


def slow() -> Classifier:
    """The model `tests.evaluation.ray_models:slow`."""
    return behind(Slow())


class Barrier(nn.Module):
    """Blocks until processes on `nodes` nodes have arrived; every process leaves a file with its node and process id.

    A process that arrived before the file `opened` existed passes `limit` times and then blocks until it is killed.
    """

    def __init__(self, arrivals: Path, nodes: int, limit: int, opened: Path) -> None:
        super().__init__()
        self.arrivals, self.nodes, self.limit, self.opened = arrivals, nodes, limit, opened
        self.left: int | None = None

    def is_blocked(self) -> bool:
        nodes = {name.partition("-")[0] for name in os.listdir(self.arrivals)}
        return len(nodes) < self.nodes or self.left == 0

    def forward(self, x: Tensor) -> Tensor:
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.arrivals / f"{node}-{os.getpid()}").touch()
        if self.left is None:
            self.left = -1 if self.opened.exists() else self.limit
        deadline = time.monotonic() + 100
        while self.is_blocked():
            if time.monotonic() > deadline:
                raise TimeoutError("the barrier did not open")
            time.sleep(0.02)
        self.left -= 1
        return x


class KillsWorker(nn.Module):
    """Ends every process that runs it, except the one that made it."""

    def __init__(self) -> None:
        super().__init__()
        self.made_by = os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.made_by:
            os._exit(1)
        return x


def behind(first: nn.Module, seed: int = 0) -> Classifier:
    """The tiny classifier with a module in front of its first layer."""
    classifier = tiny.classifier(seed)
    classifier.normalise = nn.Sequential(first, classifier.normalise)
    return classifier
