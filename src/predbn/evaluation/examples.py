"""Example pictures of a run: the first image of its data, clean and under each shift, small enough for a page.

They are kept with the results, so that a report can show them when the data is not at hand any more.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

import pyarrow as pa
from PIL import Image

from .source import PictureSource, Source
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


def add_examples(known: pa.Table, source: Source, splits: Iterable[Split]) -> pa.Table:
    """The table `known` with an example of each corruption at the highest of its severities, where one sees it best.

    They are the same whatever the plan's seeds are. Data without pictures adds nothing.
    """
    highest: dict[str, int] = {}
    for corruption, severity in splits if isinstance(source, PictureSource) else ():
        highest[corruption] = max(severity, highest.get(corruption, 0))
    rows = {row["corruption"]: row for row in known.to_pylist()}
    for split in map(Split._make, highest.items()):
        if split.corruption not in rows or rows[split.corruption]["severity"] < split.severity:
            rows[split.corruption] = {**split._asdict(), "png": _example(source, split)}
    return pa.Table.from_pylist(sorted(rows.values(), key=lambda row: row["corruption"]), EXAMPLES)


def _example(source: Source, split: Split) -> bytes:
    """The first image of the data under a split, as PNG."""
    batch = next(iter(source.stream(split, "official", seed=0, size=1)))
    picture = Image.fromarray(batch.inputs[0].permute(1, 2, 0).contiguous().cpu().numpy())
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=True)
    return content.getvalue()
