"""A package that is installed plugs itself in."""

import subprocess
import sys

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
USE = """
import numpy as np, predbn
from predbn import shifts
from predbn.norm import find_strategy
print(find_strategy("plugged"), shifts.corrupt(np.zeros((1, 4, 4, 3), np.uint8), "inverted", 1).min())
"""


def install(folder, code: str) -> None:
    (folder / "their_plugin.py").write_text(code)
    metadata = folder / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[predbn.plugins]\ntheirs = their_plugin\n")


def run(folder) -> subprocess.CompletedProcess[str]:
    paths = f"import sys; sys.path[:0] = {[str(folder), *sys.path]!r}"
    return subprocess.run([sys.executable, "-c", f"{paths}\n{USE}"], capture_output=True, text=True)


def test_what_an_installed_package_registers_is_found(tmp_path):
    install(tmp_path, PLUGIN)
    done = run(tmp_path)
    assert done.stdout.split() == ["plugged", "255"], done.stderr


def test_a_plugin_that_cannot_be_imported_is_an_error_that_names_its_package(tmp_path):
    install(tmp_path, "import no_such_module")
    assert "the package theirs plugs their_plugin into predbn, which cannot be imported" in run(tmp_path).stderr
