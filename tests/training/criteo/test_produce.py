"""Training learns, keeps the best epoch, and is the same after an interruption."""

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
from predbn.training import TrainingError
from predbn.training.criteo import CriteoRecipe, CriteoSets, CriteoTrainee, produce_criteo
from predbn.training.criteo.trainee import score

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
def sets(folder):
    return CriteoSets(*(criteo(part, folder) for part in ("train", "validation", "test")))


def test_it_learns_and_leaves_its_files(sets, tmp_path):
    done = []
    produce_criteo(RECIPE, [0, 1], sets, tmp_path, on_step=lambda *now: done.append(now))
    assert done[-1] == (2 * 2 * 37, 2 * 2 * 37)
    card = json.loads((tmp_path / "criteo-mlp" / "0.json").read_text())
    assert card["test"]["auc"] > 0.62
    assert card["trained_on"] == "criteo-synthetic-train: 9,685 rows"
    assert not (tmp_path / "criteo-mlp" / "0.checkpoint").exists()
    model = load_criteo(tmp_path / "criteo-mlp" / "0.safetensors")
    found = score(model, sets.test, torch.device("cpu"), size=100)
    assert {name: round(value, 6) for name, value in found.items()}.items() <= card["test"].items()
    with (tmp_path / "criteo-mlp" / "0.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    best = min(rows, key=lambda row: float(row["validation_loss"]))
    assert card["best_epoch"] == int(best["epoch"])
    with pytest.raises(TrainingError, match="is there already"):
        produce_criteo(RECIPE, [0], sets, tmp_path)
    produce_criteo(RECIPE, [0], sets, tmp_path, resume=True)


@pytest.mark.parametrize("stop", [20, 37, 55])
def test_an_interruption_changes_nothing(sets, tmp_path, stop):
    produce_criteo(RECIPE, [3], sets, tmp_path / "whole")

    def interrupt(done: int, total: int) -> None:
        if done == stop + 1:
            raise KeyboardInterrupt

    options = {"checkpoint_every": 5}
    with pytest.raises(KeyboardInterrupt):
        produce_criteo(RECIPE, [3], sets, tmp_path / "cut", on_step=interrupt, **options)
    with pytest.raises(TrainingError, match="give --resume"):
        produce_criteo(RECIPE, [3], sets, tmp_path / "cut")
    with pytest.raises(TrainingError, match="epochs 2, not 3"):
        produce_criteo(replace(RECIPE, epochs=3), [3], sets, tmp_path / "cut", resume=True)
    produce_criteo(RECIPE, [3], sets, tmp_path / "cut", resume=True, **options)
    whole, cut = (load_criteo(tmp_path / name / "criteo-mlp" / "3.safetensors") for name in ("whole", "cut"))
    wanted = whole.state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in cut.state_dict().items())


def test_patience_ends_it_and_the_best_is_kept(sets):
    trainee = CriteoTrainee(replace(RECIPE, epochs=50, patience=2), 0, sets.train, torch.device("cpu"))
    for loss in (0.5, 0.4, 0.45, 0.41):
        assert not trainee.finished
        trainee.epoch += 1
        trainee.remember_if_best(loss)
    assert trainee.finished
    assert trainee.best["epoch"] == 2


def test_what_cannot_be_trained_is_said(sets, tmp_path):
    with pytest.raises(TrainingError, match="do not fill a batch"):
        produce_criteo(replace(RECIPE, batch_size=9999), [0], sets, tmp_path)
    with pytest.raises(TrainingError, match="diverged in epoch 1"):
        produce_criteo(replace(RECIPE, learning_rate=1e38), [0], sets, tmp_path)


def test_the_command(folder, tmp_path):
    arguments = ["train", "criteo", "--root", str(folder), "--out", str(tmp_path), "--widths", "8", "--device", "cpu"]
    arguments += ["--most-buckets", "20", "--most-dimensions", "2", "--batch-size", "512"]
    result = CliRunner().invoke(cli.app, [*arguments, "--seeds", "0-1"])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "seed 1, criteo-synthetic-test: AUC" in words
    assert "over 2 seeds" in words
    assert (tmp_path / "criteo-mlp" / "1.safetensors").exists()
    for wrong, message in ((["--widths", "8,x"], "no list of widths"), (["--seeds", "x"], "no list of seeds")):
        result = CliRunner().invoke(cli.app, [*arguments, *wrong])
        assert result.exit_code == 2
        assert message in " ".join(result.output.split()).replace("│ ", "")
