"""One ResNet-50 being trained, on this process's share of the batches."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from predbn.data import Images
from predbn.models import Normalise, resnet50

from .processes import Processes
from .recipe import ImageNetRecipe

__all__ = ["ImageNetTrainee"]


class ImageNetTrainee:
    """Weights, optimiser, and how far it is: `epoch` epochs and `step` steps of the next one.

    Gradients are averaged over the processes, so that a step is that of the whole batch. Normalisation statistics are
    those of each process's share; the running ones kept are those of the first process. On a GPU forward and backward
    pass are in bf16 and channels_last.
    """

    def __init__(self, recipe: ImageNetRecipe, seed: int, classes: int, processes: Processes) -> None:
        self.recipe, self.seed, self.processes = recipe, seed, processes
        device = processes.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = resnet50(eps=recipe.eps, classes=classes)
        self.network: nn.Module = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.normalise = Normalise(recipe.preprocessing).to(device)
        self.parallel = self.network
        if processes.count > 1:
            self.parallel = DistributedDataParallel(self.network, [device] if device.type == "cuda" else None)
        matrices = [p for p in network.parameters() if p.ndim > 1]
        vectors = [p for p in network.parameters() if p.ndim <= 1]
        self.optimiser = torch.optim.SGD(
            [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=True,
        )
        self.epoch, self.step = 0, 0
        self.totals = torch.zeros(2, device=device, dtype=torch.float64)
        """Of this epoch so far, on this process: summed loss, correct predictions."""

    def take_step(self, images: Tensor, labels: Tensor, steps: int) -> None:
        """One step of an epoch of `steps`; nothing waits for the device."""
        device = self.processes.device
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(self.epoch + self.step / steps)
        self.parallel.train()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = self.parallel(self._prepared(images))
        loss = F.cross_entropy(logits.float(), labels)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        correct = (logits.detach().argmax(1) == labels).sum()
        self.totals += torch.stack([loss.detach() * len(labels), correct]).double()
        self.step += 1

    def end_epoch(self, seen: int) -> tuple[float, float]:
        """Mean loss and accuracy over the images that all processes have seen in the epoch."""
        loss, correct = (self.processes.sum(self.totals) / seen).tolist()
        self.epoch, self.step = self.epoch + 1, 0
        self.totals.zero_()
        return loss, correct

    @torch.no_grad()
    def validate(self, images: Images, size: int = 100) -> tuple[float, float]:
        """Mean loss and accuracy on the validation images, which the processes share out."""
        self.network.eval()
        self.processes.share(self.network.buffers())
        totals = torch.zeros(2, device=self.processes.device, dtype=torch.float64)
        mine = range(self.processes.rank, len(images), self.processes.count)
        for batch in images.batches(size, order=mine, device=self.processes.device):
            logits = self.network(self._prepared(batch.images))
            loss = F.cross_entropy(logits, batch.labels, reduction="sum")
            totals += torch.stack([loss, (logits.argmax(1) == batch.labels).sum()]).double()
        loss, accuracy = (self.processes.sum(totals) / len(images)).tolist()
        return loss, accuracy

    def _prepared(self, images: Tensor) -> Tensor:
        prepared: Tensor = self.normalise(images).contiguous(memory_format=torch.channels_last)
        return prepared

    def state(self) -> dict[str, Any]:
        """All that is needed to go on. All processes must ask for it: the sums of the epoch are those of all."""
        totals = self.processes.sum(self.totals.clone())
        return {
            "recipe": self.recipe.describe(),
            "seed": self.seed,
            "epoch": self.epoch,
            "step": self.step,
            "totals": totals,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there, with any number of processes."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.totals.copy_(state["totals"] if self.processes.first else torch.zeros_like(state["totals"]))
