"""The content of a picture file: opening it, its pixels with 8 bits, and the checksum of those that predbn writes."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from predbn.common import CHECKSUM_FIELD, DataError, has_right_checksum

from .reading import check_regular, in_one_line, why_too_large, why_unreadable

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are tried, whatever the suffix says. Some others of Pillow run a program to read a file."""

PICTURE_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""What Pillow raises if a file is not a picture, or a damaged one."""

_CHECKSUM_NAME = CHECKSUM_FIELD.partition(":")[0].encode()
_HEAD = 256
"""The checksum of a JPEG is in so many bytes at its beginning."""

_BITS_PER_SAMPLE, _PHOTOMETRIC, _BLACK_IS_ZERO = 258, 262, 1


class PictureError(DataError):
    """A picture that cannot be used."""

    def __init__(self, path: str | Path, reason: str, remedy: str = "replace it") -> None:
        super().__init__(path, reason, remedy)
        self.path, self.reason, self.remedy = path, reason, remedy

    def __str__(self) -> str:
        return f"{self.path} cannot be read as a picture: {self.reason}; {self.remedy}."


@contextmanager
def open_picture(path: str | Path) -> Iterator[Image.Image]:
    """Open a picture whose file and pixels are within the limit; anything wrong with it is a PictureError."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            check_memory(path, os.fstat(file.fileno()).st_size)
            with Image.open(_checked(path, file), formats=FORMATS) as opened:
                check_memory(path, 3 * opened.width * opened.height)
                if not min(opened.size):
                    raise PictureError(path, "it has no pixels")
                yield opened
    except DataError:
        raise
    except UnidentifiedImageError:
        raise PictureError(path, f"it is none of {', '.join(FORMATS)}, or damaged") from None
    except Image.DecompressionBombError:
        raise PictureError(path, "it unpacks to more pixels than Pillow allows") from None
    except PICTURE_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise PictureError(path, *why_unreadable(error)) from None
        raise PictureError(path, in_one_line(error)) from None


def check_memory(path: str | Path, size: int) -> None:
    """Raise a PictureError if `size` bytes are more than the limit."""
    problem = why_too_large(size)
    if problem is not None:
        raise PictureError(path, *problem)


def as_pixels(picture: Image.Image, channels: int = 3) -> Image.Image:
    """The picture with 8 bits per channel: RGB, or grey if one channel is wanted.

    Of 16 bits the upper 8 are kept, as Pillow does with colours; it cuts off grey values above 255 instead. Wider
    numbers have no agreed range, so they are a ValueError.
    """
    mode = {1: "L", 3: "RGB"}.get(channels)
    if mode is None:
        raise ValueError(f"it has 1 or 3 channels and the model takes {channels}, so give a .npy file")
    # Old versions of Pillow open grey PNG files of 16 bits as "I".
    is_deep = picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM"))
    tags = getattr(picture, "tag_v2", {})
    is_usual = tags.get(_BITS_PER_SAMPLE, (16,)) == (16,) and tags.get(_PHOTOMETRIC, _BLACK_IS_ZERO) == _BLACK_IS_ZERO
    if is_deep and is_usual:
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert(mode)
    if is_deep or picture.mode in ("I", "F"):
        raise ValueError("it has grey values whose range is unknown, so convert it to 8 bits")
    return picture.convert(mode)


def add_checksum_field(jpeg: bytes) -> bytes:
    """The same JPEG with room for a checksum in a comment, for `atomic_write`."""
    first_segment_ends = 4 + int.from_bytes(jpeg[4:6], "big")
    field = CHECKSUM_FIELD.encode()
    comment = b"\xff\xfe" + (2 + len(field)).to_bytes(2, "big") + field
    return jpeg[:first_segment_ends] + comment + jpeg[first_segment_ends:]


def _checked(path: str | Path, file: IO[bytes]) -> IO[bytes]:
    """The file, or its content if that has a checksum, which is compared."""
    has_checksum = _CHECKSUM_NAME in file.read(_HEAD)
    file.seek(0)
    if not has_checksum:
        return file
    content = io.BytesIO(file.read())
    if not has_right_checksum(content):
        reason, remedy = "it is damaged", "run the predbn corrupt that wrote it again"
        raise PictureError(path, reason, remedy)
    content.seek(0)
    return content
