"""A small CIFAR-10 for the tests of this folder: its sums replace the recorded ones."""

import hashlib
from pathlib import Path

import pytest

from predbn.data import cifar10
from predbn.data.cifar10_files import SHA256, Arrays

from ..shifts.conftest import cifar, large
from .official import LAYOUTS, make_arrays

__all__ = ["cache", "cifar", "large", "layout", "small"]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder for this test."""
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(cache, monkeypatch) -> dict[str, Arrays]:
    """Six files of 20 images, of which 5 are held out, with their sums as the recorded ones."""
    files = make_arrays()
    for name, arrays in files.items():
        sums = {field: hashlib.sha256(array.tobytes()).hexdigest() for field, array in arrays._asdict().items()}
        monkeypatch.setitem(SHA256, name, sums)
    monkeypatch.setitem(cifar10.__globals__, "HELD_OUT", 5)
    return files


@pytest.fixture(params=LAYOUTS)
def layout(request, small, tmp_path) -> Path:
    """The small files in each of the layouts."""
    folder = tmp_path / request.param
    folder.mkdir()
    LAYOUTS[request.param][0](folder, small)
    return folder
