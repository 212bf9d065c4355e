"""Hostile models: adapt works on them, or says that it does not."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrize

import predbn

from .models import images, net, randomise


def expected(x: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    return F.batch_norm(x, None, None, layer.weight, layer.bias, True, 0.0, layer.eps)


def wrap_forward(layer: nn.Module) -> list[Tensor]:
    """Set a forward on the instance around the old one, as accelerate's hooks do; returns the inputs it will see."""
    before, seen = layer.forward, []

    def forward(x: Tensor) -> Tensor:
        seen.append(x)
        return before(x)

    layer.forward = forward
    return seen


@pytest.mark.parametrize("strategy", ["batch", "prior(N=0)", "ema(momentum=1)"])
@torch.no_grad()
def test_a_forward_set_on_the_instance(strategy):
    layer, x = nn.BatchNorm2d(3).eval(), images(4, shift=3.0)
    model, plain = nn.Sequential(layer), copy.deepcopy(layer)(x)
    seen = wrap_forward(layer)
    own = layer.forward
    for _ in range(2):
        predbn.adapt(model, strategy)
        torch.testing.assert_close(model(x), expected(x, layer), rtol=1e-5, atol=1e-5)
    predbn.restore(model)
    assert layer.forward is own
    assert torch.equal(model(x), plain)
    assert len(seen) == 3


@torch.no_grad()
def test_a_forward_set_on_the_instance_after_adapt():
    layer, x = nn.BatchNorm2d(3).eval(), images(4, shift=3.0)
    plain = layer(x)
    model = predbn.adapt(nn.Sequential(layer))
    wrap_forward(layer)
    torch.testing.assert_close(model(x), expected(x, layer), rtol=1e-5, atol=1e-5)
    predbn.adapt(model, "prior(N=0)")
    torch.testing.assert_close(model(x), expected(x, layer), rtol=1e-5, atol=1e-5)
    assert torch.equal(predbn.restore(model)(x), plain)
    torch.testing.assert_close(predbn.adapt(model)(x), expected(x, layer), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_pattern_with_the_second_name_of_a_shared_layer():
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.BatchNorm2d(3)
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.second(x)

    model, x = Shared().eval(), images(4, shift=3.0)
    predbn.adapt(model, "batch", layers="second")
    torch.testing.assert_close(model(x), expected(x, model.first), rtol=1e-5, atol=1e-5)


class Functional(nn.Module):
    """Calls F.batch_norm with the buffers of a layer that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        bn = self.bn
        return F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, False, 0.1, bn.eps)


@torch.no_grad()
def test_a_parent_that_calls_batch_norm_itself():
    model = predbn.adapt(nn.Sequential(randomise(Functional())).eval(), "batch")
    with pytest.warns(UserWarning, match=r"\(0\.bn\) were not called"):
        model(images(4, shift=3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(images(4, shift=3.0))


def to_sync(model: nn.Module) -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(model).eval()


def freeze(model: nn.Module) -> nn.Module:
    return pytest.importorskip("timm.layers", reason="timm is not installed").freeze_batch_norm_2d(model)


@pytest.mark.parametrize(("replace", "is_first"), [(to_sync, True), (to_sync, False), (freeze, True), (freeze, False)])
@torch.no_grad()
def test_layers_that_are_replaced_after_adapt(replace, is_first):
    """Whether they were called before or not; the statistics of the last layer stay adapted if timm freezes."""
    model, x = predbn.adapt(net(), "batch"), images(4, shift=3.0)
    wanted = model(x) if not is_first else predbn.adapt(net(), "batch")(x)
    replaced = replace(model)
    with pytest.warns(UserWarning, match=r"\(bn1, bn2.*no longer adapted"):
        assert not torch.equal(replaced(x), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(predbn.adapt(replaced, "batch")(x), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_no_warning_without_a_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = predbn.adapt(net(), "batch", layers="bn1")
        for n in (4, 0, 6):
            model(images(n))
        copy.deepcopy(model)(images(4))
        with predbn.adapted(model, "prior"):
            model(images(4))
        predbn.restore(model)(images(4))
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_describe_after_a_compiled_batch():
    model = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).eval(), "batch")
    with torch.no_grad():
        model(images(4))
        assert predbn.describe(model)[0].distance is not None
        torch.compile(model, backend="eager")(images(4, shift=9.0))
    assert predbn.describe(model)[0].distance is None, "not that of another batch"


@pytest.mark.parametrize("strategy", ["batch", "auto(calibrated=False)"])
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
def test_export_with_or_without_gradients_then_save_and_run_with_them(strategy, is_strict, gradients):
    model, file = predbn.adapt(net(), strategy), io.BytesIO()
    with torch.set_grad_enabled(gradients):
        torch.export.save(torch.export.export(model, (images(4),), strict=is_strict), file)
    file.seek(0)
    exported = torch.export.load(file).module()
    x = images(4).requires_grad_()
    wanted = torch.autograd.grad(model(x).square().sum(), x)[0]
    torch.testing.assert_close(torch.autograd.grad(exported(x).square().sum(), x)[0], wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("strategy", ["batch", "ema", "frozen", "frozen(batches=2)", "auto_stream(calibrated=False)"])
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp"])
def test_functions_that_are_transformed_change_no_state(strategy, transform):
    model, clean, x = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy), images(4)
    for _ in range(2):
        if transform == "vmap":
            together = torch.func.vmap(model, randomness="different")(torch.stack([x, images(4, seed=2)]))
            wanted = [copy.deepcopy(clean)(x), copy.deepcopy(clean)(images(4, seed=2))]
            torch.testing.assert_close(together, torch.stack(wanted), rtol=1e-4, atol=1e-5)
        elif transform == "grad":
            torch.func.grad(lambda x: model(x).square().sum())(x)
        else:
            torch.func.jvp(model, (x,), (x,))
        assert predbn.describe(model)[0].distance is None
        torch.save((model.state_dict(), predbn.state_dict(model)), io.BytesIO())
        with torch.no_grad():
            later = images(4, seed=3, shift=1.0)
            torch.testing.assert_close(copy.deepcopy(model)(later), clean(later))
            model(later)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # by PyTorch
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "auto(calibrated=False)"])
def test_a_function_that_is_recorded_and_made_linear(strategy):
    """torch.func.linearize records the model with make_fx, which cannot look at values."""
    model, x, direction = predbn.adapt(net(), strategy), images(4), images(4, seed=3)
    output, slope = torch.func.linearize(model, x)
    wanted, wanted_slope = torch.func.jvp(model, (x,), (direction,))
    torch.testing.assert_close(output, wanted)
    torch.testing.assert_close(slope(direction), wanted_slope, rtol=1e-4, atol=1e-5)


def test_a_strategy_that_keeps_state_is_not_recorded():
    model = predbn.adapt(net(), "ema")
    with pytest.raises(predbn.AdaptationError, match="keeps state from batch to batch"):
        make_fx(model)(images(4))
    assert not predbn.state_dict(model)["streams"]["default"]["bn1"]


def test_forward_mode_gradients():
    model = predbn.adapt(net().double(), "batch")
    x, direction = images(4).double(), images(4, seed=3).double()
    _, slope = torch.func.jvp(model, (x,), (direction,))
    step = 1e-6
    with torch.no_grad():
        wanted = (model(x + step * direction) - model(x - step * direction)) / (2 * step)
    torch.testing.assert_close(slope, wanted, rtol=1e-4, atol=1e-5)


def test_parametrised_after_adapt_then_restored():
    class Double(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    model, x = net(), images(4)
    wanted = copy.deepcopy(model)
    predbn.adapt(model, "batch")
    parametrize.register_parametrization(model.bn1, "weight", Double())
    parametrize.register_parametrization(wanted.bn1, "weight", Double())
    with torch.no_grad():
        adapted = predbn.adapt(copy.deepcopy(wanted), "batch")(x)
        assert torch.equal(model(x), adapted)
        predbn.restore(model)
        assert torch.equal(model(x), wanted(x))


def test_a_scripted_part_that_is_left_out():
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scripted = torch.jit.script(nn.Sequential(nn.Conv2d(3, 3, 1)))
            self.bn = nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.bn(self.scripted(x))

    model = predbn.adapt(Parts().eval(), "batch", layers="bn")
    with torch.no_grad():
        torch.testing.assert_close(
            model(images(4)), expected(model.scripted(images(4)), model.bn), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("strategy", ["batch", "prior", "ema", "frozen", "auto(calibrated=False)"])
@torch.no_grad()
def test_maps_without_pixels(strategy):
    layer, x = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).eval(), strategy), images(4)
    assert layer(torch.zeros(2, 3, 0, 4)).shape == (2, 3, 0, 4)
    assert torch.equal(layer(x), predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).eval(), strategy)(x))


def test_inputs_that_are_not_tensors():
    layer = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).eval(), "batch")
    with pytest.raises(predbn.AdaptationError, match="layer '0' got a list, not a Tensor"):
        layer([1.0, 2.0])


@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "auto(calibrated=False)"])
@torch.no_grad()
def test_export_with_groups_accepts_a_single_group(strategy):
    model = predbn.adapt(net(), strategy, group=4, robust=False)
    size = torch.export.Dim("groups", min=1, max=64)
    exported = torch.export.export(model, (images(8),), dynamic_shapes=({0: 4 * size},)).module()
    for n in (4, 8, 12):
        torch.testing.assert_close(exported(images(n)), model(images(n)), rtol=1e-4, atol=1e-5)


def test_bounds_in_groups_cannot_be_exported_and_say_so():
    model = predbn.adapt(net(), "auto(calibrated=False)", group=4)
    with pytest.raises(Exception, match="adapt with robust=False, or without a group"), torch.no_grad():
        torch.export.export(model, (images(8),))


@torch.no_grad()
def test_sync_cannot_be_exported_and_says_so(world_of_one):
    model, x = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).eval(), "batch", sync=True), images(4)
    with pytest.raises(predbn.AdaptationError, match="export with sync=False"):
        torch.export.export(model, (x,))
    torch.testing.assert_close(torch.compile(model, backend="eager")(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@torch.no_grad()
def test_the_old_onnx_exporter_is_refused(tmp_path):
    """It fixes the number of groups, does not know all operators, and writes invalid files for some models."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    with pytest.raises(predbn.AdaptationError, match="use dynamo=True"):
        torch.onnx.export(predbn.adapt(net()), (images(4),), tmp_path / "model.onnx", dynamo=False)
    assert not (tmp_path / "model.onnx").exists()


class NamesOfTorch(nn.Module):
    """Has attributes and methods with the names of nn.Module's, as ESPNet has a list `modules`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.modules = [self.conv, self.bn]
        self.buffers = {"replay": []}

    def parameters(self, group: str) -> list[Tensor]:  # type: ignore[override]
        return [self.conv.weight]

    def forward(self, x: Tensor) -> Tensor:
        for module in self.modules:
            x = module(x)
        return x


def test_attributes_with_the_names_of_methods():
    model, x = NamesOfTorch().eval(), images(40, shift=2.0)
    plain = model(x)
    torch.testing.assert_close(predbn.adapt(model)(x), expected(model.conv(x), model.bn))
    predbn.calibrate(model, [x])
    predbn.adapt(model, "auto")(x)
    predbn.restore(model, keep_calibration=False)
    assert torch.equal(model(x), plain)
    predbn.recompute(model, [x])
    torch.testing.assert_close(model(x), expected(model.conv(x), model.bn), rtol=1e-3, atol=1e-3)
    predbn.adapt(model, "population", loader=[x])
    with pytest.warns(UserWarning, match="each of them changes the output"):  # the list calls the layer itself
        folded = predbn.fold(model)
    torch.testing.assert_close(folded(x), model(x))
    assert str(predbn.describe(model))
