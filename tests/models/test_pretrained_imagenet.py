"""The paper's outside ImageNet models, built without their weights: preprocessing as timm does it, and conversion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from predbn.data import read_picture, resize_crop
from predbn.models.preprocessing import Normalise
from predbn.models.pretrained import timm_preprocessing

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
