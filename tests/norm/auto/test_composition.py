"""Batches of few classes: `auto` with several passes, against a slow reference and closed forms."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch

import predbn
from predbn.common import AdaptationError
from predbn.models import load
from predbn.norm import Observation, Statistics, StreamSegments
from predbn.norm.auto.auto import Auto, mixture
from predbn.norm.auto.calibration import CalibrationAccumulator
from predbn.norm.auto.composition import Composition, is_class_scores, predicted_classes

from ..models import net
from .models import (
    accuracy_if_sorted,
    calibrate_on_clean_images,
    calibrated,
    classifier,
    images,
    shifted_images_of_few_classes,
)


def test_shares_are_those_of_the_predicted_classes():
    logits = torch.tensor([[4.0, 0, 0], [0, 3, 0], [5, 0, 0], [0, 0, 2]])
    shares, doubt, *_ = predicted_classes(logits, None)
    assert shares.tolist() == [0.5, 0.25, 0.25]
    torch.testing.assert_close(doubt, 1 - logits.softmax(1).max(1).values.mean(0, keepdim=True))
    shares, doubt, *_ = predicted_classes(logits, StreamSegments([0, 0, 1, 1], 2))
    assert shares.tolist() == [[0.5, 0.5, 0], [0.5, 0, 0.5]]
    assert doubt.shape == (2, 1)


@pytest.mark.parametrize("output", [None, torch.zeros(3), torch.zeros(3, 1), torch.zeros(2, 3, 4), {"logits": 1}])
def test_other_outputs_have_no_classes(output):
    assert not is_class_scores(output)


def test_moments_of_classes_equal_those_of_their_examples():
    torch.manual_seed(0)
    mean, square = torch.randn(600, 4), torch.rand(600, 4) + 2
    classes = torch.randint(3, (600,))
    mean += classes[:, None]
    accumulator = CalibrationAccumulator()
    for part in range(0, 600, 100):
        rows = slice(part, part + 100)
        accumulator.update(mean[rows], square[rows])
        accumulator.update_classes(mean[rows], square[rows], classes[rows], 5)
    calibration = accumulator.result(1e-5, None)
    assert calibration.class_sizes.tolist() == [(classes == k).sum() for k in range(5)]
    # Classes that were never predicted look like all of the data, the others nearly like their own examples.
    for k in range(3):
        torch.testing.assert_close(calibration.class_means[k], mean[classes == k].mean(0), atol=0.02, rtol=0)
        torch.testing.assert_close(calibration.class_squares[k], square[classes == k].mean(0), atol=0.02, rtol=0)
    for k in (3, 4):
        torch.testing.assert_close(calibration.class_means[k], mean.mean(0))


def test_clean_data_of_some_classes_is_corrected_to_all_of_it():
    """The batch is exactly what calibration saw of its classes: nothing is left of the difference."""
    torch.manual_seed(0)
    accumulator = CalibrationAccumulator()
    classes = torch.arange(3).repeat(1000)
    mean = torch.randn(3000, 4) * 0.1 + torch.tensor([0.0, 1, 3])[classes][:, None]
    square = mean**2 + 1 + 0.1 * torch.rand(3000, 4)
    accumulator.update(mean, square)
    accumulator.update_classes(mean, square, classes, 3)
    calibration = accumulator.result(0.0, None)
    shares = torch.tensor([0.2, 0.8, 0.0])
    batch_mean = shares @ calibration.class_means
    batch = Statistics(batch_mean, shares @ calibration.class_squares - batch_mean**2)
    corrected = calibration.with_source_classes(batch, shares, 0.0)
    torch.testing.assert_close(corrected.mean, calibration.mean)
    torch.testing.assert_close(corrected.var, calibration.var)


@torch.no_grad()
def test_passes_equal_calls_that_hand_on_their_classes():
    """A slow reference: each layer's statistics from the equations, with the composition of the call before."""
    model, x, few = calibrated("auto(passes=4)"), images(64, seed=9, shift=1.0), shifted_images_of_few_classes()
    reference = copy.deepcopy(model.model)

    def predict(batch, composition):
        return predbn.adapt(reference, KnownComposition(composition), robust=False)(batch)

    def classes(output):
        return Composition(*predicted_classes(output)[:2])

    torch.testing.assert_close(model(x), predict(x, None), rtol=1e-4, atol=1e-5)
    output = predict(few, Composition())
    for _ in range(2):
        output = predict(few, classes(output))
    torch.testing.assert_close(model(few), output, rtol=1e-4, atol=1e-5)
    assert (model(few) - predict(few, None)).abs().max() > 0.1, "of no use"


@torch.no_grad()
def test_the_number_of_passes_follows_from_the_batch():
    """One if nothing has shifted, whatever the classes; else two, or four if the classes are few."""
    model, clean = calibrated("auto(passes=4)"), images(256, seed=3)
    plain = predbn.adapt(copy.deepcopy(model.model), "train")(clean)
    calls = []
    model.model.register_forward_hook(lambda *_: calls.append(1))
    x, few = images(64, seed=9, shift=1.0), shifted_images_of_few_classes()
    is_first = plain.argmax(1) == plain.argmax(1).mode().values
    for batch, count in ((clean, 1), (clean[is_first], 1), (x, 2), (few, 4)):
        calls.clear()
        output = model(batch)
        assert len(calls) == count
        if count == 1:
            alone = predbn.adapt(copy.deepcopy(model.model), "train")(batch)
            assert torch.equal(output, alone), "bit for bit the model as it was"


@torch.no_grad()
def test_a_group_of_mixed_classes_is_not_changed_by_one_of_few():
    model = calibrated(group=32)
    x = images(256, seed=3)
    classes = model.model(x).argmax(1)
    few = x[classes == classes.mode().values][:32]
    assert len(few) == 32
    assert torch.equal(model(torch.cat([x[:32], few]))[:32].argmax(1), model(x[:32]).argmax(1))
    torch.testing.assert_close(model(torch.cat([x[:32], few]))[:32], model(x[:32]), rtol=1e-5, atol=1e-5)


@dataclass(frozen=True)
class KnownComposition(Auto):
    """`auto` in one pass, with a composition that is given to it, and the steps in plain operations."""

    composition: Composition | None = None

    def __init__(self, composition: Composition | None) -> None:
        super().__init__()
        object.__setattr__(self, "composition", composition)

    def statistics(self, observation: Observation) -> Statistics:
        n, clean, eps = observation.size, observation.calibration, observation.eps
        batch, b, (shares, e) = observation.moments().statistics, clean.between, self.composition or (None, None)
        sampling = (1 - b) * (1 / n + 1 / clean.size) + 2 * b if self.composition else 1 / n + 1 / clean.size
        if shares is not None:
            sizes = clean.class_sizes.clamp(min=1).tolist()
            sampling = (1 - b) * (1 / n + sum(p**2 / m for p, m in zip(shares.tolist(), sizes, strict=True)))
            sampling += 2 * b * e.item() * sum(p**2 for p in shares.tolist())
            mean = sum(p * m for p, m in zip(shares, clean.class_means, strict=True))
            var = sum(p * q for p, q in zip(shares, clean.class_squares, strict=True)) - mean**2
            batch = Statistics(
                batch.mean - mean + clean.mean, (batch.var + eps) * (clean.var + eps) / (var + eps) - eps
            )
        return mixture(batch, clean, observation.source, eps, sampling, clean.network**2 / 5 / (n + 1))


@torch.no_grad()
def test_groups_equal_batches_alone():
    alone, together = calibrated(), calibrated(group=4)
    x = images(12, seed=5)
    torch.testing.assert_close(together(x), torch.cat([alone(part) for part in x.split(4)]), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_batch_is_predicted_as_often_as_said_and_restore_removes_everything():
    model = calibrated("auto(passes=4)")
    calls = []
    handle = model.model.bn1.register_forward_hook(lambda *_: calls.append(1))
    model(images(6)[:1].expand(6, -1, -1, -1))
    assert len(calls) == 4, "the classes are few"
    handle.remove()
    predbn.restore(model, keep_calibration=False)
    assert torch.equal(model(images(6)), model.model(images(6)))
    assert torch.equal(model.model(images(6)), classifier()(images(6)))


def test_gradients_flow_through_the_last_pass_only():
    model, x = calibrated(), images(6).requires_grad_()
    model(x).sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().sum() > 0


@torch.no_grad()
def test_a_saved_calibration_has_the_classes():
    model, other = calibrated(), predbn.AutoPredictor(classifier(), passes=3, robust=False)
    predbn.load_state_dict(other, predbn.state_dict(model))
    assert torch.equal(model(images(8)), other(images(8)))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("auto(passes=0)", "1 or more"),
        ("auto(passes=2.5)", "1 or more"),
        ("auto(passes=2, calibrated=False)", "need a calibration"),
        ("auto(passes=2)", r"predbn.AutoPredictor\(model, passes=2\)"),
        ("auto_stream(passes=2)", "no argument 'passes'"),
    ],
)
def test_wrong_arguments(strategy, message):
    with pytest.raises(AdaptationError, match=message):
        predbn.adapt(net(), strategy)


@pytest.mark.parametrize(
    ("name", "full_name", "passes"),
    [
        ("auto", "auto(calibrated=True, passes=1)", 1),
        ("auto(passes=4)", "auto(calibrated=True, passes=4)", 4),
        ("auto(calibrated=False)", "auto(calibrated=False, passes=1)", 1),
        ("auto_stream", "auto_stream(calibrated=True, momentum=0.1)", 1),
    ],
)
def test_full_names(name, full_name, passes):
    strategy = predbn.norm.find_strategy(name)
    assert str(strategy) == full_name
    assert predbn.norm.find_strategy(full_name) == strategy
    assert strategy.pass_count == passes


@pytest.mark.parametrize("kind", ["compiled", "exported", "traced"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@torch.no_grad()
def test_graphs_contain_all_passes(kind):
    model, x, other = calibrated("auto(passes=2)"), images(8, seed=3, shift=1.0), images(5, seed=4)
    if kind == "compiled":
        graph = torch.compile(model, backend="eager", fullgraph=True)
    elif kind == "exported":
        shapes = (({0: torch.export.Dim("examples", min=2)},),)
        graph = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False).module()
    else:
        graph = torch.jit.trace(model, x)
    for batch in (x, other) if kind != "traced" else (x,):
        torch.testing.assert_close(graph(batch), model(batch), atol=1e-5, rtol=1e-5)
    assert (graph(x) - predbn.adapt(model.model, "auto")(x)).abs().max() > 1e-3


@torch.no_grad()
def test_a_stream_sorted_by_class_keeps_its_accuracy():
    """Clean images of one class at a time: `auto` takes the class for a shift in one pass, but not in several."""
    model = calibrate_on_clean_images(load("zoo:resnet20-cifar10/batch/0").eval())
    train, once, several = (
        accuracy_if_sorted(model, strategy, batch=40) for strategy in ("train", "auto", "auto(passes=4)")
    )
    assert once < train - 0.3
    assert several > train - 0.02
