"""One network being trained: its weights, its optimiser, its epoch, and the step that moves them on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from predbn.models import SIGNED_PREPROCESSING as SIGNED
from predbn.models import Classifier, Description, accelerate, resnet20

from .augmentation import crop, draw, pad
from .recipe import Recipe

__all__ = ["Trainee", "TrainingSet"]

_WARM_UP = 3


class TrainingSet:
    """Training and validation images on the device, the training ones padded once for all epochs and all runs."""

    def __init__(self, images: Tensor, labels: Tensor, held_out: Tensor, held_out_labels: Tensor) -> None:
        self.padded, self.labels = pad(images), labels
        self.held_out, self.held_out_labels = held_out.contiguous(memory_format=torch.channels_last), held_out_labels

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> TrainingSet:
        """The same on another device."""
        moved = object.__new__(TrainingSet)
        for name in ("padded", "labels", "held_out", "held_out_labels"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved


class Trainee:
    """The run of one seed.

    On a GPU the whole step (gather, forward and backward pass, Adam) is captured once as a CUDA graph and replayed on
    a stream of the run's own: nothing is launched kernel by kernel, and runs beside it fill what it leaves idle.
    Everything the step reads lies in fixed places: the draws of the epoch, a cursor that the step itself moves on,
    the learning rate.
    """

    def __init__(self, recipe: Recipe, seed: int, data: TrainingSet, *, fast: bool = True) -> None:
        self.recipe, self.seed, self.data = recipe, seed, data
        device = self.device = data.labels.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = resnet20(recipe.norm, eps=recipe.eps)
        self.network: nn.Module = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if fast and device.type == "cuda":
            accelerate(self.network)
        self.classifier = Classifier(self.network, Description("trainee", 10, SIGNED)).to(device)
        self.rate = torch.tensor(recipe.learning_rate, device=device)
        matrices = [p for p in network.parameters() if p.ndim > 1]
        vectors = [p for p in network.parameters() if p.ndim <= 1]
        kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
        self.optimiser = kind(
            [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=self.rate,
            betas=(recipe.momentum, 0.999),
            eps=recipe.adam_eps,
            fused=True,
            capturable=device.type == "cuda",
        )
        self.epoch = 0
        self.steps = len(data) // recipe.batch_size
        shape = (self.steps, recipe.batch_size)
        self.order = torch.zeros(shape, dtype=torch.int64, device=device)
        self.corner = torch.zeros((*shape, 2), dtype=torch.int64, device=device)
        self.mirrored = torch.zeros(shape, dtype=torch.bool, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.correct = torch.zeros((), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._replay: Callable[[], None] | None = None

    def begin_epoch(self) -> None:
        """Draw the epoch and set its learning rate."""
        drawn = draw(len(self.data), self.recipe.batch_size, seed=self.seed, epoch=self.epoch)
        with self.on_stream():
            for place, value in zip((self.order, self.corner, self.mirrored), drawn, strict=True):
                place.copy_(value.pin_memory() if self.stream else value, non_blocking=True)
            self.rate.fill_(self.recipe.rate(self.epoch))
            for counter in (self.cursor, self.loss_sum, self.correct):
                counter.zero_()

    def step(self) -> None:
        """One batch."""
        if self.stream is None:
            self._step()
            return
        if self._replay is None:
            self._replay = self._capture()
        with self.on_stream():
            self._replay()

    def end_epoch(self) -> None:
        """Count the epoch as done."""
        self.epoch += 1

    def _step(self) -> None:
        order = self.order.index_select(0, self.cursor)[0]
        corner = self.corner.index_select(0, self.cursor)[0]
        mirrored = self.mirrored.index_select(0, self.cursor)[0]
        images, labels = crop(self.data.padded, order, corner, mirrored), self.data.labels[order]
        self.network.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.stream is not None, cache_enabled=False):
            logits = self.classifier(images)
        loss = F.cross_entropy(logits.float(), labels)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.cursor.add_(1)
        self.loss_sum.add_(loss.detach())
        self.correct.add_((logits.detach().argmax(1) == labels).sum())

    def _capture(self) -> Callable[[], None]:
        """The step as a CUDA graph. The steps that warm up for it are undone: only replays count."""
        torch.cuda.synchronize(self.device)
        weights = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        moments = {p: {k: v.clone() for k, v in state.items()} for p, state in self.optimiser.state.items()}
        counters = [place.clone() for place in (self.cursor, self.loss_sum, self.correct)]
        torch.cuda.synchronize(self.device)
        with self.on_stream():
            for _ in range(_WARM_UP):
                self.cursor.zero_()
                self._step()
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._step()
        self.network.load_state_dict(weights)
        for parameter, state in self.optimiser.state.items():
            for name, tensor in state.items():
                kept = moments.get(parameter, {}).get(name)
                tensor.zero_() if kept is None else tensor.copy_(kept)
        for place, value in zip((self.cursor, self.loss_sum, self.correct), counters, strict=True):
            place.copy_(value)
        torch.cuda.synchronize(self.device)
        return graph.replay

    @torch.no_grad()
    def validate(self, size: int = 2500) -> tuple[float, float]:
        """Accuracy and mean loss on the validation images."""
        self.network.eval()
        with self.on_stream():
            correct = torch.zeros((), dtype=torch.int64, device=self.device)
            loss = torch.zeros((), device=self.device)
            for start in range(0, len(self.data.held_out), size):
                labels = self.data.held_out_labels[start : start + size]
                logits = self.classifier(self.data.held_out[start : start + size])
                loss += F.cross_entropy(logits, labels, reduction="sum")
                correct += (logits.argmax(1) == labels).sum()
            count = max(1, len(self.data.held_out))
            return correct.item() / count, loss.item() / count

    def state(self) -> dict[str, Any]:
        """All that is needed to go on: weights, moments, epoch, recipe and seed."""
        return {
            "recipe": self.recipe.describe(),
            "seed": self.seed,
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there; before the first step."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate
        self.epoch = state["epoch"]

    def on_stream(self) -> Any:
        """Work queued here runs in order on the run's own stream."""
        return torch.cuda.stream(self.stream) if self.stream else nullcontext()
