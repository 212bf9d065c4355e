"""Grey pictures, and DataLoaders of the user's own, on the command line."""

import json
import shutil
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from predbn import cli
from predbn.data import open_images
from predbn.models import Preprocessing, match_channels

runner = CliRunner()

MINE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def net(channels=1):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )

def four_channels():
    return net(4)

def squares(gain):
    labels = torch.arange(200) % 2
    images = torch.rand(200, 1, 10, 10, generator=torch.Generator().manual_seed(int(10 * gain))) * 0.3
    images[labels == 1, :, 3:7, 3:7] += 0.6
    return gain * images, labels

def loader(gain):
    images, labels = squares(gain)
    return DataLoader(TensorDataset((images - 0.2) / 0.3, labels), 32, shuffle=True)

def clean():
    return loader(1.0)

def dark():
    return loader(0.2)

def unlabelled():
    return [images for images, _ in loader(0.2)]

def odd():
    return ["text"]
"""
GREY = ["--mean", "0.2", "--std", "0.3", "--size", "10"]
MODEL = ["--model", "mine:net", "--weights", "w.pt", "--device", "cpu"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A module with a grey network and loaders, trained weights, and folders of grey pictures."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine.py").write_text(MINE)
    scope: dict = {}
    exec(MINE, scope)
    images, labels = scope["squares"](1.0)
    network = scope["net"]()
    optimiser = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network((images - 0.2) / 0.3), labels).backward()
        optimiser.step()
    torch.save(network.state_dict(), folder / "w.pt")
    for name, gain in (("clean", 1.0), ("dark", 0.2)):
        images, labels = scope["squares"](gain)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = folder / name / str(int(label)) / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * image[0]).round().byte().numpy()).save(path)
    np.save(folder / "clean.npy", (255 * scope["squares"](1.0)[0][:, 0]).round().byte().numpy())
    return folder


@pytest.fixture
def here(project, tmp_path, monkeypatch):
    """The project as the current folder; results go to `tmp_path`."""
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path, "."])
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    yield tmp_path
    sys.modules.pop("mine", None)


QUICKLY = ["--json", "--no-report"]


def predbn(*arguments):
    return runner.invoke(cli.app, [str(argument) for argument in arguments])


SHIFT = {
    "folders": [*GREY, "--reference", "clean", "--data", "dark"],
    "loaders": ["--reference", "loader:mine:clean", "--data", "loader:mine:dark"],
}


@pytest.mark.parametrize("data", SHIFT.values(), ids=SHIFT)
def test_evaluate_says_what_to_use(here, data):
    result = predbn("evaluate", *MODEL, *data, "--out", here / "run", "--batch-size", 20)
    assert result.exit_code == 0, result.output
    assert result.output.strip().startswith("Use ")
    assert " points" in result.output.split(".    import")[0]
    assert (here / "run" / "report.html").exists()


@pytest.mark.parametrize("data", SHIFT.values(), ids=SHIFT)
def test_doctor_sees_the_shift(here, data):
    result = predbn("doctor", *MODEL, *data)
    assert result.exit_code == 1, result.output
    assert "The data has shifted" in result.output


@pytest.mark.parametrize("data", [[*GREY, "--data", "clean.npy"], ["--data", "loader:mine:unlabelled"]])
@pytest.mark.parametrize("command", ["calibrate", "recompute"])
def test_other_commands_take_them_too(here, command, data):
    result = predbn(command, *MODEL, *data, "--out", here / "out.safetensors")
    assert result.exit_code == 0, result.output
    assert "200 pictures" in result.output


def test_grey_pictures_are_corrupted(here):
    result = predbn("evaluate", *MODEL, *GREY, "--data", "clean", "--severity", 5, *QUICKLY, "--out", here / "run")
    assert result.exit_code == 0, result.output
    measured = json.loads(result.output)
    assert {row["severity"] for row in measured["by_severity"]} == {0, 5}
    wrong = predbn("evaluate", *MODEL, *GREY, "--data", "clean", "--shift", "saturate", "--out", here / "run")
    assert (wrong.exit_code, wrong.exception) != (0, None)
    assert "saturate" in str(wrong.exception)


def test_a_loader_is_measured_as_it_is(here):
    data = ["--data", "loader:mine:dark", "--no-report", "--out", here / "run"]
    assert predbn("evaluate", *MODEL, *data).exit_code == 0
    fog = predbn("evaluate", *MODEL, *data, "--shift", "fog")
    assert "only pixels are corrupted" in str(fog.exception)


@pytest.mark.parametrize("options", [["--shift", "clean"], ["--reference"]])
def test_classes_in_another_order_are_doubted(here, options):
    for old, new in (("0", "z"), ("1", "a")):  # the outputs are those of 0 and 1
        shutil.copytree(f"clean/{old}", here / "swapped" / new)
    for data, is_doubted in (("clean", False), (here / "swapped", True)):
        given = [*options, data] if options == ["--reference"] else options
        out = here / f"run-{is_doubted}"
        result = predbn("evaluate", *MODEL, *GREY, "--data", data, *given, *QUICKLY, "--out", out)
        assert result.exit_code == 0, result.output
        found = json.loads(result.output)
        sentences = found["recommendation"] if "recommendation" in found else found["comparisons"][0]["sentences"]
        assert sentences[0].startswith("Do not use these results: accuracy on ") == is_doubted
        assert ("--class-map" in sentences[0]) == is_doubted


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "loader:mine:unlabelled"], "yields no labels"),
        (["--data", "loader:mine:odd"], "yields str, but must yield floats"),
        (["--data", "loader:mine:nothing"], "mine has no function 'nothing'"),
        (["--data", "loader:mine:dark", *GREY], "leave out --mean, --std and --size"),
        (["--data", "loader:mine:dark", "--reference", "clean"], "name loaders for all data"),
        (["--data", "clean"], "has no preprocessing"),
        (["--data", "clean", "--size", "2"], "cannot predict images of 2×2 with 1 or 3 channels"),
        (["--data", "clean", "--size", "10", "--mean", "0,0"], "cannot predict images of 10×10 with 2 channels"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(here, arguments, sentence):
    result = predbn("evaluate", *MODEL, *arguments, "--out", here / "run")
    shown = " ".join((result.output + result.stderr).replace("│", " ").split())
    assert result.exit_code != 0
    assert sentence in f"{shown} {result.exception}"


def test_a_picture_has_one_or_three_channels(here):
    torch.save(import_module("mine").four_channels().state_dict(), here / "four.pt")
    model = ["--model", "mine:four_channels", "--weights", here / "four.pt", "--mean", "0,0,0,0", "--size", "10"]
    result = predbn("evaluate", *model, "--data", "clean", "--out", here / "run")
    assert "the model takes 4, so give a .npy file" in str(result.exception)


def test_a_network_with_three_channels_takes_one_mean_for_all(here):
    mine = import_module("mine")
    grey = Preprocessing((10, 10), (51.0,), (76.5,))
    assert match_channels("it", mine.net(), grey) == (grey, 2)
    assert match_channels("it", mine.net(3), grey)[0].mean == (51.0,) * 3


def test_a_loader_is_read_once_in_order_and_in_part(here):
    images = open_images("loader:mine:clean", "test")
    assert images.images.shape == (200, 1, 10, 10)
    assert images.images.dtype == torch.float32
    assert sorted(images.labels.tolist()) == [0] * 100 + [1] * 100
    some = open_images("loader:mine:clean", "test", images=40)
    assert torch.equal(some.images, images.images[:40])
    assert torch.equal(some.labels, images.labels[:40])
