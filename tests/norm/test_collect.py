"""Population statistics and calibration, against the data as one batch and against numpy."""

import numpy as np
import pytest
import torch
from torch import nn

import predbn

from .models import images, net

DATA = torch.cat([images(30, seed=1, shift=2.0), images(11, seed=2, shift=-1.0)])
BATCHINGS = [[41], [40, 1], [7, 13, 1, 20], [1] * 41, [21, 20]]


def split(sizes):
    return list(DATA.split(sizes))


@torch.no_grad()
def test_population_predicts_as_batch_does_on_the_whole_data():
    """`test_recompute.py` compares the statistics themselves."""
    model = predbn.adapt(net(), "population", loader=split([7, 13, 1, 20]))
    wanted = predbn.adapt(net())(DATA)
    torch.testing.assert_close(model(DATA), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(DATA[:1]), wanted[:1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_dropout_stays_off_and_training_flags_come_back():
    class RecordingDropout(nn.Dropout):
        modes: list[bool]

        def forward(self, x):
            self.modes.append(self.training)
            return super().forward(x)

    model = net()
    model.drop = RecordingDropout(0.5)
    model.drop.modes = []
    model.train()
    model.bn2.eval()
    predbn.adapt(model, "population", loader=split([20, 21]))
    predbn.calibrate(model, split([20, 21]))
    assert model.drop.modes
    assert not any(model.drop.modes)
    assert [model.training, model.bn2.training, model.drop.training] == [True, False, True]


def test_progress_is_reported_batch_by_batch():
    """One pass over the two batches finds the layers, and one more measures each of the three."""
    reports = []
    predbn.adapt(net(), "population", loader=split([20, 21]), progress=lambda *done: reports.append(done))
    assert reports == [(done, 8) for done in range(1, 9)]
    reports.clear()
    unsized = (batch for batch in split([20, 21]))
    predbn.adapt(net(), "population", loader=unsized, exact=False, progress=lambda *done: reports.append(done))
    assert reports == [(1, 0), (2, 0)]


def test_population_without_data():
    model = predbn.adapt(net(), "population")
    with pytest.raises(predbn.AdaptationError, match=r"'bn1' has no population statistics yet"):
        model(images())


@pytest.mark.parametrize("sizes", BATCHINGS)
@torch.no_grad()
def test_calibration_is_the_moments_of_every_example(sizes):
    model = net()
    expected_output = model(DATA)
    assert predbn.calibrate(model, split(sizes)) is model
    assert torch.equal(model(DATA), expected_output)
    calibration = predbn.state_dict(model)["calibration"]["bn1"]
    x = model.conv1(DATA).double().numpy().reshape(41, 8, -1)
    mean, var, scale = x.mean((0, 2)), x.var((0, 2)), x.var((0, 2)) + model.bn1.eps
    m, square = x.mean(2), ((x - mean[:, None]) ** 2).mean(2)

    def chance(deviations, count):
        return (deviations[0] ** 2).sum(0) / count / scale + (deviations[1] ** 2).sum(0) / count / scale**2 / 2

    expected = chance([m - m.mean(0), square - square.mean(0)], 41)
    assert calibration["size"] == 41
    weights = 1 / (expected + expected.mean())
    for key, value in {"mean": mean, "var": var, "weight": weights / (weights @ expected)}.items():
        np.testing.assert_allclose(calibration[key].numpy(), value, rtol=1e-4, atol=1e-5)
    layers = predbn.state_dict(model)["calibration"].values()
    assert len(layers) > 1
    typical = np.average(expected, weights=weights)
    assert 1 / calibration["weight"].sum().item() == pytest.approx(typical, rel=1e-4)
    assert calibration["network"] == pytest.approx(sum(1 / c["weight"].sum().item() for c in layers), rel=1e-4)

    stored_mean, stored_var = model.bn1.running_mean.numpy(), model.bn1.running_var.numpy() + model.bn1.eps
    z2 = (stored_mean - mean) ** 2 / scale
    offset = np.average(z2 + (stored_var / scale + z2 - 1) ** 2 / 2, weights=weights)
    assert calibration["offset"] == pytest.approx(offset / typical, rel=1e-4)

    classes = np.split(expected_output.argmax(1).numpy(), np.cumsum(sizes)[:-1])
    pairs = sum(len(part) - len(np.unique(part)) for part in classes)
    parts = zip(*(np.split(t, np.cumsum(sizes)[:-1]) for t in (m, square)), classes, strict=True)
    deviations = [
        [t[part == label] - t[part == label].mean(0) for t in (part_m, part_square)]
        for part_m, part_square, part in parts
        for label in np.unique(part)
    ]
    within = chance([np.concatenate(t) for t in zip(*deviations, strict=True)], pairs) if pairs else 0.75 * expected
    share = 1 - np.average(within, weights=weights) / np.average(expected, weights=weights)
    assert calibration["between"] == pytest.approx(max(share, 0.0), abs=1e-4)
    predbn.adapt(model, "prior")
    assert "bn1" in predbn.state_dict(model)["calibration"]
    predbn.restore(model, keep_calibration=False)
    predbn.adapt(model)
    assert predbn.state_dict(model)["calibration"] == {}
