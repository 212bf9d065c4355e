"""The folders of the package: who may import whom, and what `import predbn` may load."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import predbn

PACKAGE = Path(predbn.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
FOLDERS = [
    "common",
    "norm",
    "gpu",
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


def imports(path: Path, *, at_run_time: bool = False) -> list[tuple[str, str]]:
    """What a file imports from the package, anywhere in it: (module, name); `at_run_time` leaves out TYPE_CHECKING."""
    here = ("predbn", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = []
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if at_run_time and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
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


def modules() -> dict[str, Path]:
    """All modules of the package by name."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("predbn", *path.relative_to(PACKAGE).with_suffix("").parts)
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported_modules(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports."""
    named = {
        f"{module}.{name}" if f"{module}.{name}" in known else module
        for module, name in imports(path, at_run_time=True)
    }
    return {name for name in named & known.keys() if known[name] != path}


def test_there_is_no_import_cycle():
    known = modules()
    # The package itself imports everything on first use, and nothing before.
    graph = {name: imported_modules(path, known) - {"predbn"} for name, path in known.items() if name != "predbn"}
    cycles = []
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        cycles = error.args[1]
    assert cycles == []


def test_the_method_does_not_import_the_gpu():
    known = modules()
    for name, path in known.items():
        if name.startswith(("predbn.norm", "predbn.common")):
            assert not [other for other in imported_modules(path, known) if other.startswith("predbn.gpu")], name


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


IMPORTS = """
import sys, torch
bare = set(sys.modules)
import predbn
print(*set(sys.modules) - bare)
import predbn.norm
print(*(name for name in sys.modules if name.startswith(("predbn.gpu", "triton"))))
sys.modules["ray"] = None
import predbn.cli, predbn.evaluation
print(predbn.evaluation.RayEngine.__name__)
"""


def test_imports_stay_light():
    """The package loads nothing heavy, the method nothing for GPUs, and an evaluation needs no Ray."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    brought, for_gpus, engine = done.stdout.splitlines()
    assert not set(brought.split()) & set(HEAVY)
    assert (for_gpus, engine) == ("", "RayEngine")
