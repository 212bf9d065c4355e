from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from predbn.models import NORMALISATIONS
from predbn.training import crop_images, draw_crops, find_cifar10_recipe, pad_images
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.loop import TrainingRun, run_epoch
from predbn.training.networks import save_network

from ..tiny import TINY, same_weights, small_resnet

SGD = replace(find_cifar10_recipe("cosine", "fixup"), epochs=4, batch_size=8)

pytestmark = pytest.mark.usefixtures("small_network")


def by_hand(recipe, seed, data, epochs):
    """The loop that one would write, with PyTorch's plain Adam or SGD."""
    torch.manual_seed(seed)
    network = small_resnet(recipe.norm, eps=recipe.eps)
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim == 1]
    scalars = [p for p in network.parameters() if p.ndim == 0]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others}, {"params": scalars}]
    if recipe.sgd:
        plain = {"momentum": recipe.momentum, "nesterov": recipe.nesterov, "foreach": False}
        optimiser = torch.optim.SGD(groups, lr=1.0, weight_decay=0.0, **plain)
    else:
        kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
        betas = (recipe.momentum, 0.999)
        optimiser = kind(groups, lr=1.0, betas=betas, eps=recipe.adam_eps, weight_decay=0.0)
    padded = pad_images(data.train.images, recipe.padding, recipe.border)
    for epoch in range(epochs):
        crops = draw_crops(16, recipe.batch_size, seed=seed, epoch=epoch, padding=recipe.padding)
        for step, (order, corner, mirrored) in enumerate(zip(*crops, strict=True)):
            rate = recipe.learning_rate_at(epoch + step * recipe.batch_size / 16)
            for group, factor in zip(optimiser.param_groups, (1, 1, recipe.scalar_rate), strict=True):
                group["lr"] = rate * factor
            pixels = crop_images(padded, order, corner, mirrored, padding=recipe.padding).float() / 127.5 - 1
            loss = F.cross_entropy(network(pixels), data.train.labels[order])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_it_trains_like_a_plain_loop(data, norm):
    recipe = replace(TINY, norm=norm, decoupled=norm == "layer", adam_eps=1e-2)
    if norm == "group":
        recipe = replace(recipe, padding=2, border="reflect")
    trainer = Cifar10Trainer(recipe, 3, data)
    for _ in range(2):
        run_epoch([TrainingRun(trainer)])
    expected = by_hand(recipe, 3, data, 2).state_dict()
    for name, tensor in trainer.network.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=2e-3, atol=2e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("norm", ["batch", "layer", "fixup"])
@pytest.mark.parametrize("name", ["he2016", "cosine"])
def test_it_trains_with_sgd_like_a_plain_loop(data, name, norm):
    recipe = replace(find_cifar10_recipe(name, norm), epochs=4, batch_size=8, warm_up=1, learning_rate=0.05)
    trainer = Cifar10Trainer(recipe, 3, data)
    for _ in range(3):
        run_epoch([TrainingRun(trainer)])
    expected = by_hand(recipe, 3, data, 3).state_dict()
    for name, tensor in trainer.network.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=2e-3, atol=2e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before(data):
    trainers = []
    for seed in (5, 5, 6):
        torch.rand(seed)
        trainer = Cifar10Trainer(TINY, seed, data)
        run_epoch([TrainingRun(trainer)])
        trainers.append(trainer)
    first, second, other = trainers
    assert same_weights(first, second)
    assert not same_weights(first, other)


def test_the_global_random_state_is_not_used(data):
    before = torch.random.get_rng_state()
    Cifar10Trainer(TINY, 0, data).begin_epoch()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("recipe", [TINY, SGD], ids=["adam", "sgd"])
def test_the_state_is_all_that_is_needed_to_resume(data, recipe):
    whole, first = Cifar10Trainer(recipe, 1, data), Cifar10Trainer(recipe, 1, data)
    run_epoch([TrainingRun(first)])
    second = Cifar10Trainer(recipe, 1, data)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        run_epoch([TrainingRun(whole)])
    run_epoch([TrainingRun(second)])
    assert second.epoch == 2
    assert same_weights(whole, second)


@pytest.mark.parametrize("recipe", [TINY, SGD], ids=["adam", "sgd"])
def test_the_learning_rate_follows_the_schedule_after_resuming(data, recipe):
    trainer = Cifar10Trainer(recipe, 1, data)
    run_epoch([TrainingRun(trainer)])
    again = Cifar10Trainer(recipe, 1, data)
    again.load_state_dict(trainer.state_dict())
    factors = [1, 1, recipe.scalar_rate][: len(again.optimiser.param_groups)]
    for epoch in range(1, recipe.epochs):
        again.begin_epoch()
        for step in range(2):
            again.train_step()
            rate = recipe.learning_rate_at(epoch + step / 2)
            rates = [float(group["lr"]) for group in again.optimiser.param_groups]
            assert rates == pytest.approx([rate * factor for factor in factors])
        again.epoch += 1


def test_an_epoch_is_counted(data):
    trainer = Cifar10Trainer(TINY, 0, data)
    run_epoch([TrainingRun(trainer)])
    assert (trainer.epoch, trainer.cursor.item(), trainer.steps) == (1, 2, 2)
    assert 0 <= trainer.correct.item() <= 16
    run_epoch([TrainingRun(trainer)])
    assert trainer.cursor.item() == 2


@torch.no_grad()
def test_validation_changes_nothing_and_counts_every_image(data):
    trainer = Cifar10Trainer(TINY, 0, data)
    before = {name: t.clone() for name, t in trainer.network.state_dict().items()}
    loss, accuracy = trainer.validate(size=3)
    logits = trainer.network.eval()(data.validation.images.float() / 127.5 - 1)
    assert accuracy == (logits.argmax(1) == data.validation.labels).float().mean().item()
    assert loss == pytest.approx(F.cross_entropy(logits, data.validation.labels).item(), rel=1e-4)
    assert all(torch.equal(t, before[name]) for name, t in trainer.network.state_dict().items())


def test_weights_of_vectors_do_not_decay(data):
    trainer = Cifar10Trainer(TINY, 0, data)
    decayed, others = trainer.optimiser.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (TINY.weight_decay, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2, 4}
    assert {p.ndim for p in others["params"]} <= {0, 1}
    assert len(decayed["params"]) + len(others["params"]) == len(list(trainer.network.parameters()))


def test_the_card_has_what_is_needed_to_repeat_the_training(data, images):
    card = json.loads(json.dumps(Cifar10Trainer(TINY, 3, data).card()))
    assert (card["architecture"], card["seed"], card["device"]) == ("resnet20-cifar10/batch", 3, "cpu")
    assert card["recipe"] == {"optimiser": "Adam", **TINY.to_dict()}
    assert card["data"]["test"] == images.sums
    assert card["trained_on"] == f"{images.name}: 16 images"
    assert card["validated_on"] == f"{images.name}: 4 images"
    assert card["software"]["torch"] == torch.__version__
    for changed, optimiser in (({"decoupled": True}, "AdamW"), ({"sgd": True}, "SGD")):
        assert Cifar10Trainer(replace(TINY, **changed), 3, data).card()["recipe"]["optimiser"] == optimiser


def test_the_scores_in_the_card(data, tmp_path):
    trainer = Cifar10Trainer(TINY, 3, data)
    card = save_network(trainer, tmp_path / "3")
    assert card["test"]["images"] == 20
    assert list(card["test"]) == ["images", "accuracy", "nll", "brier", "ece"]
    assert card["validation_accuracy"] == round(trainer.validate()[1], 4)
