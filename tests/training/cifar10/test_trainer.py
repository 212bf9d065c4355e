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

from ..tiny import TINY, small_resnet

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
        plain = {"momentum": recipe.momentum, "nesterov": True, "foreach": False}
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


def recipes():
    """Adam with every normalisation, one of them with a border, and SGD."""
    for norm in NORMALISATIONS:
        recipe = replace(TINY, norm=norm, decoupled=norm == "layer", adam_eps=1e-2)
        yield replace(recipe, padding=2, border="reflect") if norm == "group" else recipe
    for norm in ("batch", "layer", "fixup"):
        yield replace(find_cifar10_recipe("cosine", norm), epochs=4, batch_size=8, learning_rate=0.05)


@pytest.mark.parametrize(
    "recipe", list(recipes()), ids=lambda recipe: f"{recipe.norm}-{'sgd' if recipe.sgd else 'adam'}"
)
def test_it_trains_like_a_plain_loop(data, recipe):
    trainer = Cifar10Trainer(recipe, 3, data)
    for _ in range(2):
        run_epoch([TrainingRun(trainer)])
    expected = by_hand(recipe, 3, data, 2).state_dict()
    for name, tensor in trainer.network.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=2e-3, atol=2e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_the_card_has_what_is_needed_to_repeat_the_training(data, images, tmp_path):
    trainer = Cifar10Trainer(TINY, 3, data)
    card = json.loads(json.dumps(save_network(trainer, tmp_path / "3")))
    assert (card["architecture"], card["seed"], card["device"]) == ("resnet20-cifar10/batch", 3, "cpu")
    assert card["recipe"] == {"optimiser": "Adam", **TINY.to_dict()}
    assert card["data"]["test"] == images.sums
    assert card["trained_on"] == f"{images.name}: 16 images"
    assert card["validated_on"] == f"{images.name}: 4 images"
    assert card["software"]["torch"] == torch.__version__
    assert list(card["test"]) == ["images", "accuracy", "nll", "brier", "ece"]
    assert card["test"]["images"] == 20
    assert card["validation_accuracy"] == round(trainer.validate()[1], 4)
    for changed, optimiser in (({"decoupled": True}, "AdamW"), ({"sgd": True}, "SGD")):
        assert Cifar10Trainer(replace(TINY, **changed), 3, data).card()["recipe"]["optimiser"] == optimiser
