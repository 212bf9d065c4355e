"""The files of finished and interrupted networks."""

import hashlib
from dataclasses import replace

import pytest
import torch

from predbn.common import lock_folder, read_json
from predbn.models import NORMALISATIONS, Classifier, ModelInfo, load_weights, read_weights
from predbn.training import TrainingError, networks, train_cifar10
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.networks import finished_networks
from predbn.training.run_files import write_checkpoint

from .tiny import PREPROCESSING, TINY, Interrupted, flip_a_bit, interrupt_after, small_resnet

pytestmark = pytest.mark.usefixtures("small_network")
SHORT = replace(TINY, epochs=1)


def files(folder):
    """All files of a folder but the locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def folder_of(out, norm="batch"):
    return out / "resnet20-cifar10" / norm


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


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_networks_are_written_in_the_layout_of_the_zoo(data, images, tmp_path, trained, norm):
    """The stored weights, in half precision, predict as the trained ones, and the card has their scores."""
    cards = {}
    recipe, seeds = replace(SHORT, norm=norm), [0, 3, 4] if norm == "batch" else [0]
    train_cifar10(recipe, seeds, data, tmp_path, side_by_side=2, on_network=cards.__setitem__)
    trainers = {trainer.seed: trainer for group in trained for trainer in group}
    assert [len(group) for group in trained] == ([2, 1] if norm == "batch" else [1])
    folder = folder_of(tmp_path, norm)
    assert files(folder) == sorted(f"{seed}.{kind}" for seed in seeds for kind in ("csv", "json", "safetensors"))
    for seed, card in cards.items():
        path = folder / f"{seed}.safetensors"
        assert read_json(folder / f"{seed}.json", error=TrainingError, remedy="") == card
        assert card["weights_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        network = small_resnet(norm)
        load_weights(network, read_weights(path)[0], "stored")
        stored = Classifier(network, ModelInfo("stored", 10, PREPROCESSING)).eval()
        with torch.no_grad():
            before, after = (model(images.images).softmax(1) for model in (trainers[seed].model.eval(), stored))
        assert (before - after).abs().max() < 1e-2
        accuracy = (after.argmax(1) == images.labels).double().mean().item()
        assert card["test"]["accuracy"] == pytest.approx(accuracy, abs=1e-6)


def test_finished_networks_are_kept(data, tmp_path):
    train_cifar10(SHORT, [0], data, tmp_path)
    with pytest.raises(TrainingError, match=r"0\.json exists already: use --resume to keep it, or choose"):
        train_cifar10(SHORT, [0, 1], data, tmp_path)
    folder = folder_of(tmp_path)
    (folder / "0.checkpoint").touch()  # killed between writing the card and deleting the checkpoint
    assert list(finished_networks(SHORT, [0, 1], folder, resume=True)) == [0]
    assert not (folder / "0.checkpoint").exists()
    with pytest.raises(TrainingError, match=r"0\.json belongs to a run with momentum 0\.9, not 0\.5"):
        finished_networks(replace(SHORT, momentum=0.5), [0], folder, resume=True)
    seeds = []
    train_cifar10(SHORT, [0, 1], data, tmp_path, resume=True, on_network=lambda seed, card: seeds.append(seed))
    assert seeds == [1]
    (folder / "0.json").unlink()
    with pytest.raises(TrainingError, match=r"0\.safetensors exists already"):
        train_cifar10(SHORT, [0], data, tmp_path)


def test_a_network_interrupted_before_its_card_is_finished_again(data, tmp_path, monkeypatch):
    expected, cards = {}, {}
    train_cifar10(SHORT, [0], data, tmp_path / "whole", on_network=expected.__setitem__)
    with monkeypatch.context() as patch:
        patch.setattr(Cifar10Trainer, "score_stored", interrupt_after(1))
        with pytest.raises(Interrupted):
            train_cifar10(SHORT, [0], data, tmp_path)
    folder = folder_of(tmp_path)
    assert files(folder) == ["0.checkpoint", "0.csv", "0.safetensors"]
    assert torch.load(folder / "0.checkpoint")["seed"] == 0, "any program can read it with PyTorch"
    train_cifar10(SHORT, [0], data, tmp_path, resume=True, on_network=cards.__setitem__)
    assert cards == expected
    assert files(folder) == ["0.csv", "0.json", "0.safetensors"]
    stored = [folder_of(out) / "0.safetensors" for out in (tmp_path, tmp_path / "whole")]
    assert stored[0].read_bytes() == stored[1].read_bytes()


def test_a_network_that_diverges_is_reported_when_the_others_are_written(data, tmp_path, monkeypatch):
    real = Cifar10Trainer.train_step

    def train_step(self):
        if self.seed == 0:
            self.network.fc.bias.data.fill_(float("inf"))
        real(self)

    monkeypatch.setattr(Cifar10Trainer, "train_step", train_step)
    with pytest.raises(TrainingError, match=r"no longer finite with seed 0 \(epoch 1\): lower the learning rate"):
        train_cifar10(SHORT, [0, 1, 2], data, tmp_path, side_by_side=2)
    assert list(finished_networks(SHORT, [0, 1, 2], folder_of(tmp_path), resume=True)) == [1, 2]


def test_a_network_that_is_locked_is_refused_and_other_seeds_are_not(data, tmp_path):
    """Two processes on one run wrote every row of its log twice."""
    folder = folder_of(tmp_path)
    with lock_folder(folder, run="0"):
        for resume in (False, True):
            with pytest.raises(TrainingError, match=r"another process is writing to .*batch.0: wait for it, or choose"):
                train_cifar10(SHORT, [1, 0], data, tmp_path, resume=resume)
        assert files(folder) == []
        train_cifar10(SHORT, [1], data, tmp_path)
    with pytest.raises(Interrupted):
        train_cifar10(SHORT, [0], data, tmp_path, progress=interrupt_after(1))
    train_cifar10(SHORT, [0, 1], data, tmp_path, resume=True)  # the lock was released after the error
    assert [len((folder / f"{seed}.csv").read_text().splitlines()) for seed in (0, 1)] == [2, 2]


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_finished_network_that_is_damaged_or_lost_is_not_kept(data, tmp_path, suffix):
    train_cifar10(SHORT, [0], data, tmp_path)
    path = folder_of(tmp_path) / f"0.{suffix}"
    before = path.read_bytes()
    flip_a_bit(path)
    with pytest.raises(TrainingError, match=rf"0\.{suffix} is damaged.*: delete 0\.json and 0\.safetensors to train"):
        train_cifar10(SHORT, [0], data, tmp_path, resume=True)
    if suffix == "safetensors":
        path.unlink()
        with pytest.raises(TrainingError, match=r"0\.json exists, but .*0\.safetensors does not: delete 0\.json and"):
            train_cifar10(SHORT, [0], data, tmp_path, resume=True)
    for file in ("0.json", "0.safetensors"):
        (folder_of(tmp_path) / file).unlink(missing_ok=True)
    train_cifar10(SHORT, [0], data, tmp_path, resume=True)
    assert path.read_bytes() == before


def test_checkpoints_that_cannot_be_continued(data, tmp_path):
    path = folder_of(tmp_path) / "0.checkpoint"
    path.parent.mkdir(parents=True)
    for content in ({"network": {}}, []):
        torch.save(content, path)
        with pytest.raises(TrainingError, match=r"cannot be read as a checkpoint \(.+\): delete it to start again"):
            train_cifar10(SHORT, [0], data, tmp_path, resume=True)
    written = []
    for _ in range(2):
        write_checkpoint(path, {"recipe": SHORT.to_dict(), "seed": 0, "epoch": 1, "network": {}})
        written.append(path.read_bytes())
    assert written[0] == written[1]
    with pytest.raises(TrainingError, match=r"0\.checkpoint does not fit the network \(.+\): delete it to start again"):
        train_cifar10(SHORT, [0], data, tmp_path, resume=True)
    flip_a_bit(path)
    with pytest.raises(TrainingError, match=r"0\.checkpoint is damaged \(its content .*\): delete it to start again"):
        train_cifar10(SHORT, [0], data, tmp_path, resume=True)
