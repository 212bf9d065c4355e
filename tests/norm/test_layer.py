"""`batch` equals train-mode batch norm for every kind of layer; everything around the layer stays."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import predbn

from .models import images, net, randomise

timm_layers = pytest.importorskip("timm.layers", reason="timm is not installed")
misc = pytest.importorskip("torchvision.ops.misc", reason="torchvision is not installed")
FrozenBatchNormAct2d = timm_layers.norm_act.FrozenBatchNormAct2d

SHAPES = {1: (16, 5), 2: (6, 5, 7, 4), 3: (4, 5, 3, 4, 5)}


def materialised() -> nn.Module:
    layer = nn.LazyBatchNorm2d()
    layer(torch.randn(4, 5, 3, 3))
    return layer


KINDS = {
    "1d": (lambda: nn.BatchNorm1d(5), SHAPES[1], None),
    "1d, 3-D input": (lambda: nn.BatchNorm1d(5, eps=1e-3), (6, 5, 9), None),
    "2d": (lambda: nn.BatchNorm2d(5), SHAPES[2], None),
    "3d": (lambda: nn.BatchNorm3d(5), SHAPES[3], None),
    "sync": (lambda: nn.SyncBatchNorm(5), SHAPES[2], None),
    "lazy": (materialised, SHAPES[2], None),
    "no affine": (lambda: nn.BatchNorm2d(5, affine=False), SHAPES[2], None),
    "untracked": (lambda: nn.BatchNorm2d(5, track_running_stats=False), SHAPES[2], None),
    "cumulative": (lambda: nn.BatchNorm2d(5, momentum=None), SHAPES[2], None),
    "timm BatchNormAct2d": (lambda: timm_layers.BatchNormAct2d(5, act_layer=nn.SiLU), SHAPES[2], F.silu),
    "timm FrozenBatchNormAct2d": (lambda: FrozenBatchNormAct2d(5), SHAPES[2], F.relu),
    "torchvision FrozenBatchNorm2d": (lambda: misc.FrozenBatchNorm2d(5), SHAPES[2], None),
}


class SuperSubclass(nn.BatchNorm2d):
    """Casts and activates around the inherited forward, as many projects write it."""

    def forward(self, x):
        return F.gelu(super().forward(x.float())).to(x.dtype)


class FunctionalSubclass(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training)


KINDS["subclass calling super"] = (lambda: SuperSubclass(5), SHAPES[2], F.gelu)
KINDS["subclass calling F.batch_norm"] = (lambda: FunctionalSubclass(5), SHAPES[2], lambda y: 2 * y)


def train_mode_output(layer, x, after):
    """F.batch_norm with training=True, which is prediction-time batch norm by definition."""
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    wide = [None if t is None else t.to(torch.float32) for t in (weight, bias)]
    y = F.batch_norm(x.float(), None, None, *wide, True, 0.0, layer.eps)
    return y if after is None else after(y)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_is_train_mode_batch_norm(kind):
    make, shape, after = KINDS[kind]
    layer = randomise(make()).eval()
    x = torch.randn(shape) * 3 + 2
    expected = train_mode_output(layer, x, after)
    before = copy.deepcopy(layer.state_dict())
    predbn.adapt(layer)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=2e-6)
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision(kind, dtype):
    make, shape, after = KINDS[kind]
    layer = randomise(make()).eval().to(dtype)
    x = (torch.randn(shape) * 3 + 2).to(dtype)
    expected = train_mode_output(layer, x, after)
    predbn.adapt(layer)
    with torch.no_grad():
        y = layer(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), expected, rtol=2 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("kind", KINDS)
def test_train_strategy_is_the_identity(kind):
    make, shape, _ = KINDS[kind]
    layer = randomise(make()).eval()
    x = torch.randn(shape)
    expected = layer(x)
    assert torch.equal(predbn.adapt(layer, "train")(x), expected)
    assert torch.equal(predbn.restore(layer)(x), expected)


@pytest.mark.parametrize("strategy", ["batch", "prior", "ema", "frozen", "auto_stream"])
def test_channels_last_in_channels_last_out(strategy):
    layer = predbn.adapt(randomise(nn.BatchNorm2d(4)).eval(), strategy)
    x = torch.randn(3, 4, 5, 5).contiguous(memory_format=torch.channels_last)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)


@given(
    n=st.integers(1, 6),
    channels=st.integers(1, 4),
    spatial=st.lists(st.integers(1, 5), min_size=0, max_size=3),
    strategy=st.sampled_from(
        ["train", "batch", "auto", "auto_stream", "prior(N=0)", "prior(N=3)", "ema", "ema(start='first')", "frozen"]
    ),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_any_shape_and_strategy(n, channels, spatial, strategy, dtype):
    make = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(spatial)]
    layer = predbn.adapt(randomise(make(channels)).eval(), strategy).to(dtype)
    x = torch.randn(n, channels, *spatial, generator=torch.Generator().manual_seed(n)).to(dtype)
    own_statistics = strategy in ("batch", "prior(N=0)", "ema(start='first')", "frozen")
    if own_statistics and x.numel() == channels:
        with pytest.raises(predbn.AdaptationError, match="one value per channel"):
            layer(x)
        return
    y = layer(x)
    assert y.shape == x.shape
    assert y.dtype == dtype
    assert torch.isfinite(y).all()
    if own_statistics:
        expected = F.batch_norm(
            x.double(), None, None, layer.weight.double(), layer.bias.double(), True, 0.0, layer.eps
        )
        tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


def test_an_empty_batch_is_passed_through():
    model = predbn.adapt(net())
    assert model(images(0)).shape == (0, 5)


def test_wrong_number_of_dimensions_is_still_refused():
    with pytest.raises(ValueError, match="expected 4D input"):
        predbn.adapt(nn.BatchNorm2d(3).eval())(torch.randn(4, 3))


def test_a_forward_that_hides_its_normalisation_is_refused():
    class Opaque(nn.BatchNorm2d):
        def forward(self, x):
            return (x - self.running_mean[:, None, None]) * 2

    layer = predbn.adapt(nn.Sequential(Opaque(3)).eval())
    with pytest.raises(predbn.AdaptationError, match=r"layer '0' is a .*Opaque.*does not call"):
        layer(images())


@pytest.mark.filterwarnings("ignore:an adapted model was called in training mode")
def test_eps_is_replaced_at_prediction_only():
    layer = randomise(nn.BatchNorm2d(3)).eval()
    x = images()
    expected = F.batch_norm(x, None, None, layer.weight, layer.bias, True, 0.0, 0.5)
    torch.testing.assert_close(predbn.adapt(layer, eps=0.5)(x), expected, rtol=1e-6, atol=1e-6)
    assert layer.eps == 1e-5
    source = F.batch_norm(x, layer.running_mean, layer.running_var, layer.weight, layer.bias, False, 0.0, 0.5)
    torch.testing.assert_close(predbn.adapt(layer, "train", eps=0.5)(x), source, rtol=1e-6, atol=1e-6)
    twin = copy.deepcopy(predbn.restore(copy.deepcopy(layer))).train()
    assert torch.equal(layer.train()(x), twin(x))


class SharedHead(nn.Module):
    """One batch norm serves two scales, and is registered under two names."""

    def __init__(self):
        super().__init__()
        self.stem = nn.BatchNorm2d(3)
        self.bn = nn.BatchNorm2d(3)
        self.same = self.bn

    def forward(self, x):
        x = self.stem(x)
        return x, self.bn(x), self.same(5 * x + 3)


def test_a_shared_module_has_its_own_statistics_at_each_call():
    model = predbn.adapt(randomise(SharedHead()).eval())
    x, first, second = model(images())
    torch.testing.assert_close(first, train_mode_output(model.bn, x, None), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(second, train_mode_output(model.bn, 5 * x + 3, None), rtol=1e-5, atol=1e-5)
    assert [row.name for row in predbn.describe(model)] == ["stem", "bn"]


def test_frozen_pools_all_calls_of_a_pass():
    model = predbn.adapt(randomise(SharedHead()).eval(), "frozen")
    with torch.no_grad():
        model(images())
        x, first, _ = model(images())
    var, mean = torch.var_mean(torch.cat([x, 5 * x + 3]), (0, 2, 3), correction=0)
    expected = F.batch_norm(x, mean, var, model.bn.weight, model.bn.bias, False, 0.0, model.bn.eps)
    torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-5)


def test_data_parallel_and_names_without_the_wrapper():
    model = net()
    wrapped = nn.DataParallel(model)
    x = images()
    predbn.adapt(wrapped, layers="bn2")
    assert [row.strategy for row in predbn.describe(wrapped)] == ["train", "batch", "train"]
    expected = model(x)
    assert torch.equal(wrapped(x), expected)
    predbn.restore(wrapped)
    assert type(model.bn2) is nn.BatchNorm2d


def test_replicas_of_data_parallel_refuse_state():
    layer = predbn.adapt(nn.BatchNorm2d(3).eval(), "ema")
    replica = layer._replicate_for_data_parallel()
    with pytest.raises(predbn.AdaptationError, match="replicas of DataParallel"):
        replica(images())
