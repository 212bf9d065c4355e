from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from predbn.common import lock_folder, read_json
from predbn.models import Classifier, ModelInfo, load_weights, read_weights
from predbn.training import TrainingError, networks, train_cifar10
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.networks import finished_networks
from predbn.training.run_files import write_checkpoint

from .tiny import PREPROCESSING, TINY, small_resnet

pytestmark = pytest.mark.usefixtures("small_network")


def files(folder):
    """All files of a folder but the locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def folder_of(out, norm="batch"):
    return out / "resnet20-cifar10" / norm


def load_stored(out, norm, seed):
    network = small_resnet(norm)
    load_weights(network, read_weights(folder_of(out, norm) / f"{seed}.safetensors")[0], "stored")
    return Classifier(network, ModelInfo("stored", 10, PREPROCESSING)).eval()


@pytest.fixture
def trained(monkeypatch):
    """The trainers of each call of the loop."""
    calls = []
    real = networks.train_side_by_side

    def train_side_by_side(runs, **options):
        calls.append([run.trainer for run in runs])
        real(runs, **options)

    monkeypatch.setattr(networks, "train_side_by_side", train_side_by_side)
    return calls


@pytest.mark.parametrize("norm", ["batch", "group", "last"])
def test_networks_are_written_in_the_layout_of_the_zoo(data, images, tmp_path, trained, norm):
    cards = {}
    recipe = replace(TINY, norm=norm)
    train_cifar10(recipe, [0, 3, 4], data, tmp_path, side_by_side=2, on_network=cards.__setitem__)
    assert [[trainer.seed for trainer in trainers] for trainers in trained] == [[0, 3], [4]]
    folder = folder_of(tmp_path, norm)
    assert files(folder) == sorted(f"{seed}.{kind}" for seed in (0, 3, 4) for kind in ("csv", "json", "safetensors"))
    for seed, card in cards.items():
        assert read_json(folder / f"{seed}.json", error=TrainingError, remedy="") == card
        assert card["weights_sha256"] == hashlib.sha256((folder / f"{seed}.safetensors").read_bytes()).hexdigest()
        with torch.no_grad():
            stored = load_stored(tmp_path, norm, seed)(images.images).softmax(1)
        accuracy = (stored.argmax(1) == images.labels).double().mean().item()
        assert card["test"]["accuracy"] == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.parametrize("norm", ["batch", "instance", "layer", "group", "fixup", "last"])
def test_storage_in_half_precision_does_not_change_predictions(data, images, tmp_path, trained, norm):
    train_cifar10(replace(TINY, norm=norm), [0], data, tmp_path)
    models = trained[0][0].classifier.eval(), load_stored(tmp_path, norm, 0)
    with torch.no_grad():
        before, after = (model(images.images).softmax(1) for model in models)
    assert (before - after).abs().max() < 1e-2


def test_finished_networks_are_kept(data, tmp_path):
    train_cifar10(TINY, [0], data, tmp_path)
    with pytest.raises(TrainingError, match=r"0\.json exists already: use --resume to keep it, or choose"):
        train_cifar10(TINY, [0, 1], data, tmp_path)
    folder = folder_of(tmp_path)
    (folder / "0.checkpoint").touch()  # killed between writing the card and deleting the checkpoint
    assert list(finished_networks(TINY, [0, 1], folder, resume=True)) == [0]
    assert not (folder / "0.checkpoint").exists()
    with pytest.raises(TrainingError, match=r"0\.json belongs to a run with momentum 0\.9, not 0\.5"):
        finished_networks(replace(TINY, momentum=0.5), [0], folder, resume=True)
    seeds = []
    train_cifar10(TINY, [0, 1], data, tmp_path, resume=True, on_network=lambda seed, card: seeds.append(seed))
    assert seeds == [1]
    (folder / "0.json").unlink()
    with pytest.raises(TrainingError, match=r"0\.safetensors exists already"):
        train_cifar10(TINY, [0], data, tmp_path)


def test_a_network_interrupted_before_its_card_is_finished_again(data, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    expected, cards = {}, {}
    train_cifar10(TINY, [0], data, tmp_path / "whole", on_network=expected.__setitem__)
    with monkeypatch.context() as patch:
        patch.setattr(Cifar10Trainer, "score_stored", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_cifar10(TINY, [0], data, tmp_path)
    folder = folder_of(tmp_path)
    assert files(folder) == ["0.checkpoint", "0.csv", "0.safetensors"]
    train_cifar10(TINY, [0], data, tmp_path, resume=True, on_network=cards.__setitem__)
    assert cards == expected
    assert files(folder) == ["0.csv", "0.json", "0.safetensors"]
    stored = [folder_of(out) / "0.safetensors" for out in (tmp_path, tmp_path / "whole")]
    assert stored[0].read_bytes() == stored[1].read_bytes()


def test_a_network_that_diverges_is_reported_when_the_others_are_written(data, tmp_path, monkeypatch):
    real = Cifar10Trainer.train_step

    def train_step(self):
        if self.seed == 0 and self.epoch == 2:
            self.network.fc.bias.data.fill_(float("inf"))
        real(self)

    monkeypatch.setattr(Cifar10Trainer, "train_step", train_step)
    with pytest.raises(TrainingError, match=r"stopped being a number with seed 0 \(epoch 3\): lower the learning rate"):
        train_cifar10(TINY, [0, 1, 2], data, tmp_path, side_by_side=2)
    assert list(finished_networks(TINY, [0, 1, 2], folder_of(tmp_path), resume=True)) == [1, 2]


def test_progress_includes_what_was_trained_before(data, tmp_path):
    reports = []

    def progress(done, total, note):
        reports.append((done, total))
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_cifar10(TINY, [0], data, tmp_path, checkpoint_every=1, progress=progress)
    assert reports == [(done, 8) for done in range(1, 7)]
    reports.clear()
    train_cifar10(
        TINY, [0, 1], data, tmp_path, side_by_side=1, resume=True, progress=lambda *report: reports.append(report[:2])
    )
    assert reports == [(done, 16) for done in range(7, 17)]


def test_at_least_one_side_by_side(data, tmp_path):
    with pytest.raises(TrainingError, match="side_by_side is 0"):
        train_cifar10(TINY, [0], data, tmp_path, side_by_side=0)


HOLD = """
import sys
from pathlib import Path
from predbn.common import lock_folder
with lock_folder(Path(sys.argv[1]), run="0"):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_network_that_another_process_trains_is_refused_and_other_seeds_are_not(data, tmp_path):
    """Two processes on one run wrote every row of its log twice."""
    folder = folder_of(tmp_path)
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        for resume in (False, True):
            with pytest.raises(TrainingError, match=r"another process is writing to .*batch.0: wait for it, or choose"):
                train_cifar10(TINY, [1, 0], data, tmp_path, resume=resume)
        assert files(folder) == []
        train_cifar10(TINY, [1], data, tmp_path)
        other.stdin.close()
    train_cifar10(TINY, [0, 1], data, tmp_path, resume=True)
    assert [len((folder / f"{seed}.csv").read_text().splitlines()) for seed in (0, 1)] == [1 + TINY.epochs] * 2


def test_the_locks_are_released_after_an_error(data, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_cifar10(TINY, [0], data, tmp_path, progress=interrupt)
    with lock_folder(folder_of(tmp_path), run="0"):
        pass


def interrupt(*arguments, **options):
    raise KeyboardInterrupt


def flip(path, bit=0x10):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= bit
    path.write_bytes(content)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_finished_network_that_is_damaged_or_lost_is_not_kept(data, tmp_path, suffix):
    train_cifar10(TINY, [0], data, tmp_path)
    path = folder_of(tmp_path) / f"0.{suffix}"
    before = path.read_bytes()
    flip(path)
    with pytest.raises(TrainingError, match=rf"0\.{suffix} is damaged.*: delete 0\.json and 0\.safetensors to train"):
        train_cifar10(TINY, [0], data, tmp_path, resume=True)
    if suffix == "safetensors":
        path.unlink()
        with pytest.raises(TrainingError, match=r"0\.json exists, but .*0\.safetensors does not: delete 0\.json and"):
            train_cifar10(TINY, [0], data, tmp_path, resume=True)
    for each in ("json", "safetensors"):
        (folder_of(tmp_path) / f"0.{each}").unlink(missing_ok=True)
    train_cifar10(TINY, [0], data, tmp_path, resume=True)
    assert path.read_bytes() == before


def test_a_damaged_checkpoint_is_not_continued(data, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_cifar10(TINY, [0], data, tmp_path, checkpoint_every=1, progress=stop_after(5))
    path = folder_of(tmp_path) / "0.checkpoint"
    flip(path)
    with pytest.raises(TrainingError, match=r"0\.checkpoint is damaged \(its content .*\): delete it to start again"):
        train_cifar10(TINY, [0], data, tmp_path, resume=True)


def stop_after(steps):
    def progress(done, total, note):
        if done == steps:
            raise KeyboardInterrupt

    return progress


def test_a_checkpoint_of_another_network_is_an_error_that_names_it(data, tmp_path):
    path = folder_of(tmp_path) / "0.checkpoint"
    write_checkpoint(path, {"recipe": TINY.to_dict(), "seed": 0, "epoch": 1, "network": {}})
    with pytest.raises(TrainingError, match=r"0\.checkpoint does not fit the network \(.+\): delete it to start again"):
        train_cifar10(TINY, [0], data, tmp_path, resume=True)
