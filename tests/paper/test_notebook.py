"""The notebook runs from top to bottom, on the committed results if there are any."""

import json
from pathlib import Path
from typing import Any

from predbn.commands.paper import FULL as RESULTS
from predbn.paper import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[2]


def run_cells(path: Path, **parameters: Any) -> dict[str, Any]:
    """Execute the code cells in order; the one tagged "parameters" is replaced by the given values."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        if "parameters" in cell["metadata"].get("tags", []):
            names.update(parameters)
        else:
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    return names


def test_the_notebook_is_stored_with_its_outputs():
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code" and not cell["metadata"].get("tags"))


def test_the_notebook_runs(as_the_paper, capsys):
    committed = ROOT / RESULTS
    names = run_cells(
        ROOT / "docs" / "notebook.ipynb", results=committed if committed.is_dir() else as_the_paper.folder
    )
    assert len(names["found"]) == len(EXPERIMENTS)
    assert "Of " in capsys.readouterr().out
