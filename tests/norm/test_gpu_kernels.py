"""Our GPU kernels against plain PyTorch; without a GPU, `tests/models/kernels/test_interpreted.py` runs them."""

from __future__ import annotations

import copy
import importlib
from dataclasses import fields

import pytest
import torch

import predbn
from predbn.norm import kernels
from predbn.norm.calibration import Calibration, channel_weights
from predbn.norm.gpu.rules import Bounds, Mix, Mixture
from predbn.norm.robust import correct_clipping, robust_moments
from predbn.norm.statistics import Statistics, mix
from predbn.norm.strategies.auto import mixture
from predbn.norm.stream_classes import StreamClasses
from predbn.norm.stream_rows import StreamRows

from ..models.kernels.conftest import INTERPRETED, bench
from .models import images, net

__all__ = ["bench"]


LAYOUTS = [torch.channels_last, torch.contiguous_format]
RULES = ["batch", "prior", "auto", "auto skewed", "auto with classes"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(6, 16, 8, 8), (12, 24, 5, 3), (2, 130, 7, 7), (6, 64, 1, 1), (8, 1, 20, 20), (2, 300, 7, 3)]
)
@pytest.mark.parametrize("group", [None, 1, 2])
def test_moments(bench, shape, group, layout):
    from predbn.norm.gpu.sums import moments

    x = (bench.map(*shape).detach() * 3 + 5).contiguous(memory_format=layout)
    groups = 1 if group is None else shape[0] // group
    wide = x.double().cpu().unflatten(0, (groups, -1))
    var, mean = torch.var_mean(wide, (1, 3, 4), correction=0)
    for ours, expected in zip(moments(x, groups), (mean, var), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double().cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ratio", [0.0, 100.0, 1000.0, 2000.0])
@pytest.mark.parametrize("shape", [(4, 70, 24, 24), (1, 3, 3, 5)])
@pytest.mark.parametrize("group", [None, 1])
def test_a_mean_that_is_large_compared_to_the_spread(bench, shape, group, ratio, layout):
    from predbn.norm.gpu.sums import moments

    generator = torch.Generator().manual_seed(0)
    # Half precision: values around 1,000 are rounded to halves, so that the spread is many of these steps.
    x = (torch.randn(shape, generator=generator) * 16 + 16 * ratio).to(torch.float16)
    x = x.to(bench.device).contiguous(memory_format=layout)
    mean, var = (t.double().cpu() for t in moments(x, 1 if group is None else len(x)))
    wide = x.double().cpu()[None] if group is None else x.double().cpu()[:, None]
    expected_var, expected_mean = torch.var_mean(wide, (1, 3, 4), correction=0)
    torch.testing.assert_close(var, expected_var, rtol=1e-3, atol=0)
    torch.testing.assert_close(mean, expected_mean, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("ratio", [1.0, 1e4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_single_precision_keeps_its_digits_if_the_mean_is_ten_thousand_spreads(bench, ratio, layout):
    from predbn.norm.gpu.layer import normalise_by_rule
    from predbn.norm.gpu.rules import Mix

    x = (torch.randn(8, 20, 9, 9, generator=torch.Generator().manual_seed(1)) + ratio).to(bench.device)
    y, _, _ = normalise_by_rule(x.contiguous(memory_format=layout), None, None, 1e-5, Mix())
    wide = x.double().cpu()
    var, mean = torch.var_mean(wide, (0, 2, 3), correction=0, keepdim=True)
    rounding = ratio * 2**-24  # of the mean, in single precision
    torch.testing.assert_close(y.double().cpu(), (wide - mean) / (var + 1e-5).sqrt(), rtol=1e-4, atol=1e-4 + rounding)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_the_kernels_of_a_layer_against_its_equations(bench, rule, groups, robust, layout):
    """The statistics of `robust_moments`, `mix` and `mixture`, group by group, and `normalise`, in double precision."""
    from predbn.norm.gpu.layer import normalise_by_rule

    n, channels, eps = 9, 37, 1e-3
    generator = torch.Generator().manual_seed(channels)

    def random(*shape):
        return torch.rand(shape, generator=generator) + 0.1

    x = 2 * random(groups * n, channels, 5, 4) + torch.randn(groups * n, channels, 1, 1, generator=generator) / 4
    x[1] *= 30  # an outlier
    source, weight, bias = Statistics(random(channels), random(channels)), random(channels), random(channels)
    clean = clean_data(random, channels)
    shares, doubt = random(groups, 6).softmax(1), random(groups, 1)
    our_rule, equation = layer_rule(rule, clean, source, shares, doubt, n, eps)
    evenness = torch.rand(groups, 1) if rule == "auto with classes" else None
    bounds = Bounds(0.5, clean.var, clean.scatter, clean.clipping, evenness) if robust else None
    on_device = to_device((x.contiguous(memory_format=layout), weight, bias, our_rule, bounds), bench.device)
    values, batch, used = normalise_by_rule(*on_device[:3], eps, on_device[3], groups, on_device[4])

    for g, part in enumerate(x.double().split(n)):
        if robust:
            var, mean = torch.var_mean(part, (2, 3), correction=0)
            found = robust_moments(mean, var, torch.ones(n, dtype=torch.bool), eps, clean.var, clean.scatter)
            expected = correct_clipping(found, clean.clipping, n, 1.0 if evenness is None else float(evenness[g]))
        else:
            var, mean = torch.var_mean(part, (0, 2, 3), correction=0)
            expected = Statistics(mean, var)
        for ours, theirs in zip(batch, expected, strict=True):
            torch.testing.assert_close(ours[g].double().cpu(), theirs, rtol=1e-4, atol=1e-4)
        chosen = equation(expected, g)
        torch.testing.assert_close(used.mean[g].double().cpu(), chosen.mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(used.var[g].double().cpu(), chosen.var, rtol=1e-4, atol=1e-4)
        shape = -1, 1, 1
        wanted = (part - chosen.mean.view(shape)) / (chosen.var + eps).sqrt().view(shape)
        wanted = wanted * weight.view(shape) + bias.view(shape)
        torch.testing.assert_close(values.double().cpu().split(n)[g], wanted, rtol=1e-3, atol=1e-3)


def clean_data(random, channels):
    """A calibration with six classes."""
    return Calibration(
        500, 3.0, 0.2, 0.7, random(channels) + 1, random(channels), channel_weights(random(channels)),
        random(6) * 100, random(6, channels) + 1, random(6, channels) + 4, scatter=random(channels) / 10,
        clipping=random(3, channels),
    )  # fmt: skip


def layer_rule(rule, clean, source, shares, doubt, n, eps):
    """The rule for the kernels, and the same as a function of the statistics of a group."""
    network = clean.network**2 / 5
    double = [Statistics(*(t.double() for t in source)), clean.to(torch.float64)]
    if rule == "batch":
        return Mix(), lambda batch, g: batch
    if rule == "prior":
        return Mix(source, None, 16.0), lambda batch, g: mix(double[0], batch, n / (n + 16))
    if rule != "auto with classes":
        skew = 0.4 if rule == "auto skewed" else 0.0
        return Mixture(clean, source, 1.0, 1 / clean.size, network, skew), lambda batch, g: mixture(
            batch, double[1], double[0], eps, 1 / n + 1 / clean.size, skew * (1 - 1 / n), network / (n + 1)
        )

    def with_classes(batch, g):
        pi = shares[g].double()
        sampling = 0.8 / n + 0.8 * (pi**2 / clean.class_sizes.clamp(min=1)).sum() + 0.4 * doubt[g, 0] * (pi**2).sum()
        batch = double[1].with_source_classes(batch, pi, eps)
        return mixture(batch, double[1], double[0], eps, float(sampling), 0.0, network / (n + 1))

    squares = (shares**2).sum(1, keepdim=True)
    return Mixture(clean, source, 0.8, 0.0, network, 0.0, 0.8, 0.4, 0.0, shares, squares, doubt), with_classes


def to_device(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Calibration | Statistics):
        return type(value)(*(to_device(part, device) for part in value))
    if isinstance(value, Mix | Mixture | Bounds):
        return type(value)(*(to_device(getattr(value, field.name), device) for field in fields(value)))
    return tuple(to_device(part, device) for part in value) if isinstance(value, tuple) else value


def test_kernels_that_cannot_be_built_are_not_used_and_that_is_said_once(bench, monkeypatch):
    def fail(*_):
        raise RuntimeError("no C compiler was found\nand more")

    kernels._can_be_built.cache_clear()
    monkeypatch.setattr("predbn.norm.gpu.launch.launch_smallest_kernel", fail)
    model = predbn.adapt(net().to(bench.device), "prior")
    x = images(8).to(bench.device)
    try:
        with torch.inference_mode():
            with pytest.warns(UserWarning, match=r"cannot be built here \(no C compiler was found\).*PREDBN_KERNELS=0"):
                found = model(x)
            torch.testing.assert_close(model(x), found)
        assert not kernels.can_use_operators(x)
    finally:
        kernels._can_be_built.cache_clear()
        kernels._broken_devices.clear()


@pytest.mark.parametrize(
    "strategy", ["prior", "ema", "auto(passes=1)", "auto", "auto_stream", "auto(calibrated=False)"]
)
def test_a_model_with_and_without_kernels(bench, monkeypatch, strategy):
    model = predbn.calibrate(net(), list(images(96).split(32))).to(bench.device)

    def predictions():
        adapted = predbn.adapt(copy.deepcopy(model), strategy)
        with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
            return [adapted(0.5 * images(12, seed=seed, shift=1.0).to(bench.device)) for seed in (5, 6)]

    with_kernels = predictions()
    monkeypatch.setattr(kernels, "_HAS_TRITON", False)
    for ours, expected in zip(with_kernels, predictions(), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_parameters_and_buffers_that_are_not_contiguous(bench):
    layer = torch.nn.BatchNorm2d(5).eval()
    for name, values in (("weight", 2.0), ("bias", 3.0), ("running_mean", 5.0), ("running_var", 7.0)):
        every_other = (torch.arange(10.0) / 10 + values).to(bench.device)[::2]
        parameter = torch.nn.Parameter(every_other) if name in ("weight", "bias") else every_other
        setattr(layer, name, parameter)
    x = images(6, size=4).to(bench.device).repeat(1, 2, 1, 1)[:, :5].contiguous()
    with torch.inference_mode():
        found = predbn.adapt(layer, "prior(N=4)")(x)
    wide = x.double().cpu()
    var, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
    mean, var = (
        0.6 * own + 0.4 * stored.double().cpu()
        for own, stored in ((mean, layer.running_mean), (var, layer.running_var))
    )
    scale, shift = (layer.weight.double().cpu() / (var + layer.eps).sqrt()), layer.bias.double().cpu()
    expected = (wide - mean.view(-1, 1, 1)) * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)
    torch.testing.assert_close(found.double().cpu(), expected.detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("strategy", ["prior", "ema", "auto"])
def test_gradients_of_parameters_flow_although_the_input_needs_none(bench, monkeypatch, strategy):
    model = predbn.calibrate(net(), list(images(96).split(32))).to(bench.device)
    x, grads = images(8).to(bench.device), []
    for has_kernels in (True, False):
        monkeypatch.setattr(kernels, "_HAS_TRITON", has_kernels)
        own = predbn.adapt(copy.deepcopy(model), strategy)
        own.requires_grad_(False).bn1.requires_grad_(True)
        with torch.backends.cudnn.flags(allow_tf32=False):
            own(x).square().sum().backward()
        grads.append(own.bn1.weight.grad)
    torch.testing.assert_close(*grads, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("n", [2, 3, 32, 33, 100, 300, 600])
def test_bounded_moments_of_many_examples(bench, n):
    """Few examples are sorted, of many the quantiles are looked for: ties, zeros of both signs, bad and far values."""
    from predbn.norm.gpu.statistics import statistics
    from predbn.norm.gpu.sums import sums, tiling_of

    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, 7, 2, 3, generator=generator)
    x[:, 1] = x[:, 1].round()
    x[:, 2] = 0.0
    x[: n // 2, 2] = -0.0
    x[:, 3] *= 1e6
    x[:, 4] -= 50.0
    x[:, 5] = torch.where(torch.arange(n)[:, None, None] % 3 == 0, 5.0, 0.0)
    x[0, 6] *= 1e3
    is_bad = torch.zeros(n, dtype=torch.bool)
    is_bad[n // 3] = n > 2
    clean_var, eps = torch.full((7,), 0.5), 1e-3
    bounds = Bounds(0.5, clean_var.to(bench.device), 0.01, None, None)
    x, bad = x.to(bench.device), is_bad.to(bench.device, torch.int32)
    found, _ = statistics(sums(x, tiling_of(x, n)), n, 6, eps, None, bounds, bad)
    var, mean = torch.var_mean(x.double().cpu(), (2, 3), correction=0)
    expected = robust_moments(mean, var, ~is_bad, eps, clean_var.double(), 0.01)
    # Where the means of examples cancel, as 268,299 and −268,170 in channel 3 for n = 2, their rounding is left.
    rounding = 2 * torch.finfo(torch.float32).eps * mean.abs().amax(0)
    for name, ours, theirs in zip(expected._fields, found[[0, 1, 4, 5], 0].double().cpu(), expected, strict=True):
        allowed = 1e-5 + 1e-4 * theirs.abs() + (rounding if name == "mean" else 0.0)
        assert ((ours - theirs).abs() <= allowed).all(), (name, ours, theirs)


def test_kernels_are_not_used_for_functions_of_parameters(bench):
    model = predbn.adapt(net().to(bench.device), "prior")
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    x = images(8).to(bench.device)
    grads = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).square().sum())(parameters)
    assert all(grad.isfinite().all() for grad in grads.values())
    assert grads["bn1.weight"].abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bounds_from_running_statistics_in_half_precision(bench, monkeypatch, dtype):
    layer = net().bn1.to(bench.device, dtype)
    x, found = images(8).to(bench.device, dtype).repeat(1, 3, 1, 1)[:, :8].contiguous(), []
    for has_kernels in (True, False):
        monkeypatch.setattr(kernels, "_HAS_TRITON", has_kernels)
        with torch.inference_mode():
            found.append(predbn.adapt(copy.deepcopy(layer), "prior", robust=True)(x))
    torch.testing.assert_close(*found, atol=3e-2, rtol=3e-2)


def test_an_example_that_is_not_finite_changes_no_other(bench):
    model = predbn.adapt(predbn.calibrate(net(), list(images(96).split(32))).to(bench.device), "auto")
    x, others = images(9).to(bench.device), torch.arange(9) != 4
    x[4, 0, 2, 2] = torch.nan
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        torch.testing.assert_close(model(x)[others], model(x[others]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("examples", "classes"), [(1, 2), (7, 10), (1500, 130)])
def test_mean_predictions_against_double_precision(bench, examples, classes, dtype):
    from predbn.norm.gpu.predictions import can_be_counted, mean_predictions

    generator = torch.Generator().manual_seed(examples)
    wide = (3 * torch.randn(examples, classes + 3, generator=generator)).to(bench.device, dtype)
    wide[0, :classes] = 0.5  # all classes are equally likely, so that the first one is predicted
    if examples > 6:
        wide[1, 1], wide[3, 0], wide[5] = torch.nan, torch.inf, -torch.inf
        wide[4, 0] = -torch.inf  # an impossible class
    scores = wide[:, :classes]
    assert can_be_counted(scores)
    assert not can_be_counted(wide.T)
    means, count = mean_predictions(scores)
    probabilities = scores.double().cpu().softmax(1)
    is_finite = probabilities.isfinite().all(1)
    kept = probabilities[is_finite]
    shares = torch.bincount(kept.argmax(1), minlength=classes) / len(kept)
    assert int(count) == len(kept) == examples - 3 * (examples > 6)
    torch.testing.assert_close(means[:-1].cpu(), shares, rtol=1e-6, atol=0)
    assert float(means[-1]) == pytest.approx(float(kept.amax(1).mean()), rel=1e-5)


def test_mean_predictions_of_no_finite_example_are_zero(bench):
    from predbn.norm.gpu.predictions import mean_predictions

    means, count = mean_predictions(torch.full((4, 6), torch.nan, device=bench.device))
    assert float(count) == 0
    assert means.tolist() == [0.0] * 7


@pytest.mark.parametrize("streams", [None, 1, 3])
@pytest.mark.parametrize("classes", [5, 130])
def test_the_classes_of_streams_against_their_equations(bench, monkeypatch, classes, streams):
    generator = torch.Generator().manual_seed(classes)
    sizes = torch.randint(1, 50, (classes,), generator=generator).float()
    rows = None if streams is None else StreamRows([number % streams for number in range(24)])
    found = {}
    for has_kernels in (True, False):
        monkeypatch.setattr(kernels, "_HAS_TRITON", has_kernels)
        own, device = StreamClasses.of(sizes.to(bench.device)), bench.device
        draws = torch.Generator().manual_seed(7)
        for batch in range(4):
            scores = 4 * torch.randn(24, classes, generator=draws)
            scores[:, batch % 3] += 3
            own = own.after(scores.to(device), sizes.to(device), None, 0.1, False, None, rows)
        found[has_kernels] = own
    for ours, expected in zip(found[True], found[False], strict=True):
        assert ours.shape == expected.shape
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-5)


STATISTICS = f"f i {'f ' * 11}i i i f i f f | {'i ' * 7}| PIECES=64 LAST_CLASSES=8 AT_A_TIME=32 MOST_SORTED=32"
NORMALISE = "i i i i i | ROWS=16 COLUMNS=256 WEIGHT BIAS LAST"
MIXTURE = f"{'f ' * 7}half half half half f f f f i f | i i i i | CLASSES_AT_A_TIME=256"
FOLLOW = f"f i f i f f i {'f ' * 5}| i i i i |"
AUTO = "ROBUST CORRECTED UNEVEN SCATTER CLASSES COUNTED"
VARIANTS = [
    (
        "conv",
        "_conv",
        f"half half half f i f f | {'i ' * 10}| ROWS=64 COLUMNS=64 DEPTH=64 STRIDE=2 SUMS NORMALISE RELU",
    ),
    ("conv", "_combine", "f f i | i i i i i | ROWS=64 TILES=32 COLUMNS=64 FIND_BAD"),
    ("conv", "_apply", "half half f f | i i | ROWS=64 COLUMNS=64 RELU"),
    ("sums", "_sums", "half f i | i i i i | ROWS=32 COLUMNS=64 LAST FOLD=1 FIND_BAD"),
    ("sums", "_sums", "half f i | i i i i | ROWS=4 COLUMNS=256 LAST WIDE FOLD=4 FIND_BAD"),
    ("sums", "_sums", "f f f | i i i i | ROWS=512 COLUMNS=4 FOLD=1"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=4 EXAMPLES=128 {AUTO}"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=4 EXAMPLES=128 ROBUST CORRECTED SCATTER COUNTED BETWEEN"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=16 EXAMPLES=1 MIX WEIGHT"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=32 EXAMPLES=4 {AUTO} STREAMS"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=32 EXAMPLES=8 MIX STREAMS IN_PLACE"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=32 EXAMPLES=4 ROBUST SCATTER STREAMS COUNTED EXPECTED LAST"),
    ("statistics", "_statistics", f"{STATISTICS} COLUMNS=32 EXAMPLES=4 STREAMS COUNTED EXPECTED"),
    ("normalise", "_normalise", f"half half half half half f f f | {NORMALISE}"),
    ("normalise", "_normalise", f"half half half half half f f i | {NORMALISE} STREAMS"),
    ("normalise", "_normalise", "half half half half half f f f | i i i i i | ROWS=256 COLUMNS=16 LAST ADD RELU"),
    ("predictions", "_predictions", "half i f | i i | CLASSES=1024"),
    ("predictions", "_means", "i f f f | i i | CLASSES=1024 EXAMPLES=512"),
    ("stream_classes", "_classes", f"{'f ' * 10}| {'i ' * 6}| CLASSES=128"),
    ("mixed_moments", "_of_sums", "f half half half half f | i i i i | PIECES=64 COLUMNS=8 MIX COUNTED WEIGHT BIAS"),
    ("mixed_moments", "_of_totals", "f f f half half f | i i i | COLUMNS=256 WEIGHT BIAS"),
    ("mixture", "_mixture", f"{MIXTURE} CHANNELS=2048 COUNT CHANCE WEIGHT BIAS SCALE"),
    ("mixture", "_mixture", f"{MIXTURE} CHANNELS=256 COUNT CLASSES STREAMS"),
    ("stream_past", "_follow", f"{FOLLOW} CHANNELS=2048 HAS_PAST HAS_LAST HAS_SHARES EXPECTED CLASSES"),
    ("stream_past", "_follow", "f i f i f f i f f f half half | i i i i | CHANNELS=256 CLASSES"),
    ("stream_past", "_follow", f"{FOLLOW} CHANNELS=256 HAS_PAST"),
    ("stream_past", "_follow", f"{FOLLOW} CHANNELS=256 HAS_LAST CLASSES"),
]
"""Kernels with the types of their tensors, their whole numbers, and the constants that are not False."""


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(("module", "name", "arguments"), VARIANTS)
def test_the_kernels_can_be_compiled_for_a_gpu_that_is_not_here(module, name, arguments):
    pytest.importorskip("triton", reason="Triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    function = getattr(importlib.import_module(f"predbn.norm.gpu.{module}"), name)._function
    tensors, numbers, constants = (part.split() for part in arguments.split("|"))
    types = [{"half": "*fp16", "f": "*fp32", "i": "*i32"}[t] for t in tensors] + ["i32"] * len(numbers)
    is_constant = [name in function.fn.__annotations__ for name in function.arg_names]
    floats = is_constant.count(False) - len(types)
    values = iter([*types, *["fp32"] * floats])
    signature = {n: "constexpr" if c else next(values) for n, c in zip(function.arg_names, is_constant, strict=True)}
    constexprs = {n: False for n, c in zip(function.arg_names, is_constant, strict=True) if c}
    chosen = {n: int(value) if value else True for n, _, value in (constant.partition("=") for constant in constants)}
    assert chosen.keys() <= constexprs.keys()
    constexprs |= chosen
    kernel = compile(ASTSource(function, signature, constexprs), target=GPUTarget("cuda", 90, 32))
    assert kernel.asm["cubin"]
