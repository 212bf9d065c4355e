"""The order of the rooms, and what `import predbn` may bring along."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import predbn

PACKAGE = Path(predbn.__file__).parent
ROOMS = [
    "norm",
    "metrics",
    "shifts",
    "data",
    "models",
    "methods",
    "evaluation",
    "diagnostics",
    "training",
    "report",
    "paper",
    "commands",
    "cli",
]
HEAVY = ["pandas", "altair", "optuna", "triton", "timm", "torchvision", "scipy.stats", "predbn.training"]


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from, wherever in it it does so."""
    here = ("predbn", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            names = [".".join((*base, *([node.module] if node.module else [])))]
            names = [f"{names[0]}.{alias.name}" for alias in node.names] if names == ["predbn"] else names
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("predbn.")}
    return found & set(ROOMS)


@pytest.mark.parametrize("room", [room for room in ROOMS if (PACKAGE / room).is_dir()])
def test_a_room_knows_only_the_rooms_above_it(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    below = {str(path.relative_to(PACKAGE)): sorted(imported(path) - allowed) for path in files}
    assert {path: rooms for path, rooms in below.items() if rooms} == {}


def test_importing_the_package_stays_light():
    code = "import sys, predbn; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, torch; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    brought = set(done.stdout.split()) - set(bare.stdout.split())
    assert not brought & set(HEAVY)
