"""Set-up of the tests of this folder."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(_deterministic: None) -> None:
    """The tensors in these tests are tiny: more threads would only wait for each other."""
    torch.set_num_threads(1)
