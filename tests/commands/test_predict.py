"""`predbn predict` on the command line."""

import csv
import json

import pytest
from PIL import Image
from typer.testing import CliRunner

import predbn
from predbn import cli
from predbn.data import sample
from predbn.models import load

ZOO = "zoo:resnet20-cifar10/batch/0"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Twelve pictures in two subfolders, and their pixels in the order of their names."""
    monkeypatch.syspath_prepend(tmp_path)
    images = sample("test").images[:12]
    for number, image in enumerate(images):
        path = tmp_path / "pictures" / "ab"[number // 6] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return tmp_path / "pictures", images


def predict(*arguments):
    return CliRunner().invoke(cli.app, ["predict", *map(str, arguments)], env={"COLUMNS": "200"})


def test_predictions_are_those_of_the_adapted_model(pictures, tmp_path):
    folder, images = pictures
    out, labels = tmp_path / "new" / "p.csv", tmp_path / "labels.txt"
    labels.write_text("\n".join(CLASSES))
    done = predict(folder, "--model", ZOO, "--batch-size", 6, "--out", out, "--labels", labels)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(out.open()))
    expected = predbn.adapt(load(ZOO), "batch")
    confidence, number = zip(*(expected(part).softmax(1).max(1) for part in images.split(6)), strict=True)
    assert [row["class"] for row in rows] == [CLASSES[i] for part in number for i in part.tolist()]
    assert [float(row["confidence"]) for row in rows] == pytest.approx(
        [value for part in confidence for value in part.tolist()], abs=1e-4
    )
    assert [row["file"] for row in rows] == sorted(str(path) for path in folder.rglob("*.png"))


def test_classes_without_names_are_numbers_and_it_says_so(pictures, tmp_path):
    code = "import torch\nfrom predbn.models import resnet20\n\ndef build():\n    torch.manual_seed(0)\n"
    (tmp_path / "unnamed.py").write_text(f"{code}    return resnet20()\n")
    prepared = ["--mean", "0.5", "--std", "0.5", "--size", 32]
    done = predict(pictures[0], "--model", "unnamed:build", *prepared, "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert "Classes are numbers: --labels FILE names them." in " ".join(done.output.split())
    assert {row["class"] for row in csv.DictReader((tmp_path / "p.csv").open())} <= set(map(str, range(10)))


def test_auto_is_calibrated_on_the_reference_and_json_counts_classes(pictures, tmp_path):
    out = tmp_path / "p.csv"
    clean = ["--reference", "sample", "--images", 100]
    done = predict(pictures[0], "--model", ZOO, "--strategy", "auto", *clean, "--out", out, "--json")
    record = json.loads(done.output)
    assert record["pictures"] == sum(record["classes"].values()) == 12
    assert len(out.read_text().splitlines()) == 13
