from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(_deterministic) -> None:
    """Small batches: a second thread would mostly wait for the first."""
    torch.set_num_threads(1)
