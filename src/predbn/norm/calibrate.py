"""Learn from unlabelled source data what each layer looks like when nothing has shifted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from torch import nn

from .adapt import adapt
from .collect import collect_calibration
from .layer import source_statistics
from .streams import adaptations, slots

M = TypeVar("M", bound=nn.Module)


def calibrate(model: M, loader: Iterable[Any]) -> M:
    """One pass over unlabelled source data, before or after `adapt`; a few thousand examples will do.

    Leaves a `Calibration` with every layer for the strategies that use one; it stays when the strategy
    is changed and goes with `restore`. An unadapted model becomes one adapted with "train", which
    predicts exactly as before.
    """
    if not slots(model):
        adapt(model, "train")
    for adaptation in adaptations(model):
        collected = collect_calibration(model, adaptation, loader)
        found = {
            slot: collected[slot.name].result(slot.eps(layer), source_statistics(layer))
            for _, layer, slot in slots(model)
            if slot.adaptation is adaptation and slot.name in collected
        }
        network = sum(calibration.network for calibration in found.values())
        for slot, calibration in found.items():
            slot.calibration = calibration._replace(network=network)
    return model
