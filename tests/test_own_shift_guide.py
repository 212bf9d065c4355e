"""docs/own-shift.md shows what was measured, and its commands and its Python run as they stand there."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from predbn import cli

from .recommendation import colours

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "own-shift.md").read_text()
MODEL = """
from torch import nn

from predbn.models import Preprocessing
from tests.recommendation.colours import network

class Signed(nn.Sequential):
    def forward(self, x):
        return super().forward(0.5 * x + 0.5)

def build():
    made = Signed(network())
    made.preprocessing = Preprocessing((28, 28), mean=(127.5,) * 3, std=(127.5,) * 3)
    return made
"""


def shown_output() -> str:
    """What `predbn results show results/digits` prints in 80 columns, as a block of the page."""
    printed = CliRunner().invoke(cli.app, ["results", "show", str(ROOT / "results" / "digits")], env={"COLUMNS": "80"})
    assert printed.exit_code == 0, printed.output
    lines = [line.rstrip() for line in printed.output.strip("\n").splitlines()]
    return "\n".join(["```", *lines, "```"])


@pytest.fixture
def users_folder(tmp_path, monkeypatch):
    """What examples/digits.py makes, with pictures that take no time."""
    colours.write_folder(tmp_path / "oldcam", *colours.pictures(60))
    colours.write_folder(tmp_path / "newcam", *colours.pictures(120, shifted=True))
    torch.save(torch.nn.Sequential(colours.network()).state_dict(), tmp_path / "weights.pt")
    (tmp_path / "digits_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("digits_model", None)


def test_the_page_shows_what_was_measured():
    shown = PAGE.split("<!-- digits -->")[1].split("<!-- /digits -->")[0].strip()
    assert shown == shown_output(), "copy what predbn results show results/digits prints"


def test_the_command_runs_as_it_stands_there(users_folder):
    command = re.search(r"^predbn (evaluate --model digits_model.*)$", PAGE.replace("\\\n", " "), re.MULTILINE)[1]
    result = CliRunner().invoke(cli.app, shlex.split(command), env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert re.search(r"Use \w+ in batches of \d+: the accuracy on the new data rises from", text)
    assert "predbn.adapt(model, " in text
    assert max(len(line) for line in result.output.splitlines()[:20]) <= 80
    assert "…" not in result.output
    assert (users_folder / "predbn-run" / "changes.csv").is_file()


def test_the_python_runs_as_it_stands_there(users_folder, capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(snippet, "own-shift.md", "exec"), {})
    assert "accuracy on the new data rises from" in capsys.readouterr().out
