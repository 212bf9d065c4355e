"""What the training of every network has in common: its position, its state, its card.

A task (CIFAR-10, Criteo, ImageNet) subclasses `Trainer` with its data, its step and its evaluation. `loop.py` runs
trainers, `networks.py` turns them into files.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import predbn
from predbn.common import TrainingError, git_commit

from .process_group import ProcessGroup
from .recipes import BaseRecipe

Module = TypeVar("Module", bound=nn.Module)


class Trainer(ABC):
    """One network in training, after `epoch` whole epochs and `step` of the `steps` of the next one.

    `metrics` is the log row of the last epoch that was trained by this object; it is empty before.
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

    def __init__(
        self,
        recipe: BaseRecipe,
        seed: int,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        group: ProcessGroup,
        *,
        examples: int,
    ) -> None:
        if examples < recipe.batch_size:
            raise TrainingError(f"{examples} training examples do not fill a batch of {recipe.batch_size}.")
        self.recipe, self.seed, self.group, self.device = recipe, seed, group, group.device
        self.network, self.optimiser = network, optimiser
        self.steps = examples // recipe.batch_size
        self.epoch, self.step = 0, 0
        self.metrics: dict[str, float] = {}

    @abstractmethod
    def begin_epoch(self) -> None:
        """Prepare the next epoch, or the rest of it if the run was resumed in the middle of one."""

    @abstractmethod
    def train_step(self) -> None:
        """Train on the next batch. Must not wait for the GPU."""

    def queue_evaluation(self) -> None:  # noqa: B027
        """Start what `evaluate` reads, without waiting for the GPU: runs side by side are then evaluated together."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """The log row of the epoch that has just ended, without its number and seconds."""

    @abstractmethod
    def score_stored(self, weights: Path) -> dict[str, Any]:
        """The entries of the card that come from evaluating the weights as they were stored."""

    def optimise(self, model: nn.Module, inputs: Any, labels: Tensor, *, bf16: bool = True) -> tuple[Tensor, Tensor]:
        """One step of the optimiser on a batch, with `bf16` on a GPU in half precision; gives the loss and the logits.

        Autocast keeps no cache of weights in bf16: in a captured step it would hold those of an earlier step.
        """
        model.train()
        use_bf16 = bf16 and self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=use_bf16, cache_enabled=False):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float(), labels)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.detach(), logits.detach()

    @property
    def diverged(self) -> bool:
        """Whether the loss of the last epoch is not a number."""
        return bool(self.metrics) and not all(math.isfinite(self.metrics[name]) for name in self.finite_metrics)

    @property
    def finished(self) -> bool:
        """Whether there are no more epochs to train."""
        return self.diverged or self.epoch >= self.recipe.epochs

    def final_weights(self) -> dict[str, Tensor]:
        """The state dict to store."""
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
        return {
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state; call it before the first step."""
        self.network.load_state_dict(state["network"])
        # A captured step reads the learning rate from a tensor, which loading would replace by a copy.
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(state["optimiser"])
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
        self.epoch, self.step = state["epoch"], state.get("step", 0)

    def close(self) -> None:  # noqa: B027
        """Release what was opened for training."""


def build_seeded(seed: int, build: Callable[[], Module]) -> Module:
    """A network whose initial weights depend on the seed alone; the global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def decay_groups(network: nn.Module, weight_decay: float, scalar_rate: Tensor | None = None) -> list[dict[str, Any]]:
    """Parameter groups in which filters and matrices decay, and vectors (biases, normalisation) do not.

    With `scalar_rate`, parameters of one number are a group of their own that has this learning rate.
    """
    matrices = [p for p in network.parameters() if p.ndim > 1]
    vectors = [p for p in network.parameters() if p.ndim == 1 or (p.ndim == 0 and scalar_rate is None)]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if scalar_rate is not None:
        scalars = [p for p in network.parameters() if p.ndim == 0]
        groups.append({"params": scalars, "weight_decay": 0.0, "lr": scalar_rate})
    return groups


def make_adam(
    parameters: Iterable[Any], learning_rate: Tensor, *, momentum: float, eps: float, decoupled: bool = False
) -> torch.optim.Optimizer:
    """Adam, or AdamW if `decoupled`, with a step that a CUDA graph can contain: the learning rate is a tensor."""
    return (torch.optim.AdamW if decoupled else torch.optim.Adam)(
        parameters,
        lr=learning_rate,
        betas=(momentum, 0.999),
        eps=eps,
        fused=True,
        capturable=learning_rate.device.type == "cuda",
    )


def make_sgd(
    parameters: Iterable[Any], learning_rate: Tensor, *, momentum: float, nesterov: bool = False
) -> torch.optim.Optimizer:
    """SGD with a step that a CUDA graph can contain: only the fused kernel reads the learning rate from a tensor."""
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, nesterov=nesterov, fused=True)


@contextmanager
def backend_settings(backend: Any, **settings: bool) -> Iterator[None]:
    """Attributes of a torch backend, such as torch.backends.cudnn, changed for the length of a block."""
    before = {name: getattr(backend, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(backend, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(backend, name, value)
