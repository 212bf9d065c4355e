"""The results of `world`, written once for all tests."""

from pathlib import Path

import pytest

from predbn.data import wnids
from predbn.paper import Runs, run_imagenet

from ..data.folders import make_folder
from ..evaluation import tiny
from .world import World


@pytest.fixture(scope="session")
def as_the_paper(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Results in which everything is as the paper says."""
    return Runs(World(1.0).write(tmp_path_factory.mktemp("paper") / "results"))


@pytest.fixture(scope="session")
def without_effect(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Results in which prediction-time BN does exactly what train BN does."""
    return Runs(World(0.0).write(tmp_path_factory.mktemp("null") / "results"))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small picture of each class of ImageNet."""
    folder: Path = make_folder(tmp_path_factory.mktemp("val") / "val", wnids(), height=32, width=32)
    return folder


@pytest.fixture
def small_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A network of one convolution instead of ResNet-50, for images of 32 pixels."""
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path_factory.getbasetemp() / "paper-imagenet-cache"))
    monkeypatch.setattr(run_imagenet, "load", lambda reference: tiny.classifier(0, 1000))


@pytest.fixture
def nothing(tmp_path: Path) -> Runs:
    """A folder without results."""
    return Runs(tmp_path / "none")
