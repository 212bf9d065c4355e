"""Decode a picture in the body of a request."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from predbn.data import PICTURE_ERRORS, as_pixels

from .errors import RequestError
from .model_spec import ModelSpec
from .tensors import Array

FORMATS = ("JPEG", "PNG")
_START_OF_SCAN = b"\xff\xda"
_MAX_SCANS = 100
"""Scans of a progressive JPEG with as many pixels as are allowed; one with fewer pixels may have more.

Each of them goes over all pixels, and takes as little as ten bytes: a small file could take hours. Usual are ten.
"""


def picture_row(content: bytes | bytearray, spec: ModelSpec, max_pixels: int) -> Array:
    """The pixels of a JPEG or PNG after the model's resizing and cropping, uint8 [1, C, H, W].

    The size is read from the header and checked before anything is decoded.
    """
    preprocessing = spec.preprocessing
    if preprocessing is None:
        raise RequestError(404, f"model '{spec.name}' does not take pictures: use /v2/models/{spec.name}/infer.")
    too_large = RequestError(413, f"the picture has more than {max_pixels} pixels: send a smaller one.")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            width, height = opened.size
            crop = preprocessing.crop
            resized_width, resized_height = crop.resized(width, height)  # 1 × 100,000 pixels become huge
            if max(width * height, resized_width * resized_height) > max_pixels:
                raise too_large
            scans = 0 if opened.format == "PNG" else content.count(_START_OF_SCAN)
            if scans * width * height > _MAX_SCANS * max_pixels:
                raise RequestError(413, f"the picture has {scans} scans: save it without progressive encoding.")
            pixels: Array = np.asarray(crop(as_pixels(opened, crop.channels)))
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise RequestError(415, "the body is not a picture: send a JPEG or PNG file.") from None
    except Image.DecompressionBombError:  # Pillow has a limit too
        raise too_large from None
    except PICTURE_ERRORS:
        raise RequestError(422, "the picture is damaged or cut off: send it again.") from None
    return np.ascontiguousarray(np.atleast_3d(pixels).transpose(2, 0, 1)[None])
