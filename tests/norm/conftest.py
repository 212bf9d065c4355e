"""Many tests use `auto` on models that are not calibrated, on purpose: the warning about it is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:the model is not calibrated:UserWarning"))
