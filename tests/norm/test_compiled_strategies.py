"""Compiled models on the route of a GPU, whose statistics are operators, against the models themselves.

`test_interpreted.py` runs this without a GPU.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import predbn
from predbn.norm import kernels
from predbn.norm.statistics import Statistics

from ..models.kernels.conftest import INTERPRETED, bench

__all__ = ["bench"]

CLASSES = {1: (nn.Conv1d, nn.BatchNorm1d), 2: (nn.Conv2d, nn.BatchNorm2d), 3: (nn.Conv3d, nn.BatchNorm3d)}
STRATEGIES = ["train", "batch", "prior(N=4)", "ema", "auto(passes=1)", "auto(passes=1, robust=False)", "population"]


class Net(nn.Module):
    def __init__(self, dims: int, affine: bool) -> None:
        super().__init__()
        conv, norm = CLASSES[dims]
        self.conv, self.bn1 = conv(3, 8, 3, padding=1), norm(8, affine=affine)
        self.bn2, self.fc = norm(8, affine=affine), nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv(x)))
        return self.fc(self.bn2(x).flatten(2).mean(2))


def images(count: int, dims: int, seed: int = 0):
    return torch.randn(count, 3, *[6] * dims, generator=torch.Generator().manual_seed(seed)) + 0.5


def adapted(strategy: str, dims: int, affine: bool):
    torch.manual_seed(dims)
    model = Net(dims, affine).eval()
    for norm in (model.bn1, model.bn2):
        norm.running_mean.uniform_(-0.5, 0.5)
        norm.running_var.uniform_(0.5, 2)
        if affine:
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.uniform_(norm.bias, -1, 1)
    options = {}
    if strategy.startswith("auto"):
        with pytest.MonkeyPatch.context() as patch:  # which takes the interpreter long
            patch.setattr(kernels, "_HAS_TRITON", False)
            model = predbn.calibrate(model, [images(40, dims, 7)])
    if strategy == "population":
        options["loader"] = [images(40, dims, 7)]
    if strategy.endswith("robust=False)"):
        strategy, options = "auto(passes=1)", {"robust": False}
    return predbn.adapt(model, strategy, **options)


@pytest.fixture(autouse=True)
def _needs_kernels():
    pytest.importorskip("triton", reason="Triton is not installed")
    if not INTERPRETED and not torch.cuda.is_available():
        pytest.skip("test_interpreted.py runs this")
    torch._dynamo.reset()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("dims", "dtype", "affine"),
    [(2, torch.float16, True), (2, torch.bfloat16, False), (2, torch.float32, True), (1, torch.float16, True),
     (3, torch.float16, False)],
)  # fmt: skip
def test_a_compiled_model_predicts_what_the_model_does(bench, strategy, dims, dtype, affine):
    if dtype != torch.float32 and bench.device == "cpu" and dims == 3:
        pytest.skip("a CPU has no such convolution")
    model = adapted(strategy, dims, affine).to(bench.device, dtype)
    exact, compiled = copy.deepcopy(model).double(), torch.compile(copy.deepcopy(model), backend="aot_eager")
    with torch.inference_mode():
        for count in (6, 9):  # which changes the state of ema
            x = images(count, dims, count).to(bench.device, dtype)
            expected, plain, found = exact(x.double()), model(x).double(), compiled(x).double()
            error = (plain - expected).norm()
            assert (found - expected).norm() < 2 * error + 3 * torch.finfo(dtype).eps * expected.norm()


@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "ema", "auto(passes=1, robust=False)"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gradients_of_weight_and_bias(bench, strategy, dtype):
    model = adapted(strategy, 2, affine=True).to(bench.device, dtype)
    model.requires_grad_(False).bn1.requires_grad_(True)
    x, found = images(8, 2).to(bench.device, dtype), []
    for own in (copy.deepcopy(model), copy.deepcopy(model)):
        forward = own if found == [] else torch.compile(own, backend="aot_eager")
        forward(x).square().sum().backward()
        found.append(torch.stack([own.bn1.weight.grad, own.bn1.bias.grad]).double())
    torch.testing.assert_close(found[1], found[0], rtol=0.1, atol=0.1 * float(found[0].abs().max()))


def test_a_strategy_that_changes_what_another_one_has_chosen(bench):
    class Wide(predbn.Prior):
        def statistics(self, observation):
            mean, var = super().statistics(observation)
            return Statistics(mean, 4 * var)

        def rule(self, observation):
            return None

    torch.manual_seed(0)
    model = predbn.adapt(Net(2, affine=True).eval(), Wide()).to(bench.device, torch.bfloat16)
    x = images(8, 2).to(bench.device, torch.bfloat16)
    with torch.inference_mode():
        expected, found = model(x), torch.compile(model, backend="aot_eager")(x)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_a_fused_layer_whose_parameters_have_gaps(bench):
    torch.manual_seed(0)
    model = Net(2, affine=True).eval()
    model.conv = nn.Conv2d(3, 8, 1, bias=False)
    model = model.to(bench.device, torch.bfloat16, memory_format=torch.channels_last)
    rows = torch.rand(8, 2, device=bench.device, dtype=torch.bfloat16) + 0.5
    model.bn1.weight, model.bn1.running_var = nn.Parameter(rows[:, 0]), rows[:, 1]
    model = predbn.adapt(model, "prior(N=4)")
    x = images(8, 2).to(bench.device, torch.bfloat16).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        expected, found = model(x), predbn.compile(copy.deepcopy(model), backend="aot_eager")(x)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
