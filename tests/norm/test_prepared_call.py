"""Prepared calls against the general route; without a GPU, `tests/models/kernels/test_interpreted.py` runs them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import predbn
from predbn.norm.adapted_layer import LayerAdaptation
from predbn.norm.prepared_call import PreparedCalls, TableStatistics

from ..models.kernels.conftest import bench
from .models import images
from .test_gpu_streams import calibrated

__all__ = ["bench"]

STRATEGIES = ["batch", "prior", "frozen", "ema", "auto(passes=1)", "auto(passes=3)", "auto_stream"]
STATEFUL = ["ema", "auto_stream"]


@pytest.fixture
def general_calls(monkeypatch) -> list[str]:
    """The layers that have taken the general route."""
    calls: list[str] = []
    original = LayerAdaptation.batch_norm

    def noted(self, *args, **options):
        calls.append(self.name)
        return original(self, *args, **options)

    monkeypatch.setattr(LayerAdaptation, "batch_norm", noted)
    return calls


def adapted(strategy: str, device: str) -> nn.Module:
    return predbn.adapt(copy.deepcopy(calibrated()).to(device), strategy)


def remembered(model: nn.Module) -> list:
    """What the streams remember, and the statistics of the last batch in each layer."""
    found = [str(predbn.describe(model))]
    for stream in predbn.state_dict(model)["streams"].values():
        found += [value for state in stream["layers"].values() for _, value in sorted(state.items())]
    return found


def assert_same(ours: list, expected: list) -> None:
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
        else:
            assert a == b


def run(strategy: str, device: str, steps) -> list:
    """Each step is a function of a model and its images, or None to predict them."""
    model, found = adapted(strategy, device), []
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for number, step in enumerate(steps):
            x = images(5, seed=number, shift=number / 2).to(device)
            found.append(model(x) if step is None else step(model, x))
    return found + remembered(model)


def compare(monkeypatch, strategy: str, device: str, steps) -> None:
    """The same steps with and without prepared calls."""
    ours = run(strategy, device, steps)
    with monkeypatch.context() as patch:
        patch.setattr(PreparedCalls, "repeat", lambda *_: None)
        expected = run(strategy, device, steps)
    assert_same(ours, expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_calls_are_repeated_with_the_results_of_the_general_route(bench, monkeypatch, general_calls, strategy):
    def looked_at(model, x):
        y = model(x)
        general_calls.clear()
        return y

    steps = [None] * 4 + [looked_at, None]
    model_calls: list[int] = []

    def last(model, x):
        y = model(x)
        model_calls.append(len(general_calls))
        return y

    compare(monkeypatch, strategy, bench.device, [*steps, last])
    assert model_calls[0] == 0
    passes = 3 if strategy == "auto(passes=3)" else 1
    assert model_calls[1] == 4 * passes  # two layers, in the last two calls


def changed_data(model, x):
    model.bn1.weight.data.mul_(2)
    model.bn2.running_mean.add_(1)
    return model(x)


def replaced_data(model, x):
    model.bn1.weight.data = model.bn1.weight.data.clone() * 3
    model.bn1.running_var = model.bn1.running_var * 2
    model.bn2.bias = nn.Parameter(model.bn2.bias.detach() + 1)
    return model(x)


def other_eps(model, x):
    model.bn1.eps = 0.5
    return model(x)


def other_dtype(model, x):
    model.bn1.weight.data = model.bn1.weight.data.to(torch.bfloat16)
    return model(x)


def other_calibration(model, x):
    adaptation = model.bn1._predbn
    if adaptation.calibration is not None:
        adaptation.calibration = adaptation.calibration._replace(mean=adaptation.calibration.mean + 1)
    return model(x)


def with_gradients(model, x):
    with torch.inference_mode(False), torch.enable_grad():
        own = x.clone().requires_grad_()
        model(own).sum().backward()
        return own.grad


def in_training(model, x):
    model.train()
    y = model(x)
    model.eval()
    return y


@pytest.mark.parametrize(
    ("change", "strategy"),
    [
        *((changed_data, strategy) for strategy in ("batch", "prior", "frozen", "auto_stream")),
        *((replaced_data, strategy) for strategy in ("batch", "prior", "frozen", "auto_stream")),
        *((change, "prior") for change in (other_eps, other_dtype, with_gradients, in_training)),
        (other_calibration, "auto(passes=1)"),
        (with_gradients, "ema"),
    ],
)
def test_what_a_call_depends_on_may_change(bench, monkeypatch, strategy, change):
    begin = 4 if strategy in ("frozen", "auto_stream") else 2
    compare(monkeypatch, strategy, bench.device, [None] * begin + [change, None])


def test_other_shapes_and_memory_formats(bench, monkeypatch):
    def fewer(model, x):
        return model(x[:3])

    def last(model, x):
        return model(x.contiguous(memory_format=torch.channels_last))

    compare(monkeypatch, "ema", bench.device, [None, fewer, last, None, fewer, last, None, fewer, last])


@pytest.mark.parametrize("strategy", STATEFUL)
def test_streams_take_turns(bench, monkeypatch, strategy):
    def of(name):
        def step(model, x):
            with predbn.stream(model, name):
                return model(x)

        return step

    def both(model, x):
        with predbn.streams(model, ["a", "b", "b", "a", "b"]):
            return model(x)

    compare(monkeypatch, strategy, bench.device, [*[of("a"), of("b")] * 4, both, of("b"), of("a"), of("b")])


@pytest.mark.parametrize("strategy", STATEFUL)
def test_a_pass_that_fails_or_is_not_finite_changes_nothing(bench, strategy):
    model = adapted(strategy, bench.device)

    def fail(*_):
        raise RuntimeError("stopped")

    with torch.inference_mode():
        for seed in range(5):
            model(images(5, seed=seed).to(bench.device))
        before = remembered(model)[1:]
        hook = model.fc2.register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="stopped"):
            model(images(5, seed=6).to(bench.device))
        hook.remove()
        assert_same(remembered(model)[1:], before)
        model(images(5, seed=7).to(bench.device) * torch.nan)
        assert_same(remembered(model)[1:], before)
        model(images(5, seed=8).to(bench.device))
    after = remembered(model)[1:]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_goes_on_by_itself(bench, copied):
    model = adapted("auto_stream", bench.device)
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for seed in range(5):
            model(images(5, seed=seed).to(bench.device))
        other = copied(model)
        for seed in range(5, 8):
            x = images(5, seed=seed).to(bench.device)
            torch.testing.assert_close(other(x), model(x))
        assert_same(remembered(other), remembered(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_the_statistics_of_the_last_batch_and_no_memory_of_other_layers(bench, copied):
    model = adapted("prior", bench.device)
    with torch.inference_mode():
        for _ in range(2):
            model(images(6).to(bench.device))
    other = copied(model)
    for layer, own in zip(model.modules(), other.modules(), strict=True):
        if hasattr(layer, "_predbn"):
            assert isinstance(layer._predbn.last_batch, TableStatistics)
            found = own._predbn.last_batch.statistics
            assert found.mean.untyped_storage().nbytes() == found.mean.nbytes
            for ours, theirs in zip(found, layer._predbn.last_batch.statistics, strict=True):
                assert torch.equal(ours, theirs)


def test_statistics_as_an_earlier_version_has_written_them():
    tables = torch.rand(6, 1, 5)
    found = TableStatistics(tables).statistics
    assert torch.equal(found.mean, tables[0, 0])
    assert torch.equal(found.var, tables[1, 0])


def test_a_layer_that_is_moved_or_reset(bench, monkeypatch):
    def moved(model, x):
        model.double()
        y = model(x.double()).to(x.dtype)
        model.float()
        return y

    def reset(model, x):
        predbn.reset(model)
        return model(x)

    for strategy in ("frozen", "auto_stream"):
        compare(monkeypatch, strategy, bench.device, [None] * 4 + [moved, None, None, reset, None, None, None])
