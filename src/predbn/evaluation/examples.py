"""Example pictures of a run, small enough for a page: the first image of its data, clean and under each shift; or of a
real shift, some of both sides.

They are kept with the results, so that a report can show them without the data.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import torch
from PIL import Image

from .source import DATA, REFERENCE, PictureSource, RealShiftSource, Source
from .splits import Split

EXAMPLES = pa.schema(
    [
        pa.field("corruption", pa.string(), nullable=False),
        pa.field("severity", pa.int64(), nullable=False),
        pa.field("png", pa.binary(), nullable=False),
    ]
)
"""One row per picture."""
MAX_SIDE = 96
PER_SIDE = 8
"""How many pictures of the reference and of the new data are kept."""


def add_examples(known: pa.Table, source: Source, splits: Iterable[Split]) -> pa.Table:
    """The table `known` with an example of each corruption at the highest of its severities, where one sees it best.

    They are the same whatever the plan's seeds are. Data without pictures adds nothing.
    """
    highest: dict[str, int] = {}
    for corruption, severity in splits if isinstance(source, PictureSource | RealShiftSource) else ():
        highest[corruption] = max(severity, highest.get(corruption, 0))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in known.to_pylist():
        rows.setdefault(row["corruption"], []).append(row)
    for split in map(Split._make, highest.items()):
        if split.corruption not in rows or rows[split.corruption][0]["severity"] < split.severity:
            count = PER_SIDE if split in (REFERENCE, DATA) else 1
            rows[split.corruption] = [{**split._asdict(), "png": png} for png in _examples(source, split, count)]
    return pa.Table.from_pylist([row for name in sorted(rows) for row in rows[name]], EXAMPLES)


def _examples(source: Source, split: Split, count: int) -> list[bytes]:
    """The first images of the data under a split, as PNG."""
    batch = next(iter(source.stream(split, "official", seed=0, size=count)))
    contents = []
    for image in batch.inputs[:count].cpu():
        pixels = image if len(image) == 3 else image[:1].expand(3, -1, -1)
        if pixels.is_floating_point():
            low, high = pixels.aminmax()
            pixels = (255 * (pixels - low) / (high - low).clamp(min=1e-12)).to(torch.uint8)
        picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
        picture.thumbnail((MAX_SIDE, MAX_SIDE))
        content = io.BytesIO()
        picture.save(content, "PNG", optimize=True)
        contents.append(content.getvalue())
    return contents
