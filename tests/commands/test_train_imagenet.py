from __future__ import annotations

import pytest
from typer.testing import CliRunner

from predbn import cli
from predbn.training import TrainingError
from predbn.training.imagenet import trainer

from ..training.imagenet.tiny import tiny_folder, tiny_resnet

runner = CliRunner()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trainer, "resnet50", tiny_resnet)
    return tiny_folder(tmp_path / "data")


def invoke(folder, *more):
    options = ["--size", "16", "--batch-size", "4", "--epochs", "2", "--workers", "0", "--device", "cpu", *more]
    return runner.invoke(cli.app, ["train", "imagenet", "--root", str(folder), *options])


def test_it_trains_and_prints_where_the_files_are(folder, tmp_path):
    done = invoke(folder, "--subset", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert "Validation accuracy" in done.output
    assert (tmp_path / "out" / "resnet50-imagenet" / "batch" / "0.safetensors").is_file()
    again = invoke(folder, "--subset", "--out", str(tmp_path / "out"), "--resume", "--quiet")
    assert (again.exit_code, again.output) == (0, "")


def test_errors(folder, tmp_path):
    assert isinstance(invoke(folder).exception, TrainingError)
    assert "use --subset" in str(invoke(folder).exception)
    wrong = invoke(folder, "--device", "tpu")
    assert wrong.exit_code == 2
    assert "there is no device 'tpu'" in " ".join(wrong.output.split())
    wrong = invoke(folder, "--momentum", "0")
    assert wrong.exit_code == 2
    assert "momentum is 0.0" in " ".join(wrong.output.split())
