"""Fixtures that several test files share."""

from __future__ import annotations

import pytest
import torch.distributed as dist


@pytest.fixture
def world_of_one(tmp_path):
    """torch.distributed with this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
