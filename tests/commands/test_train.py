from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from predbn import cli, training
from predbn.commands import train_cifar10, tune_cifar10
from predbn.training import TrainingError

runner = CliRunner()
SHORT = ["--sample", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _small(small_network, data, tmp_path, monkeypatch):
    for module in (train_cifar10, tune_cifar10):
        monkeypatch.setattr(module, "open_cifar10", lambda root, on_sample, device: data)
    recipe = training.Cifar10Recipe
    monkeypatch.setattr(training, "Cifar10Recipe", lambda **options: recipe(**{**options, "batch_size": 8}))
    monkeypatch.chdir(tmp_path)


def words(result) -> str:
    return " ".join(result.output.split())


def train(*options):
    return runner.invoke(cli.app, ["train", "cifar10", *SHORT, *options])


def tune(*options):
    return runner.invoke(cli.app, ["tune", "cifar10", "--sample", "--epochs", "1", "--device", "cpu", *options])


def test_training_writes_weights_cards_and_logs(tmp_path):
    done = train("--norm", "layer", "--seeds", "0,2-3", "--at-once", "2", "--learning-rate", "0.003")
    assert done.exit_code == 0, done.output
    assert "layer/0: test accuracy" in words(done)
    assert "mean test accuracy" in words(done)
    assert "over 3 seeds" in words(done)
    assert "Weights, cards and logs are in runs." in words(done)
    folder = tmp_path / "runs" / "resnet20-cifar10" / "layer"
    assert len(list(folder.glob("[!.]*"))) == 9
    card = json.loads((folder / "2.json").read_text())
    assert (card["seed"], card["recipe"]["learning_rate"], card["recipe"]["epochs"]) == (2, 0.003, 1)


def test_training_again(tmp_path):
    assert train("--quiet").output == ""
    again = train()
    assert isinstance(again.exception, TrainingError)
    assert "use --resume" in str(again.exception)
    kept = train("--resume", "--seeds", "0-1")
    assert kept.exit_code == 0
    assert "batch/1: test accuracy" in words(kept)
    assert "batch/0" not in words(kept)
    assert train("--resume").exit_code == 0


def test_recipes_by_name(tmp_path):
    assert (
        train("--recipe", "he2016", "--norm", "fixup", "--weight-decay", "5e-4", "--schedule", "cosine").exit_code == 0
    )
    recipe = json.loads((tmp_path / "runs" / "resnet20-cifar10" / "fixup" / "0.json").read_text())["recipe"]
    assert (recipe["optimiser"], recipe["schedule"], recipe["weight_decay"]) == ("SGD", "cosine", 5e-4)
    assert (recipe["learning_rate"], recipe["scalar_rate"]) == (0.1, 0.1)


def test_the_border_study_trains_the_same_recipe_with_each_border(tmp_path):
    assert train("--out", "borders/zero-4", "--recipe", "cosine").exit_code == 0
    done = train("--border-study", "--out", "borders", "--recipe", "cosine", "--resume")
    assert done.exit_code == 0, done.output
    assert words(done).count("batch/0: test accuracy") == 2  # zero-4 is kept
    cards = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("borders/*/resnet20-cifar10/batch/0.json"))]
    recipes = [card["recipe"] for card in cards]
    borders = [(recipe.pop("border"), recipe.pop("padding")) for recipe in recipes]
    assert borders == [("reflect", 4), ("zero", 2), ("zero", 4)]
    assert recipes[0] == recipes[1] == recipes[2]


def test_tensorboard_logs_are_beside_the_csv(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    assert train("--tensorboard").exit_code == 0
    assert list((tmp_path / "runs" / "resnet20-cifar10" / "batch" / "0").glob("events.*"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--norm", "btach"], "There is no normalisation 'btach' (did you mean 'batch'?): choose from batch, instance"),
        (["--seeds", "x"], "is not a list of seeds"),
        (["--device", "tpu"], "there is no device 'tpu'"),
        (["--epochs", "0"], "--epochs"),
        (["--at-once", "0"], "--at-once"),
        (["--checkpoint-every", "0"], "--checkpoint-every"),
        (["--learning-rate", "-1"], "learning_rate is -1.0, but it must be finite and greater than 0"),
        (["--momentum", "1"], "momentum is 1.0"),
        (["--batches", "3"], "No such option"),
        (["--recipe", "best"], "There is no recipe 'best'"),
        (["--border-study", "--padding", "2"], "--border-study sets it"),
    ],
)
def test_wrong_arguments_of_training(options, what):
    done = train(*options)
    assert done.exit_code == 2
    assert what in " ".join(done.output.replace("│", " ").split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--norm", "none"], "There is no normalisation 'none'"),
        (["--range", "adam_eps=3"], "is not a range"),
        (["--trials", "0"], "--trials"),
        (["--finalists", "-1"], "--finalists"),
    ],
)
def test_wrong_arguments_of_tuning(options, what):
    done = tune(*options)
    assert done.exit_code == 2
    assert what in " ".join(done.output.replace("│", " ").split())


def test_tuning_continues(tmp_path):
    pytest.importorskip("optuna", reason="Optuna is not installed")
    assert tune("--trials", "2", "--at-once", "2", "--quiet").output == ""
    assert (tmp_path / "search" / "batch.journal").is_file()
    done = tune("--trials", "3", "--out", "tables/batch.csv")
    assert done.exit_code == 0, done.output
    assert "3 trials; best: --learning-rate" in words(done)
    assert "--l2" in words(done)
    rows = pd.read_csv(tmp_path / "tables" / "batch.csv")
    assert sorted(rows["trial"]) == [0, 1, 2]
    assert rows["validation_accuracy"].is_monotonic_decreasing


def test_tuning_with_finalists(tmp_path):
    pytest.importorskip("optuna", reason="Optuna is not installed")
    options = ["--trials", "3", "--finalists", "2", "--finalist-epochs", "2", "--decoupled", "--out", "t.csv"]
    done = tune(*options)
    assert done.exit_code == 0, done.output
    assert "--decoupled" in words(done)
    rows = pd.read_csv("t.csv")
    assert rows["epochs"].tolist() == [2, 2, 1, 1, 1]
    numbers = ["learning_rate", "weight_decay"]
    assert sorted(rows[numbers][:2].itertuples(index=False)) == sorted(rows[numbers][2:4].itertuples(index=False))


def test_different_searches_are_different_studies(tmp_path):
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed")
    tune("--trials", "1", "--storage", "sqlite:///s.db")
    tune("--trials", "1", "--storage", "sqlite:///s.db", "--decoupled")
    names = {summary.study_name for summary in optuna.get_all_study_summaries("sqlite:///s.db")}
    assert names == {"cifar10-sample/batch/1", "cifar10-sample/batch/decoupled/1"}


@pytest.mark.parametrize("name", ["train", "tune"])
def test_help(name):
    done = runner.invoke(cli.app, [name, "cifar10", "--help"])
    assert done.exit_code == 0
    assert f"predbn {name} cifar10 --norm batch" in words(done)
