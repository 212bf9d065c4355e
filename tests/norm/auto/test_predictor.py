"""`AutoPredictor` around models that change their input, have hooks, keep state, or are part of something larger."""

from __future__ import annotations

import copy
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.common import AdaptationError

from .models import classifier, images, shifted_images_of_few_classes

PASSES = 3


class Wrapped(nn.Module):
    """A network of five classes, called in some way by `call`."""

    def __init__(self, call: Any = None) -> None:
        super().__init__()
        self.network, self.call = classifier(), call

    def forward(self, x: Any, *others: Any) -> Tensor:
        return self.network(x) if self.call is None else self.call(self.network, x, *others)


def calibrated(model: nn.Module | None = None) -> nn.Module:
    model = model or Wrapped()
    predbn.calibrate(getattr(model, "network", model), list(images(256, seed=3).split(64)))
    return model


def predictor(model: nn.Module | None = None) -> predbn.AutoPredictor:
    return predbn.AutoPredictor(calibrated(model), passes=PASSES, robust=False)


@pytest.fixture(scope="module")
def x() -> Tensor:
    return shifted_images_of_few_classes()


@pytest.fixture(scope="module")
def expected(x: Tensor) -> Tensor:
    with torch.no_grad():
        return predictor()(x)


@torch.no_grad()
def test_adapt_alone_calls_a_model_once(x, expected):
    calls = []
    model = calibrated(Wrapped(lambda network, x: calls.append(1) or network(x)))
    predbn.adapt(model, "auto", robust=False)
    once = model(x)
    assert len(calls) == 1
    assert (once - expected).abs().max() > 1e-3, "of no use"


def in_place(network: nn.Module, x: Tensor) -> Tensor:
    return network(x.mul_(0.5).add_(1))


@torch.no_grad()
def test_a_model_that_changes_its_input(x):
    outside = Wrapped(lambda network, x: network(x * 0.5 + 1))
    given = x.clone()
    assert torch.equal(predictor(Wrapped(in_place))(given), predictor(outside)(x))
    assert torch.equal(given, x * 0.5 + 1), "it is changed once"


@dataclass
class Batch:
    image: Tensor


def from_dictionary(network: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return network(batch.pop("image"))


def from_dataclass(network: nn.Module, batch: Batch) -> Tensor:
    batch.image = batch.image + 0  # a new tensor in the caller's object
    return network(batch.image.clone())


@pytest.mark.parametrize(
    ("call", "batch"),
    [
        (from_dictionary, lambda x: {"image": x}),
        (from_dictionary, lambda x: UserDict(image=x)),
        (from_dataclass, Batch),
        (lambda network, batch: network(batch.pop()), lambda x: [x]),
        (lambda network, batch: network(torch.stack(batch)), lambda x: list(x)),
    ],
)
@torch.no_grad()
def test_batches_of_other_kinds(x, expected, call, batch):
    assert torch.equal(predictor(Wrapped(call))(batch(x)), expected)


@torch.no_grad()
def test_describe_says_which_pass_predicted(x):
    model = predictor()
    model(images(64, seed=3))
    assert "pass 'plain'" in str(predbn.describe(model))
    assert {layer.believed for layer in predbn.describe(model)} == {0}
    model(x)
    assert "pass 'few'" in str(predbn.describe(model))
    assert all(layer.believed > 0 for layer in predbn.describe(model))


@torch.no_grad()
def test_examples_that_are_not_finite_are_counted_once(x):
    model, given = predictor(), x.clone()
    given[3] = torch.nan
    with pytest.warns(UserWarning, match="1 examples that are not finite"):
        output = model(given)
    assert output.isnan().any(1).nonzero().flatten().tolist() == [3]
    assert predbn.describe(model)[0].bad_rows == 1


@pytest.mark.parametrize("passes", [2, 4])
@torch.no_grad()
def test_an_empty_batch_gives_an_empty_output(passes):
    model = predbn.AutoPredictor(calibrated(), passes=passes)
    assert model(images(0)).shape == (0, 5)


@torch.no_grad()
def test_an_iterator_is_refused(x):
    model = predictor(Wrapped(lambda network, rows: network(torch.stack(list(rows)))))
    with pytest.raises(AdaptationError, match="read only once"):
        model(iter(x))


@pytest.mark.parametrize("prepend", [False, True])
@pytest.mark.parametrize("kind", ["eager", "compiled"])
@torch.no_grad()
def test_hooks_of_the_model_are_applied_once_per_call(x, kind, prepend):
    outside = predictor(Wrapped(lambda network, x: network(x * 0.5)))
    outside.register_forward_hook(lambda module, args, output: output * 3)
    model = predictor()
    model.model.register_forward_pre_hook(lambda module, args: (args[0] * 0.5,), prepend=prepend)
    model.register_forward_hook(lambda module, args, output: output * 3)
    predict = model if kind == "eager" else torch.compile(model, backend="eager")
    torch.testing.assert_close(predict(x), outside(x))


@torch.no_grad()
def test_modules_around_the_network_may_be_in_training_mode(x, expected):
    model = nn.Sequential(nn.Dropout(0.5), nn.Identity())
    whole = nn.Sequential(nn.Identity(), predictor()).train()
    whole[1].model.eval()
    assert torch.equal(whole(x), expected)
    outermost = predictor()
    outermost.training = outermost.model.training = True
    assert torch.equal(outermost(x), expected)
    del model


@pytest.mark.filterwarnings("ignore:an adapted model was called in training mode")
def test_layers_in_training_mode_see_the_batch_once(x):
    model, plain = predictor().train(), Wrapped().train()
    for each in (model, plain):
        torch.manual_seed(0)  # the network has dropout
        each(x)
    assert torch.equal(model.model.network.bn1.running_mean, plain.network.bn1.running_mean)
    assert model.model.network.bn1.num_batches_tracked == plain.network.bn1.num_batches_tracked


@torch.no_grad()
def test_a_part_that_keeps_state_remembers_the_batch_once(x):
    """A head that was adapted by itself gets all passes, and remembers the first one."""
    head = nn.Sequential(nn.BatchNorm1d(5)).eval()
    body = calibrated(Wrapped(lambda network, x: head(network(x))))
    model = predbn.AutoPredictor(body, passes=PASSES, robust=False)
    predbn.adapt(head, "ema")
    seen = []
    head[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    model(x)
    assert len(seen) == PASSES
    alone = predbn.adapt(nn.Sequential(nn.BatchNorm1d(5)).eval(), "ema")
    alone(seen[0])
    states = [predbn.state_dict(m)["streams"] for m in (head, alone)]
    torch.testing.assert_close(*states)


def test_gradients_flow_through_the_last_pass(x):
    model = predictor()
    (gradient,) = torch.autograd.grad(model(given := x.clone().requires_grad_()).sum(), given)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


@torch.no_grad()
def test_adapting_the_predictor_instead_of_the_model_is_the_same(x, expected):
    assert torch.equal(predbn.adapt(predictor(), "auto", robust=False)(x), expected)
    plain = predbn.adapt(predictor(), "train")
    assert torch.equal(plain(x), Wrapped()(x))


@torch.no_grad()
def test_a_copy_predicts_the_same(x, expected):
    assert torch.equal(copy.deepcopy(predictor())(x), expected)


@pytest.mark.filterwarnings("ignore:While compiling:UserWarning")
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("has_gradients", [False, True])
def test_it_can_be_exported_and_saved(x, expected, tmp_path, is_strict, has_gradients):
    with torch.set_grad_enabled(has_gradients):
        program = torch.export.export(predictor(), (x,), strict=is_strict)
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(loaded(x), expected, atol=1e-5, rtol=1e-5)
    with torch.enable_grad():
        torch.testing.assert_close(loaded(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.DataParallel(calibrated()), r"DataParallel\(predbn.AutoPredictor\(model\)\)"),
        (lambda: nn.BatchNorm2d(3), "predicts no classes"),
        (lambda: 3, "expected a torch.nn.Module"),
    ],
)
def test_what_cannot_be_predicted_several_times(model, message):
    with pytest.raises(AdaptationError, match=message):
        predbn.AutoPredictor(model())
