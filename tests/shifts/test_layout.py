"""Layouts turn into each other and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from predbn.shifts.layout import load_pixels, load_planes, store_pixels, store_planes

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
        (load_planes, store_planes, (0, 2, 3, 1)),
        (load_pixels, store_pixels, (0, 1, 2, 3)),
    ):
        x = load(batch)
        assert x.is_contiguous()
        assert np.array_equal(x.permute(*order).numpy(), pixels)
        back = np.zeros(batch.shape, np.uint8) if isinstance(batch, np.ndarray) else torch.zeros_like(batch)
        store(x, back)
        assert np.array_equal(np.asarray(back), np.asarray(batch))
