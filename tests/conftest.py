"""Shared set-up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from cpu_torchvision import declare_missing_operators

settings.register_profile("predbn", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("predbn")
declare_missing_operators()


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
