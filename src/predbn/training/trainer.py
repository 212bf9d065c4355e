"""What the training of every network has in common: its step, its position, its state and its card.

A task subclasses `Trainer` (Criteo) or `ImageTrainer` (CIFAR-10, ImageNet) with its network and its batches. `loop.py`
runs trainers, `networks.py` turns them into files.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import predbn
from predbn.common import TrainingError, git_commit
from predbn.data import Images
from predbn.models import Classifier, ClickModel

from .cuda_graph import StepGraph, on_stream
from .process_group import ProcessGroup
from .recipes import BaseRecipe, Cifar10Recipe, ImageNetRecipe
from .scoring import sum_loss_and_correct

Module = TypeVar("Module", bound=nn.Module)


class Trainer(ABC):
    """One network in training, after `epoch` complete epochs and `step` of the `steps` of the next one.

    `model` prepares the inputs and calls `network`, whose weights are stored. `totals` are the summed loss and the
    number of correct predictions of this epoch so far, on this process. `log` has a row for each epoch.
    """

    architecture: str
    """The name of the network in its card."""
    optimiser_name: str
    """The name of the optimiser in the card."""
    headline: ClassVar[str] = "validation_accuracy"
    """The metric that a progress bar shows."""
    finite_metrics: ClassVar[tuple[str, ...]] = ("loss",)
    """If one of these is not finite after an epoch, the run has diverged."""
    deterministic: ClassVar[bool] = False
    """Whether cuDNN is restricted to deterministic algorithms, chosen without timing them."""
    card_in_weights: ClassVar[bool] = False
    """Whether the weight file contains the card too, because loading needs it."""
    captured: ClassVar[bool] = True
    """Whether the step becomes a CUDA graph. Its batch is then in tensors that `load_batch` overwrites in place."""

    def __init__(
        self,
        recipe: BaseRecipe,
        seed: int,
        model: Classifier | ClickModel,
        optimiser: torch.optim.Optimizer,
        group: ProcessGroup,
        *,
        examples: int,
        stream: torch.cuda.Stream | None = None,
        bf16: bool = True,
    ) -> None:
        if examples < recipe.batch_size:
            raise TrainingError(
                f"Expected batch_size to be at most the {examples} training examples, but got {recipe.batch_size}."
            )
        self.recipe, self.seed, self.group, self.device = recipe, seed, group, group.device
        self.model, self.network, self.optimiser = model, model.network, optimiser
        self.learning_rate: Tensor = optimiser.param_groups[0]["lr"]
        self.stream, self.bf16 = stream, bf16 and self.device.type == "cuda"
        self.parallel: nn.Module = model
        if group.size > 1:
            self.parallel = DistributedDataParallel(model, [self.device] if self.device.type == "cuda" else None)
        self.steps = examples // recipe.batch_size
        self.epoch, self.step = 0, 0
        self.totals = torch.zeros(2, device=self.device, dtype=torch.float64)
        self.log: list[dict[str, float]] = []
        graph = StepGraph(self.network, optimiser, [self.totals], self.device, stream=stream)
        self.run_step: Callable[[Callable[[], None]], None] = graph.run if self.captured else _call

    @abstractmethod
    def begin_epoch(self) -> None:
        """Prepare the next epoch, or the rest of it if the run was resumed in the middle of one."""

    @abstractmethod
    def load_batch(self) -> None:
        """Load the next batch."""

    @abstractmethod
    def read_batch(self) -> tuple[Tensor, Tensor]:
        """The inputs and labels of the loaded batch; a part of the captured step."""

    @abstractmethod
    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """The log row of the epoch that has just ended, without its number and seconds."""

    @abstractmethod
    def score_stored(self, weights: Path) -> dict[str, Any]:
        """The entries of the card that come from evaluating the weights as they were stored."""

    def train_step(self) -> None:
        """Train on the next batch, without a synchronisation with the GPU."""
        with on_stream(self.stream):
            if self.step == 0:
                self.totals.zero_()
            self.learning_rate.fill_(self.rate_at(self.epoch * self.steps + self.step))
            self.load_batch()
        self.run_step(self._step)

    def _step(self) -> None:
        """Forward pass, backward pass and update, on a GPU with bf16 under autocast.

        Autocast keeps no cache of weights in bf16: in a captured step it would hold those of an earlier step.
        """
        inputs, labels = self.read_batch()
        self.parallel.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            logits = self.parallel(inputs)
        loss = F.cross_entropy(logits.float(), labels)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        correct = (logits.detach().argmax(1) == labels).sum()
        self.totals.add_(torch.stack([loss.detach() * len(labels), correct]).double())

    def mean_totals(self) -> tuple[float, float]:
        """The mean loss and the accuracy of the epoch that has just ended, over all processes."""
        examples = self.steps * self.recipe.batch_size
        loss, accuracy = (self.group.sum(self.totals.clone()) / examples).tolist()
        return loss, accuracy

    @property
    def last_rate(self) -> float:
        """The learning rate of the last step of the epoch that has just ended."""
        return self.rate_at(self.epoch * self.steps - 1)

    @property
    def metrics(self) -> dict[str, float]:
        """The row of the last epoch; empty before the first."""
        return self.log[-1] if self.log else {}

    @property
    def diverged(self) -> bool:
        """Whether the loss of the last epoch is not finite."""
        return bool(self.metrics) and not all(math.isfinite(self.metrics[name]) for name in self.finite_metrics)

    @property
    def finished(self) -> bool:
        """Whether there are no more epochs to train."""
        return self.diverged or self.epoch >= self.recipe.epochs

    def final_weights(self) -> dict[str, Tensor]:
        return self.network.state_dict()

    def card(self) -> dict[str, Any]:
        """What is needed to repeat the training, as plain data."""
        return {
            "architecture": self.architecture,
            "seed": self.seed,
            "recipe": {"optimiser": self.optimiser_name, **self.recipe.to_dict()},
            "software": {"predbn": predbn.__version__, "commit": git_commit(), "torch": torch.__version__},
            "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type,
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to resume. All processes of the group have to call it."""
        if self.stream is not None:
            self.stream.synchronize()
        return {
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
            "epoch": self.epoch,
            "step": self.step,
            "log": self.log,
            "totals": self.group.sum(self.totals.clone()),
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state, with any number of processes; call it before the first step."""
        self.network.load_state_dict(state["network"])
        # A captured step reads the learning rate from a tensor, which loading would replace by a copy.
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(state["optimiser"])
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
        # The totals are those of all processes, so that only one of them has to hold them.
        self.totals.copy_(state["totals"] if self.group.is_first else torch.zeros_like(state["totals"]))
        self.epoch, self.step, self.log = state["epoch"], state["step"], list(state["log"])

    def close(self) -> None:  # noqa: B027
        """Release what was opened for training."""


class ImageTrainer(Trainer):
    """A trainer of an image classifier, which is validated after every epoch."""

    recipe: Cifar10Recipe | ImageNetRecipe
    model: Classifier
    validation: Images

    @abstractmethod
    def validation_batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        """This process's share of the validation images and their labels, on the device."""

    def rate_at(self, step: int) -> float:
        epoch, step_of_epoch = divmod(step, self.steps)
        return self.recipe.learning_rate_at(epoch + step_of_epoch / self.steps)

    def evaluate(self) -> dict[str, float]:
        validation_loss, validation_accuracy = self.validate()  # also waits for the stream that computes the totals
        loss, accuracy = self.mean_totals()
        return {
            "learning_rate": self.last_rate,
            "loss": loss,
            "accuracy": accuracy,
            "validation_loss": validation_loss,
            "validation_accuracy": validation_accuracy,
        }

    def validate(self) -> tuple[float, float]:
        """Mean loss and accuracy on the validation images, with the running statistics of the first process."""
        self.group.broadcast(self.network.buffers())
        with on_stream(self.stream):
            totals = self.group.sum(sum_loss_and_correct(self.model, self.validation_batches(), self.device))
            loss, accuracy = (totals / len(self.validation)).tolist()
        return loss, accuracy


def build_seeded(seed: int, build: Callable[[], Module]) -> Module:
    """A network whose initial weights depend on the seed alone; the global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _call(step: Callable[[], None]) -> None:
    step()
