"""A picture in the body of a request as one row for the model."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from predbn.data import PICTURE_ERRORS, as_rgb, resize_crop

from .errors import RequestError
from .model_spec import ModelSpec
from .tensors import Array

FORMATS = ("JPEG", "PNG")


def picture_row(content: bytes, spec: ModelSpec, max_pixels: int) -> Array:
    """The pixels of a JPEG or PNG, resized and cropped as the model needs them, uint8 [1, 3, H, W].

    Its size is read from its header and compared with the limit before anything is unpacked.
    """
    preprocessing = spec.preprocessing
    if preprocessing is None:
        raise RequestError(404, f"model '{spec.name}' does not take pictures: use /v2/models/{spec.name}/infer.")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            width, height = opened.size
            crop = resize_crop(preprocessing.size, preprocessing.resize, preprocessing.interpolation)
            assert crop is not None
            resized_width, resized_height = crop.resized(width, height)  # a picture of 1 × 100,000 pixels becomes huge
            if max(width * height, resized_width * resized_height) > max_pixels:
                raise RequestError(
                    413, f"the picture has {width}×{height} pixels and the limit is {max_pixels}: send a smaller one."
                )
            pixels: Array = np.asarray(crop(as_rgb(opened)))
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise RequestError(
            415, "the body is not a picture: send a JPEG or PNG file, as curl --data-binary does."
        ) from None
    except Image.DecompressionBombError:  # a limit of Pillow's own
        raise RequestError(
            413, f"the picture has too many pixels and the limit is {max_pixels}: send a smaller one."
        ) from None
    except PICTURE_ERRORS:
        raise RequestError(422, "the picture is damaged or cut off: send it again.") from None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
