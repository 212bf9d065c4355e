"""A calibration as a file: the model predicts as if it had been calibrated here."""

from __future__ import annotations

import pytest
import torch

import predbn
from predbn.common import AdaptationError
from predbn.serving import ServingError, load_calibration, save_calibration

from ..norm.models import net
from .running import classifier, pixels

CLEAN = [pixels(32, seed) for seed in (2, 3)]


@pytest.mark.parametrize("strategy", ["auto", "auto_stream"])
def test_a_loaded_calibration_is_the_measured_one(tmp_path, strategy):
    measured = predbn.calibrate(classifier(), CLEAN)
    save_calibration(measured, tmp_path / "c.safetensors")
    loaded = classifier()
    load_calibration(loaded, tmp_path / "c.safetensors")
    torch.testing.assert_close(loaded(pixels()), classifier()(pixels()))
    outputs = []
    for model in (measured, loaded):
        predbn.adapt(model, strategy)
        outputs.append([model(pixels(seed=seed)) for seed in range(3)])
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)


def test_what_cannot_be_used_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    with pytest.raises(ServingError, match=r"c.safetensors does not exist: write it with predbn calibrate"):
        load_calibration(classifier(), path)
    with pytest.raises(ServingError, match="the model is not calibrated"):
        save_calibration(predbn.adapt(classifier(), "train"), path)
    save_calibration(predbn.calibrate(classifier(), CLEAN), path)
    with pytest.raises(ServingError, match=r"is of another model: this one has no layer 'network.bn1'"):
        load_calibration(net(), path)
    wider = classifier()
    wider.network = net(width=12)
    with pytest.raises(AdaptationError, match=r"has 12 channels.* it belongs to another model"):
        load_calibration(wider, path)
