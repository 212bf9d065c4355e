"""How far streams are off, measured for all of them at once."""

import pytest
import torch

import predbn
from predbn.norm import DriftMeter

from ..models import images, net

STRATEGIES = ("batch", "prior(N=4)", "ema", "auto", "auto_stream")


def adapted(strategy: str) -> torch.nn.Module:
    model = net()
    if "auto" in strategy:
        predbn.calibrate(model, [images(32, seed=seed) for seed in (7, 8)])
    return predbn.adapt(model, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_streams_that_are_predicted_together_are_measured_as_describe_does(strategy):
    batches = [images(n, seed=n, shift=n / 4) for n in (4, 2, 7)]
    together, meter = adapted(strategy), None
    meter = DriftMeter(together)
    with predbn.streams(together, [i for i, batch in enumerate(batches) for _ in batch]):
        together(torch.cat(batches))
        drift = meter.measure(13)
    assert [len(rows.unique(dim=0)) for rows in drift.seen.split([4, 2, 7])] == [1, 1, 1]
    for row, batch in zip(drift.seen[[0, 4, 6]], batches, strict=True):
        alone = adapted(strategy)
        alone(batch)
        expected = [layer.distance for layer in predbn.describe(alone)]
        assert row.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pass_of_one_stream_is_measured_too(strategy):
    model = adapted(strategy)
    meter = DriftMeter(model)
    model(images(6, shift=1.0))
    drift = meter.measure(6)
    assert drift.seen.shape == drift.used.shape == (6, len(meter.layers))
    assert drift.seen[0].tolist() == pytest.approx([layer.distance for layer in predbn.describe(model)], rel=1e-5)


def test_batch_uses_all_that_it_sees_and_prior_a_part():
    for strategy, believed in (("batch", 1.0), ("prior(N=6)", 0.5)):
        model = adapted(strategy)
        meter = DriftMeter(model)
        with predbn.streams(model, [0] * 6 + [1] * 6):
            model(images(12, shift=3.0))
            drift = meter.measure(12)
        ratio = (drift.used / drift.seen)[[0, 6], 0]  # mixtures of variances are not linear in the distance, but nearly
        assert ratio.tolist() == pytest.approx([believed, believed], abs=0.1 * (believed < 1) + 1e-4)


def test_nothing_is_known_about_a_plain_model():
    model = adapted("train")
    meter = DriftMeter(model)
    model(images())
    drift = meter.measure(8)
    assert drift.seen.isnan().all()
    assert drift.used.isnan().all()


def test_streams_are_measured_in_their_block():
    model = adapted("batch")
    meter = DriftMeter(model)
    with predbn.streams(model, [0, 0, 1, 1]):
        model(images(4))
    with pytest.raises(predbn.AdaptationError, match="in their block"):
        meter.measure(4)
