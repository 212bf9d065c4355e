"""Conversions between layouts, and the step to 8 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from predbn.shifts.pixels import load_nchw, load_nhwc, opencv_threads, store_nchw, store_nhwc, to_uint8

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
FROZEN = IMAGES.copy()
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    "batch",
    [
        IMAGES,
        IMAGES[:, ::-1],
        FROZEN,
        torch.from_numpy(IMAGES).permute(0, 3, 1, 2),
        torch.from_numpy(IMAGES).permute(0, 3, 1, 2).contiguous(),
    ],
    ids=["array", "strided array", "read-only array", "strided tensor", "tensor"],
)
@pytest.mark.filterwarnings("error")
def test_round_trip(batch: np.ndarray | torch.Tensor) -> None:
    pixels = np.asarray(batch) if isinstance(batch, np.ndarray) else batch.permute(0, 2, 3, 1).numpy()
    for load, store, order in (
        (load_nchw, store_nchw, (0, 2, 3, 1)),
        (load_nhwc, store_nhwc, (0, 1, 2, 3)),
    ):
        x = load(batch)
        assert x.is_contiguous()
        assert np.array_equal(x.permute(*order).numpy(), pixels)
        back = np.zeros(batch.shape, np.uint8) if isinstance(batch, np.ndarray) else torch.zeros_like(batch)
        store(x, back)
        assert np.array_equal(np.asarray(back), np.asarray(batch))


def test_to_uint8_clips_truncates_and_keeps_integers() -> None:
    values = torch.tensor([-3.0, 0.0, 0.9, 6.9995, 7.0, 254.99, 255.0, 300.0])
    assert to_uint8(values).tolist() == [0, 0, 0, 7, 7, 254, 255, 255]


def test_only_large_images_are_worth_several_threads() -> None:
    assert opencv_threads(32, 32) == opencv_threads(64, 64) == 1
    assert opencv_threads(224, 224) == 12
