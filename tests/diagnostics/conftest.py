"""Set-up of this room's tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(_deterministic: None) -> None:
    """The tensors here are tiny: a second thread would only be waited for."""
    torch.set_num_threads(1)
