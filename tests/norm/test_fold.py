"""A folded model predicts what the adapted one does with its current statistics."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import predbn
from predbn.models import SIGNED_PREPROCESSING, Classifier, ModelInfo, resnet20

from .models import images, net, randomise

FIXED = ["train", "frozen", "ema(momentum=0.3, start='source')", "population"]


def adapt_and_predict(model, strategy, x, eps=None):
    """Adapt, let the statistics form, and return what the model predicts if they no longer change."""
    if strategy == "population":
        return predbn.adapt(model, strategy, eps=eps, loader=[x])(x)
    predbn.adapt(model, strategy, eps=eps)
    if strategy.startswith("ema"):
        model(x)
        state = predbn.state_dict(model)
        constant = predbn.adapt(copy.deepcopy(model), predbn.Ema(momentum=0.0), eps=eps)
        state["strategies"] = dict.fromkeys(state["strategies"], "ema(momentum=0.0, start='source')")
        return predbn.load_state_dict(constant, state)(x)
    model(x)
    return model(x)


@pytest.mark.parametrize("strategy", FIXED)
@pytest.mark.parametrize("eps", [None, 0.1])
@torch.no_grad()
def test_folded_equals_adapted(strategy, eps):
    model, x = net(), images(shift=1.0)
    expected = adapt_and_predict(model, strategy, x, eps)
    before = copy.deepcopy(model.state_dict())
    folded = predbn.fold(model)
    assert not [m for m in folded.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    torch.testing.assert_close(folded(x), expected, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not folded.training


@torch.no_grad()
def test_the_statistics_of_one_stream():
    model = predbn.adapt(net(), "frozen")
    a, b = images(), images(seed=9, shift=3.0)
    model(a)
    with predbn.stream(model, "b"):
        model(b)
        expected = model(a)
    torch.testing.assert_close(predbn.fold(model, stream="b")(a), expected, rtol=1e-5, atol=1e-5)


class Awkward(nn.Module):
    """What must not be merged: a value with two readers, a layer used twice, a batch norm that comes first, a
    convolution with a hook; and what can be merged: transposed and grouped convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(3)
        self.two_readers, self.bn_a = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.used_twice, self.bn_b, self.bn_c = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.hooked, self.bn_d = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.transposed, self.bn_e = nn.ConvTranspose2d(4, 6, 2), nn.BatchNorm2d(6, affine=False)
        self.grouped, self.bn_f = nn.Conv2d(6, 6, 3, groups=3, padding=1), nn.BatchNorm2d(6)
        self.grouped_t, self.bn_g = nn.ConvTranspose2d(6, 6, 2, groups=2), nn.BatchNorm2d(6)

    def forward(self, x):
        x = self.two_readers(self.first(x))
        x = x + self.bn_a(x)
        x = self.bn_c(self.used_twice(torch.relu(self.bn_b(self.used_twice(x)))))
        x = self.bn_d(self.hooked(x))
        x = self.bn_f(self.grouped(torch.relu(self.bn_e(self.transposed(x)))))
        return self.bn_g(self.grouped_t(x))


class ConvBN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)


class Untraceable(ConvBN):
    def forward(self, x):
        return self.bn(self.conv(x)) if x.sum() > 0 else self.bn(self.conv(-x))


@pytest.mark.parametrize(("make", "left"), [(Awkward, 6), (Untraceable, 1)])
@pytest.mark.filterwarnings("ignore:fold merged none")
@torch.no_grad()
def test_layers_that_cannot_be_merged_stay(make, left):
    torch.manual_seed(0)
    model = randomise(make()).eval()
    if make is Awkward:
        model.hooked.register_forward_hook(lambda *_: None)
    x = images(shift=1.0)
    expected = adapt_and_predict(model, "frozen", x)
    folded = predbn.fold(model)
    torch.testing.assert_close(folded(x), expected, rtol=1e-4, atol=1e-5)
    assert len([m for m in folded.modules() if type(m) is nn.BatchNorm2d]) == left


@torch.no_grad()
def test_memory_format_and_precision_stay():
    model = net().to(memory_format=torch.channels_last).to(torch.bfloat16)
    folded = predbn.fold(predbn.adapt(model, "train"), example=images().bfloat16())
    assert folded.conv1.weight.dtype == torch.bfloat16
    assert folded.conv1.weight.is_contiguous(memory_format=torch.channels_last)


def test_nothing_to_fold():
    with pytest.raises(predbn.AdaptationError, match="'batch' computes statistics from every batch"):
        predbn.fold(predbn.adapt(net()))
    with pytest.raises(predbn.AdaptationError, match="'bn1' has no statistics yet under strategy 'frozen"):
        predbn.fold(predbn.adapt(net(), "frozen"))
    with pytest.raises(predbn.AdaptationError, match="no stream 'x'"):
        predbn.fold(predbn.adapt(net(), "ema"), stream="x")


class OptionalArgument(ConvBN):
    """With a scale it goes another way through its layers than without."""

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        y = self.conv(x)
        return self.bn(y if scale is None else y * scale)


class SharedWeight(nn.Module):
    """The convolution's weight is also used by a functional call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + F.conv2d(x, self.conv.weight)


class Tokens(nn.Module):
    """BatchNorm1d on [N, L, C] takes L for the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn = nn.Linear(5, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))


class PlainList(ConvBN):
    """Its layers are also held in a plain list, which is what forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [self.conv, self.bn]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class UnusedInEval(ConvBN):
    """An auxiliary head that is used in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.bn(y) + self.auxiliary(y) if self.training else self.bn(y)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (SharedWeight, images(4)),
        (Tokens, torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))),
        (PlainList, images(4)),
        (UnusedInEval, images(4)),
    ],
)
@pytest.mark.filterwarnings("ignore:fold merged none")
@torch.no_grad()
def test_unusual_models(model, x):
    model = predbn.adapt(randomise(model()).eval(), "frozen")
    model(x)
    torch.testing.assert_close(predbn.fold(model)(x), model(x), rtol=1e-4, atol=1e-4)


def keywords(model: ConvBN, x: Tensor, **others: Tensor) -> Tensor:
    y = model.conv(x)
    return model.bn(y * 3 if others.get("scale") is None else y)


def one_dict(model: ConvBN, batch: dict[str, Tensor]) -> Tensor:
    y = model.conv(batch["x"])
    return model.bn(y * 3 if batch.get("scale") is None else y)


@pytest.mark.parametrize("forward", [OptionalArgument.forward, keywords, one_dict])
@torch.no_grad()
def test_arguments_that_select_a_branch(forward):
    """The branch that was seen before folding must not decide which others are right."""
    kind = type("Branches", (ConvBN,), {"forward": forward})
    calls = [{"x": images(4)}, {"x": images(4), "scale": torch.tensor(2.0)}]
    calls = [({"batch": call} if forward is one_dict else call) for call in calls]
    for seen in calls:
        model = predbn.adapt(randomise(kind()).eval(), "train")
        model(**seen)
        with pytest.warns(UserWarning, match="takes the batch only|no tensor is known to compare on"):
            folded = predbn.fold(model)
        for call in calls:
            torch.testing.assert_close(folded(**call), model(**call), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_module_that_gives_the_other_arguments():
    class Fixed(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x, None)

    model = Fixed(predbn.adapt(randomise(OptionalArgument()).eval(), "train"))
    folded, x = predbn.fold(model, example=images(2)), images(4)
    assert folded.predbn_fold.merged == 1
    torch.testing.assert_close(folded(x), model(x), rtol=1e-4, atol=1e-4)


class Saturated(PlainList):
    """What is wrong inside does not reach the output."""

    def forward(self, x: Tensor) -> Tensor:
        return (super().forward(x) * 1e-3 + 50).sigmoid()


@pytest.mark.parametrize("model", [PlainList, Saturated, SharedWeight])
@pytest.mark.parametrize("example", [None, images(4)], ids=["unseen", "example"])
@torch.no_grad()
def test_without_a_batch_nothing_is_merged_that_was_not_compared(model, example):
    model = predbn.adapt(randomise(model()).eval(), "train")
    with pytest.warns(UserWarning, match="fold merged none of 1 batch norm layers"):
        folded = predbn.fold(model, example=example)
    assert "0 of 1 batch norm layers are merged: " in str(predbn.describe(folded))
    conv, x = folded.conv, images(4)
    assert torch.equal(conv.weight, model.conv.weight)
    torch.testing.assert_close(folded(x), model(x), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_an_example_takes_the_place_of_a_batch():
    model = predbn.adapt(net(), "train")
    folded = predbn.fold(model, example=images(4))
    assert folded.predbn_fold.merged == 3
    torch.testing.assert_close(folded(images()), model(images()), rtol=1e-4, atol=1e-4)
    with pytest.raises(predbn.AdaptationError, match="example must be a tensor, but got list"):
        predbn.fold(model, example=[images(4)])


@torch.no_grad()
def test_a_model_that_changes_its_input_in_place():
    model, x = predbn.adapt(nn.Sequential(nn.ReLU(inplace=True), net()).eval(), "train"), images(4)
    assert predbn.fold(model, example=x).predbn_fold.merged == 3
    assert torch.equal(x, images(4))


@torch.no_grad()
def test_outputs_that_are_not_finite_are_no_comparison():
    """On this example every output is NaN, whatever is merged."""
    model = predbn.adapt(randomise(PlainList()).eval(), "train")
    with pytest.warns(UserWarning, match="no finite numbers to compare; give another example="):
        predbn.fold(model, example=torch.full((4, 3, 6, 6), torch.nan))


@torch.no_grad()
def test_through_preprocessing_that_cannot_be_traced():
    """A classifier of `predbn.models.load` checks its pictures and scales them before the network."""
    torch.manual_seed(0)
    model = Classifier(randomise(resnet20()), ModelInfo("test", 10, SIGNED_PREPROCESSING)).eval()
    x = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    predbn.adapt(model, "frozen")(x)
    folded = predbn.fold(model)
    assert folded.predbn_fold.merged == folded.predbn_fold.layers == 21
    torch.testing.assert_close(folded(x), model(x), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_why_nothing_is_merged():
    x = images(4)
    for model, reason in (
        (Untraceable(), "cannot be traced"),
        (nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), "none of them directly follows"),
        (PlainList(), "changes the output"),
    ):
        predbn.adapt(randomise(model).eval(), "train")(x)
        with pytest.warns(UserWarning, match=reason):
            predbn.fold(model)


def test_what_is_no_model():
    for use in (predbn.fold, predbn.capture, predbn.describe, predbn.restore, predbn.reset, predbn.state_dict):
        with pytest.raises(predbn.AdaptationError, match=r"expected a torch\.nn\.Module, got NoneType"):
            use(None)


@pytest.mark.parametrize("affine", [True, False])
def test_after_a_pass_with_gradients(affine):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine)).eval()
    predbn.adapt(model, "frozen")
    model(images(4).requires_grad_()).sum().backward()
    folded = predbn.fold(model)
    assert folded.predbn_fold.merged == 1
    assert "1 of 1" in str(predbn.describe(folded))
    with torch.no_grad():
        torch.testing.assert_close(folded(images(4)), model(images(4)), rtol=1e-4, atol=1e-4)
