"""`predbn train`."""

import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from predbn import cli
from predbn.commands.train import open_cifar10, parse_seeds
from predbn.data import prepare_synthetic
from predbn.training import TrainingError
from predbn.training.imagenet import trainer

from ..training.imagenet.tiny import tiny_folder, tiny_resnet

SHORT = ["cifar10", "--sample", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _small(small_network, data, tmp_path, monkeypatch):
    monkeypatch.setattr("predbn.commands.train.open_cifar10", lambda root, on_sample, device: data)
    monkeypatch.setattr(trainer, "resnet50", tiny_resnet)
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def words(result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def train(*options):
    return run("train", *SHORT, *options)


def test_training_writes_weights_cards_and_logs(tmp_path):
    done = train("--norm", "layer", "--seeds", "0,2-3", "--at-once", "2", "--learning-rate", "0.003")
    assert done.exit_code == 0, done.output
    for part in (
        "layer/0: test accuracy",
        "mean test accuracy",
        "over 3 seeds",
        "Weights, cards and logs are in runs.",
    ):
        assert part in words(done)
    folder = tmp_path / "runs" / "resnet20-cifar10" / "layer"
    assert len(list(folder.glob("[!.]*"))) == 9
    card = json.loads((folder / "2.json").read_text())
    assert (card["seed"], card["recipe"]["learning_rate"], card["recipe"]["epochs"]) == (2, 0.003, 1)


def test_training_again():
    assert train("--quiet").output == ""
    again = train()
    assert isinstance(again.exception, TrainingError)
    assert "use --resume" in str(again.exception)
    kept = train("--resume", "--seeds", "0-1")
    assert kept.exit_code == 0
    assert "batch/1: test accuracy" in words(kept)
    assert "batch/0" not in words(kept)


def test_a_compiled_network_is_trained_and_stored_like_any_other(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model, **options: compiled.append(model) or model)
    for out, options in (("plain", []), ("compiled", ["--compile"])):
        assert train("--out", out, *options).exit_code == 0
    assert len(compiled) == 1
    plain, other = (tmp_path / out / "resnet20-cifar10/batch/0.safetensors" for out in ("plain", "compiled"))
    assert plain.read_bytes() == other.read_bytes()


def test_the_border_is_in_the_card(tmp_path):
    changes = ["--recipe", "cosine", "--weight-decay", "1e-4", "--padding", "2", "--border", "reflect"]
    assert train("--out", "reflected", *changes).exit_code == 0
    recipe = json.loads((tmp_path / "reflected/resnet20-cifar10/batch/0.json").read_text())["recipe"]
    assert (recipe["border"], recipe["padding"]) == ("reflect", 2)
    assert (recipe["optimiser"], recipe["schedule"], recipe["weight_decay"]) == ("SGD", "cosine", 1e-4)


def test_criteo(tmp_path):
    prepare_synthetic(3_000, tmp_path / "rows")
    arguments = ["train", "criteo", "--root", "rows", "--widths", "8", "--device", "cpu", "--batch-size", "512"]
    arguments += ["--max-buckets", "20", "--max-dimensions", "2"]
    done = run(*arguments, "--seeds", "0-1")
    assert done.exit_code == 0, done.output
    assert "seed 1, criteo-synthetic-test: test AUC" in words(done)
    assert "over 2 seeds" in words(done)
    assert (tmp_path / "runs" / "criteo-mlp" / "1.safetensors").exists()


def test_imagenet(tmp_path):
    tiny_folder(tmp_path / "data")
    arguments = ["train", "imagenet", "--root", "data", "--size", "16", "--batch-size", "4", "--epochs", "2"]
    arguments += ["--workers", "0", "--device", "cpu"]
    done = run(*arguments, "--subset")
    assert done.exit_code == 0, done.output
    assert "Validation accuracy" in done.output
    assert (tmp_path / "runs" / "resnet50-imagenet" / "batch" / "0.safetensors").is_file()
    again = run(*arguments, "--subset", "--resume", "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    wrong = run(*arguments)
    assert isinstance(wrong.exception, TrainingError)
    assert "use --subset" in str(wrong.exception)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", [3]), ("0-9", list(range(10))), ("0,2,5-7", [0, 2, 5, 6, 7]), ("2,1,1-2", [1, 2]), ("0-", [0])],
)
def test_seeds(text, expected):
    assert parse_seeds(text) == expected


@pytest.mark.parametrize("text", ["", "a", "9-0", "-1", "1,,2", "1.5"])
def test_no_seeds(text):
    with pytest.raises(typer.BadParameter, match="is not a list of seeds: write 0-9 or 0,3,7"):
        parse_seeds(text)


def test_the_sample_is_split():
    data = open_cifar10(None, True, torch.device("cpu"))
    assert (len(data.train), len(data.validation), len(data.test)) == (800, 200, 2000)
    assert not set(data.train.index.tolist()) & set(data.validation.index.tolist())
