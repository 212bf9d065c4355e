"""Criteo: every row once per epoch; training learns, keeps the best epoch, and resumes bit for bit."""

import csv
import json
from dataclasses import replace

import pytest
import torch

from predbn.data.criteo import criteo, prepare_synthetic
from predbn.models import CriteoSizes, load_criteo
from predbn.training import CriteoData, CriteoRecipe, TrainingError, train_criteo
from predbn.training import criteo as module
from predbn.training.criteo import CriteoTrainer, epoch_batches
from predbn.training.scoring import score

from .tiny import Interrupted, interrupt_after

SIZES = CriteoSizes(widths=(32, 16)).limited(buckets=100, dimensions=4)
RECIPE = CriteoRecipe(batch_size=256, epochs=2, learning_rate=1e-2, sizes=SIZES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "synthetic"
    prepare_synthetic(6_000, path)
    return path


@pytest.fixture(scope="module")
def data(folder):
    return CriteoData(*(criteo(part, folder) for part in ("train", "validation", "test")))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The folder of two networks."""
    out, reports = tmp_path_factory.mktemp("trained"), []
    train_criteo(RECIPE, [0, 1], data, out, progress=lambda *report: reports.append(report[:2]))
    steps = 2 * 2 * (len(data.train) // 256)
    assert reports == [(step + 1, steps) for step in range(steps)]
    return out


def test_it_learns_and_writes_its_files(data, trained):
    folder = trained / "criteo-mlp"
    card = json.loads((folder / "0.json").read_text())
    assert card["test"]["auc"] > 0.6
    assert card["trained_on"] == f"criteo-synthetic-train: {len(data.train):,} rows"
    assert not (folder / "0.checkpoint").exists()
    scores = score(load_criteo(folder / "0.safetensors"), data.test, torch.device("cpu"), size=100)
    assert {name: round(value, 6) for name, value in scores.items()}.items() <= card["test"].items()
    with (folder / "0.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    best = min(rows, key=lambda row: float(row["validation_loss"]))
    assert card["best_epoch"] == int(best["epoch"])
    with pytest.raises(TrainingError, match="exists already"):
        train_criteo(RECIPE, [0], data, trained)
    train_criteo(RECIPE, [0], data, trained, resume=True)


@pytest.mark.parametrize("stop", [7, 18, 25])
def test_an_interruption_changes_nothing(data, trained, tmp_path, stop):
    """In the first epoch, at its end, and in the second."""
    with pytest.raises(Interrupted):
        train_criteo(RECIPE, [0], data, tmp_path, progress=interrupt_after(stop), checkpoint_every=5)
    with pytest.raises(TrainingError, match="use --resume"):
        train_criteo(RECIPE, [0], data, tmp_path)
    with pytest.raises(TrainingError, match="epochs 2, not 3"):
        train_criteo(replace(RECIPE, epochs=3), [0], data, tmp_path, resume=True)
    train_criteo(RECIPE, [0], data, tmp_path, resume=True, checkpoint_every=5)
    whole, cut = (load_criteo(out / "criteo-mlp" / "0.safetensors").state_dict() for out in (trained, tmp_path))
    assert all(torch.equal(tensor, whole[name]) for name, tensor in cut.items())


def test_patience_ends_the_training_and_the_best_epoch_is_kept(data):
    trainer = CriteoTrainer(replace(RECIPE, epochs=50, patience=2), 0, data, torch.device("cpu"))
    for loss in (0.5, 0.4, 0.45, 0.41):
        assert not trainer.finished
        trainer.epoch += 1
        trainer.keep_if_best(loss)
    assert trainer.finished
    assert trainer.best["epoch"] == 2


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
