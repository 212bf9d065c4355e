"""`predbn doctor` on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from predbn.cli import app
from predbn.models import zoo

run = CliRunner()
NAME = "resnet20-cifar10/batch/0"
MODEL = ["doctor", "--model", f"zoo:{NAME}"]
SMALL = ["--images", "100"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(path: Path, **changed: float) -> str:
    """A file with the weights of a network of the zoo in which some buffers are filled with a number."""
    state = {name: tensor.float() for name, tensor in zoo.weights(NAME).items()}
    for name, tensor in state.items():
        for ending, value in changed.items():
            if name.endswith(ending):
                tensor.fill_(value)
    torch.save(state, path)
    return f"file:{path}#resnet20-cifar10/batch"


def test_a_healthy_model(tmp_path: Path) -> None:
    result = run.invoke(app, MODEL)
    assert result.exit_code == 0, result.output
    assert result.output.strip().startswith(
        "Nothing is wrong with the 21 batch norm layers as far as can be seen without data"
    )
    assert list(tmp_path.iterdir()) == []


def test_shifted_data_is_a_finding_with_a_page(tmp_path: Path) -> None:
    data = ["--reference", "sample", "--data", "sample", "--shift", "contrast", "--severity", "5"]
    result = run.invoke(app, [*MODEL, *data, *SMALL, "--out", "deep/doctor.html"])
    assert result.exit_code == 1, result.output
    assert "1 problem found: shifted." in result.output
    assert 'predbn.adapt(model, "auto")' in result.output
    page = (tmp_path / "deep" / "doctor.html").read_text()
    assert "<h1>1 problem found: shifted.</h1>" in page
    assert "layer1.0.norm1" in page
    assert "network.layer1" not in page


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    model = weights(tmp_path / "w.pt", running_mean=0.0, running_var=1.0)
    result = run.invoke(app, ["doctor", "--model", model, "--reference", "sample", *SMALL, "--json"])
    assert result.exit_code == 1, result.output
    examination = json.loads(result.output)
    assert examination["healthy"] is False
    assert [finding["code"] for finding in examination["findings"]] == ["never updated"]
    assert len(examination["findings"][0]["layers"]) == len(examination["layers"]) == 21
    assert examination["examples"] == {"reference": 100}
    assert examination["page"] is None


def test_a_failure_is_not_a_finding(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((5, 32, 32, 3), dtype=np.uint8))
    arguments = [*MODEL, "--reference", str(tmp_path / "images.npy"), "--out", "page.html"]
    result = run.invoke(app, arguments)
    assert result.exit_code == 3
    assert "error: The reference has 5 examples" in result.output
    result = run.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"].startswith("The reference has 5 examples")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"), [("--weights", "w.pt", "has its own weights"), ("--out", ".", "is not a file")]
)
def test_what_goes_wrong_later_is_a_failure(option: str, value: str, message: str, tmp_path: Path) -> None:
    result = run.invoke(app, [*MODEL, option, value])
    assert result.exit_code == 3
    assert message in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_function_of_ones_own_without_batch_norm(tmp_path: Path) -> None:
    code = "import torch\nfrom torch import nn\ndef build():\n    torch.manual_seed(0)\n"
    code += "    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 4))\n"
    (tmp_path / "mine_without_norm.py").write_text(code)
    prepared = ["--mean", "0.5", "--std", "0.25", "--size", "32"]
    result = run.invoke(app, ["doctor", "--model", "mine_without_norm:build", "--reference", "sample", *prepared])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "The model has no batch norm layer, so there are no statistics to examine."
