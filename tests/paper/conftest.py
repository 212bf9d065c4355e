"""The results of `world`, written once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from predbn.paper import Runs

from .world import World


@pytest.fixture(scope="session")
def as_the_paper(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Results in which everything is as the paper says."""
    return Runs(World(1.0).write(tmp_path_factory.mktemp("paper") / "results"))


@pytest.fixture(scope="session")
def without_effect(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Results in which prediction-time BN does exactly what train BN does."""
    return Runs(World(0.0).write(tmp_path_factory.mktemp("null") / "results"))


@pytest.fixture
def nothing(tmp_path: Path) -> Runs:
    """A folder without results."""
    return Runs(tmp_path / "none")
