"""The kernels of the GPU route, against double precision; skipped if there is no GPU."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import predbn

from .models import images, net, randomise

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")

SHAPES = [(16, 5), (6, 5, 9), (6, 5, 7, 4), (3, 5, 3, 4, 5), (100, 64, 14, 14), (2, 64, 1, 1)]
STRATEGIES = ["train", "batch", "auto", "auto_stream", "prior(N=16)", "ema", "frozen"]


def layer_for(shape, **options):
    make = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    return randomise(make(shape[1], **options)).eval()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
@torch.no_grad()
def test_batch_is_train_mode_batch_norm(shape, dtype, affine):
    layer = predbn.adapt(layer_for(shape, affine=affine)).to("cuda", dtype)
    x = (torch.randn(shape) * 3 + 2).to("cuda", dtype)
    wide = [None if t is None else t.double() for t in (layer.weight, layer.bias)]
    expected = F.batch_norm(x.double(), None, None, *wide, True, 0.0, layer.eps)
    tolerance = max(5e-5 if shape[0] == 2 else 2e-6, 4 * torch.finfo(dtype).eps)
    for y in (layer(x), layer(x.contiguous(memory_format=torch.channels_last)) if x.dim() == 4 else layer(x)):
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=2 * tolerance)
    last_batch = layer._predbn.last_batch.statistics
    var, mean = torch.var_mean(x.double(), [0, *range(2, x.dim())], correction=0)
    torch.testing.assert_close(last_batch.mean.double(), mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(last_batch.var.double(), var, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("strategy", STRATEGIES)
@torch.no_grad()
def test_cpu_and_gpu_agree(strategy):
    on_cpu = predbn.adapt(net(), strategy)
    on_gpu = copy.deepcopy(on_cpu).cuda()
    with torch.backends.cudnn.flags(allow_tf32=False):
        for seed in range(3):
            x = images(16, seed=seed, shift=float(seed))
            torch.testing.assert_close(on_gpu(x.cuda()).cpu(), on_cpu(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(12, 5), (12, 5, 9), (12, 5, 7, 4), (24, 64, 14, 14), (12, 64, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
@torch.no_grad()
def test_groups_have_their_own_statistics(shape, dtype, affine):
    layer = predbn.adapt(layer_for(shape, affine=affine), group=4).to("cuda", dtype)
    x = (torch.randn(shape) * 3 + 20).to("cuda", dtype)
    wide = [None if t is None else t.double() for t in (layer.weight, layer.bias)]
    expected = torch.cat([F.batch_norm(part, None, None, *wide, True, 0.0, layer.eps) for part in x.double().split(4)])
    tolerance = max(1e-4, 4 * torch.finfo(dtype).eps)
    for y in (layer(x), layer(x.contiguous(memory_format=torch.channels_last)) if x.dim() == 4 else layer(x)):
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("shape", SHAPES[:4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@torch.no_grad()
def test_streams_have_their_own_statistics(shape, dtype):
    layer = predbn.adapt(layer_for(shape), "batch").to("cuda", dtype)
    x, ids = (torch.randn(shape) * 3 + 20).to("cuda", dtype), [i % 3 if i < 6 else 1 for i in range(shape[0])]
    x, ids = torch.cat([x, x.flip(0)]), ids + ids[::-1]
    with predbn.streams(layer, ids):
        y = layer(x)
    wide, tolerance = (layer.weight.double(), layer.bias.double()), max(1e-4, 4 * torch.finfo(dtype).eps)
    for stream in set(ids):
        rows = [row for row, other in enumerate(ids) if other == stream]
        expected = F.batch_norm(x[rows].double(), None, None, *wide, True, 0.0, layer.eps)
        torch.testing.assert_close(y[rows].double(), expected, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto(calibrated=False)", "auto(passes=1)"])
@torch.no_grad()
def test_streams_are_as_alone(strategy, robust):
    """Also if other streams have rows that are not finite. A stream of such rows only keeps its state."""

    def adapted():
        model = predbn.calibrate(net(), [images(64, seed=9)]).double().cuda()
        return predbn.adapt(model, strategy, robust=robust)

    together, alone = adapted(), [adapted() for _ in range(3)]
    ids = [0, 1, 2, 1, 0, 2, 1, 2, 1, 0]
    for step in range(5):
        x = images(len(ids), seed=step).double().cuda()
        is_bad = step in (0, 2)
        x[[0, 4, 9, 1] if is_bad else []] = float("nan")
        with predbn.streams(together, ids):
            y = together(x)
        for stream, model in enumerate(alone):
            rows = [row for row, other in enumerate(ids) if other == stream and not (is_bad and row == 1)]
            if stream or not is_bad:
                torch.testing.assert_close(y[rows], model(x[rows]), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_state_moves_with_the_model():
    model = predbn.adapt(net(), "frozen")
    expected = model(images())
    model.cuda()
    assert predbn.state_dict(model)["streams"]["default"]["layers"]["bn1"]["mean"].is_cuda
    torch.testing.assert_close(model(images().cuda()).cpu(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("strategy", STRATEGIES)
@torch.no_grad()
def test_half_precision_and_autocast(strategy):
    reference = predbn.adapt(net(), strategy).cuda()
    half = predbn.adapt(net(), strategy).cuda().half()
    mixed = predbn.adapt(net(), strategy).cuda()
    for seed in range(2):
        x = images(32, seed=seed).cuda()
        expected = reference(x)
        torch.testing.assert_close(half(x.half()).float(), expected, rtol=2e-2, atol=2e-2)
        with torch.autocast("cuda", dtype=torch.float16):
            torch.testing.assert_close(mixed(x).float(), expected, rtol=2e-2, atol=2e-2)


def test_gradients():
    x = images(16).cuda()
    grads = []
    for model in (predbn.adapt(net()).cuda(), net().cuda()):
        for layer in model.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm) and len(grads) == 1:
                layer.train()
        leaf = x.clone().requires_grad_()
        with torch.backends.cudnn.flags(allow_tf32=False):
            model(leaf).square().sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("strategy", ["auto", "auto(calibrated=False)", "batch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@torch.no_grad()
def test_a_row_that_is_not_finite_changes_no_other_where_influence_is_bounded(strategy, dtype):
    model = predbn.calibrate(net().cuda(), [images(64, seed=3).cuda()]).to(dtype)
    model = predbn.adapt(model.to(memory_format=torch.channels_last), strategy, robust=True)
    x = images(9).to("cuda", dtype)
    x[4, 0, 2, 2] = torch.nan
    others = torch.arange(9) != 4
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(model(x)[others], model(x[others]), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("shape", [(6, 5, 7, 4), (100, 64, 14, 14)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@torch.no_grad()
def test_moments_of_single_examples(shape, dtype):
    x = (torch.randn(shape) * 3 + 2).to("cuda", dtype).contiguous(memory_format=torch.channels_last)
    mean, var = predbn.norm.kernels.example_means_and_variances(x, 1e-5)
    wide = x.double()
    torch.testing.assert_close(mean.double(), wide.mean((2, 3)), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(var.double(), wide.var((2, 3), correction=0), atol=1e-4, rtol=1e-4)
