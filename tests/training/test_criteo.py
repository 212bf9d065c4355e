"""Criteo: every row once per epoch; training learns, keeps the best epoch, and resumes bit for bit."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from predbn import cli
from predbn.data.criteo import criteo, prepare_synthetic
from predbn.models import CriteoSizes, load_criteo
from predbn.training import CriteoData, CriteoRecipe, TrainingError, train_criteo
from predbn.training import criteo as module
from predbn.training.criteo import CriteoTrainer, epoch_batches
from predbn.training.scoring import score

SIZES = CriteoSizes(widths=(32, 16)).limited(buckets=100, dimensions=4)
RECIPE = CriteoRecipe(batch_size=256, epochs=2, learning_rate=1e-2, sizes=SIZES)


@pytest.fixture(autouse=True)
def _one_thread():
    """These networks are so small that threads only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("rows") / "synthetic"
    prepare_synthetic(12_000, place)
    return place


@pytest.fixture(scope="module")
def data(folder):
    return CriteoData(*(criteo(part, folder) for part in ("train", "validation", "test")))


def test_it_learns_and_writes_its_files(data, tmp_path):
    reports = []
    train_criteo(RECIPE, [0, 1], data, tmp_path, progress=lambda *report: reports.append(report[:2]))
    assert reports == [(step + 1, 2 * 2 * 37) for step in range(2 * 2 * 37)]
    card = json.loads((tmp_path / "criteo-mlp" / "0.json").read_text())
    assert card["test"]["auc"] > 0.62
    assert card["trained_on"] == "criteo-synthetic-train: 9,685 rows"
    assert not (tmp_path / "criteo-mlp" / "0.checkpoint").exists()
    model = load_criteo(tmp_path / "criteo-mlp" / "0.safetensors")
    scores = score(model, data.test, torch.device("cpu"), size=100)
    assert {name: round(value, 6) for name, value in scores.items()}.items() <= card["test"].items()
    with (tmp_path / "criteo-mlp" / "0.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    best = min(rows, key=lambda row: float(row["validation_loss"]))
    assert card["best_epoch"] == int(best["epoch"])
    with pytest.raises(TrainingError, match="exists already"):
        train_criteo(RECIPE, [0], data, tmp_path)
    train_criteo(RECIPE, [0], data, tmp_path, resume=True)


@pytest.mark.parametrize("stop", [20, 37, 55])
def test_an_interruption_changes_nothing(data, tmp_path, stop):
    train_criteo(RECIPE, [3], data, tmp_path / "whole")

    def interrupt(done: int, total: int, note: str) -> None:
        if done == stop + 1:
            raise KeyboardInterrupt

    options = {"checkpoint_every": 5}
    with pytest.raises(KeyboardInterrupt):
        train_criteo(RECIPE, [3], data, tmp_path / "cut", progress=interrupt, **options)
    with pytest.raises(TrainingError, match="use --resume"):
        train_criteo(RECIPE, [3], data, tmp_path / "cut")
    with pytest.raises(TrainingError, match="epochs 2, not 3"):
        train_criteo(replace(RECIPE, epochs=3), [3], data, tmp_path / "cut", resume=True)
    train_criteo(RECIPE, [3], data, tmp_path / "cut", resume=True, **options)
    whole, cut = (load_criteo(tmp_path / name / "criteo-mlp" / "3.safetensors") for name in ("whole", "cut"))
    expected = whole.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in cut.state_dict().items())


def test_patience_ends_the_training_and_the_best_epoch_is_kept(data):
    trainer = CriteoTrainer(replace(RECIPE, epochs=50, patience=2), 0, data, torch.device("cpu"))
    for loss in (0.5, 0.4, 0.45, 0.41):
        assert not trainer.finished
        trainer.epoch += 1
        trainer.keep_if_best(loss)
    assert trainer.finished
    assert trainer.best["epoch"] == 2


def test_what_cannot_be_trained(data, tmp_path):
    with pytest.raises(TrainingError, match="9685 training examples do not fill a batch of 9999"):
        train_criteo(replace(RECIPE, batch_size=9999), [0], data, tmp_path)
    with pytest.raises(TrainingError, match=r"stopped being a number with seed 0 \(epoch 1\)"):
        train_criteo(replace(RECIPE, learning_rate=1e38), [0], data, tmp_path)


def test_the_command(folder, tmp_path):
    arguments = ["train", "criteo", "--root", str(folder), "--out", str(tmp_path), "--widths", "8", "--device", "cpu"]
    arguments += ["--most-buckets", "20", "--most-dimensions", "2", "--batch-size", "512"]
    result = CliRunner().invoke(cli.app, [*arguments, "--seeds", "0-1"])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "seed 1, criteo-synthetic-test: test AUC" in words
    assert "over 2 seeds" in words
    assert (tmp_path / "criteo-mlp" / "1.safetensors").exists()
    for wrong, message in (
        (["--widths", "8,x"], "is not a list of widths"),
        (["--seeds", "x"], "is not a list of seeds"),
        (["--batch-size", "1"], "batch_size is 1"),
        (["--device", "tpu"], "there is no device 'tpu'"),
    ):
        result = CliRunner().invoke(cli.app, [*arguments, *wrong])
        assert result.exit_code == 2
        assert message in " ".join(result.output.split()).replace("│ ", "")


@pytest.mark.parametrize("rows", [10, 64, 1000])
def test_every_row_at_most_once(monkeypatch, rows):
    monkeypatch.setattr(module, "WINDOW", 64)
    batches = list(epoch_batches(rows, 10, seed=0, epoch=0))
    assert [len(batch) for batch in batches] == [10] * (rows // 10)
    visited = torch.cat(batches)
    assert len(visited.unique()) == rows // 10 * 10
    assert int(visited.max()) < rows
    again = torch.cat(list(epoch_batches(rows, 10, seed=0, epoch=0)))
    assert torch.equal(visited, again)
    for seed, epoch in ((1, 0), (0, 1)):
        assert not torch.equal(visited, torch.cat(list(epoch_batches(rows, 10, seed=seed, epoch=epoch))))


def test_few_windows_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 100)
    for batch in epoch_batches(1000, 50, seed=0, epoch=0):
        assert len((batch // 100).unique()) <= 2
