"""The notebook for one's own pictures runs from top to bottom, and is stored with its outputs."""

import json
from pathlib import Path

from .paper.test_notebook import run_cells
from .recommendation import colours

NOTEBOOK = Path(__file__).parents[1] / "docs" / "quick-start.ipynb"


def test_it_runs_on_the_folders_of_a_user(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    colours.write_folder(tmp_path / "mine", *colours.pictures(40))
    colours.write_folder(tmp_path / "theirs", *colours.pictures(60, shifted=True))
    Path("my_model.py").write_text(
        "from tests.recommendation.colours import network, preprocessing\n\n"
        "def build():\n    made = network()\n    made.preprocessing = preprocessing()\n    return made\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = run_cells(NOTEBOOK, old="mine", new="theirs", model="my_model:build")
    assert names["found"].python() in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text()


def test_it_is_stored_with_an_answer():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    said = "".join("".join(output.get("text", [])) for cell in cells for output in cell["outputs"])
    assert said.startswith("Use ")
    assert "image/png" in str(cells) or "image/jpeg" in str(cells)
