"""One picture that shows all corruptions at all severities."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from predbn.common import DataError, write_bytes
from predbn.shifts import corrupt, names

from .imagenetc import PUBLISHED_CROP
from .pictures import read_picture
from .shifted import SEVERITIES

_LABEL, _TOP, _GAP = 150, 24, 4


def sample_image(side: int = 224) -> npt.NDArray[np.uint8]:
    """A small scene with the features that corruptions affect: smooth areas, hard edges, stripes, strong colours."""
    y, x = np.mgrid[0:side, 0:side] / side
    sky = np.stack([90 + 120 * y, 150 + 70 * y, 235 - 30 * y], axis=2)
    hill = (y > 0.62 + 0.08 * np.sin(7 * x))[..., None]
    grass = np.stack([60 + 50 * x, 120 + 40 * np.sin(40 * x * y), 50 + 0 * x], axis=2)
    picture = Image.fromarray(np.where(hill, grass, sky).astype(np.uint8))
    pen = ImageDraw.Draw(picture)

    def scaled(*corners: float) -> list[float]:
        return [side * corner for corner in corners]

    pen.ellipse(scaled(0.72, 0.08, 0.9, 0.26), fill=(255, 225, 80))
    pen.rectangle(scaled(0.2, 0.42, 0.55, 0.8), fill=(205, 75, 55))
    pen.polygon(scaled(0.15, 0.42, 0.375, 0.2, 0.6, 0.42), fill=(70, 50, 60))
    pen.rectangle(scaled(0.27, 0.5, 0.36, 0.62), fill=(250, 245, 210))
    pen.rectangle(scaled(0.42, 0.58, 0.5, 0.8), fill=(50, 90, 160))
    for stripe in range(9):
        left = 0.65 + 0.03 * stripe
        pen.rectangle(scaled(left, 0.66, left + 0.014, 0.86), fill=(245, 245, 245))
    return np.asarray(picture)


def _format(out: Path) -> str:
    """The picture format for the suffix of the file."""
    formats = Image.registered_extensions()
    if out.suffix.lower() not in formats:
        raise DataError(f"{out} does not have the suffix of a picture: use .png, .jpg or .webp.")
    return formats[out.suffix.lower()]


def write_preview(out: Path, image: Path | None = None, *, seed: int = 0, constants: Any = "auto") -> None:
    """Write a grid with one row per corruption and one column per severity, of a picture or by default of a drawing."""
    picture_format = _format(out)
    clean = sample_image() if image is None else read_picture(image, PUBLISHED_CROP)
    side = clean.shape[0]
    step = side + _GAP
    rows = names("all")
    sheet = Image.new("RGB", (_LABEL + 6 * step, _TOP + len(rows) * step), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(14)
    for column, title in enumerate(["clean", *(f"severity {severity}" for severity in SEVERITIES)]):
        pen.text((_LABEL + column * step, 4), title, fill="black", font=font)
    for row, name in enumerate(rows):
        top = _TOP + row * step
        pen.text((4, top + side // 2), name, fill="black", font=font)
        sheet.paste(Image.fromarray(clean), (_LABEL, top))
        for severity in SEVERITIES:
            corrupted = corrupt(clean[None], name, severity, seed=seed, index=[0], constants=constants)[0]
            sheet.paste(Image.fromarray(corrupted), (_LABEL + severity * step, top))
    content = io.BytesIO()
    sheet.save(content, picture_format, quality=85)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, content.getvalue())
