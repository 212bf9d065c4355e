"""CIFAR-10 in small for the tests of this room: its sums take the place of the recorded ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from predbn.data import cifar10, cifar10_sums
from predbn.data.cifar10_layouts import Arrays

from ..shifts.conftest import cifar, large
from .official import LAYOUTS, make_arrays

__all__ = ["cache", "cifar", "large", "layout", "small"]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder of one's own."""
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(cache, monkeypatch) -> dict[str, Arrays]:
    """Six files of 20 images, 5 of them held out, known by their sums."""
    files = make_arrays()
    sums = {
        name: {what: hashlib.sha256(array.tobytes()).hexdigest() for what, array in arrays._asdict().items()}
        for name, arrays in files.items()
    }
    monkeypatch.setattr(cifar10_sums, "RECORDED", sums)
    monkeypatch.setattr("predbn.data.RECORDED", sums)
    monkeypatch.setitem(cifar10.__globals__, "HELD_OUT", 5)
    return files


@pytest.fixture(params=LAYOUTS)
def layout(request, small, tmp_path) -> Path:
    """The small files in one of the layouts, after another."""
    folder = tmp_path / request.param
    folder.mkdir()
    LAYOUTS[request.param][0](folder, small)
    return folder
