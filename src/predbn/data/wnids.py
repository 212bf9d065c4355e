"""The 1,000 classes of ImageNet, by their WordNet numbers: sorted, which is the order of every model's logits."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

__all__ = ["is_wnid", "wnids"]


@lru_cache(maxsize=1)
def wnids() -> tuple[str, ...]:
    """`n01440764` (tench) to `n15075141` (toilet tissue)."""
    return tuple((files("predbn.data") / "imagenet_wnids.txt").read_text("ascii").split())


def is_wnid(name: str) -> bool:
    """Whether a folder is named as a class is, be it one of the 1,000 or not."""
    return re.fullmatch(r"n\d{8}", name) is not None
