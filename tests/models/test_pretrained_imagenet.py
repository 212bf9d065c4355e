"""The paper's outside ImageNet models, built without their weights: preprocessing as timm does it, and conversion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import predbn
from predbn.data import class_mask, read_picture, resize_crop, wnids
from predbn.models import Classifier, ModelInfo, restrict
from predbn.models.preprocessing import Normalise
from predbn.models.pretrained import load_timm, timm_preprocessing

timm = pytest.importorskip("timm", reason="timm is not installed")

NAMES = ["densenet121.tv_in1k", "resnet50.tv_in1k", "resnet50.a1_in1k", "tf_efficientnet_b7.ns_jft_in1k"]


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_prepared_as_timm_does(name, tmp_path):
    """From the file to the network's input, the whole way: decoding, resizing, cropping, scaling."""
    from timm.data import create_transform, resolve_data_config

    config = resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())
    path = tmp_path / "picture.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)).save(path)
    with Image.open(path) as picture:
        expected = create_transform(**config, is_training=False)(picture.convert("RGB"))
    result = timm_preprocessing(config)
    pixels = read_picture(path, resize_crop(result.size, result.resize, result.interpolation))
    ours = Normalise(result)(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None])[0]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["densenet121", "tf_efficientnet_b0"])
@torch.no_grad()
def test_adapted_and_restricted_to_the_classes_of_the_data(name):
    network, classes, preprocessing = load_timm(name, pretrained=False)
    small = type(preprocessing)((32, 32), preprocessing.mean, preprocessing.std)
    model = Classifier(network, ModelInfo(f"timm:{name}", classes, small)).eval()
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    chosen = list(range(1, 1000, 5))
    masked = restrict(model, class_mask([wnids()[k] for k in chosen]))
    plain = model(images)
    predbn.adapt(masked, "batch")
    adapted = masked(images)
    assert adapted.shape == (2, 200)
    assert torch.equal(adapted, model(images)[:, chosen])
    assert not torch.allclose(adapted, plain[:, chosen])
    predbn.restore(masked)
    assert torch.equal(masked(images), plain[:, chosen])


def test_every_batch_norm_of_noisy_student_is_found():
    """EfficientNet-B7 has 66 million parameters: on the meta device none of them is drawn."""
    with torch.device("meta"):
        network = timm.create_model("tf_efficientnet_b7", pretrained=False)
    expected = [name for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)]
    described = predbn.describe(predbn.adapt(network.eval(), "batch"))
    assert len(expected) > 100
    assert all(name in str(described) for name in expected)
