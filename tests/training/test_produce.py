from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from predbn.models import Classifier, Description
from predbn.models.weights import load_weights
from predbn.models.weights import read_weights as read
from predbn.training import Trainee, TrainingError, produce, train_together
from predbn.training.produce import place_of, unfinished

from .tiny import PICTURES, TINY, small_resnet

pytestmark = pytest.mark.usefixtures("small_network")


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("norm", ["batch", "group", "last"])
@torch.no_grad()
def test_networks_as_the_zoo_keeps_them(sets, images, tmp_path, norm):
    recipe, cards, epochs = replace(TINY, norm=norm), {}, []
    with torch.enable_grad():
        produce(
            recipe,
            [0, 3, 4],
            sets,
            tmp_path,
            at_once=2,
            on_network=cards.__setitem__,
            on_epoch=lambda ended: epochs.append([epoch.run.seed for epoch in ended]),
        )
    assert epochs == [[0, 3]] * 4 + [[4]] * 4
    folder = tmp_path / "resnet20-cifar10" / norm
    assert files(folder) == sorted(f"{seed}.{kind}" for seed in (0, 3, 4) for kind in ("csv", "json", "safetensors"))
    for seed, card in cards.items():
        place = place_of(tmp_path, norm, seed)
        assert json.loads(place.with_suffix(".json").read_text()) == card
        network = small_resnet(norm)
        load_weights(network, read(place.with_suffix(".safetensors"))[0], "stored")
        stored = Classifier(network, Description("stored", 10, PICTURES)).eval()(images.images).softmax(1)
        accuracy = (stored.argmax(1) == images.labels).double().mean().item()
        assert card["test"]["accuracy"] == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.parametrize("norm", ["batch", "instance", "layer", "group", "fixup", "last"])
@torch.no_grad()
def test_storage_in_half_precision_changes_no_prediction(sets, images, tmp_path, monkeypatch, norm):
    trained = []

    def watched(*arguments, **options):
        trained.extend(train_together(*arguments, **options))
        return trained

    monkeypatch.setitem(produce.__globals__, "train_together", watched)
    with torch.enable_grad():
        produce(replace(TINY, norm=norm), [0], sets, tmp_path)
    ((trainee, _),) = trained
    network = small_resnet(norm)
    load_weights(network, read(place_of(tmp_path, norm, 0).with_suffix(".safetensors"))[0], "stored")
    stored = Classifier(network, Description("stored", 10, PICTURES)).eval()
    before, after = (model(images.images).softmax(1) for model in (trainee.classifier.eval(), stored))
    assert (before - after).abs().max() < 1e-2


def test_networks_that_are_there(sets, tmp_path):
    produce(TINY, [0], sets, tmp_path)
    with pytest.raises(TrainingError, match=r"0\.json is there already: give --resume to keep it, or choose"):
        produce(TINY, [0, 1], sets, tmp_path)
    assert unfinished(TINY, [0, 1], tmp_path, resume=True) == [1]
    with pytest.raises(TrainingError, match=r"0\.json is of a run with momentum 0\.9, not 0\.5"):
        unfinished(replace(TINY, momentum=0.5), [0], tmp_path, resume=True)
    seen = []
    produce(TINY, [0, 1], sets, tmp_path, resume=True, on_network=lambda seed, card: seen.append(seed))
    assert seen == [1]


def test_a_network_interrupted_before_its_card_is_finished_again(sets, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    wanted, found = {}, {}
    produce(TINY, [0], sets, tmp_path / "whole", on_network=wanted.__setitem__)
    with monkeypatch.context() as patch:
        patch.setattr("predbn.training.card.make", stop)
        with pytest.raises(KeyboardInterrupt):
            produce(TINY, [0], sets, tmp_path)
    folder = place_of(tmp_path, "batch", 0).parent
    assert files(folder) == ["0.checkpoint", "0.csv", "0.safetensors"]
    produce(TINY, [0], sets, tmp_path, resume=True, on_network=found.__setitem__)
    assert found == wanted
    assert files(folder) == ["0.csv", "0.json", "0.safetensors"]
    stored = [place_of(out, "batch", 0).with_suffix(".safetensors") for out in (tmp_path, tmp_path / "whole")]
    assert stored[0].read_bytes() == stored[1].read_bytes()


def test_a_network_that_diverges_is_told_when_the_others_are_written(sets, tmp_path, monkeypatch):
    real = Trainee.step

    def step(self):
        if self.seed == 0 and self.epoch == 2:
            self.network.fc.bias.data.fill_(float("inf"))
        real(self)

    monkeypatch.setattr(Trainee, "step", step)
    with pytest.raises(TrainingError, match=r"stopped being a number with seed 0 \(epoch 3\): lower the learning rate"):
        produce(TINY, [0, 1, 2], sets, tmp_path, at_once=2)
    assert unfinished(TINY, [0, 1, 2], tmp_path, resume=True) == [0]


def test_at_least_one_at_once(sets, tmp_path):
    with pytest.raises(TrainingError, match="at_once is 0"):
        produce(TINY, [0], sets, tmp_path, at_once=0)
