"""Callbacks for Lightning: recompute statistics while training, and adapt the model that a trainer predicts with.

Needs Lightning: ``pip install predbn[lightning]``. The callbacks work with the trainer of `pytorch_lightning` too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from predbn.common import AdaptationError, needs_extra

from .norm import BatchForward, Forward, Strategy, adapted, recompute

with needs_extra("lightning", what="predbn.lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities.seed import isolate_rng

__all__ = ["AdaptForPrediction", "RecomputeStatistics"]

_AVERAGING = {"StochasticWeightAveraging", "WeightAveraging"}


class RecomputeStatistics(Callback):
    """Recompute the statistics of batch norm before each validation, and when training ends.

    For validated weights that are not the trained ones: averages (`WeightAveraging`, `EMAWeightAveraging`,
    `StochasticWeightAveraging`) and those of schedule-free optimizers. Weights, random numbers and the order of the
    training batches stay as they are without it. Checkpoints that are saved after a validation hold the statistics.

    loader        batches of training data; by default those of the training dataloader
    max_batches   how many of them at most; None for all
    module        the name of the network in the LightningModule, if that does not call it in `forward`
    forward       called as forward(network, batch) to predict a batch, if the default of `recompute` does not fit
    options       those of `predbn.recompute`; `exact` is False by default
    """

    def __init__(
        self,
        loader: Iterable[Any] | None = None,
        *,
        max_batches: int | None = 100,
        module: str = "",
        forward: Forward | None = None,
        **options: Any,
    ) -> None:
        self._loader, self._max_batches = loader, max_batches
        self._module, self._forward, self._options = module, forward, options

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        later = trainer.callbacks[trainer.callbacks.index(self) + 1 :]  # type: ignore[attr-defined]
        for callback in later:
            if _AVERAGING & {cls.__name__ for cls in type(callback).__mro__}:
                raise AdaptationError(
                    f"RecomputeStatistics must come after {type(callback).__name__} in the trainer's callbacks, "
                    "because that changes the weights at the end of training"
                )

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        # At the first batch, and not when validation starts: the hooks in which weights are exchanged have run by now.
        if batch_idx == dataloader_idx == 0 and trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._recompute(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._recompute(trainer, pl_module)

    def _recompute(self, trainer: Trainer, pl_module: LightningModule) -> None:
        network = pl_module if self._forward and not self._module else _network(pl_module, self._module)
        call = BatchForward(network, self._forward)

        def forward(_: nn.Module, batch: Any) -> Any:
            with trainer.precision_plugin.forward_context():
                return call(batch)

        with isolate_rng():
            recompute(network, self._batches(trainer, pl_module), forward=forward, **{"exact": False, **self._options})

    def _batches(self, trainer: Trainer, pl_module: LightningModule) -> Iterator[Any]:
        loader = self._loader
        if loader is None:
            loader = trainer.train_dataloader
            if loader is None or isinstance(loader, dict | list | tuple):
                raise AdaptationError("the trainer has no single training dataloader; give RecomputeStatistics(loader)")
        if isinstance(loader, DataLoader):
            loader = copy.copy(loader)  # iterating over one with persistent workers ends the epoch that is running
            loader._iterator = None
        for batch in islice(loader, self._max_batches):
            converted = trainer.precision_plugin.convert_input(batch)
            yield trainer.strategy.batch_to_device(pl_module._on_before_batch_transfer(converted))


class AdaptForPrediction(Callback):
    """Adapt the model while the trainer tests, predicts or validates, but not while it fits, and restore it afterwards.

    The arguments are those of `predbn.adapt`. A calibration that the model has is used, and kept.

    module   the name of the network in the LightningModule, if that does not call it in `forward`
    """

    def __init__(self, strategy: str | Strategy = "batch", *, module: str = "", **options: Any) -> None:
        self._strategy, self._module, self._options = strategy, module, options
        self._exits = ExitStack()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            self._exits.enter_context(adapted(_network(pl_module, self._module), self._strategy, **self._options))

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._exits.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._exits.close()

    on_validation_start = on_predict_start = on_test_start
    on_validation_end = on_predict_end = on_test_end


def _network(pl_module: LightningModule, name: str) -> nn.Module:
    if not name and type(pl_module).forward.__qualname__ == "LightningModule.forward":
        raise AdaptationError(
            f"{type(pl_module).__name__} defines no forward; name the network in it, as in module='network'"
        )
    try:
        return pl_module.get_submodule(name)
    except AttributeError as error:
        raise AdaptationError(f"there is no module={name!r} in {type(pl_module).__name__}: {error}") from None
