"""Fixtures that several test files share.

Many tests use `auto` on models that are not calibrated, on purpose: the warning about it is ignored.
"""

from pathlib import Path

import pytest
import torch.distributed as dist


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:the model is not calibrated:UserWarning"))


@pytest.fixture
def world_of_one(tmp_path):
    """torch.distributed with this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
