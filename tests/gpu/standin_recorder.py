"""What takes the place of CUDA graphs where there is no GPU.

A graph runs the same operations on the same memory again, and no Python. So a replay here calls the function once more,
copies what it returns to where the first results are, and spoils what it has left behind in Python, so that a test
fails if anybody relies on that.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from predbn.norm import LayerAdaptation, Statistics

_SPOILED = Statistics(torch.full((1,), torch.nan), torch.full((1,), torch.nan))


class StandInRecorder:
    """Has the methods of `CudaGraphRecorder`."""

    def can_record(self, inputs: tuple[Any, ...]) -> bool:
        return all(type(value) is torch.Tensor for value in inputs)

    def record(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        for _ in range(2):
            run()
        first = run()

        def replay() -> None:
            layers = [layer for layer in LAYERS if layer.seen is not None or layer.used is not None]
            results = run()
            for old, new in zip(tree_leaves(first), tree_leaves(results), strict=True):
                if isinstance(old, torch.Tensor):
                    old.copy_(new)
            for layer in layers:
                layer.seen = layer.used = _SPOILED

        return replay, first


LAYERS: list[LayerAdaptation] = []
"""All layers that were adapted in the test."""


@pytest.fixture
def recorder(monkeypatch):
    """Captured models record without a GPU."""
    LAYERS.clear()
    original = LayerAdaptation.__init__

    def noted(self, *args, **options):
        original(self, *args, **options)
        LAYERS.append(self)

    monkeypatch.setattr(LayerAdaptation, "__init__", noted)
    monkeypatch.setattr(importlib.import_module("predbn.gpu.capture"), "CudaGraphRecorder", StandInRecorder)
