from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from predbn.models.normalisation import NORMALISATIONS
from predbn.training import Trainee
from predbn.training.augmentation import crop, draw, pad
from predbn.training.cohort import one_epoch

from .tiny import TINY, same_weights, small_resnet

pytestmark = pytest.mark.usefixtures("small_network")


def by_hand(recipe, seed, sets, epochs):
    """The loop that one would write, with PyTorch's plain Adam."""
    torch.manual_seed(seed)
    network = small_resnet(recipe.norm, eps=recipe.eps)
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
    optimiser = kind(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=1.0,
        betas=(recipe.momentum, 0.999),
        eps=recipe.adam_eps,
    )
    padded = pad(sets.train.images)
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(epoch)
        for order, corner, mirrored in zip(*draw(16, recipe.batch_size, seed=seed, epoch=epoch), strict=True):
            pixels = crop(padded, order, corner, mirrored).float() / 127.5 - 1
            loss = F.cross_entropy(network(pixels), sets.train.labels[order])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network


@pytest.mark.parametrize("norm", NORMALISATIONS)
def test_it_trains_as_a_plain_loop_does(sets, norm):
    recipe = replace(TINY, norm=norm, decoupled=norm == "layer", adam_eps=1e-2)
    trainee = Trainee(recipe, 3, sets.on_device)
    for _ in range(2):
        one_epoch([trainee])
    wanted = by_hand(recipe, 3, sets, 2).state_dict()
    for name, tensor in trainee.network.state_dict().items():
        torch.testing.assert_close(tensor, wanted[name], rtol=2e-3, atol=2e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before(data):
    trainees = []
    for seed in (5, 5, 6):
        torch.rand(seed)
        trainee = Trainee(TINY, seed, data)
        one_epoch([trainee])
        trainees.append(trainee)
    first, second, other = trainees
    assert same_weights(first, second)
    assert not same_weights(first, other)


def test_building_one_draws_nothing_global(data):
    before = torch.random.get_rng_state()
    Trainee(TINY, 0, data).begin_epoch()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_state_is_all_that_is_needed_to_go_on(data):
    whole, first = Trainee(TINY, 1, data), Trainee(TINY, 1, data)
    one_epoch([first])
    second = Trainee(TINY, 1, data)
    second.load_state(first.state())
    for _ in range(2):
        one_epoch([whole])
    one_epoch([second])
    assert second.epoch == 2
    assert same_weights(whole, second)


def test_the_learning_rate_follows_the_schedule_after_a_resumption_too(data):
    trainee = Trainee(TINY, 1, data)
    one_epoch([trainee])
    again = Trainee(TINY, 1, data)
    again.load_state(trainee.state())
    for epoch in range(1, TINY.epochs):
        again.begin_epoch()
        assert [float(group["lr"]) for group in again.optimiser.param_groups] == pytest.approx([TINY.rate(epoch)] * 2)
        again.end_epoch()


def test_an_epoch_is_counted(data):
    trainee = Trainee(TINY, 0, data)
    one_epoch([trainee])
    assert (trainee.epoch, trainee.cursor.item(), trainee.steps) == (1, 2, 2)
    assert 0 <= trainee.correct.item() <= 16
    one_epoch([trainee])
    assert trainee.cursor.item() == 2


@torch.no_grad()
def test_validation_changes_nothing_and_counts_every_image(data, sets):
    trainee = Trainee(TINY, 0, data)
    before = {name: t.clone() for name, t in trainee.network.state_dict().items()}
    accuracy, loss = trainee.validate(size=3)
    logits = trainee.network.eval()(sets.validation.images.float() / 127.5 - 1)
    assert accuracy == (logits.argmax(1) == sets.validation.labels).float().mean().item()
    assert loss == pytest.approx(F.cross_entropy(logits, sets.validation.labels).item(), rel=1e-4)
    assert all(torch.equal(t, before[name]) for name, t in trainee.network.state_dict().items())


def test_weights_of_vectors_do_not_decay(data):
    trainee = Trainee(TINY, 0, data)
    decayed, others = trainee.optimiser.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (TINY.weight_decay, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2, 4}
    assert {p.ndim for p in others["params"]} <= {0, 1}
    assert len(decayed["params"]) + len(others["params"]) == len(list(trainee.network.parameters()))
