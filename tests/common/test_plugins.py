"""A package that is installed plugs itself in."""

import sys

import numpy as np
import pytest

import predbn
from predbn import shifts
from predbn.common import PredbnError, plugins
from predbn.norm import find_strategy
from predbn.shifts import registry

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar

import predbn
from predbn import shifts

shifts.names("all")  # looking something up while it is imported does no harm


@dataclass(frozen=True)
class Plugged(predbn.Batch):
    name: ClassVar[str] = "plugged"


@shifts.register("inverted", family="digital", cifar=(1, 1, 1, 1, 1))
def inverted(x, c, draws):
    return 1 - x
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package with this code, before the first name is looked up."""
    monkeypatch.setattr(plugins, "_loaded", [])
    monkeypatch.setattr(predbn.Strategy, "_by_name", dict(predbn.Strategy._by_name))
    monkeypatch.setattr(registry, "_CORRUPTIONS", dict(registry._CORRUPTIONS))
    monkeypatch.syspath_prepend(tmp_path)

    def install(code: str) -> None:
        (tmp_path / "their_plugin.py").write_text(code)
        metadata = tmp_path / "theirs-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[predbn.plugins]\ntheirs = their_plugin\n")

    yield install
    sys.modules.pop("their_plugin", None)


def test_what_an_installed_package_registers_is_found(installed):
    installed(PLUGIN)
    assert str(find_strategy("plugged")) == "plugged"
    assert shifts.corrupt(np.zeros((1, 4, 4, 3), np.uint8), "inverted", 1).min() == 255


def test_a_plugin_that_cannot_be_imported_is_an_error_that_names_its_package(installed):
    installed("import no_such_module")
    for _ in range(2):
        with pytest.raises(PredbnError, match="the package theirs plugs their_plugin into predbn, which cannot be imp"):
            find_strategy("plugged")
