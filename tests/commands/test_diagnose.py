"""`predbn diagnose` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from predbn.cli import app

run = CliRunner()
MODEL = ["diagnose", "--model", "zoo:resnet20-cifar10/batch/0"]
SMALL = ["--images", "60", "--batch-size", "30"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_says_what_it_found_and_writes_the_page(tmp_path: Path) -> None:
    result = run.invoke(app, [*MODEL, "--data", "sample", "--shift", "contrast", "--severity", "5", *SMALL])
    assert result.exit_code == 0, result.output
    assert "The data has shifted: " in result.output
    assert "Prediction-time BN brings" in result.output
    page = (tmp_path / "diagnosis.html").read_text()
    assert "The data has shifted: " in page
    assert "resnet20-cifar10/batch/0" in page


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8))
    arguments = ["--data", str(tmp_path / "images.npy"), "--strategy", "prior(N=8)", "--out", "deep/page.html"]
    result = run.invoke(app, [*MODEL, *arguments, "--json", *SMALL])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["strategy"] == "prior(N=8)"
    assert len(found["layers"]) == 4 * 23
    assert found["predictions"][2]["examples"] == 40
    assert (tmp_path / found["page"]).is_file()


def test_a_function_of_ones_own_without_batch_norm(tmp_path: Path) -> None:
    code = "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
    code += "    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 4))\n"
    (tmp_path / "mine_without_norm.py").write_text(code)
    prepared = ["--mean", "0.5", "--std", "0.25", "--size", "32"]
    arguments = ["diagnose", "--model", "mine_without_norm:build", "--data", "sample", "--quiet", *prepared, *SMALL]
    result = run.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert result.output == ""
    assert "has no batch norm layer" in (tmp_path / "diagnosis.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--data", "nowhere"], 2, "no data 'nowhere'"),
        (["--data", "sample", "--reference", "nowhere"], 2, "no data 'nowhere'"),
        (["--data", "sample", "--strategy", "btach"], 2, "did you mean 'batch'"),
        (["--data", "sample", "--strategy", "train"], 1, "name another"),
        (["--data", "sample", "--shift", "fogg"], 2, "did you mean 'fog'"),
        (["--data", "sample", "--severity", "6"], 2, "severity"),
        (["--data", "sample", "--batch-size", "0"], 2, "batch-size"),
        (["--data", "sample", "--mean", "0.5"], 2, "size"),
        (["--data", "sample", "--mean", "0.1,0.2", "--size", "8"], 2, "or three"),
        (["--data", "sample", "--device", "gpu"], 2, "there is no device 'gpu'"),
        ([], 2, "--data"),
    ],
)
def test_wrong_input(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    result = run.invoke(app, [*MODEL, *arguments, *SMALL] if "--batch-size" not in arguments else [*MODEL, *arguments])
    told = result.output + (str(result.exception) if isinstance(result.exception, ValueError) else "")
    told = " ".join(told.replace("│", " ").split())
    assert result.exit_code == code
    assert message in told
    assert list(tmp_path.iterdir()) == []


def test_help_has_an_example() -> None:
    assert "predbn diagnose --model zoo:resnet20-cifar10/batch/0" in run.invoke(app, ["diagnose", "--help"]).output
