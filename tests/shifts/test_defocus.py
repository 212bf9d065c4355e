"""Both ways of filtering with a disk against OpenCV's filter."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from predbn.shifts.defocus import _by_spectrum, _kernel, _terms, defocus
from predbn.shifts.registry import get

CONSTANTS = get("defocus_blur").cifar + get("defocus_blur").imagenet


@pytest.mark.parametrize("c", CONSTANTS)
def test_the_kernel_has_a_whole_and_few_terms(c: tuple[float, float]) -> None:
    kernel = _kernel(*c)
    terms = _terms(*c, 50, torch.device("cpu"))
    assert abs(kernel.sum() - 1) < 0.02
    assert len(terms) <= c[0] + 1
    line = torch.zeros(50, 50)
    line[25, 25] = 1
    made = sum(rows.matrix @ line @ columns.matrix.T for (rows, _), (_, columns) in zip(terms, terms, strict=True))
    reach = len(kernel) // 2
    assert np.abs(np.asarray(made)[25 - reach : 26 + reach, 25 - reach : 26 + reach] - kernel).max() < 1e-6


@pytest.mark.parametrize("c", CONSTANTS)
@pytest.mark.parametrize("shape", [(70, 91), (113, 65)])
def test_both_ways_are_opencvs_filter(c: tuple[float, float], shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).random((2, 3, *shape), dtype=np.float32)
    wanted = np.stack([[cv2.filter2D(plane.astype(np.float64), -1, _kernel(*c)) for plane in one] for one in x])
    for made in (defocus(torch.from_numpy(x), *c), _by_spectrum(torch.from_numpy(x), *c)):
        assert np.abs(made.numpy() - wanted).max() < 1e-5
