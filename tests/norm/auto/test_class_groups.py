"""Many classes in groups of similar ones: against slow references, and what cannot be grouped."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor, nn

import predbn
from predbn.common import AdaptationError
from predbn.models import load
from predbn.norm import Statistics
from predbn.norm.auto.calibration import GROUP_SIZE, MAX_CLASSES, Calibration, CalibrationAccumulator
from predbn.norm.auto.class_groups import ScoreCorrelation, ward_groups
from predbn.norm.auto.composition import Composition
from predbn.norm.auto.explained import without_classes
from predbn.norm.layer import adapted_layers

from .models import accuracy_if_sorted, calibrate_on_clean_images, calibrated, classifier, images

CLASSES = 150


def calibration_of(model: nn.Module, layer: str) -> Calibration:
    return next(adaptation.calibration for name, _, adaptation in adapted_layers(model) if name == layer)


def test_the_correlation_is_that_of_all_scores_at_once():
    torch.manual_seed(0)
    scores = torch.randn(90, 4) @ torch.randn(4, 12) + 5
    correlation = ScoreCorrelation()
    for part in scores.split(40):
        correlation.update(torch.cat([part, torch.full((1, 12), torch.nan)]))
    expected = torch.corrcoef((scores - scores.mean(1, keepdim=True)).double().T)
    torch.testing.assert_close(correlation.result(), expected)


def test_a_score_that_never_changes_correlates_with_nothing():
    correlation = ScoreCorrelation()
    scores = torch.tensor([[1.0, -1, 0], [2, -2, 0], [-1, 1, 0]])
    correlation.update(scores)
    assert correlation.result()[2].tolist() == [0, 0, 0]


def test_classes_with_the_same_causes_are_in_one_group():
    torch.manual_seed(0)
    kind = torch.arange(60) % 6
    correlation = ScoreCorrelation()
    correlation.update(3 * torch.randn(300, 6)[:, kind] + torch.randn(300, 60))
    groups = correlation.groups(6)
    assert len(groups.unique()) == 6
    assert torch.equal(groups[:, None] == groups, kind[:, None] == kind)


@pytest.mark.parametrize(("rows", "count"), [(40, 40), (40, 7), (90, 2), (90, 1)])
def test_groups_are_those_of_scipy(rows, count):
    values = np.random.default_rng(rows + count).normal(size=(rows, 5)).cumsum(0)
    values[-3:] = values[0]  # distances of exactly 0
    expected = fcluster(linkage(values, method="ward"), count, criterion="maxclust")
    groups = ward_groups(torch.from_numpy(values), count).numpy()
    np.testing.assert_array_equal(groups[:, None] == groups, expected[:, None] == expected)
    assert groups.tolist()[0] == 0
    assert set(groups.tolist()) == set(range(len(set(expected.tolist()))))


def accumulated(groups: Tensor) -> tuple[CalibrationAccumulator, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    classes = torch.randint(8, (400,))  # two of the ten classes are never predicted
    mean = torch.randn(400, 3) + groups[classes][:, None] + 0.3 * classes[:, None]
    square = mean**2 + 1 + torch.rand(400, 3)
    accumulator = CalibrationAccumulator()
    for rows in torch.arange(400).split(150):
        accumulator.update(mean[rows], square[rows])
        accumulator.update_classes(mean[rows], square[rows], classes[rows], 10)
    accumulator.group_classes(groups)
    return accumulator, mean, square, classes


def test_moments_of_groups_equal_those_of_their_examples():
    groups = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3])
    accumulator, mean, square, classes = accumulated(groups)
    calibration = accumulator.result(1e-5, None)
    b = calibration.between_groups
    prior = (1 - b) / b
    for group in range(4):
        own = groups[classes] == group
        assert calibration.class_sizes[group] == own.sum()
        for moments, values in ((calibration.class_means, mean), (calibration.class_squares, square)):
            drawn = (values[own].sum(0) + prior * values.mean(0)) / (own.sum() + prior)
            torch.testing.assert_close(moments[group], drawn, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(calibration.class_means[3], mean.mean(0))  # never predicted: as all data


def test_the_share_between_groups_is_what_their_means_explain():
    """One channel whose mean square about the mean never varies: the analysis of variance of its means."""
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2, 2, 2])
    accumulator, mean, _, classes = accumulated(groups)
    of_means = CalibrationAccumulator()
    x = mean[:, :1] - mean[:, :1].mean()
    of_means.update(x, torch.ones_like(x))
    of_means.update_classes(x, torch.ones_like(x), classes, 10)
    of_means.group_classes(groups)
    within = sum(((x[groups[classes] == g] - x[groups[classes] == g].mean()) ** 2).sum() for g in range(3)) / (400 - 3)
    calibration = of_means.result(0.0, None)
    assert calibration.between_groups == pytest.approx(1 - float(within / x.var(correction=0)), abs=1e-4)
    assert calibration.between >= calibration.between_groups
    assert accumulator.result(0.0, None).between_groups > 0.1


def test_shares_of_groups_are_sums_of_those_of_their_classes():
    calibration = accumulated(torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3]))[0].result(1e-5, None)
    shares = torch.rand(2, 10)
    expected = [
        [sum(row[k] for k in range(10) if calibration.class_groups[k] == g) for g in range(4)] for row in shares
    ]
    torch.testing.assert_close(calibration.group_shares(shares), torch.tensor(expected))
    torch.testing.assert_close(calibration.group_shares(shares[1]), torch.tensor(expected[1]))
    assert calibration.to(torch.float16).class_groups.dtype == torch.int64


def test_what_chance_explains_within_groups():
    """Within classes as for n examples, in groups as for M_g, and few classes of a group differ from it."""
    groups = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3])
    clean = accumulated(groups)[0].result(1e-5, None)
    shares = torch.tensor([0.5, 0.1, 0, 0, 0, 0.1, 0.2, 0, 0, 0.1])
    batch = Statistics(clean.mean + 1, clean.var)
    _, sampling = without_classes(batch, clean, Composition(shares, torch.tensor([0.3])), 1e-5)
    b, b_g = clean.between, clean.between_groups
    expected = (1 - b) / 20 + 2 * (b - b_g) * sum(p * p for p in shares.tolist())
    for p, size in zip([0.7, 0.1, 0.1, 0.1], clean.class_sizes.tolist(), strict=True):
        expected += (1 - b_g) * p * p / max(size, 1) + 2 * b_g * 0.3 * p * p
    assert sampling.of(20) == pytest.approx(expected, rel=1e-5)


@torch.no_grad()
def test_many_classes_are_calibrated_in_groups_and_saved_with_them():
    model = calibrated(classes=CLASSES)
    calibration = calibration_of(model.model, "bn2")
    assert len(calibration.class_groups) == CLASSES
    assert calibration.class_means.shape == (256 // GROUP_SIZE, 8)
    assert calibration.class_sizes.sum() == 256
    x = images(12, seed=9)
    once = predbn.adapt(copy.deepcopy(model.model), "auto", robust=False)
    assert (model(x) - once(x)).abs().max() > 1e-3, "classes make a difference"
    other = calibrated(classes=CLASSES, examples=200)
    assert torch.equal(predbn.load_state_dict(other, predbn.state_dict(model))(x), model(x))


class Subclasses(nn.Module):
    """A network of ten classes that divides each of them into twenty, by random features of its image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.directions = torch.randn(200, 3 * 8 * 8, generator=torch.Generator().manual_seed(0))

    def forward(self, x: Tensor) -> Tensor:
        small = nn.functional.adaptive_avg_pool2d(x.float() / 255, 8).flatten(1) - 0.5
        return self.network(x).repeat_interleave(20, 1) + 0.2 * small @ self.directions.T


@torch.no_grad()
def test_a_sorted_stream_of_many_classes_keeps_its_accuracy():
    """200 classes and 500 examples: hardly any class has an example in every batch, but groups do."""
    model = calibrate_on_clean_images(Subclasses(load("zoo:resnet20-cifar10/batch/0")).eval())
    train, once, several = (
        accuracy_if_sorted(model, strategy, batch=40, outputs=20) for strategy in ("train", "auto", "auto(passes=4)")
    )
    assert once < train - 0.3
    assert several > train - 0.03


@pytest.mark.parametrize(
    ("classes", "examples", "reason"),
    [
        (CLASSES, 2 * GROUP_SIZE - 1, f"{2 * GROUP_SIZE} examples or more"),
        (MAX_CLASSES + 1, 64, f"{MAX_CLASSES} classes"),
    ],
)
@torch.no_grad()
def test_a_calibration_without_classes_says_so_and_asks_for_none(classes, examples, reason):
    model, shifted = calibrated("auto(passes=3)", classes=classes, examples=examples), images(8, shift=3.0)
    with pytest.warns(UserWarning, match=f"because the calibration has no classes.*{reason}"):
        several = model(shifted)
    assert torch.equal(several, model.model(shifted)), "with the classes of the source"
    clean = images(examples, seed=3)
    assert torch.equal(model(clean), classifier(classes)(clean)), "nothing has shifted"


class Outputs(nn.Module):
    """A network whose outputs are not classes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.bn, self.kind = nn.BatchNorm2d(3), kind

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        y = self.bn(x)
        outputs = {
            "segmentation": y,
            "regression": y.mean((1, 2, 3))[:, None],
            "numbers": y.mean((2, 3)).round().long(),
            "dictionary": {"logits": y.mean((2, 3))},
        }
        return outputs[self.kind]


@pytest.mark.parametrize("kind", ["segmentation", "regression", "numbers", "dictionary"])
@torch.no_grad()
def test_other_outputs_than_classes_say_so_once(kind):
    model = predbn.calibrate(Outputs(kind).eval(), list(images(16).split(8)))
    predictor = predbn.AutoPredictor(model, passes=2, robust=False)
    shifted = images(8, shift=3.0)
    with pytest.warns(UserWarning, match="one row of class scores per example") as caught:
        several = predictor(shifted)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(predictor(shifted), several)
        torch.testing.assert_close(model(shifted), several)
        torch.testing.assert_close(predictor(images(16)), Outputs(kind).eval()(images(16)), rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("before", [5, CLASSES])
def test_the_calibration_of_a_model_with_other_classes_is_refused(before):
    saved = predbn.calibrate(classifier(before), [images(128)])
    state = predbn.state_dict(predbn.AutoPredictor(saved, passes=2))
    other = predbn.AutoPredictor(predbn.calibrate(classifier(7), [images(128)]), passes=2)
    predbn.load_state_dict(other, state)
    with pytest.raises(AdaptationError, match=f"predicts 7 classes, but was calibrated with {before}"):
        other(images(8))
