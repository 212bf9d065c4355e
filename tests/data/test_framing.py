"""Framing against torchvision's transforms, which timm uses as well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from predbn.common.errors import DataError
from predbn.data.framing import Framing, _framed, frame, read_picture

from .folders import pixels_of

transforms = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")

SIDE = st.integers(1, 60)


@given(
    SIDE, SIDE, st.integers(1, 40), st.integers(0, 20), st.sampled_from(["bilinear", "bicubic", "lanczos", "nearest"])
)
def test_it_is_what_torchvision_does(height, width, size, more, interpolation):
    picture = Image.fromarray(pixels_of(0, height, width))
    framed = _framed(picture, Framing((size, size), size + more, interpolation))
    wanted = picture
    if picture.size != (size, size):
        mode = transforms.InterpolationMode(interpolation)
        wanted = transforms.CenterCrop(size)(transforms.Resize(size + more, mode)(picture))
    assert np.array_equal(np.asarray(framed), np.asarray(wanted))


@given(SIDE, SIDE, st.integers(1, 40), st.integers(1, 40))
def test_any_size_is_covered(height, width, rows, columns):
    framing = frame((rows, columns))
    picture = Image.new("RGB", (width, height), (255, 255, 255))
    found = np.asarray(_framed(picture, framing))
    assert found.shape == (rows, columns, 3)
    assert (found == 255).all()


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "1"])
def test_every_kind_of_picture_becomes_rgb(tmp_path, mode):
    path = tmp_path / f"picture.{'tiff' if mode == 'CMYK' else 'png'}"
    picture = Image.fromarray(pixels_of(1)).convert(mode)
    picture.save(path)
    assert np.array_equal(read_picture(path), np.asarray(picture.convert("RGB")))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0,), "size is 0"),
        ((None, 256), "resize is 256, but there is no size"),
        ((224, 200), "resize is 200, but 224 pixels"),
        ((224, 256, "cubic"), "interpolation is 'cubic', but must be one of bilinear"),
    ],
)
def test_what_cannot_be_is_refused(arguments, says):
    with pytest.raises(DataError, match=says):
        frame(*arguments)


def test_without_a_size_pictures_stay_as_they_are():
    assert frame(None) is None
    assert frame(224) == Framing((224, 224), 224, "bilinear")
