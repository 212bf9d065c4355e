"""The folders of the package: who may import whom, and what `import predbn` may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import predbn

PACKAGE = Path(predbn.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
FOLDERS = [
    "common",
    "norm",
    "onnx",
    "keras",
    "metrics",
    "shifts",
    "data",
    "models",
    "methods",
    "evaluation",
    "diagnostics",
    "recommendation",
    "training",
    "serving",
    "report",
    "paper",
    "commands",
]
HEAVY = [
    "pandas",
    "altair",
    "onnx",
    "onnx_ir",
    "keras",
    "onnxruntime",
    "triton",
    "timm",
    "torchvision",
    "scipy",
    "typer",
    "rich",
    "starlette",
    "uvicorn",
    "predbn.training",
]


def imports(path: Path) -> list[tuple[str, str]]:
    """What a file imports from the package, anywhere in it: (module, name)."""
    here = ("predbn", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found += [(module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "predbn"]


def folder_of(module: str, name: str) -> str | None:
    """The folder that something is imported from; None for the package itself."""
    parts = (*module.split("."), name)
    return parts[1] if parts[1] in FOLDERS else None


def test_every_folder_is_in_the_list():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(FOLDERS)


def test_the_list_is_that_of_contributing():
    rows = [line.split("|")[1].strip() for line in CONTRIBUTING.read_text().splitlines() if line.startswith("| `")]
    assert [row.strip("`/") for row in rows if row.endswith("/`")] == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_folders_above_it_and_only_what_they_offer(folder):
    wrong = []
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for module, name in imports(path):
            other = folder_of(module, name)
            if other is None or other == folder:
                continue
            is_below = FOLDERS.index(other) > FOLDERS.index(folder)
            offered = __import__(f"predbn.{other}", fromlist=["__all__"]).__all__
            if is_below or module not in ("predbn", f"predbn.{other}") or (module != "predbn" and name not in offered):
                wrong.append(f"{path.relative_to(PACKAGE)}: from {module} import {name}")
    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_name_that_a_folder_offers_exists(folder):
    module = __import__(f"predbn.{folder}", fromlist=["__all__"])
    assert module.__doc__
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_typer_is_imported_by_the_command_line_alone():
    using = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "import typer" in path.read_text()}
    assert {path for path in using if path.parts[0] not in ("commands", "cli.py")} == set()


def test_importing_the_package_stays_light():
    code = "import sys, predbn; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, torch; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    brought = set(done.stdout.split()) - set(bare.stdout.split())
    assert not brought & set(HEAVY)
