"""Hostile uses of population statistics and calibration: loaders, layers called in odd ways, failures."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import predbn

from .models import images, net


class Twice(nn.Module):
    """One batch norm called twice in sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(torch.relu(self.bn(x)) * 2 + 1)


class Varying(nn.Module):
    """Calls a layer only if the batch is bright, so that calls vary by batch."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.always(x)
        return self.sometimes(y + 1) if x.mean() > 0 else y


@torch.no_grad()
def test_population_of_an_iterable_that_can_be_used_once():
    batches = [images(4, seed=i) for i in range(3)]
    wanted = predbn.adapt(net(), "population", loader=batches)
    for loader in (iter(batches), _same_iterator(batches)):
        found = predbn.adapt(net(), "population", loader=loader)
        assert torch.equal(found(images(4, seed=7)), wanted(images(4, seed=7)))


def _same_iterator(batches: list[Tensor]):
    class Loader:
        def __init__(self) -> None:
            self.iterator = iter(batches)

        def __iter__(self):
            return self.iterator

    return Loader()


@torch.no_grad()
def test_population_of_a_layer_that_is_not_in_the_first_batch():
    dark, bright = images(4, seed=0, shift=-3.0), images(4, seed=1, shift=3.0)
    model = predbn.adapt(Varying().eval(), "population", loader=[dark, bright])
    wanted = predbn.adapt(Varying().eval(), "population", loader=[bright, dark])
    torch.testing.assert_close(model(bright), wanted(bright), rtol=1e-5, atol=1e-5)


def test_population_of_a_loader_that_gives_its_batches_once_is_refused():
    batches = [images(4), images(4, seed=2)]

    class Spent:
        def __iter__(self):
            while batches:
                yield batches.pop()

    model = net()
    with pytest.raises(predbn.AdaptationError, match="gave 0 batches, and 2 when it was first read"):
        predbn.adapt(model, "population", loader=Spent())
    assert type(model.bn1) is nn.BatchNorm2d


@torch.no_grad()
def test_population_of_a_layer_called_twice():
    """Statistics that reproduce themselves: normalised with them, the data has the pooled moments of both calls."""
    batches = [images(4, seed=i) for i in range(3)]
    whole = predbn.adapt(Twice().eval(), "population", loader=[torch.cat(batches)])
    parts = predbn.adapt(Twice().eval(), "population", loader=batches)
    inputs = []
    with parts.bn.register_forward_pre_hook(lambda layer, args: inputs.append(args[0])):
        parts(torch.cat(batches))
    var, mean = torch.var_mean(torch.cat(inputs), (0, 2, 3), correction=0)
    state = predbn.state_dict(parts)["streams"]["default"]["bn"]
    torch.testing.assert_close(state["mean"], mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state["var"], var, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(parts(images(4, seed=7)), whole(images(4, seed=7)), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_calibration_leaves_bad_rows_out():
    x = images(32, seed=9)
    bad = torch.cat([x, torch.full_like(x[:1], float("nan"))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = predbn.adapt(predbn.calibrate(net(), [bad]), "auto")
    wanted = predbn.adapt(predbn.calibrate(net(), [x]), "auto")
    torch.testing.assert_close(model(images(6)), wanted(images(6)), rtol=1e-4, atol=1e-4)


def test_auto_without_calibration_says_so_once():
    model = net()
    with pytest.warns(UserWarning, match="calibrate"):
        predbn.adapt(model, "auto")
    assert ", not calibrated" in str(predbn.describe(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "calibration saw fewer than")
        predbn.adapt(predbn.calibrate(net(), [images(8)]), "auto")
        predbn.adapt(net(), "auto", calibrated=False)


def test_calibrate_in_inference_mode():
    model = net()
    with torch.inference_mode():
        predbn.calibrate(model, [images(8)])
    predbn.adapt(model, "auto")
    x = images(4).requires_grad_()
    model(x).sum().backward()
    assert x.grad.isfinite().all()


@torch.no_grad()
def test_calibrate_with_groups_and_a_partial_batch():
    model = predbn.adapt(net(), "auto", group=4, calibrated=False)
    predbn.calibrate(model, [images(8), images(3, seed=2)])
    wanted = predbn.state_dict(predbn.calibrate(net(), [images(8), images(3, seed=2)]))["calibration"]
    found = predbn.state_dict(model)["calibration"]
    assert torch.equal(found["bn1"]["mean"], wanted["bn1"]["mean"])


@torch.no_grad()
def test_calibrate_from_a_generator_with_two_adaptations():
    model = predbn.adapt(net(), "auto", calibrated=False, layers="bn1")
    part = model.bn3
    predbn.adapt(part, "auto", calibrated=False)
    predbn.calibrate(model, (x for x in [images(8), images(8, seed=2)]))
    wanted = predbn.state_dict(predbn.calibrate(net(), [images(8), images(8, seed=2)]))["calibration"]
    found = predbn.state_dict(model)["calibration"]
    assert set(found) == {"bn1", "bn3"}
    assert torch.equal(found["bn1"]["mean"], wanted["bn1"]["mean"])


def failing():
    yield images(4)
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([images(1)], "^calibration got a single example"),
        ([torch.full((8, 3, 6, 6), torch.nan)], "^8 of 8 examples are not finite .* in layer 'bn1'"),
        ([torch.cat([images(1), torch.full((7, 3, 6, 6), torch.nan)])], "^7 of 8 examples are not finite"),
        (failing(), "the disk is gone"),
    ],
)
def test_a_calibration_that_fails_says_why_and_changes_nothing(loader, message):
    model = net()
    with pytest.raises((predbn.AdaptationError, OSError), match=message):
        predbn.calibrate(model, loader)
    assert type(model.bn1) is nn.BatchNorm2d


@torch.no_grad()
def test_calibrate_warns_of_examples_that_it_leaves_out():
    x = images(16)
    x[3, 0, 0, 0] = torch.inf
    with pytest.warns(UserWarning, match="1 of 16 examples are not finite .* calibration leaves them out"):
        predbn.calibrate(net(), [x])


class Colour(nn.Module):
    """Predicts which colour channel is brightest."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x).mean((2, 3))


def of_classes(counts: list[int]) -> Tensor:
    classes = torch.tensor([label for label, count in enumerate(counts) for _ in range(count)])
    return images(len(classes)) * 0.1 + nn.functional.one_hot(classes, 3)[:, :, None, None]


@pytest.mark.parametrize(
    ("counts", "few"),
    [([30, 0, 30], r"1 \(0\)"), ([30, 19, 30], r"1 \(19\)"), ([7, 7, 6], r"0 \(7\), 1 \(7\), 2 \(6\)")],
)
@torch.no_grad()
def test_calibrate_warns_of_classes_that_it_has_hardly_seen(counts, few):
    """A batch of such a class is taken for a shift, which costs tens of points."""
    with pytest.warns(UserWarning, match=f"fewer than 20 examples that the model predicts as class {few}: 'auto'"):
        predbn.calibrate(Colour().eval(), list(of_classes(counts).split(25)))


@torch.no_grad()
def test_calibrate_with_enough_of_each_class_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = predbn.calibrate(Colour().eval(), list(of_classes([20, 25, 30]).split(25)))
    assert predbn.state_dict(model)["calibration"]


def test_restore_warns_before_it_drops_a_calibration():
    model, wanted = predbn.calibrate(net(), [images(8)]), net()
    predbn.adapt(model, "batch")
    predbn.restore(model, keep_calibration=True)
    assert predbn.state_dict(model)["calibration"].keys() == {"bn1", "bn2", "bn3"}
    assert torch.equal(model(images()), wanted(images()))
    with pytest.warns(UserWarning, match="drops the calibration"):
        predbn.restore(model)
    assert type(model.bn1) is nn.BatchNorm2d
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "calibration saw fewer than")
        predbn.restore(predbn.calibrate(net(), [images(8)]), keep_calibration=False)


@torch.no_grad()
def test_adapting_some_layers_keeps_the_calibration_of_all():
    model, wanted = (predbn.calibrate(net(), [images(32)]) for _ in range(2))
    plain = net()(images(seed=2))
    predbn.adapt(model, "batch", layers="bn1")
    assert torch.equal(model(images(seed=2)), predbn.adapt(net(), "batch", layers="bn1")(images(seed=2)))
    loaded = predbn.load_state_dict(predbn.adapt(net(), "batch", layers="bn1"), predbn.state_dict(model))
    assert torch.equal(loaded(images(seed=2)), model(images(seed=2)))
    predbn.adapt(model, "auto")
    assert torch.equal(model(images(seed=2)), predbn.adapt(wanted, "auto")(images(seed=2)))
    predbn.restore(model, keep_calibration=False)
    assert torch.equal(model(images(seed=2)), plain)


@torch.no_grad()
def test_a_tensor_as_loader_is_one_batch():
    x = images(8)
    wanted = predbn.adapt(net(), "population", loader=[x])(x)
    assert torch.equal(predbn.adapt(net(), "population", loader=x)(x), wanted)
    one = predbn.state_dict(predbn.calibrate(net(), x))["calibration"]["bn1"]
    other = predbn.state_dict(predbn.calibrate(net(), [x]))["calibration"]["bn1"]
    assert torch.equal(one["mean"], other["mean"])
