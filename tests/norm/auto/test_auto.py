"""`auto` against its equations, and against its purpose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import predbn

from ..models import images, net, randomise

KINDS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def reference(x, layer, clean):
    """The equations of `auto.py` for one layer, in double precision."""
    n, eps = len(x), layer.eps
    stored_mean, stored_var = layer.running_mean.double().numpy(), layer.running_var.double().numpy() + eps
    values = x.double().numpy().swapaxes(0, 1).reshape(x.shape[1], -1)
    mean, var = values.mean(1), values.var(1)
    if clean is None:
        examples = x.double().numpy().reshape(n, x.shape[1], -1)
        clean_mean, clean_var, M = stored_mean, stored_var, 8
        v = examples.mean(2).var(0, ddof=1) / (var + eps) * (n + 1) / (n - 1) if n > 1 else np.ones_like(mean)
        t = v + 2 * v / 2
    else:
        examples = clean.double().numpy().reshape(len(clean), x.shape[1], -1)
        m, q = examples.mean(2), (examples**2).mean(2)
        clean_mean, M = m.mean(0), len(clean)
        clean_var = q.mean(0) - clean_mean**2 + eps
        t = m.var(0) / clean_var + (q - 2 * clean_mean * m).var(0) / clean_var**2 / 2

    def over_channels(values):
        """The weighted mean. Sums with the weights h are these means over the typical t."""
        return np.average(values, weights=1 / (t + t.mean()))

    typical = over_channels(t)
    V, relative_chance = (1 / 4, t / typical) if clean is None else (typical, 1)
    network, chance = V**2 / 5 / (n + 1), typical * (1 / n + 1 / M)

    def source_ratio(difference):
        s = chance / max(difference, 1e-12)
        return s * (1 + s) ** 2

    second = ((values - clean_mean[:, None]) ** 2).mean(1) + eps
    z2 = (mean - clean_mean) ** 2 / clean_var
    d = over_channels(z2 + (second / clean_var - 1) ** 2 / 2)
    k = n / (n + n * relative_chance * source_ratio(d) + n * network)
    mixed_mean = (1 - k) * clean_mean + k * mean
    mixed_var = (1 - k) * (clean_var + (clean_mean - mixed_mean) ** 2) + k * (var + eps + (mean - mixed_mean) ** 2)
    g = mixed_var / clean_var
    offset_z2 = (stored_mean - clean_mean) ** 2 / clean_var
    o = over_channels(offset_z2 + (stored_var / clean_var + offset_z2 - 1) ** 2 / 2)
    e = max(d - chance, 0)
    f = 1 - k * e / (e + o) if e > 0 else np.ones_like(k)
    view = [1, -1, *[1] * (x.dim() - 2)]
    new_mean = mixed_mean + f * np.sqrt(g) * (stored_mean - clean_mean)
    new_var = g * (clean_var + f * (stored_var - clean_var))
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    y = (x.double().numpy() - new_mean.reshape(view)) / np.sqrt(new_var.reshape(view))
    return torch.from_numpy(y * weight.reshape(view) + bias.reshape(view))


@given(
    n=st.integers(1, 9),
    maps=st.sampled_from([(), (7,), (4, 5), (2, 3, 2)]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16]),
    shift=st.sampled_from([0.0, 0.5, 3.0]),
    calibrated=st.booleans(),
)
@torch.no_grad()
def test_the_equations(n, maps, dtype, shift, calibrated):
    generator = torch.Generator().manual_seed(n)
    layer = randomise(KINDS[2 + len(maps)](5)).to(dtype).eval()
    x = (shift + (1 + shift) * torch.randn((n, 5, *maps), generator=generator)).to(dtype)
    clean = (0.3 + torch.randn((40, 5, *maps), generator=generator)).to(dtype) if calibrated else None
    if clean is not None:
        predbn.calibrate(layer, clean.split([1] * 40))
    y = predbn.adapt(layer, "auto", robust=False)(x)
    assert y.dtype == dtype
    tolerance = {torch.float16: 2e-2, torch.float32: 1e-4, torch.float64: 1e-6}[dtype]
    torch.testing.assert_close(y.double(), reference(x, layer, clean), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100])
@torch.no_grad()
def test_source_data_is_predicted_as_before(n):
    batches = [images(n, seed=seed) for seed in range(2, 22)]
    expected = torch.cat([net()(x) for x in batches])
    model = predbn.adapt(predbn.calibrate(net(), images(2000).split(500)), "auto")
    predicted = torch.cat([model(x) for x in batches])
    assert (predicted - expected).abs().mean() < 0.05 * expected.std()


@torch.no_grad()
def test_a_large_shift_is_undone():
    layer, x = randomise(nn.BatchNorm2d(3)).eval(), images(2000)
    predbn.adapt(predbn.calibrate(layer, x.split(500)), "auto")
    with predbn.adapted(layer, "batch"):
        expected = layer(x)
    for scale, offset in ((50.0, 300.0), (1e3, -1e5)):
        y = layer(scale * x + offset)
        assert (y - expected).abs().mean() < 0.02 * expected.abs().mean()


@torch.no_grad()
def test_the_offset_of_the_stored_statistics_stays_under_a_smaller_shift():
    layer, x = nn.BatchNorm2d(3).eval(), images(2000)
    layer.running_mean.fill_(20.0)
    layer.running_var.fill_(400.0)
    expected = layer(x)
    predbn.adapt(predbn.calibrate(layer, x.split(500)), "auto")
    y = layer(1.5 * x + 0.5)
    assert (y - expected).abs().mean() < 0.1 * expected.abs().mean()
    with predbn.adapted(layer, "batch"):
        assert (layer(x) - expected).abs().mean() > 0.5


class Classes(nn.Module):
    """Examples of two classes that differ in the mean of their maps."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        level = self.bn(x).mean((1, 2, 3))
        return torch.stack([level, -level], 1)


@torch.no_grad()
def test_a_batch_of_one_class_is_not_a_shift():
    x = images(800, shift=1.0)
    x[400:] -= 2
    model = predbn.calibrate(
        Classes().eval(), x[torch.randperm(800, generator=torch.Generator().manual_seed(0))].split(100)
    )
    expected, own = model(x[:100]), predbn.adapted(model, "batch")
    predicted = predbn.AutoPredictor(model)(x[:100])
    torch.testing.assert_close(predicted.softmax(1), expected.softmax(1), rtol=0.1, atol=0.1)
    with own:
        collapsed = model(x[:100])
    assert (model(x[:100]) - collapsed).abs().mean() < 0.3 * (expected - collapsed).abs().mean()


@torch.no_grad()
def test_calibration_can_be_ignored():
    x = images(8, shift=1.0)
    plain = predbn.adapt(net(), "auto")(x)
    model = predbn.calibrate(net(), [images(64, seed=5)])
    assert not torch.allclose(predbn.adapt(model, "auto")(x), plain, atol=1e-3)
    assert torch.equal(predbn.adapt(model, "auto", calibrated=False)(x), plain)


@torch.no_grad()
def test_a_dead_channel_stays_finite():
    layer = nn.BatchNorm2d(3).eval()
    x = images(50)
    x[:, 1] = 0
    predbn.adapt(predbn.calibrate(layer, [x]), "auto")
    assert layer(images(4, shift=2.0)).isfinite().all()
    assert layer(torch.zeros(4, 3, 6, 6)).isfinite().all()
    nothing = predbn.adapt(predbn.calibrate(nn.BatchNorm2d(3).eval(), [torch.zeros(8, 3, 6, 6)]), "auto")
    assert nothing(images(4)).isfinite().all()


def stream_of_batches():
    generator = torch.Generator().manual_seed(1)
    return [0.4 + 1.5 * torch.randn((n, 5, 4, 4), generator=generator) for n in (3, 1, 4, 1, 2, 1)]


def calibrated_layer():
    layer = randomise(nn.BatchNorm2d(5)).double().eval()
    clean = 0.3 + torch.randn((40, 5, 4, 4), generator=torch.Generator().manual_seed(0)).double()
    return predbn.calibrate(layer, clean.split(10))


@torch.no_grad()
def test_a_stream_that_forgets_nothing_is_one_growing_batch():
    stream, whole = (
        predbn.adapt(calibrated_layer(), "auto_stream", momentum=0, robust=False),
        predbn.adapt(calibrated_layer(), "auto", robust=False),
    )
    batches = [x.double() for x in stream_of_batches()]
    for i, x in enumerate(batches):
        expected = whole(torch.cat(batches[: i + 1]))[-len(x) :]
        torch.testing.assert_close(stream(x), expected)


@torch.no_grad()
def test_a_stream_that_forgets_everything_is_auto():
    stream, plain = (
        predbn.adapt(calibrated_layer(), "auto_stream", momentum=1, robust=False),
        predbn.adapt(calibrated_layer(), "auto", robust=False),
    )
    for x in stream_of_batches():
        torch.testing.assert_close(stream(x.double()), plain(x.double()))


@torch.no_grad()
def test_single_examples_of_a_shifted_stream_are_trusted_after_a_while():
    generator = torch.Generator().manual_seed(2)
    layer = predbn.calibrate(nn.BatchNorm2d(5).eval(), torch.randn((400, 5, 4, 4), generator=generator).split(50))
    x = 1 + 2 * torch.randn((200, 5, 4, 4), generator=generator)
    with predbn.adapted(layer, "batch"):
        expected = layer(x)

    def error(strategy):
        with predbn.adapted(layer, strategy):
            return (torch.cat([layer(example) for example in x.split(1)]) - expected)[50:].abs().mean()

    assert error("auto_stream") < 0.6 * error("auto")


@torch.no_grad()
def test_the_current_state_of_a_stream_can_be_folded():
    model = predbn.adapt(predbn.calibrate(net(), images(200).split(50)), "auto_stream")
    for x in images(12, seed=3, shift=1.0).split(4):
        expected = model(x)
    torch.testing.assert_close(predbn.fold(model)(x), expected, rtol=1e-4, atol=1e-4)
