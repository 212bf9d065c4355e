"""How a Ray cluster is divided among workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from predbn.common import EvaluationError

__all__ = ["Node", "Share"]


@dataclass(frozen=True)
class Share:
    """What one worker gets of a node.

    On the CPU that is a whole node unless `cpus` is given: the passes of a unit share its cores as they do in one
    process, and the node holds every model once. On GPUs it is `gpus` of them, and an equal part of the node's cores.
    """

    device: str
    cpus: int | None = None
    gpus: float = 1

    def __post_init__(self) -> None:
        if self.cpus is not None and self.cpus < 1:
            raise EvaluationError(f"cpus_per_worker is {self.cpus}, but a worker has at least 1.")
        if not (0 < self.gpus <= 1 or (self.gpus > 1 and self.gpus == int(self.gpus))):
            raise EvaluationError(f"gpus_per_worker is {self.gpus}, but it is a part of 1, or a whole number.")

    def __str__(self) -> str:
        """What a node must have."""
        gpus = f"{self.gpus:g} GPU" if self.device == "cuda" else ""
        cpus = f"{self.cpus or 1} CPU" if self.cpus or not gpus else ""
        return " and ".join(filter(None, (gpus, cpus)))

    def options(self, resources: Mapping[str, float]) -> list[dict[str, float]]:
        """What to reserve for each of the workers that a node with these resources has room for."""
        cpus = int(resources.get("CPU", 0))
        if self.device == "cuda":
            count = int(resources.get("GPU", 0) / self.gpus)
            if self.cpus is not None:
                count = min(count, cpus // self.cpus)
            return [{"num_cpus": self.cpus or cpus // count, "num_gpus": self.gpus}] * count if count else []
        each = self.cpus or max(1, cpus)
        return [{"num_cpus": each, "num_gpus": 0}] * (cpus // each)


class Node(NamedTuple):
    """A machine of the cluster."""

    id: str
    address: str
    resources: Mapping[str, float]

    @classmethod
    def alive(cls, ray: Any) -> list[Node]:
        """Those that are there now."""
        return [
            cls(each["NodeID"], each["NodeManagerAddress"], each["Resources"]) for each in ray.nodes() if each["Alive"]
        ]
