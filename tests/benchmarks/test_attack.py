"""Malicious rows: what they may change, what they must not, and that they get what they want where they can."""

import pytest
import torch
import torch.nn.functional as F

from peers import AdaptedNetwork
from peers.alpha_bn import AlphaBN
from peers.attack import outcomes
from peers.medbn import MedBN
from peers.median_mad import MedianMAD
from predbn.shifts import ATTACKS, Attack, target_class

from .tiny import CLASSES, images, tiny_network

TARGETED = Attack("targeted", rows=20, malicious=5, steps=15, reach=0.6)
EVERYONE = Attack("everyone", rows=20, malicious=5, steps=15, reach=1.5)
LABELS = tiny_network()(images(20)).argmax(1)


def grey_rows(attack: Attack) -> torch.Tensor:
    """The batch as the attack begins."""
    x = images(attack.rows).float()
    x[-attack.malicious :] = 127.5
    return x


@pytest.mark.parametrize("strategy", ["batch", "auto(calibrated=False)", MedBN()])
def test_each_attack_gets_what_it_wants(strategy):
    predict = AdaptedNetwork(tiny_network(), strategy, robust=False)
    before, after = (predict(x) for x in (grey_rows(TARGETED), TARGETED.run(predict, images(20), LABELS)))
    wanted = target_class(LABELS[:1], CLASSES)
    assert wanted.item() == (LABELS[0].item() + 1) % CLASSES
    assert F.cross_entropy(after[:1], wanted) < F.cross_entropy(before[:1], wanted) - 0.5
    before, after = (predict(x)[:-5] for x in (grey_rows(EVERYONE), EVERYONE.run(predict, images(20), LABELS)))
    assert F.cross_entropy(after, LABELS[:-5]) > F.cross_entropy(before, LABELS[:-5]) + 0.3


@pytest.mark.parametrize(
    ("strategy", "attack"),
    [("batch", EVERYONE), ("auto(calibrated=False)", TARGETED), (AlphaBN(), TARGETED), (MedianMAD(), EVERYONE)],
)
def test_batches_attacked_at_once_are_attacked_as_one_by_one(strategy, attack):
    x, labels = images(40), tiny_network()(images(40)).argmax(1)
    together = attack.run(AdaptedNetwork(tiny_network(), strategy, group=20, robust=False), x, labels)
    alone = AdaptedNetwork(tiny_network(), strategy, robust=False)
    one_by_one = torch.cat([attack.run(alone, x[i : i + 20], labels[i : i + 20]) for i in (0, 20)])
    # The sign of a gradient close to 0 may differ: then a pixel goes the other way.
    assert (together - one_by_one).abs().lt(1e-3).float().mean() > 0.98


def test_where_rows_do_not_meet_there_is_nothing_to_gain():
    predict = AdaptedNetwork(tiny_network(), "train")
    assert torch.equal(TARGETED.run(predict, images(20), LABELS), grey_rows(TARGETED))
    (found,) = outcomes(EVERYONE, predict, images(20), LABELS)
    assert found["error"] == found["unattacked"]


def test_a_row_that_is_already_predicted_as_wanted_counts_as_success():
    labels = torch.arange(20) % CLASSES
    logits = F.one_hot(torch.tensor([1] + [0] * 19), CLASSES).float()
    (found,) = outcomes(TARGETED, lambda x: logits + 0 * x.float().mean(), images(20), labels)
    assert found["success"] == 1.0
    assert found["error"] == found["unattacked"] == pytest.approx(11 / 15)  # rows 3, 6, 9 and 12 are of class 0


def test_the_attacks_are_the_published_ones():
    targeted, everyone = ATTACKS["targeted"], ATTACKS["everyone"]
    assert (targeted.rows, targeted.malicious, targeted.steps) == (200, 40, 100)
    assert targeted.reach / targeted.steps == pytest.approx(1 / 255)
    assert (everyone.rows, everyone.malicious, everyone.steps) == (100, 10, 40)
    assert everyone.reach / everyone.steps == pytest.approx(0.1)
